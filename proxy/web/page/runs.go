package page

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Bounds of calls that were made on the page.
const (
	maxCalls = 4        // at once, of one session
	maxRuns  = 16       // that are kept of one session
	maxKept  = 64 << 20 // bytes of arguments and results, of all sessions
	maxAsks  = 8        // that wait, of one call
	maxNotes = 20       // the last ones, of one call
)

// runs are the calls that people made on the page. They end with their session, and all
// with the server.
type runs struct {
	work sync.WaitGroup
	life context.Context
	end  context.CancelFunc

	mu  sync.Mutex // guards all; held for look-ups only
	all []*run     // the oldest first
}

func newRuns() *runs {
	r := &runs{}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// close ends all calls and waits for them.
func (r *runs) close() {
	r.end()
	r.work.Wait()
}

// run is one call.
type run struct {
	ID        string
	Of        tool.ID // the definition whose form was filled in
	Target    string  // the URI of a resource; else the name
	Arguments json.RawMessage
	Started   time.Time

	session *session
	handler tool.Handler
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when it has ended; what follows is set then

	result    tool.Result
	err       error
	took      time.Duration
	operation *telemetry.Operation

	mu    sync.Mutex // guards what follows; held for look-ups only
	asks  []*ask     // that wait for an answer
	asked int
	notes []string
}

// ask is something that a server wants to know meanwhile.
type ask struct {
	ID     int
	Params json.RawMessage
	reply  chan json.RawMessage // has room for one
}

// errCancelled is why a call ends that somebody cancelled on the page.
var errCancelled = errors.New("cancelled on the page")

// start makes a call in the background.
func (r *runs) start(q *request, one *run, operation func(request string) *telemetry.Operation) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(q.Context()))
	ends := []func(){func() { cancel(context.Canceled) }}
	for _, life := range []context.Context{r.life, q.session.life} {
		stop := context.AfterFunc(life, func() { cancel(errors.New("the session has ended")) })
		ends = append(ends, func() { stop() })
	}
	if b := q.session.bearer; b != nil {
		var leave func()
		ctx, leave = b.Stay(ctx)
		ends = append(ends, leave)
	}
	finish := func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
	one.session, one.ID, one.Started, one.cancel, one.done = q.session, strings.ToLower(rand.Text()[:12]), time.Now(), cancel, make(chan struct{})
	if err := r.add(one); err != nil {
		finish()
		return err
	}
	owner := q.owner()
	r.work.Go(func() {
		defer finish()
		one.make(ctx, owner)
		one.operation = operation(string(one.request()))
		close(one.done)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.makeRoom(one)
	})
	return nil
}

// add takes a run in.
func (r *runs) add(one *run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := one.session
	if r.life.Err() != nil || s.life.Err() != nil {
		return errors.New("the session has ended")
	}
	if running := r.count(func(other *run) bool { return other.session == s && !other.ended() }); running >= maxCalls {
		return fmt.Errorf("%d calls of yours run already: wait for one, or cancel it", running)
	}
	if r.count(func(other *run) bool { return other.session == s }) == 0 {
		context.AfterFunc(s.life, func() { r.forget(s) })
	}
	r.all = append(r.all, one)
	if r.makeRoom(one); r.kept() > maxKept {
		r.all = r.all[:len(r.all)-1]
		return errors.New("the arguments of the calls that run take too much memory: wait for one, or cancel it")
	}
	return nil
}

// makeRoom forgets the oldest calls that have ended, but for one, until what is kept is
// within its bounds; the caller holds the lock.
func (r *runs) makeRoom(one *run) {
	ofSession := func(other *run) bool { return other.session == one.session }
	forget := func(of func(*run) bool) bool {
		at := slices.IndexFunc(r.all, func(other *run) bool { return other != one && of(other) && other.ended() })
		if at >= 0 {
			r.all = slices.Delete(r.all, at, at+1)
		}
		return at >= 0
	}
	for more := true; more && r.count(ofSession) > maxRuns; {
		more = forget(ofSession)
	}
	for more := true; more && r.kept() > maxKept; {
		more = forget(func(*run) bool { return true })
	}
}

