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

// KeyStore keeps API keys.
type KeyStore interface {
	// All returns all keys. Some may have expired.
	All(ctx context.Context) ([]identity.Key, error)
	// Find returns the key with a hash, nil where there is none. It may have expired.
	Find(ctx context.Context, hash [32]byte) (*identity.Key, error)
	// Used notes when keys were used last, by hash.
	Used(ctx context.Context, used map[[32]byte]time.Time) error
}

const (
	keyPrefix = "tfkey_" // so that scanners for secrets, and people, know one

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
	recent *lru.Cache[[32]byte, knownKey]
	forgot atomic.Int64              // how often some were made or revoked
	told   atomic.Pointer[time.Time] // when all of that was heard of, to keyFresh; nil: never
	all    atomic.Int64              // forgot when all keys were learned last: what is known from before was revoked
	again  chan struct{}             // holds one signal: all keys are to be learned

	mu   sync.Mutex // guards used; held for assignments only
	used map[[32]byte]time.Time
}

// knownKey is a key as it was in the store.
type knownKey struct {
	key       *identity.Key       // nil: there was none
	principal *identity.Principal // nil likewise
	at        time.Time
	forgot    int64 // as of keys, then
}

// find proves a key that is used.
func (k *keys) find(ctx context.Context, hash [32]byte) (*identity.Principal, *refusal) {
	p, refused := k.look(ctx, hash)
	if refused == nil {
		k.mu.Lock()
		k.used[hash] = k.now() // as many at most as there are keys
		k.mu.Unlock()
	}
	return p, refused
}

// look proves a key.
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

// age reports whether what is known of a key counts without a look at the store, or not even
// while that cannot be read.
func (k *keys) age(known knownKey, now time.Time) (fresh, stale bool) {
	since, same := now.Sub(known.at), known.forgot == k.forgot.Load()
	if same && k.heard != nil {
		told := k.told.Load()
		if told != nil {
			since = min(since, now.Sub(*told))
		}
		if k.heard() {
			if since > keyFresh {
				at := now // else each call would allocate it
				k.told.Store(&at)
			}
			return true, false
		}
	}
	return same && since <= keyFresh, since > keyStale
}

// know is what is known of a key that the store had at a time; nil for none.
func know(key *identity.Key, at time.Time, forgot int64) knownKey {
	known := knownKey{key: key, at: at, forgot: forgot}
	if key != nil {
		known.principal = key.Principal()
	}
	return known
}

// learn knows all keys from now on, so that they count while the store is away, whether they were
// used before or not.
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

// Forget has keys looked up again: some were made or revoked. While the store cannot be read, what
// is known of them counts on.
func (g *Gate) Forget() {
	g.keys.forgot.Add(1)
	select {
	case g.keys.again <- struct{}{}:
	default:
	}
}

// good reports whether a key was known when the store was looked at last.
func (k *keys) good(hash [32]byte) bool {
	known, ok := k.recent.Get(hash)
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
