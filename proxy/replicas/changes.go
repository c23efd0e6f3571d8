// Package replicas owns what one of several processes that serve the same clients over one PostgreSQL database does
// beside the others: which servers it lists for all, what it hears of their changes, and the sessions that it takes
// over. Each calls servers over connections of its own, and none talks to another: the database tells them.
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

// Listener is a connection that hears of changes.
type Listener interface {
	// Versions are those of all that has changed at any time.
	Versions(ctx context.Context) (map[store.Topic]int64, error)
	// Next waits for the next notification.
	Next(ctx context.Context) (store.Notice, error)
	Close() error
}

// Changes hears of what other processes write to the store.
type Changes struct {
	open func(ctx context.Context) (Listener, error)
	log  *slog.Logger
	seen map[store.Topic]int64 // the versions that were taken in; of Run alone

	heard atomic.Bool
}

// Heard reports whether changes are heard of now. A connection that is dead is noticed
// within 20 s.
func (c *Changes) Heard() bool { return c.heard.Load() }

// NewChanges returns the changes that come after versions.
func NewChanges(open func(ctx context.Context) (Listener, error), versions map[store.Topic]int64, log *slog.Logger) *Changes {
	return &Changes{open: open, log: log, seen: versions}
}

// Run calls take for each change until ctx ends, one at a time: take should not be long.
// Notifications get lost with a connection. So whenever there is a new one, versions are
// compared, and take is told of a change with no more than its topic. That is also how it
// is told again of a change that it could not take in.
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
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// mostDelay is at most between two attempts to reach the database: all wait for what comes then.
const mostDelay = 5 * time.Second

// askEvery is how often versions are compared while nothing is heard: that the connection
// is dead is noticed by nothing else.
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
			if _, there := versions[topic]; there || topic.Kind == store.TopicServer { // whose leader lists it again
				continue
			}
			if err := take(ctx, store.Notice{Topic: topic, Version: -1}); err != nil { // the database was restored from before that
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
				delete(c.seen, n.Topic) // one transaction may tell several things of one topic
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
