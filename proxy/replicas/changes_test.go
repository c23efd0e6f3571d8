package replicas

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"toolfinch/internal/await"
	"toolfinch/store"
)

// feed is what listeners hear; a notification that nobody listens to is lost.
type feed struct {
	mu       sync.Mutex // guards what follows
	versions map[store.Topic]int64
	to       chan store.Notice
	broken   chan struct{}
}

func (f *feed) open(context.Context) (Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to, f.broken = make(chan store.Notice, 100), make(chan struct{})
	return &ear{f, f.to, f.broken}, nil
}

// bump changes a topic, of which listeners hear or not.
func (f *feed) bump(topic store.Topic, heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.versions[topic]++
	if heard && f.to != nil {
		f.to <- store.Notice{Topic: topic, Version: f.versions[topic]}
	}
}

// again says more of what a topic was changed to last.
func (f *feed) again(topic store.Topic, detail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to <- store.Notice{Topic: topic, Version: f.versions[topic], Detail: detail}
}

func (f *feed) forget(topic store.Topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.versions, topic)
}

func (f *feed) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.broken)
}

type ear struct {
	of     *feed
	from   chan store.Notice
	broken chan struct{}
}

func (e *ear) Versions(context.Context) (map[store.Topic]int64, error) {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	return maps.Clone(e.of.versions), nil
}

func (e *ear) Next(ctx context.Context) (store.Notice, error) {
	select {
	case n := <-e.from:
		return n, nil
	case <-e.broken:
		return store.Notice{}, errAway
	case <-ctx.Done():
		return store.Notice{}, ctx.Err()
	}
}

func (*ear) Close() error { return nil }

// Each change is heard of once: by its notification, or, where that was lost or could not be
// taken in, when versions are compared over the next connection.
func TestNoChangeIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := func(server string) store.Topic { return store.Topic{Kind: store.TopicServer, Key: server} }
		f := &feed{versions: map[store.Topic]int64{topic("old"): 7, topic("early"): 1}}
		c := NewChanges(f.open, map[store.Topic]int64{topic("old"): 7}, slog.New(slog.DiscardHandler)) // early changed after the store was read
		heard := make(chan store.Topic, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			refused := map[store.Topic]bool{}
			c.Run(ctx, func(_ context.Context, n store.Notice) error {
				if n.Key == "refused" && (!refused[n.Topic] || n.Detail == "second") {
					refused[n.Topic] = true
					return errAway
				}
				heard <- n.Topic
				return nil
			})
		}()
		defer func() { cancel(); <-done }()
		want := func(server string) {
			t.Helper()
			if got := await.Value(t, heard); got != topic(server) {
				t.Errorf("heard of %v, want %s", got, server)
			}
		}
		want("early")
		f.bump(topic("told"), true)
		want("told")
		f.bump(topic("lost"), false)
		f.lose()
		want("lost")
		f.bump(topic("refused"), true)
		want("refused")
		f.bump(topic("told"), true)
		want("told")
		f.again(topic("refused"), "second") // one transaction told two things of it: the first was taken in
		want("refused")
		keys := store.Topic{Kind: store.TopicKeys}
		f.bump(keys, true)
		if got := await.Value(t, heard); got != keys {
			t.Errorf("heard of %v, want keys", got)
		}
		f.forget(keys) // the database is one from before
		f.lose()
		if got := await.Value(t, heard); got != keys {
			t.Errorf("heard of %v, want keys", got)
		}
		if len(heard) > 0 {
			t.Errorf("heard more: %v", <-heard)
		}
	})
}
