package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/leeway"
	"toolfinch/store"
)

// There is a round in which nobody else leads a server before any replica but the first
// for it takes it; and what is handed over goes to a replica that has been there for a while.
func TestDecide(t *testing.T) {
	one := func(id string, up time.Duration, leads ...string) store.Replica {
		return store.Replica{ID: id, Servers: "same", Up: up, Leads: leads}
	}
	const s = "s"
	low, high := "a", "b" // high is the first for s
	if weight(s, low) > weight(s, high) {
		low, high = high, low
	}
	other := one(high, time.Minute)
	other.Servers = "different"
	ending := one(high, time.Minute)
	ending.Ending = true
	for name, c := range map[string]struct {
		me          store.Replica
		others      []store.Replica
		led, free   bool
		stays       bool
		lead, leave bool
	}{
		"alone":                                 {me: one(low, 0), lead: true},
		"the first":                             {me: one(high, 0), others: []store.Replica{one(low, time.Hour)}, lead: true},
		"another leads it":                      {me: one(high, 0), others: []store.Replica{one(low, time.Hour, s)}, led: true},
		"not the first":                         {me: one(low, 0), others: []store.Replica{one(high, 0)}},
		"not the first, and nobody took it":     {me: one(low, 0), others: []store.Replica{one(high, 0)}, free: true, lead: true},
		"the first has other servers":           {me: one(low, 0), others: []store.Replica{other}, lead: true},
		"the first is about to end":             {me: one(low, 0), others: []store.Replica{ending}, lead: true},
		"led here, the first is about to end":   {me: one(low, time.Hour, s), others: []store.Replica{ending}, led: true},
		"led here, alone":                       {me: one(low, 0, s), led: true},
		"led here, the first has come":          {me: one(low, time.Hour, s), others: []store.Replica{one(high, time.Second)}, led: true},
		"led here, the first has come to stay":  {me: one(low, time.Hour, s), others: []store.Replica{one(high, leeway.Of(time.Minute))}, led: true, leave: true},
		"led here, and it stays where it is":    {me: one(low, time.Hour, s), others: []store.Replica{one(high, leeway.Of(time.Minute))}, led: true, stays: true},
		"led here, another is not the first":    {me: one(high, time.Hour, s), others: []store.Replica{one(low, time.Minute)}, led: true},
		"led here, the first has other servers": {me: one(low, time.Hour, s), others: []store.Replica{other}, led: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(c.me, []Candidate{{Server: s, Stays: c.stays}}, append(c.others, c.me), func(string) bool { return c.led }, map[string]int{s: map[bool]int{true: 1}[c.free]})
			if lead, leave := slices.Contains(d.lead, s), slices.Contains(d.leave, s); lead != c.lead || leave != c.leave {
				t.Errorf("lead %t, leave %t; want %t, %t", lead, leave, c.lead, c.leave)
			}
		})
	}
	if d := decide(one("a", 0, "gone"), nil, nil, func(string) bool { return true }, nil); !slices.Equal(d.leave, []string{"gone"}) {
		t.Errorf("of a server that is not configured any more it leaves %v", d.leave)
	}
}

