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

	lru "github.com/hashicorp/golang-lru/v2"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
)

// KeyStore stores API keys.
type KeyStore interface {
	// All returns all keys. Some may have expired.
	All(ctx context.Context) ([]identity.Key, error)
	// Find returns the key with a hash, or nil. The key may have expired.
	Find(ctx context.Context, hash [32]byte) (*identity.Key, error)
	// Used stores when keys were used last, by hash.
	Used(ctx context.Context, used map[[32]byte]time.Time) error
}

const (
	keyPrefix = "tfkey_" // lets people, and scanners for secrets, recognize a key

	// keyFresh is how long a key is accepted or refused without reading the store. It bounds how late a new or
	// revoked key is noticed.
	keyFresh = time.Second
	// keyStale is how long a key is accepted while the store cannot be read.
	keyStale = 15 * time.Minute
	// keyWait bounds how long a request with a known key waits for the store.
	keyWait = 300 * time.Millisecond
)

// NewKey makes an API key of 260 random bits, and the hash that is stored.
func NewKey() (key string, hash [32]byte) {
	key = keyPrefix + strings.ToLower(rand.Text()+rand.Text())
	return key, sha256.Sum256([]byte(key))
}

// keys caches API keys.
type keys struct {
	store  KeyStore
	heard  func() bool // as Options.Heard
	log    *slog.Logger
	now    func() time.Time
	recent *lru.Cache[[32]byte, knownKey]
	forgot atomic.Int64              // counts calls of Forget
	told   atomic.Pointer[time.Time] // last time at which heard was true, to within keyFresh; nil: never
	all    atomic.Int64              // forgot at the last complete learn; keys cached earlier only were revoked
	again  chan struct{}             // holds one signal: keys were made or revoked

	mu   sync.Mutex // guards used; held for assignments only
	used map[[32]byte]time.Time
}

// knownKey is a key as it was read from the store.
type knownKey struct {
	key       *identity.Key       // nil: the store has none
	principal *identity.Principal // nil without a key
	at        time.Time
	forgot    int64 // keys.forgot when it was read
}

// find proves a key, and notes its use.
func (k *keys) find(ctx context.Context, hash [32]byte) (*identity.Principal, *refusal) {
	p, refused := k.look(ctx, hash)
	if refused == nil {
		k.mu.Lock()
		k.used[hash] = k.now() // has at most one entry for each key
		k.mu.Unlock()
	}
	return p, refused
}

// look proves a key, and notes no use.
func (k *keys) look(ctx context.Context, hash [32]byte) (*identity.Principal, *refusal) {
	now, forgot := k.now(), k.forgot.Load()
	known, ok := k.recent.Get(hash)
	if fresh, stale := k.age(known, now); !ok || !fresh {
		asking, cancel := ctx, context.CancelFunc(func() {})
		if ok && !stale {
			asking, cancel = context.WithTimeout(ctx, leeway.Of(keyWait))
		}
		key, err := k.store.Find(asking, hash)
		cancel()
		switch {
		case err != nil && (!ok || stale || known.forgot < k.all.Load()):
			k.log.Warn("API keys cannot be checked", "error", err)
			return nil, unavailable("API keys cannot be checked now")
		case err == nil:
			known = know(key, now, forgot)
			k.recent.Add(hash, known)
		}
	}
	switch {
	case known.key == nil:
		return nil, invalid(UnknownKey, "this API key is not known: it may have been revoked")
	case known.key.Expired(now):
		return nil, invalid(Expired, "this API key has expired")
	}
	return known.principal, nil
}

// age reports whether a cached key is fresh or stale. A fresh key counts without reading the store. A stale key does
// not count even if the store cannot be read.
func (k *keys) age(known knownKey, now time.Time) (fresh, stale bool) {
	since, same := now.Sub(known.at), known.forgot == k.forgot.Load()
	if same && k.heard != nil {
		told := k.told.Load()
		if told != nil {
			since = min(since, now.Sub(*told))
		}
		if k.heard() {
			if since > keyFresh {
				at := now // so that other calls allocate nothing
				k.told.Store(&at)
			}
			return true, false
		}
	}
	return same && since <= keyFresh, since > keyStale
}

// know makes the cache entry of a key; the key is nil if the store has none.
func know(key *identity.Key, at time.Time, forgot int64) knownKey {
	known := knownKey{key: key, at: at, forgot: forgot}
	if key != nil {
		known.principal = key.Principal()
	}
	return known
}

// learn caches all keys, so that even unused keys count while the store cannot be read.
func (k *keys) learn(ctx context.Context) error {
	now, forgot := k.now(), k.forgot.Load()
	all, err := k.store.All(ctx)
	for _, key := range all[:min(len(all), maxKeysKnown/2)] {
		k.recent.Add(key.Hash, know(&key, now, forgot))
	}
	if err == nil && len(all) <= maxKeysKnown/2 {
		k.all.Store(forgot)
	}
	return err
}

// Forget makes the gate read API keys again, because some were made or revoked. While the store cannot be read,
// cached keys still count.
func (g *Gate) Forget() {
	g.keys.forgot.Add(1)
	select {
	case g.keys.again <- struct{}{}:
	default:
	}
}

// good reports whether the store had a key at the last look-up.
func (k *keys) good(hash [32]byte) bool {
	known, ok := k.recent.Get(hash)
	return ok && known.key != nil
}

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

// CheckKeyName returns an error if a key cannot have a name.
func CheckKeyName(name string) error {
	const most = 64
	if name == "" || len(name) > most || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '|' }) {
		return fmt.Errorf("the name of a key has 1 to %d letters, digits and signs, without spaces and |", most)
	}
	return nil
}
