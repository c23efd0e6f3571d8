package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/leeway"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// mustReconnect reconnects, which has to go well.
func mustReconnect(t testing.TB, p *Pool, server string) Change {
	t.Helper()
	change := p.Reconnect(t.Context(), server)
	if change.Err != nil || change.Server != server {
		t.Fatalf("Reconnect = %+v", change)
	}
	return change
}

func TestReconnectMakesANewConnection(t *testing.T) {
	s := lines(t, "s", "raw")
	p := newPool(t, s)
	if change := mustReconnect(t, p, "s"); len(change.Defs) != lineTools || change.Era != EraLegacy {
		t.Errorf("a server that was not connected: %+v", change)
	}
	first, since := pidOf(t, p, "s"), p.Status()[0].Since
	if change := mustReconnect(t, p, "s"); len(change.Defs) != lineTools {
		t.Errorf("a server that was connected: %+v", change)
	}
	if status := p.Status()[0]; !status.Since.After(since) {
		t.Errorf("the new connection is said to be since %v, the one before was since %v", status.Since, since)
	}
	soonRuns(t, s, 1)
	if second := pidOf(t, p, "s"); second == first {
		t.Error("it is the same process")
	}
	if status := p.Status()[0]; status.State != StateReady || status.Restarts != 1 || status.Tools != lineTools {
		t.Errorf("status = %+v", status)
	}
}

// Many servers hold something that only one process can have.
func TestTheOldProcessGoesFirstWhereNoSecondOneComesUp(t *testing.T) {
	alone := make(chan struct{}, 1)
	s := played(t, "s", &stage{script: func(p *peer) {
		select {
		case alone <- struct{}{}:
			defer func() { <-alone }()
			p.shake()
			p.answer(p.read(), `{"tools":[]}`)
			p.read()
		default:
			p.exit(7)
		}
	}})
	s.Protocol = ProtocolLegacy
	p := newPool(t, s)
	for range 3 {
		mustReconnect(t, p, "s")
	}
}

func TestReconnectOfAServerThatIsNone(t *testing.T) {
	s := lines(t, "s", "raw")
	p := newPool(t, s)
	wantError(t, p.Reconnect(t.Context(), "other").Err, "other", ErrUnknownServer)
	p.Update(nil, nil)
	wantError(t, p.Reconnect(t.Context(), "s").Err, "s", ErrUnknownServer)

	p.Update([]Settings{s}, nil)
	must.Do(t, p.Close(t.Context()))
	wantError(t, p.Reconnect(t.Context(), "s").Err, "s", ErrClosed)
	if started(s) != 0 {
		t.Error("it was started")
	}
}

func TestReconnectOfAServerThatCannotBeReached(t *testing.T) {
	p := newPool(t, Settings{Name: "s", Command: "no-such-program"})
	err := p.Reconnect(t.Context(), "s").Err
	wantError(t, err, "s", ErrNotConnected)
	if want := `upstream s: connect: the command "no-such-program" is not on the PATH`; err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

// Whoever reconnects a server ends no call of others: those in flight end over the
// old connection, beside which the new one serves.
func TestCallsInFlightOutliveAReconnect(t *testing.T) {
	s := lines(t, "s", "raw")
	p := newPool(t, s)
	old := pidOf(t, p, "s")
	waiting := make(chan string, 1)
	go func() {
		text, err := ask(t, p, "s", "wait")
		waiting <- fmt.Sprint(text, err)
	}()
	trace(t, s, "waits")
	mustReconnect(t, p, "s")
	if pid := pidOf(t, p, "s"); pid == old {
		t.Errorf("new calls go to the old process %d", pid)
	}
	stageOf(s).put("go", "")
	if got, want := await.Value(t, waiting), fmt.Sprintf(`{"pid":%d}<nil>`, old); got != want {
		t.Errorf("the call in flight = %s, want %s", got, want)
	}
	soonRuns(t, s, 1)
}

// The old connection does not wait for ever.
func TestCallsThatDoNotEndAcrossAReconnect(t *testing.T) {
	for _, test := range []struct {
		name  string
		hints []string
		again bool
	}{
		{"may not be repeated", nil, false},
		{"may be repeated", []string{"idempotentHint"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := lines(t, "s", "raw")
				p := newPool(t, s)
				began := time.Now()
				go func() {
					trace(t, s, "hangs")
					mustReconnect(t, p, "s")
				}()
				text, err := ask(t, p, "s", "hang_once", test.hints...)
				if took := time.Since(began); took != leeway.Of(finishWithin) {
					t.Errorf("the call ended after %s", took)
				}
				if test.again && (err != nil || text != `{"ok":true}`) {
					t.Errorf("the call = %s, %v; want it made again", text, err)
				}
				if !test.again {
					wantError(t, err, "s", ErrClosed)
				}
				// That the owner wanted it so is no fault of the server's.
				if status := p.Status()[0]; status.State != StateReady {
					t.Errorf("status = %+v", status)
				}
			})
		})
	}
}