// Servers are spread over replicas, and few move when one comes.
func TestFirstSpreads(t *testing.T) {
	replicas := []store.Replica{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	counts, moved := map[string]int{}, 0
	const servers = 3000
	for i := range servers {
		server := fmt.Sprint("server", i)
		before := first(server, replicas[0], replicas).ID
		counts[before]++
		if after := first(server, replicas[0], append(slices.Clone(replicas), store.Replica{ID: "d"})).ID; after != before {
			if moved++; after != "d" {
				t.Fatalf("%s moves from %s to %s", server, before, after)
			}
		}
	}
	for id, n := range counts {
		if n < servers/4 {
			t.Errorf("%s is the first for %d of %d", id, n, servers)
		}
	}
	if moved > servers/3 {
		t.Errorf("%d of %d move", moved, servers)
	}
}

// database is what sessions share: who is there and who has locked what. It can be away.
type database struct {
	mu       sync.Mutex // guards what follows
	replicas map[string]store.Replica
	locked   map[string]string // by server: the ID
	away     bool
	sessions []*session
}

type session struct {
	of   *database
	id   string // guarded by the mutex of the database, like what follows
	dead bool
}

// use locks the database; the error says that the session is none any more.
func (s *session) use() (d *database, unlock func(), err error) {
	s.of.mu.Lock()
	if s.dead {
		s.of.mu.Unlock()
		return nil, nil, errAway
	}
	return s.of, s.of.mu.Unlock, nil
}

var errAway = errors.New("away")

func (d *database) open(context.Context) (Membership, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away {
		return nil, errAway
	}
	return &session{of: d}, nil
}

// lose ends all sessions, as a restart does.
func (d *database) lose(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
	clear(d.locked)
	clear(d.replicas)
	for _, s := range d.sessions {
		s.dead = true
	}
	d.sessions = nil
}

func (d *database) leader(server string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locked[server]
}

func (s *session) Tell(_ context.Context, me store.Replica) ([]store.Replica, func(string) bool, error) {
	d, unlock, err := s.use()
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	s.id = me.ID
	if !slices.Contains(d.sessions, s) {
		d.sessions = append(d.sessions, s)
	}
	d.replicas[me.ID] = me
	locked := maps.Clone(d.locked)
	all := slices.SortedFunc(maps.Values(d.replicas), func(a, b store.Replica) int { return compare(a.ID, b.ID) })
	return all, func(server string) bool { return locked[server] != "" }, nil
}

func compare(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func (s *session) Lead(_ context.Context, servers []string) (leads []string, err error) {
	d, unlock, err := s.use()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, server := range servers {
		if d.locked[server] == "" {
			d.locked[server] = s.id
			leads = append(leads, server)
		}
	}
	return leads, nil
}

func (s *session) Leave(_ context.Context, servers []string) error {
	d, unlock, err := s.use()
	if err != nil {
		return err
	}
	defer unlock()
	for _, server := range servers {
		delete(d.locked, server)
	}
	return nil
}

func (s *session) Close() error {
	d, unlock, err := s.use()
	if err != nil {
		return nil
	}
	defer unlock()
	maps.DeleteFunc(d.locked, func(_ string, id string) bool { return id == s.id })
	delete(d.replicas, s.id)
	return nil
}

// A replica that alone has lost the database runs the process of its server on until another one
// leads it, and reaches it there then, and wherever it is led after that. One that no other replica has
// in its configuration stays.
func TestWhoLosesTheDatabaseAloneHearsOfTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{replicas: map[string]store.Replica{}, locked: map[string]string{}}
		var cut atomic.Bool
		of := map[string]*Leads{}
		beside := func(id string, open func(context.Context) (Membership, error), servers ...Candidate) (l *Leads, start func() (stop func())) {
			l = NewLeads(LeadOptions{Me: store.Replica{ID: id, Address: id + ":1"}, Open: open, Hands: handsTo(of), Log: slog.New(slog.DiscardHandler)})
			of[id+":1"] = l
			l.Compete(append(servers, Candidate{Server: "kept", Stays: true}), "")
			return l, func() (stop func()) {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); l.Run(ctx) }()
				stop = func() { cancel(); <-done }
				t.Cleanup(stop)
				return stop
			}
		}
		at := func(l *Leads, want string) {
			t.Helper()
			await.Nil(t, func() error {
				if at, err := l.Placed("kept"); err != nil || at != want {
					return fmt.Errorf("the process is at %q (%v), want %q", at, err, want)
				}
				return nil
			})
		}
		open := func(ctx context.Context) (Membership, error) {
			if cut.Load() {
				return nil, errAway
			}
			return db.open(ctx)
		}
		own := Candidate{Server: "own", Stays: true}
		a, startA := beside("a", open, own)
		d, startD := beside("d", open, own)
		b, startB := beside("b", db.open)
		_, startC := beside("c", db.open)
		startA()
		at(a, "")
		stopB := startB()
		startD()
		at(b, "https://a:1/servers/kept/mcp")
		await.True(t, func() bool { all, _, _ := a.Replicas(); return len(all) == 3 })
		cut.Store(true)
		db.lose(false)
		at(b, "")
		at(a, "https://b:1/servers/kept/mcp")
		if at, err := a.Placed("own"); at != "" || err != nil {
			t.Errorf("the process that nobody else has is at %q (%v)", at, err)
		}
		if _, _, err := a.Replicas(); err == nil {
			t.Error("it does not say that its own knowledge is out of date")
		}
		if at, err := d.Placed("own"); at != "https://a:1/servers/own/mcp" || err != nil {
			t.Errorf("who lost the database, too, has it at %q (%v)", at, err)
		}
		startC()
		await.True(t, func() bool { all, _, _ := a.Replicas(); return len(all) == 4 })
		stopB()
		await.True(t, func() bool {
			at, _ := a.Placed("kept")
			if at == "" {
				t.Error("who led it before another did starts its process once more")
			}
			return at == "https://c:1/servers/kept/mcp" || at == ""
		})
	})
}

