// Package replicas owns the cooperation of several processes that serve the same clients over one PostgreSQL database:
// which replica lists a server for all, how changes spread, and how a replica takes over sessions. Each replica calls
// servers over its own connections. Replicas never connect to each other: they communicate through the database.
package replicas

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/store"
	"toolfinch/upstream/conn"
)

var errNotYet = errors.New("the database was not asked yet")

// Listener is a connection that receives notifications of changes.
type Listener interface {
	// Versions returns the current version of every topic that has ever changed.
	Versions(ctx context.Context) (map[store.Topic]int64, error)
	// Next waits for the next notification.
	Next(ctx context.Context) (store.Notice, error)
	Close() error
}

// Changes receives the changes that other processes make in the store.
type Changes struct {
	open func(ctx context.Context) (Listener, error)
	log  *slog.Logger
	seen map[store.Topic]int64 // the versions that take has handled; only Run uses it

	heard atomic.Bool
}

// Heard reports whether changes arrive now. A dead connection is noticed within 20 s.
func (c *Changes) Heard() bool { return c.heard.Load() }

// NewChanges returns the changes that come after versions.
func NewChanges(open func(ctx context.Context) (Listener, error), versions map[store.Topic]int64, log *slog.Logger) *Changes {
	return &Changes{open: open, log: log, seen: versions}
}

// Run calls take for each change until ctx ends. Calls are sequential, so take should be fast. A lost connection loses
// notifications. Therefore Run compares versions on each new connection, and calls take for each difference with only
// a topic and its version. A change that take failed to handle comes again in the same way.
func (c *Changes) Run(ctx context.Context, take func(ctx context.Context, n store.Notice) error) {
	again := conn.NewDelays(conn.FirstDelay)
	for ctx.Err() == nil {
		err := c.listen(ctx, again, take)
		c.heard.Store(false)
		if ctx.Err() != nil {
			return
		}
		delay := min(again.Next(), mostDelay)
		c.log.Log(context.Background(), store.Level(err), "what other replicas change is not heard: the database cannot be reached", "error", err, "retry_in", delay.Round(time.Millisecond))
		leeway.Wait(ctx, delay)
	}
}

// mostDelay bounds the delay between attempts to reach the database. It is short, because the replicas depend on it.
const mostDelay = 5 * time.Second

// askEvery is how often versions are compared while no notification arrives. Nothing else detects a dead connection.
const askEvery = 15 * time.Second

func (c *Changes) listen(ctx context.Context, again *conn.Delays, take func(ctx context.Context, n store.Notice) error) error {
	within := func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, leeway.Of(roundWithin)) }
	opening, cancel := within()
	l, err := c.open(opening)
	cancel()
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		asking, cancel := within()
		versions, err := l.Versions(asking)
		cancel()
		if err != nil {
			return err
		}
		for topic, version := range versions {
			if version != c.seen[topic] {
				if err := take(ctx, store.Notice{Topic: topic, Version: version}); err != nil {
					return err
				}
				c.seen[topic] = version
			}
		}
		for topic := range c.seen {
			if _, there := versions[topic]; there || topic.Kind == store.TopicServer { // the leader lists the server again
				continue
			}
			if err := take(ctx, store.Notice{Topic: topic, Version: -1}); err != nil { // the database was restored from an older backup
				return err
			}
			delete(c.seen, topic)
		}
		again.Reset()
		c.heard.Store(true)
		for ctx.Err() == nil {
			waiting, cancel := context.WithTimeout(ctx, askEvery)
			n, err := l.Next(waiting)
			silent := err != nil && waiting.Err() != nil && ctx.Err() == nil
			cancel()
			if silent {
				break
			}
			if err != nil {
				return err
			}
			if err := take(ctx, n); err != nil {
				delete(c.seen, n.Topic) // an earlier notice of the transaction may have stored this version
				return err
			}
			if n.Version != 0 {
				c.seen[n.Topic] = n.Version
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