func (r *runs) count(of func(*run) bool) (n int) {
	for _, one := range r.all {
		if of(one) {
			n++
		}
	}
	return n
}

// kept is how many bytes all arguments and results take; the caller holds the lock.
func (r *runs) kept() (n int) {
	for _, one := range r.all {
		if n += len(one.Arguments); one.ended() {
			n += len(one.result)
		}
	}
	return n
}

// forget forgets the calls of a session that has ended.
func (r *runs) forget(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(one *run) bool { return one.session == s })
}

// find returns a run of a session, nil for none.
func (r *runs) find(s *session, id string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.all, func(one *run) bool { return one.session == s && one.ID == id })
	if at < 0 {
		return nil
	}
	return r.all[at]
}

func (one *run) ended() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// request is the ID of the request, by which the operation is found.
func (one *run) request() json.RawMessage { return rawjson.Quote("page-" + one.ID) }

// clientName is what the page calls itself as a client.
const clientName = "toolfinch page"

// make makes the call.
func (one *run) make(ctx context.Context, owner bool) {
	call := &tool.Call{
		Name: one.Target, Principal: identity.NameOf(ctx), Request: one.request(), Local: owner, Notify: one.note,
		Params: json.RawMessage(`{"_meta":{"progressToken":1}}`),
		Client: &tool.Client{
			Name: clientName, Program: clientName, Key: "page " + identity.Digest(string(one.session.id[:])),
			Capabilities: json.RawMessage(`{"elicitation":{"form":{},"url":{}}}`), Ask: one.ask,
		},
	}
	start := time.Now()
	one.result, one.err = tool.Safely(ctx, one.handler, call)
	one.took = time.Since(start)
	one.handler = nil // it has the catalog of a whole view
	if one.err != nil && ctx.Err() != nil {
		one.err = context.Cause(ctx)
	}
}

// note takes down what a server says while it works.
func (one *run) note(method string, params json.RawMessage) {
	text := ""
	switch method {
	case "notifications/progress":
		text = string(member(params, "progress"))
		if total := member(params, "total"); total != nil {
			text += " of " + string(total)
		}
		if message := rawjson.Text(member(params, "message")); message != "" {
			text += ": " + message
		}
	case "notifications/message":
		data := member(params, "data")
		if text = rawjson.Text(data); text == "" {
			text = string(data)
		}
		text = rawjson.Text(member(params, "level")) + ": " + text
	default:
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.notes) >= maxNotes {
		one.notes = slices.Delete(one.notes, 0, 1)
	}
	one.notes = append(one.notes, rawjson.Clip(text, 500))
}

// ask has somebody answer what a server asks.
func (one *run) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if method != "elicitation/create" {
		return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the page does not answer " + rawjson.Clip(method, 64)}
	}
	one.mu.Lock()
	if len(one.asks) >= maxAsks {
		one.mu.Unlock()
		return nil, &tool.RPCError{Code: tool.CodeInternal, Message: "too much is asked at once"}
	}
	one.asked++
	a := &ask{ID: one.asked, Params: params, reply: make(chan json.RawMessage, 1)}
	one.asks = append(one.asks, a)
	one.mu.Unlock()
	defer one.take(a.ID)
	select {
	case answer := <-a.reply:
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// take returns what is asked under an ID, which waits no more; nil for nothing.
func (one *run) take(id int) *ask {
	one.mu.Lock()
	defer one.mu.Unlock()
	at := slices.IndexFunc(one.asks, func(a *ask) bool { return a.ID == id })
	if at < 0 {
		return nil
	}
	a := one.asks[at]
	one.asks = slices.Delete(one.asks, at, at+1)
	return a
}

// waiting are what is asked now, and what was said so far.
func (one *run) waiting() (asks []*ask, notes []string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	return slices.Clone(one.asks), slices.Clone(one.notes)
}