// After an outage replicas come back one after another: those that are not there yet may be for a while.
func TestWhoIsNotBackYetAfterAnOutageIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{replicas: map[string]store.Replica{}, locked: map[string]string{}}
		var cut atomic.Bool
		late := func(ctx context.Context) (Membership, error) {
			if cut.Load() {
				return nil, errAway
			}
			return db.open(ctx)
		}
		start := func(id string, open func(context.Context) (Membership, error)) *Leads {
			l := NewLeads(LeadOptions{Me: store.Replica{ID: id, Address: id + ":1"}, Open: open, Log: slog.New(slog.DiscardHandler)})
			l.Compete([]Candidate{{Server: "kept", Stays: true}}, "")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); l.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			return l
		}
		start("b", late)
		await.True(t, func() bool { return db.leader("kept") == "b" })
		a := start("a", db.open)
		await.True(t, func() bool { return len(a.Peers()) == 1 })
		cut.Store(true)
		db.lose(true)
		c := start("c", db.open) // from its snapshot
		time.Sleep(roundEvery)
		db.lose(false)
		await.True(t, func() bool {
			all, _, err := a.Replicas()
			return err == nil && slices.ContainsFunc(all, func(r store.Replica) bool { return r.ID == "c" })
		})
		if there := a.Peers(); !slices.Equal(there, []Peer{{"c", "c:1"}, {"b", "b:1"}}) {
			t.Errorf("after the outage there are %v", there)
		}
		time.Sleep(backWithin / 2)
		if who := db.leader("kept"); who != "" {
			t.Errorf("the server of a replica that is not back yet is started once more, by %s", who)
		}
		await.True(t, func() bool { return db.leader("kept") != "" && len(a.Peers()) == 1 && len(c.Peers()) == 1 })
	})
}

// A replica that is about to end takes no server, says so, and gives up what it leads with Withdraw.
func TestWhoIsAboutToEndTakesNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{replicas: map[string]store.Replica{}, locked: map[string]string{}}
		of := map[string]*Leads{}
		start := func(id string) (l *Leads, stop func()) {
			l = NewLeads(LeadOptions{Me: store.Replica{ID: id, Address: id + ":1"}, Open: db.open, Hands: handsTo(of), Log: slog.New(slog.DiscardHandler)})
			of[id+":1"] = l
			l.Compete([]Candidate{{Server: "kept", Stays: true}, {Server: "other"}}, "")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); l.Run(ctx) }()
			stop = func() { cancel(); <-done }
			t.Cleanup(stop)
			return l, stop
		}
		_, stop := start("a")
		await.True(t, func() bool { return db.leader("kept") == "a" })
		b, _ := start("b")
		await.True(t, func() bool { at, _ := b.Placed("kept"); return at == "https://a:1/servers/kept/mcp" })
		b.End()
		stop()
		const was = "https://a:1/servers/kept/mcp"
		if b.Withdrew(was) {
			t.Error("a replica that has gone without a word withdrew")
		}
		c, _ := start("c")
		await.True(t, func() bool { return db.leader("kept") != "" && db.leader("other") != "" })
		if kept, other := db.leader("kept"), db.leader("other"); kept != "c" || other != "c" {
			t.Errorf("%s and %s lead, of which b is about to end", kept, other)
		}
		const at = "https://c:1/servers/kept/mcp"
		await.True(t, func() bool { now, _ := b.Placed("kept"); return now == at })
		if b.Withdrew(at) {
			t.Error("a replica withdrew that goes on")
		}
		c.End()
		begun := time.Now()
		if c.Withdraw(t.Context()); time.Since(begun) > roundEvery/2 {
			t.Errorf("it waited %s for a replica that it can ask", time.Since(begun))
		}
		if now, err := b.Placed("kept"); err == nil || !b.Withdrew(at) {
			t.Errorf("after it withdrew the process is at %q", now)
		}
		if leads, _ := c.Leads("kept"); !leads || db.leader("kept") != "c" {
			t.Error("it does not lead on until it ends")
		}
	})
}

