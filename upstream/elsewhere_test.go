package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/pipes"
)

// replicas says at which one a server runs.
type replicas struct {
	mu    sync.Mutex
	url   string
	moved chan struct{}
	asked int
	dial  func(ctx context.Context, network, address string) (net.Conn, error) // nil: the usual one
}

func (r *replicas) move(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved != nil {
		close(r.moved)
	}
	r.url, r.moved = url, make(chan struct{})
}

func (r *replicas) elsewhere(context.Context, string) (*Elsewhere, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.url == "" {
		return nil, nil
	}
	once := &http.Transport{DisableKeepAlives: true, DialContext: pipes.Dial} // whoever sends over what the other side has closed does not know what became of that
	if r.dial != nil {
		once.DialContext = r.dial
	}
	return &Elsewhere{URL: r.url, Around: func(http.RoundTripper) http.RoundTripper { return once }, Moved: r.moved}, nil
}

func (r *replicas) tries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// pool has one server, which runs in a replica.
func (r *replicas) pool(t *testing.T, within time.Duration) *Pool {
	t.Helper()
	return newPoolOf(t, Options{Elsewhere: r.elsewhere}, Settings{Name: "s", Command: "none", Placement: PlacementOne, ConnectTimeout: within, CallTimeout: await.Bound})
}

// Whoever hears that a server runs here now leaves it to the call that waits for it.
func TestTheProcessThatACallWaitsForIsStartedOnce(t *testing.T) {
	r, s := &replicas{}, lines(t, "s", "together")
	s.Placement = PlacementOne
	r.move(refusing(t, 0))
	p := newPoolOf(t, Options{Elsewhere: r.elsewhere}, s)
	answer := make(chan error, 1)
	go func() {
		_, err := ask(t, p, "s", "pid")
		answer <- err
	}()
	await.True(t, func() bool { return r.tries() > 1 })
	r.move("")
	soonStarted(t, s, 1)
	p.Reach(t.Context(), "s", "") // as whoever hears that it runs here now
	stageOf(s).put("go", "")
	if err := await.Value(t, answer); err != nil || started(s) != 1 {
		t.Errorf("%d processes were started, %v", started(s), err)
	}
}

// refusing is the URL of a server that answers nothing but a status; 0 for one that is gone.
func refusing(t *testing.T, status int) (url string) {
	t.Helper()
	if status == 0 {
		return pipes.Nowhere
	}
	return pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not here", status) })).URL
}

// A call that did not reach the replica which runs its server waits for the one that takes its place.
func TestACallWaitsForTheReplicaThatRunsItsServer(t *testing.T) {
	for name, status := range map[string]int{"the replica is gone": 0, "the replica does not run it": http.StatusMisdirectedRequest} {
		t.Run(name, func(t *testing.T) {
			next := newPlainHTTP(t)
			var before, made atomic.Int32
			next.calls["any"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
				made.Add(1)
				result(`{"next":true}`)(w, id, params)
			}
			var ending atomic.Bool // it takes a connection, and ends
			r := &replicas{dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if ending.CompareAndSwap(true, false) {
					return nil, io.EOF
				}
				return pipes.Dial(ctx, network, address)
			}}
			first := newPlainHTTP(t)
			first.calls["any"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
				if before.Add(1) == 1 {
					result(`{"first":true}`)(w, id, params)
					return
				}
				http.Error(w, "another replica runs it", http.StatusMisdirectedRequest)
			}
			r.move(first.URL)
			p := r.pool(t, await.Bound)
			mustAsk(t, p, "s", "any", "first")
			if status == 0 {
				first.Close()
				ending.Store(true)
			}
			r.move(refusing(t, status))
			answer := make(chan string, 1)
			go func() {
				got, err := ask(t, p, "s", "any")
				answer <- fmt.Sprint(got, err)
			}()
			await.True(t, func() bool { return r.tries() > 3 || len(answer) > 0 })
			r.move(next.URL)
			if got := await.Value(t, answer); !strings.Contains(got, "next") || made.Load() != 1 {
				t.Errorf("the call is made %d times and answered %s", made.Load(), got)
			}
		})
	}
}

// When one call finds the replica gone, one that is about to be sent waits for the next, too, and one that was
// sent before is answered.
func TestACallThatFindsTheReplicaGoneEndsNoOther(t *testing.T) {
	first, next := newPlainHTTP(t), newPlainHTTP(t)
	inFlight, end := make(chan struct{}), make(chan struct{})
	first.calls["slow"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
		close(inFlight)
		<-end
		result(`{"first":true}`)(w, id, params)
	}
	first.calls["any"], next.calls["any"] = result(`{"first":true}`), result(`{"next":true}`)
	var gone, late atomic.Bool
	dialling, moved := make(chan struct{}), make(chan struct{})
	r := &replicas{dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if "http://"+address == first.URL && late.CompareAndSwap(true, false) {
			close(dialling)
			<-moved // dialling ends soon
		}
		if "http://"+address == first.URL && gone.Load() {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return pipes.Dial(ctx, network, address)
	}}
	r.move(first.URL)
	p := r.pool(t, await.Bound)
	mustAsk(t, p, "s", "any", "first")
	call := func(name string) chan string {
		answer := make(chan string, 1)
		go func() {
			got, err := ask(t, p, "s", name)
			answer <- fmt.Sprint(got, err)
		}()
		return answer
	}
	slow := call("slow")
	await.Value(t, inFlight)
	late.Store(true)
	about := call("any")
	await.Value(t, dialling)
	gone.Store(true)
	refused := call("any")
	await.True(t, func() bool { return r.tries() > 2 || len(refused) > 0 })
	r.move(next.URL)
	close(moved)
	for _, answer := range []chan string{refused, about} {
		if got := await.Value(t, answer); !strings.Contains(got, "next") {
			t.Errorf("a call that was not sent is answered %s", got)
		}
	}
	close(end)
	if got := await.Value(t, slow); !strings.Contains(got, "first") {
		t.Errorf("a call that was sent before is answered %s", got)
	}
}

// Where no replica takes its place, the error says so, and shows nobody's address. Replicas of
// different configurations are not waited for.
func TestAReplicaThatCannotBeReachedHasNoAddress(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		within time.Duration
		want   string
	}{
		{"it is gone", 0, 3 * time.Second, "connection refused; no other has taken its place"},
		{"it has another configuration", http.StatusNotFound, await.Bound, "not here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &replicas{}
				r.move(refusing(t, test.status))
				_, err := ask(t, r.pool(t, test.within), "s", "any")
				wantError(t, err, "s", ErrNotConnected)
				if err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "127.77")) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
	t.Run("it goes during a call", func(t *testing.T) {
		r, lost := &replicas{}, newPlainHTTP(t)
		lost.calls["any"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
			r.move(refusing(t, http.StatusNotFound))
			lost.CloseClientConnections()
		}
		r.move(lost.URL)
		_, err := ask(t, r.pool(t, await.Bound), "s", "any")
		wantError(t, err, "s", nil)
		if err != nil && (!strings.Contains(err.Error(), notRepeated) || strings.Contains(err.Error(), "127.77")) {
			t.Errorf("the error is %v", err)
		}
	})
}