func TestReconnectClosesTheConnectionsOfSingleClients(t *testing.T) {
	s := lines(t, "s", "raw")
	s.Isolate = IsolateAlways
	p := newPool(t, s)
	pids := func() map[int]bool {
		out := map[int]bool{}
		for _, key := range []string{"a", "b", "c"} {
			client := &tool.Client{Key: key, Capabilities: json.RawMessage(`{"roots":{}}`)}
			got := must.Get(p.Call(t.Context(), def("s", "pid"), &tool.Call{Client: client}))(t)
			var answer struct{ PID int }
			must.Do(t, json.Unmarshal(got, &answer))
			out[answer.PID] = true
		}
		return out
	}
	before := pids()
	mustReconnect(t, p, "s")
	soonRuns(t, s, 1)
	after := pids()
	for pid := range before {
		if after[pid] {
			t.Errorf("process %d is still used", pid)
		}
	}
	if len(before) != 3 || len(after) != 3 || runs(s) != 3 {
		t.Errorf("processes %v, then %v; want three each; %d run", before, after, runs(s))
	}
}

// What waits for a server that does not come up gets the one that does.
func TestReconnectGivesUpWhatIsBeingDialled(t *testing.T) {
	s := lines(t, "s", "together")
	p := newPool(t, s)
	waiting := make(chan string, 1)
	go func() {
		text, err := ask(t, p, "s", "pid")
		waiting <- fmt.Sprint(text, err)
	}()
	soonStarted(t, s, 1)
	done := make(chan Change, 1)
	go func() { done <- p.Reconnect(t.Context(), "s") }()
	soonStarted(t, s, 2)
	if n := runs(s); n != 1 {
		t.Errorf("%d run", n)
	}
	stageOf(s).put("go", "")
	if change := <-done; change.Err != nil || len(change.Defs) != lineTools {
		t.Errorf("Reconnect = %+v", change)
	}
	if got, want := <-waiting, fmt.Sprintf(`{"pid":%d}<nil>`, pidOf(t, p, "s")); got != want {
		t.Errorf("the call that waited = %s, want %s", got, want)
	}
}

// Whoever asks while a Reconnect runs waits for that one, and may give up without ending it: so may the
// first. Whoever asks once it has run has another.
func TestReconnectsAtTheSameTimeShareOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := lines(t, "s", "together")
		p := newPool(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan Change, 1)
		go func() { first <- p.Reconnect(ctx, "s") }()
		synctest.Wait()
		for range 5 {
			short, end := context.WithTimeout(t.Context(), time.Millisecond)
			wantError(t, p.Reconnect(short, "s").Err, "s", context.DeadlineExceeded)
			end()
		}
		cancel()
		wantError(t, (<-first).Err, "s", context.Canceled)
		last := make(chan Change, 1)
		go func() { last <- p.Reconnect(t.Context(), "s") }()
		synctest.Wait() // it is in, so it shares
		stageOf(s).put("go", "")
		if change := <-last; change.Err != nil || len(change.Defs) != lineTools {
			t.Errorf("Reconnect = %+v", change)
		}
		if n := started(s); n != 1 || runs(s) != 1 {
			t.Errorf("%d processes were started, %d run; want one", n, runs(s))
		}
		// The second ends for its callers before the old connection does, over which a call runs; who asks
		// in between gets neither its result nor that connection.
		go func() { _, _ = ask(t, p, "s", "hang") }()
		trace(t, s, "hangs")
		mustReconnect(t, p, "s")
		mustReconnect(t, p, "s")
		if n := started(s); n != 3 {
			t.Errorf("%d processes were started, want three", n)
		}
	})
}

