// Package output keeps large results of tools: a client gets the beginning and a token, and reads the
// rest with the tool read_output. It neither decides which results are large nor where they are kept.
package output

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/limit"
	"toolfinch/tool"
)

// Settings say which results are kept.
type Settings struct {
	MinSize int           // bytes of the smallest kept result; 0: none
	Preview int           // bytes of its text that the client gets at once; default DefaultPreview
	TTL     time.Duration // how long the result can be read; default DefaultTTL
}

// Defaults of Settings.
const (
	DefaultPreview = 2000
	DefaultTTL     = time.Hour
)

// sweepEvery is the pause of Sweep; expired results cannot be read before it either.
const sweepEvery = 10 * time.Minute

// Store keeps bytes until they expire, by the SHA-256 of their token and of their owner. Past its bound
// the oldest go first. Find returns nil for unknown bytes.
type Store interface {
	Put(ctx context.Context, token, owner [32]byte, content []byte, now, expires time.Time) error
	Find(ctx context.Context, token, owner [32]byte, now time.Time) ([]byte, error)
	Drop(ctx context.Context, now time.Time) (int, error)
}

// Cache keeps results in a Store. Its methods are safe for concurrent use.
type Cache struct {
	store     Store
	evaluator Evaluator
	level     func(error) slog.Level
	log       *slog.Logger
	now       func() time.Time
	// keepWithin bounds a call's wait for the store, patience any other wait for it, and an
	// expression's wait for its turn.
	keepWithin, patience time.Duration
	evaluating           *limit.Turns // of owners' expressions
}

// New returns a cache that keeps results in store. evaluator evaluates the jq expressions of
// read_output. level is the log level of a store's error.
func New(store Store, evaluator Evaluator, level func(error) slog.Level, log *slog.Logger) *Cache {
	return &Cache{store: store, evaluator: evaluator, level: level, log: log, now: time.Now,
		keepWithin: leeway.Of(2 * time.Second), patience: leeway.Of(10 * time.Second), evaluating: limit.NewTurns(maxExpressions)}
}

// Keep returns the middleware for large results. It stores a complete result of at least MinSize bytes,
// if an MCP client with an owner made the call, and answers a short form: a preview of the text with a
// note how to read on, blocks without text up to MinSize bytes together, structured content below
// MinSize, and all other members. It answers the whole result if the short form is no shorter, or if
// storing takes more than 2 s or fails, which is logged.
func (c *Cache) Keep(s Settings) tool.Middleware {
	s.Preview = cmp.Or(max(s.Preview, 0), DefaultPreview)
	s.TTL = cmp.Or(max(s.TTL, 0), DefaultTTL)
	return func(next tool.Handler) tool.Handler {
		if s.MinSize <= 0 {
			return next
		}
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			result, err := next(ctx, call)
			if err != nil || len(result) < s.MinSize || call.Kind != tool.KindTool || call.Depth > 0 || call.Client == nil {
				return result, err
			}
			if owner, ok := owner(call); ok && result.Complete() {
				return c.keep(ctx, s, call.Name, owner, result), nil
			}
			return result, nil
		}
	}
}

// keep stores the result and returns the answer.
func (c *Cache) keep(ctx context.Context, s Settings, name string, owner [32]byte, result tool.Result) tool.Result {
	token, now := rand.Text(), c.now()
	expires := now.Add(s.TTL)
	answer, ok := shorten(result, s, token, expires)
	if !ok {
		return result
	}
	within, cancel := context.WithTimeout(ctx, c.keepWithin)
	defer cancel()
	if err := c.store.Put(within, hash(token), owner, result, now, expires); err != nil {
		c.log.Log(ctx, c.level(err), "a large result could not be kept and is answered whole", "tool", name, "bytes", len(result), "error", err)
		return result
	}
	return answer
}

// Sweep drops expired results, now and every ten minutes until ctx ends.
func (c *Cache) Sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		c.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Cache) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	dropped, err := c.store.Drop(ctx, c.now())
	switch {
	case err != nil && ctx.Err() == nil:
		c.log.Log(ctx, c.level(err), "expired results could not be dropped", "error", err)
	case dropped > 0:
		c.log.Debug("expired results dropped", "count", dropped)
	}
}

// owner is the hash of the owner of a call, who may read its result from any process: IDs of sessions
// are random. ok is false for nobody.
func owner(call *tool.Call) (owner [32]byte, ok bool) {
	name := call.Owner()
	return hash(name), name != tool.Anonymous
}

// hash hides tokens and owners from readers of the database.
func hash(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
