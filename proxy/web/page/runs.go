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

// Bounds for calls that are made on the page.
const (
	maxCalls = 4        // running calls of one session
	maxRuns  = 16       // kept calls of one session
	maxKept  = 64 << 20 // bytes of arguments and results in all sessions
	maxAsks  = 8        // waiting questions of one call
	maxNotes = 20       // latest notes of one call
)

// runs are the calls that were made on the page. A call ends with its session or with the server at the latest.
type runs struct {
	work sync.WaitGroup
	life context.Context
	end  context.CancelFunc

	mu  sync.Mutex // guards all; never held over I/O
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
	Of        tool.ID // ID of the definition whose form was filled in
	Target    string  // URI of a resource; else the name
	Arguments json.RawMessage
	Started   time.Time

	session *session
	handler tool.Handler
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed at the end, after result to operation are set

	result    tool.Result
	err       error
	took      time.Duration
	operation *telemetry.Operation

	mu    sync.Mutex // guards asks, asked and notes; never held over I/O
	asks  []*ask     // questions that wait for an answer
	asked int
	notes []string
}

// ask is a question of the server during a call.
type ask struct {
	ID     int
	Params json.RawMessage
	reply  chan json.RawMessage // buffers one reply
}

// errCancelled is the cause of a call that the user has cancelled on the page.
var errCancelled = errors.New("cancelled on the page")

// start runs a call in the background.
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

// add adds a run, unless a bound is reached.
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

// makeRoom forgets the oldest ended calls, but not the call one, until the kept calls are within the bounds. The caller
// holds the lock.
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

// kept returns the size of all arguments and results in bytes. The caller holds the lock.
func (r *runs) kept() (n int) {
	for _, one := range r.all {
		if n += len(one.Arguments); one.ended() {
			n += len(one.result)
		}
	}
	return n
}

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

// request is the ID of the call's request. Backend.Operation finds the operation by it.
func (one *run) request() json.RawMessage { return rawjson.Quote("page-" + one.ID) }

const clientName = "toolfinch page"

// make makes the call and waits for its result.
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
	one.handler = nil // frees memory: the handler refers to a view's catalog
	if one.err != nil && ctx.Err() != nil {
		one.err = context.Cause(ctx)
	}
}

// note keeps a server's notification about the call's progress or log.
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

// ask shows a server's question and waits for the user's answer.
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

// take removes and returns the waiting question with an ID, nil for none.
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

// waiting returns the waiting questions, and the notes so far.
func (one *run) waiting() (asks []*ask, notes []string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	return slices.Clone(one.asks), slices.Clone(one.notes)
}