// retries collects how long Watch says that it waits.
type retries struct {
	slog.Handler
	mu    sync.Mutex // guards waits
	waits []time.Duration
}

func (r *retries) Enabled(context.Context, slog.Level) bool { return true }

func (r *retries) WithAttrs([]slog.Attr) slog.Handler { return r }

func (r *retries) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "retry_in" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.waits = append(r.waits, a.Value.Duration())
		}
		return true
	})
	return nil
}

func (r *retries) all() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]time.Duration(nil), r.waits...)
}

func TestReconnectBeginsTheDelaysOfWatchAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const first = 750 * time.Millisecond // the longest that the first delay can be
		r := &retries{Handler: slog.DiscardHandler}
		var up atomic.Bool
		s := played(t, "s", &stage{script: func(p *peer) {
			if !up.Load() {
				p.exit(3)
			}
			serveLines(t.Context(), p)
		}})
		p := newPoolOf(t, Options{Log: slog.New(r)}, s)
		changes, _ := watched(t, p)
		before := 0
		await.True(t, func() bool {
			waits := r.all()
			before = len(waits)
			return before > 0 && waits[before-1] > first
		})
		wantError(t, p.Reconnect(t.Context(), "s").Err, "s", ErrNotConnected)
		await.True(t, func() bool {
			return slices.ContainsFunc(r.all()[before:], func(wait time.Duration) bool { return wait <= first })
		})
		up.Store(true)
		mustReconnect(t, p, "s")
		await.True(t, func() bool { // Watch knows it too
			change := <-changes
			return change.Err == nil && len(change.Defs) == lineTools
		})
		soonRuns(t, s, 1)
	})
}

func TestWatchGoesOnAfterAReconnect(t *testing.T) {
	r := &retries{Handler: slog.DiscardHandler}
	s := lines(t, "s", "raw")
	p := newPoolOf(t, Options{Log: slog.New(r)}, s)
	changes, _ := watched(t, p)
	listed := func(defs int) {
		t.Helper()
		await.True(t, func() bool {
			change := <-changes
			if change.Err != nil {
				t.Errorf("Watch told of an error: %v", change.Err)
			}
			return len(change.Defs) == defs
		})
	}
	listed(lineTools)
	for range 3 {
		mustReconnect(t, p, "s")
		listed(lineTools)
		mustAsk(t, p, "s", "change", "true") // over the new connection, which Watch listens to
		listed(lineTools + 1)
	}
	if waits := r.all(); len(waits) > 0 {
		t.Errorf("Watch took it for a failure: it waited %v", waits)
	}
	soonRuns(t, s, 1)
}

// That a list did not come is told when it is news, not when it was cut off here.
func TestAListCutOffByAReconnectIsNoFailure(t *testing.T) {
	s := scripted(t, "s", func(p *peer) {
		for list := p.read(); ; list = p.read() {
			if p.has("once") {
				p.answer(list, `{"tools":[{"name":"a"}]}`)
			}
			p.put("once", "")
		}
	})
	p := newPool(t, s)
	changes, _ := watched(t, p)
	trace(t, s, "once")
	if change := mustReconnect(t, p, "s"); len(change.Defs) != 1 {
		t.Errorf("Reconnect = %+v", change)
	}
	if change := <-changes; change.Err != nil || len(change.Defs) != 1 {
		t.Errorf("Watch told of %+v", change)
	}
}

