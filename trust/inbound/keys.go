package inbound

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/trust"
)

// KeyStore keeps API keys.
type KeyStore interface {
	// Find returns the key with a hash, nil where there is none. It may have expired.
	Find(ctx context.Context, hash [32]byte) (*trust.Key, error)
	// Used notes when keys were used last, by hash.
	Used(ctx context.Context, used map[[32]byte]time.Time) error
}

const (
	keyPrefix    = "tfkey_" // so that scanners for secrets, and people, know one
	keyPrincipal = "key|"

	// keyFresh is how long a key is taken, or refused, without a look at the store: so long
	// it takes at most until one that was made or revoked is noticed.
	keyFresh = time.Second
	// keyStale is how long a key is taken while the store cannot be read.
	keyStale = 15 * time.Minute
	// keyWait bounds how long a call waits for the store where its key is known.
	keyWait = 300 * time.Millisecond
)

// NewKey makes an API key, of 260 random bits, and what is stored of it.
func NewKey() (key string, hash [32]byte) {
	key = keyPrefix + strings.ToLower(rand.Text()+rand.Text())
	return key, sha256.Sum256([]byte(key))
}

// keys knows API keys.
type keys struct {
	store  KeyStore
	heard  func() bool // as of Options
	log    *slog.Logger
	now    func() time.Time
	recent *recent[[32]byte, knownKey]
	forgot atomic.Int64 // how often recent was cleared

	mu   sync.Mutex // guards used; held for assignments only
	used map[[32]byte]time.Time
}

// knownKey is a key as it was in the store.
type knownKey struct {
	key       *trust.Key       // nil: there was none
	principal *trust.Principal // nil likewise
	at        time.Time
}

// find proves a key that is used.
func (k *keys) find(ctx context.Context, hash [32]byte) (*trust.Principal, *refusal) {
	p, refused := k.look(ctx, hash)
	if refused == nil {
		k.mu.Lock()
		k.used[hash] = k.now() // as many at most as there are keys
		k.mu.Unlock()
	}
	return p, refused
}

// look proves a key.
func (k *keys) look(ctx context.Context, hash [32]byte) (*trust.Principal, *refusal) {
	now := k.now()
	known, ok := k.recent.get(hash)
	if !ok || now.Sub(known.at) > keyFresh && (k.heard == nil || !k.heard()) {
		forgot := k.forgot.Load()
		asking, cancel := ctx, context.CancelFunc(func() {})
		if ok && now.Sub(known.at) <= keyStale {
			asking, cancel = context.WithTimeout(ctx, keyWait)
		}
		key, err := k.store.Find(asking, hash)
		cancel()
		switch {
		case err != nil && (!ok || now.Sub(known.at) > keyStale):
			k.log.Warn("API keys cannot be checked", "error", err)
			return nil, unavailable("API keys cannot be checked now")
		case err == nil:
			known = knownKey{key: key, at: now}
			if key != nil {
				known.principal = &trust.Principal{ID: keyPrincipal + key.Name, Groups: key.Groups, Scopes: key.Scopes, View: key.View}
			}
			k.recent.put(hash, known)
			if k.forgot.Load() != forgot { // what was read may be from before
				k.recent.drop(hash)
			}
		}
	}
	switch {
	case known.key == nil:
		return nil, invalid(UnknownKey, "this API key is not known: it may have been revoked")
	case !known.key.Expires.IsZero() && !now.Before(known.key.Expires):
		return nil, invalid(Expired, "this API key has expired")
	}
	return known.principal, nil
}

// Forget has keys looked up again: some were made or revoked.
func (g *Gate) Forget() {
	g.keys.forgot.Add(1)
	g.keys.recent.clear()
}

// good reports whether a key was known when the store was looked at last.
func (k *keys) good(hash [32]byte) bool {
	known, ok := k.recent.get(hash)
	return ok && known.key != nil
}

// flush notes in the store when keys were used last.
func (k *keys) flush(ctx context.Context) {
	k.mu.Lock()
	used := k.used
	k.used = map[[32]byte]time.Time{}
	k.mu.Unlock()
	if len(used) == 0 {
		return
	}
	if err := k.store.Used(ctx, used); err != nil {
		k.log.Warn("the last use of API keys could not be noted", "error", err)
	}
}

// CheckKeyName says why a name is none for a key.
func CheckKeyName(name string) error {
	const most = 64
	if name == "" || len(name) > most || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '|' }) {
		return fmt.Errorf("the name of a key has 1 to %d letters, digits and signs, without spaces and |", most)
	}
	return nil
}