// Nobody is waited for by a replica that is alone.
func TestWhoIsAloneWithdrawsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{replicas: map[string]store.Replica{}, locked: map[string]string{}}
		l := NewLeads(LeadOptions{Me: store.Replica{ID: "a"}, Open: db.open, Log: slog.New(slog.DiscardHandler)})
		l.Compete([]Candidate{{Server: "kept", Stays: true}}, "")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		defer func() { cancel(); <-done }()
		time.Sleep(3 * roundEvery)
		if leads, _ := l.Leads("kept"); !leads {
			t.Fatal("it leads nothing")
		}
		l.End()
		begun := time.Now()
		if l.Withdraw(t.Context()); time.Since(begun) >= 2*roundEvery {
			t.Error("it waits for rounds of others")
		}
	})
}

// handsTo sends requests to replicas by their addresses.
type handsTo map[string]*Leads

func (h handsTo) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h[r.URL.Host].Present(w, r)
	return w.Result(), nil
}

func TestEachServerHasOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &database{replicas: map[string]store.Replica{}, locked: map[string]string{}}
		servers := []Candidate{{Server: "one"}, {Server: "two"}, {Server: "three"}, {Server: "four"}}
		all := map[string]*Leads{}
		stops := map[string]func(){}
		for _, id := range []string{"a", "b", "c"} {
			l := NewLeads(LeadOptions{Me: store.Replica{ID: id, Address: id + ":1"}, Open: db.open, Log: slog.New(slog.DiscardHandler)})
			l.Compete(servers, "")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); l.Run(ctx) }()
			all[id], stops[id] = l, func() { cancel(); <-done }
		}
		defer func() {
			for _, stop := range stops {
				stop()
			}
		}()
		// led waits until each server has exactly one leader, and all know.
		led := func() {
			t.Helper()
			await.True(t, func() bool {
				for _, c := range servers {
					var leads []string
					for id, l := range all {
						if is, _ := l.Leads(c.Server); is {
							leads = append(leads, id)
						}
					}
					if len(leads) != 1 || db.leader(c.Server) != leads[0] {
						return false
					}
				}
				for _, l := range all {
					if known, _, err := l.Replicas(); len(known) != len(all) || err != nil {
						return false
					}
				}
				return true
			})
		}
		led()
		// One that ends leads nothing, and another takes what it led.
		for id, l := range all {
			_, turned := l.Leads("one")
			is, _ := l.Leads("one")
			if !is {
				continue
			}
			stops[id]()
			await.Value(t, turned)
			if is, _ := l.Leads("one"); is {
				t.Error("it leads after its end")
			}
			delete(all, id)
			delete(stops, id)
			break
		}
		led()
		// placed says where the processes of servers run, by every replica.
		placed := func() (at map[string]string, err error) {
			at = map[string]string{}
			for id, l := range all {
				for _, c := range servers {
					url, unknown := l.Placed(c.Server)
					at[id+" "+c.Server], err = url, errors.Join(err, unknown)
				}
			}
			return at, err
		}
		await.Nil(t, func() error { _, err := placed(); return err }) // all have heard
		before, _ := placed()
		// Without the database nobody leads anything, and processes stay; with it, each server has a
		// leader again.
		db.lose(true)
		await.True(t, func() bool {
			for _, l := range all {
				for _, c := range servers {
					if is, _ := l.Leads(c.Server); is {
						return false
					}
				}
				if _, _, err := l.Replicas(); err == nil {
					return false
				}
			}
			return true
		})
		if away, err := placed(); err != nil || !maps.Equal(away, before) {
			t.Errorf("without the database processes run at %v, and did at %v (%v)", away, before, err)
		}
		db.lose(false)
		led()
	})
}