func TestReconnectOverHTTP(t *testing.T) {
	u := newPlainHTTP(t)
	began, hold := make(chan struct{}), make(chan struct{})
	u.calls["slow"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		close(began)
		<-hold
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"slow":true}}`, id)
	}
	p := newPool(t, u.settings())
	slow := make(chan string, 1)
	go func() {
		got, err := ask(t, p, "s", "slow")
		slow <- fmt.Sprint(got, err)
	}()
	<-began
	mustReconnect(t, p, "s")
	close(hold)
	if got := <-slow; got != `{"slow":true}<nil>` {
		t.Errorf("the call in flight: %s", got)
	}
}

func TestReconnectOfAModernServerListensAgain(t *testing.T) {
	m := newModernHTTP(t)
	p := newPool(t, m.settings())
	changes, _ := watched(t, p)
	if change := <-changes; change.Err != nil {
		t.Fatal(change.Err)
	}
	await.True(t, func() bool { return m.filter() != "" })
	for range 2 {
		had := m.subscriptions()
		if change := mustReconnect(t, p, "s"); change.Era != EraModern {
			t.Errorf("era %q", change.Era)
		}
		await.True(t, func() bool { return m.subscriptions() > had && m.filter() != "" })
	}
}

// Everything at once: nothing hangs, nothing is left.
func TestReconnectAmongEverythingElse(t *testing.T) {
	s, other := lines(t, "s", "raw"), lines(t, "other", "raw")
	s.Isolate = IsolateAlways
	p := newPool(t, s, other)
	changes, stop := watched(t, p)
	var group sync.WaitGroup
	over := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-changes:
			case <-over:
				return
			}
		}
	})
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := range 10 {
				server := []string{"s", "other"}[i%2]
				client := &tool.Client{Key: fmt.Sprint(i), Capabilities: json.RawMessage(`{"roots":{}}`)}
				_, err := p.Call(t.Context(), def(server, "raw", "readOnlyHint"), &tool.Call{Client: client})
				if err != nil && !errors.Is(err, ErrClosed) { // twice in one call
					t.Error(err)
				}
				if n%5 == i {
					p.Forget(fmt.Sprint(i))
				}
			}
		})
	}
	for i := range 2 {
		work.Go(func() {
			for range 3 {
				server := []string{"s", "other"}[i%2]
				if err := p.Reconnect(t.Context(), server).Err; err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	work.Go(func() {
		for i := range 3 {
			p.Update([]Settings{s, changed(other, i)}, nil)
		}
	})
	work.Wait()
	stop()
	close(over)
	group.Wait()
	if runs(s) != 0 || runs(other) != 0 {
		t.Error("some run still")
	}
}

func TestCloseEndsAReconnect(t *testing.T) {
	s := lines(t, "s", "together") // it never comes up
	p := newPool(t, s)
	done := make(chan Change, 1)
	go func() { done <- p.Reconnect(t.Context(), "s") }()
	soonStarted(t, s, 1)
	must.Do(t, p.Close(t.Context()))
	if change := <-done; change.Err == nil {
		t.Error("it went well")
	}
	if runs(s) != 0 {
		t.Error("it runs")
	}
}

// Servers that may start at once do not wait for each other: of these, none says a word before
// all have been started.
func TestWatchStartsServersTogether(t *testing.T) {
	const n = 24
	on := &stage{mode: "together"}
	settings := []Settings{played(t, "s0", on)}
	for i := range n - 1 {
		settings = append(settings, settings[0])
		settings[i+1].Name = fmt.Sprint("s", i+1)
	}
	p := newPoolOf(t, Options{Starting: n}, settings...)
	changes, _ := watched(t, p)
	soonStarted(t, settings[0], n)
	on.put("go", "")
	ready := map[string]bool{}
	for len(ready) < n {
		change := <-changes
		if change.Err != nil {
			t.Fatal(change.Err)
		}
		ready[change.Server] = true
	}
}
