package inbound

import (
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"toolfinch/internal/discovery"
	"toolfinch/internal/leeway"
	"toolfinch/internal/limit"
	"toolfinch/internal/printable"
)

const (
	maxJWKS = 100  // keys of an issuer
	minRSA  = 2048 // bits

	askFor = 5 * time.Second // timeout of a request to an issuer

	keysFresh = time.Hour   // age at which an issuer's keys are fetched again
	keysRetry = time.Minute // least pause between fetches, also for an unknown key
	coldRetry = 5 * time.Second
)

// issuer has the keys of one authorization server. While it cannot be reached, its last keys are used.
type issuer struct {
	Issuer
	client  *http.Client
	log     *slog.Logger
	now     func() time.Time
	waiting *limit.Limit // bounds waiting requests, of all issuers together

	asking chan struct{} // holds one element while the issuer is asked

	mu    sync.Mutex          // guards the fields below; held for assignments only
	about *discovery.Metadata // nil: never fetched
	keys  []jose.JSONWebKey
	got   time.Time // last successful fetch of keys; zero: never
	tried time.Time // last attempt to fetch them
}

func newIssuer(settings Issuer, agent string, log *slog.Logger, now func() time.Time, waiting *limit.Limit) *issuer {
	own, _ := url.Parse(settings.URL)
	// The issuer's documents must not lead to private addresses, unless the owner allowed that or configured an
	// issuer on this machine.
	client := discovery.NewClient(discovery.Rules{
		Local: own != nil && discovery.IsLoopback(own.Hostname()), AllowPrivate: settings.AllowPrivate, Timeout: leeway.Of(askFor), Agent: agent,
	})
	i := &issuer{Issuer: settings, client: client, log: log.With("issuer", settings.URL), now: now, waiting: waiting, asking: make(chan struct{}, 1)}
	if len(settings.Algorithms) == 0 {
		i.Algorithms = DefaultAlgorithms
	}
	return i
}

// errNoKeys says that the keys of an issuer were never fetched.
var errNoKeys = errors.New("the keys of the issuer cannot be had")

// named returns the keys with an ID, or all keys for "". If there are none, it asks the issuer again, unless the last
// attempt was too recent. The error is errNoKeys, a *limit.Error if too many requests wait, or the error of ctx.
func (i *issuer) named(ctx context.Context, id string) ([]jose.JSONWebKey, error) {
	found, got := i.known(id)
	if len(found) > 0 {
		return found, nil
	}
	if err := i.waiting.Take(1); err != nil {
		return nil, err
	}
	defer i.waiting.Release(1)
	pause := keysRetry
	if got.IsZero() {
		pause = coldRetry
	}
	if err := i.refresh(ctx, pause); err != nil {
		return nil, err
	}
	if found, got = i.known(id); got.IsZero() {
		return nil, errNoKeys
	}
	return found, nil
}

func (i *issuer) known(id string) (found []jose.JSONWebKey, got time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, key := range i.keys {
		if id == "" || key.KeyID == id {
			found = append(found, key)
		}
	}
	return found, i.got
}

// refresh fetches the keys of the issuer, unless the last attempt was less than pause ago. Concurrent callers wait
// for the running fetch. The error is the error of ctx.
func (i *issuer) refresh(ctx context.Context, pause time.Duration) error {
	select {
	case i.asking <- struct{}{}:
		defer func() { <-i.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	i.mu.Lock()
	early := !i.tried.IsZero() && i.now().Sub(i.tried) < pause
	if !early {
		i.tried = i.now()
	}
	i.mu.Unlock()
	if early {
		return nil
	}
	// All requests use the keys: the fetch does not end with the request that began it.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*leeway.Of(askFor))
	defer cancel()
	about, keys, err := i.ask(asking)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.log.Warn("the keys of the issuer cannot be had; those known are taken", "error", err, "known", len(i.keys))
		return nil
	}
	if i.got.IsZero() {
		i.log.Info("keys of the issuer", "keys", len(keys))
	}
	i.about, i.keys, i.got = about, keys, i.now()
	return nil
}

// stale reports whether the keys must be fetched again.
func (i *issuer) stale() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now().Sub(i.got) > keysFresh
}

func (i *issuer) ask(ctx context.Context) (*discovery.Metadata, []jose.JSONWebKey, error) {
	about, err := discovery.Find(ctx, i.client, i.URL, i.is)
	if err != nil {
		return about, nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := discovery.Get(ctx, i.client, about.JWKSURI, &set); err != nil {
		return about, nil, fmt.Errorf("jwks_uri: %w", err)
	}
	if len(set.Keys) > maxJWKS {
		return about, nil, fmt.Errorf("jwks_uri: %d keys are more than %d", len(set.Keys), maxJWKS)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys { // one by one: a key of an unknown kind must not cost the other keys
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) == nil && usable(key) {
			keys = append(keys, key.Public())
		}
	}
	if len(keys) == 0 {
		return about, nil, errors.New("jwks_uri: there is no public key for signatures")
	}
	return about, keys, nil
}

// usable reports whether a key can verify signatures. Shared secrets, encryption keys and short keys cannot.
func usable(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || !key.Valid() {
		return false
	}
	switch public := key.Public().Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSA
	case ed25519.PublicKey:
		return true
	case nil:
		return false
	default:
		return !isShared(key)
	}
}

func isShared(key jose.JSONWebKey) bool { _, shared := key.Key.([]byte); return shared }

// is returns an error if metadata is not the issuer's, or lacks what we need.
func (i *issuer) is(about *discovery.Metadata) error {
	switch {
	case about.Issuer != i.URL:
		return fmt.Errorf("it says that the issuer is %q", printable.Line(about.Issuer[:min(len(about.Issuer), 200)]))
	case about.JWKSURI == "":
		return errors.New("it has no jwks_uri")
	}
	return nil
}

// introspect asks the issuer for the claims of an opaque token (RFC 7662). claims is nil if the token is not active.
// The error is a *limit.Error if too many requests wait.
func (i *issuer) introspect(ctx context.Context, token string) (claims map[string]any, err error) {
	if err := i.waiting.Take(1); err != nil {
		return nil, err
	}
	defer i.waiting.Release(1)
	to := i.Introspect.URL
	if to == "" {
		if _, got := i.known(""); got.IsZero() {
			if err := i.refresh(ctx, coldRetry); err != nil {
				return nil, err
			}
		}
		i.mu.Lock()
		if i.about != nil {
			to = i.about.IntrospectionEndpoint
		}
		i.mu.Unlock()
		if to == "" {
			return nil, errors.New("no introspection_endpoint is known")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(askFor))
	defer cancel()
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(url.QueryEscape(i.Introspect.ClientID), url.QueryEscape(i.Introspect.ClientSecret))
	if err := discovery.Read(i.client, r, &claims); err != nil {
		return nil, err
	}
	if claims["active"] != true {
		return nil, nil
	}
	return claims, nil
}
