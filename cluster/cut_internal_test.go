package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/store"
)

// oneRow is the row of one session; what it does not override is not asked for.
type oneRow struct {
	Rows
	find func() (store.Session, bool, error)
}

func (r oneRow) Find(context.Context, [32]byte) (store.Session, bool, error) { return r.find() }

// A session may be adopted once its home, which cannot be reached from here, is gone or has given
// it up. Each step is what the store says at one look; the last one is repeated, and then the
// client does not wait any longer.
func TestGetBack(t *testing.T) {
	const home = "replica-0"
	away := errors.New("the database is away")
	type look struct {
		there  bool
		err    error  // of there
		failed error  // of the row
		ask    error  // of asking the home
		at     string // where the session lives; "nowhere": there is no row
	}
	for name, one := range map[string]struct {
		refuses bool
		outage  bool // the database was away a moment ago
		looks   []look
		want    bool
		asks    int // how often the home was asked
	}{
		"the home is gone":                             {looks: []look{{at: home}}, want: true},
		"it gives the session up":                      {looks: []look{{there: true, at: home}, {there: true, at: home}, {there: true, at: ""}}, want: true, asks: 1},
		"it has given it up before":                    {looks: []look{{there: true, at: ""}}, want: true, asks: 1},
		"another one has it":                           {looks: []look{{there: true, at: "replica-2"}}, want: true, asks: 1},
		"the session has ended":                        {looks: []look{{there: true, at: "nowhere"}}, want: true, asks: 1},
		"it goes meanwhile":                            {looks: []look{{there: true, at: home}, {at: home}}, want: true, asks: 1},
		"it keeps the session":                         {looks: []look{{there: true, at: home}}, asks: 1},
		"it cannot be asked at first":                  {looks: []look{{there: true, ask: away, at: home}, {there: true, at: home}, {there: true}}, want: true, asks: 2},
		"the database is away, and it refuses":         {refuses: true, looks: []look{{err: away, failed: away}}, want: true},
		"the database is away, and it is silent":       {looks: []look{{err: away, failed: away}}},
		"the database comes back, and it has given up": {looks: []look{{err: away, failed: away}, {there: true, at: ""}}, want: true, asks: 1},
		"it is not back after an outage":               {outage: true, looks: []look{{at: home}}, asks: 1},
		"nor will it be, as it refuses":                {outage: true, refuses: true, looks: []look{{at: home}}, want: true},
		"it is there, and the row cannot be read":      {refuses: true, looks: []look{{there: true, failed: away}}, asks: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, enough := context.WithCancel(t.Context())
			defer enough()
			n, asks := 0, 0
			now := func() look { return one.looks[min(n, len(one.looks)-1)] }
			h, err := NewHomes(Options{
				Keys: []configs.ClusterKey{{1}}, Me: Peer{ID: "replica-1"}, Log: slog.New(slog.DiscardHandler),
				There: func(context.Context, string) (bool, error) { return now().there, now().err },
				Peers: func() []Peer {
					if one.outage {
						return []Peer{{ID: home}}
					}
					return nil
				},
				Ask: func(context.Context, string, [32]byte) error { asks++; return now().ask },
				Rows: oneRow{find: func() (store.Session, bool, error) {
					defer func() {
						if n++; n > len(one.looks) {
							enough() // as the time does
						}
					}()
					return store.Session{Home: now().at}, now().at != "nowhere", now().failed
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := h.getBack(ctx, HashOf("s"), Peer{ID: home}, one.refuses); got != one.want || asks != one.asks {
				t.Errorf("%s: it may be adopted: %t, and its home was asked %d times; want %t, %d", name, got, asks, one.want, one.asks)
			}
		})
	}
}

// Requests that wait for a session ask the store little, however many they are.
func TestGetBackAsksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const home = "replica-0"
		var looks, asks atomic.Int64
		h, err := NewHomes(Options{
			Keys: []configs.ClusterKey{{1}}, Me: Peer{ID: "replica-1"}, Log: slog.New(slog.DiscardHandler),
			There: func(context.Context, string) (bool, error) { looks.Add(1); return true, nil },
			Ask:   func(context.Context, string, [32]byte) error { asks.Add(1); return nil },
			Rows:  oneRow{find: func() (store.Session, bool, error) { looks.Add(1); return store.Session{Home: home}, true, nil }},
		})
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() {
				if h.back(t.Context(), HashOf("s"), Peer{ID: home}, false) {
					t.Error("a session that its home keeps may be adopted")
				}
			})
		}
		waiting.Wait()
		if most := 10 + 2*int64(leeway.Of(givenWithin)/lookMost); looks.Load() > most || asks.Load() != 1 {
			t.Errorf("the store was asked %d times, and the home %d times", looks.Load(), asks.Load())
		}
	})
}

// What cannot be reached is not tried for a while, from the first failure on, so that not each
// request waits for it; and then again.
func TestCutOff(t *testing.T) {
	h := &Homes{cut: map[string]cut{}}
	h.cutOff("replica-1", unreachable)
	first := h.cut["replica-1"]
	if left := time.Until(first.until); left <= 0 || left > cutFor || first.what != unreachable {
		t.Fatalf("it is %+v, for %s", first, left)
	}
	h.cutOff("replica-1", refused) // a request that began before
	if now := h.cut["replica-1"]; now != first {
		t.Errorf("another failure makes %+v of %+v", now, first)
	}
	h.cut["replica-1"] = cut{time.Now().Add(-time.Second), unreachable}
	h.cutOff("replica-2", refused)
	if _, still := h.cut["replica-1"]; still || len(h.cut) != 1 {
		t.Errorf("what is over is still there: %v", h.cut)
	}
}

// Whoever hears what replicas ask for is never held up by it: what is too much is asked again.
func TestAskedDoesNotBlock(t *testing.T) {
	h := &Homes{asked: make(chan [32]byte, 1)}
	h.Asked(HashOf("a"))
	h.Asked(HashOf("b"))
	if got := <-h.asked; got != HashOf("a") || len(h.asked) != 0 {
		t.Errorf("%x is heard, and %d more", got, len(h.asked))
	}
}
