package proxy

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/must"
	"toolfinch/proxy/replicas"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

// told is a listener that hears what a test says.
type told chan store.Topic

func (told) Versions(context.Context) (map[store.Topic]int64, error) { return nil, nil }
func (told) Close() error                                            { return nil }

func (t told) Next(ctx context.Context) (store.Notice, error) {
	select {
	case topic := <-t:
		return store.Notice{Topic: topic, Version: 1}, nil
	case <-ctx.Done():
		return store.Notice{}, ctx.Err()
	}
}

// hearing is a proxy that hears what is told, over an empty store. Nobody runs its loop.
func hearing(t *testing.T) (*Proxy, told) {
	log, say := slog.New(slog.DiscardHandler), make(told)
	db := must.Get(store.Open(t.Context(), t.TempDir(), log))(t)
	t.Cleanup(func() { db.Close() })
	all := &views{options: options{log: log}, memory: retrieve.NewMemory(nil, nil), embedder: &embedder{work: make(chan struct{}, 1)}}
	all.others = &others{changes: replicas.NewChanges(func(context.Context) (replicas.Listener, error) { return say, nil }, map[store.Topic]int64{}, log)}
	p := &Proxy{views: all, store: db}
	p.loop = newLoop(all, db, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.hear(ctx, nil) }()
	t.Cleanup(func() { cancel(); <-done })
	return p, say
}

// A leader stores vectors in many small steps: those who follow read them now and then.
func TestVectorsOfOthersAreReadAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, say := hearing(t)
		var reads int
		began := time.Now()
		for time.Since(began) < 10*lazily {
			say <- store.Topic{Kind: store.TopicVectors}
			time.Sleep(lazily / 100)
			select {
			case <-p.embedder.work:
				reads++
			default:
			}
		}
		if reads < 5 || reads > 10 {
			t.Errorf("of 1,000 changes in %v vectors were read %d times", 10*lazily, reads)
		}
		time.Sleep(2 * lazily)
		for len(p.embedder.work) > 0 {
			<-p.embedder.work
		}
		say <- store.Topic{Kind: store.TopicVectors}
		time.Sleep(2 * lazily)
		if len(p.embedder.work) != 1 {
			t.Error("the last vectors are not read")
		}
	})
}

// What others have learned is read beside the refresh loop, which is for servers.
func TestTheLoopDoesNotWaitForWhatOthersLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, say := hearing(t)
		hat := tool.ID{Server: "shop", Name: "hat"}
		must.Do(t, p.store.Usage().PutLearned(t.Context(), store.LearnedUse{Query: "something for my head", Tool: hat, Count: 1, At: time.Now()}))
		say <- store.Topic{Kind: store.TopicLearned}
		time.Sleep(2 * lazily)
		if p.memory.Prior("", "something for my head")[hat] == 0 {
			t.Error("what was learned is not known")
		}
	})
}

// Nor do keys that were revoked, or what else is heard, wait for the loop.
func TestNothingThatIsHeardWaitsForTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, say := hearing(t)
		for range 100 {
			say <- store.Topic{Kind: store.TopicServer, Key: "busy"}
		}
		say <- store.Topic{Kind: store.TopicVectors}
		time.Sleep(2 * lazily)
		if len(p.embedder.work) != 1 {
			t.Error("what came last is not heard")
		}
	})
}
