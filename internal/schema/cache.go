package schema

import (
	"context"
	"encoding/json"
	"runtime"
	"sync"
)

// Cache keeps compiled schemas and checks values against them. It is safe for
// concurrent use.
type Cache struct {
	slots    chan struct{} // of concurrent expensive checks, because they take memory
	mu       sync.Mutex    // guards compiled; not held during a compilation
	compiled map[string]*compilation
}

// NewCache returns an empty Cache.
func NewCache() *Cache {
	return &Cache{slots: make(chan struct{}, runtime.GOMAXPROCS(0)), compiled: map[string]*compilation{}}
}

// Check is Schema.Check against the schema that Compile returns for key and raw. Few expensive checks
// run at a time; the rest wait until their ctx ends.
func (c *Cache) Check(ctx context.Context, key string, raw, value json.RawMessage) (violations []string, err error) {
	schema, err := c.Compile(ctx, key, raw)
	if err != nil {
		return nil, err
	}
	return schema.check(ctx, value, c.slots)
}

// compilation is one schema; its other fields are written before done is closed.
type compilation struct {
	done   chan struct{}
	schema *Schema
	err    error
}

// Compile returns the outcome under key, or compiles raw and keeps the outcome, also an error. A schema
// is compiled once; concurrent callers wait until their ctx ends.
func (c *Cache) Compile(ctx context.Context, key string, raw json.RawMessage) (*Schema, error) {
	c.mu.Lock()
	found := c.compiled[key]
	first := found == nil
	if first {
		found = &compilation{done: make(chan struct{})}
		c.compiled[key] = found
	}
	c.mu.Unlock()
	if first {
		found.schema, found.err = Compile(raw)
		close(found.done)
	}
	select {
	case <-found.done:
		return found.schema, found.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Forget forgets all schemas if there are more than most.
func (c *Cache) Forget(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.compiled) > most {
		clear(c.compiled)
	}
}
