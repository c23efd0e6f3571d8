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

	"toolfinch/rawjson"
	"toolfinch/retrieve"
	"toolfinch/telemetry"
	"toolfinch/tool"
	"toolfinch/trust"
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

	mu    sync.Mutex          // guards what follows; held for look-ups only
	of    map[*session][]*run // the oldest first
	order []*run              // that have ended, the oldest first
	kept  int                 // bytes of arguments, and of the results of those in order
}

func newRuns() *runs {
	r := &runs{of: map[*session][]*run{}}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// close ends all calls and waits for them.
func (r *runs) close() {
	r.end()
	r.work.Wait()
}

// run is one call. What has started keeps of Stock and Tool what is shown of them: the
// catalog of a view that is served no more is let go.
type run struct {
	ID        string
	Stock     Stock
	Tool      *tool.Tool
	Kind      string
	Name      string          // of what was called: of a template, if it was read from one
	Of        tool.ID         // likewise
	Target    string          // the URI of a resource; else the name
	Arguments json.RawMessage // guarded by mu once it has started: see sent
	Roots     string          // as they were typed in
	Started   time.Time

	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it has ended; result, err, took and operation are set then

	result    tool.Result // guarded by mu once done is closed: see answer
	err       error
	took      time.Duration
	operation *telemetry.Operation

	mu    sync.Mutex // guards what follows; held for look-ups only
	asks  []*ask     // that wait for an answer
	asked int
	notes []string
	gone  bool // its arguments and result were dropped
}

// ask is something that a server wants to know meanwhile.
type ask struct {
	ID     int
	Method string
	Params json.RawMessage
	reply  chan reply // has room for one
}

type reply struct {
	result json.RawMessage
	err    error
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
	handler := one.handler()
	one.Stock, one.Tool = Stock{View: one.Stock.View, Root: one.Stock.Root}, &tool.Tool{Name: one.Tool.Name, Def: one.Tool.Def}
	one.ID, one.Started, one.cancel, one.done = strings.ToLower(rand.Text()[:12]), time.Now(), cancel, make(chan struct{})
	if err := r.add(q.session, one); err != nil {
		finish()
		return err
	}
	owner, session := q.owner(), q.session
	r.work.Go(func() {
		defer finish()
		one.make(ctx, handler, owner, session)
		one.operation = operation(string(one.request()))
		close(one.done)
		r.keep(session, one)
	})
	return nil
}

// add takes a run in, and forgets the oldest of its session that has ended.
func (r *runs) add(s *session, one *run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil || s.life.Err() != nil {
		return errors.New("the session has ended")
	}
	all := r.of[s]
	running := 0
	for _, other := range all {
		if !other.ended() {
			running++
		}
	}
	if running >= maxCalls {
		return fmt.Errorf("%d calls of yours run already: wait for one, or cancel it", running)
	}
	if all == nil {
		context.AfterFunc(s.life, func() { r.forget(s) })
	}
	for len(all) >= maxRuns {
		at := slices.IndexFunc(all, (*run).ended)
		r.drop(all[at])
		all = slices.Delete(all, at, at+1)
		r.of[s] = all
	}
	for r.kept += one.weight(); r.kept > maxKept; {
		if len(r.order) == 0 {
			r.kept -= one.weight()
			return errors.New("the arguments of the calls that run take too much memory: wait for one, or cancel it")
		}
		r.drop(r.order[0])
	}
	r.of[s] = append(all, one)
	return nil
}

// weight is how many bytes are kept of a run.
func (one *run) weight() int { return len(one.Arguments) + len(one.result) }

// forget forgets the calls of a session that has ended.
func (r *runs) forget(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.of[s] {
		r.drop(one)
	}
	delete(r.of, s)
}

// drop drops the arguments and the result of a run that is in order; the caller holds the
// lock.
func (r *runs) drop(one *run) {
	at := slices.Index(r.order, one)
	if at < 0 {
		return
	}
	r.order = slices.Delete(r.order, at, at+1)
	one.mu.Lock()
	defer one.mu.Unlock()
	r.kept -= one.weight()
	one.gone, one.result, one.Arguments = true, nil, nil
}

// sent are the arguments of a run; nil where they are not kept any more.
func (one *run) sent() json.RawMessage {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.Arguments
}

// answer is the result of a run that has ended; nil where there is none any more.
func (one *run) answer() tool.Result {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.result
}

// keep keeps the result of a run, in the place of the oldest ones; none of a run that its
// session has no more.
func (r *runs) keep(s *session, one *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.of[s], one) {
		r.kept -= len(one.Arguments)
		return
	}
	r.order = append(r.order, one)
	for r.kept += len(one.result); r.kept > maxKept && len(r.order) > 1; {
		r.drop(r.order[0])
	}
}

// all are the runs of a session, the latest first.
func (r *runs) all(s *session) []*run {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.of[s])
	slices.Reverse(all)
	return all
}

// find returns a run of a session, nil for none.
func (r *runs) find(s *session, id string) *run {
	for _, one := range r.all(s) {
		if one.ID == id {
			return one
		}
	}
	return nil
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

// handler is what makes the call.
func (one *run) handler() tool.Handler {
	stock, t, target, arguments := one.Stock, one.Tool, one.Target, one.Arguments
	if t.Def.ID.Kind == tool.KindTool {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			return stock.Retriever.Execute(ctx, call, t.Name, arguments)
		}
	}
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		return t.Handler(ctx, retrieve.CallOf(call, t, target, arguments))
	}
}

// make makes the call.
func (one *run) make(ctx context.Context, handler tool.Handler, owner bool, s *session) {
	call := &tool.Call{
		Name: one.Target, Principal: trust.NameOf(ctx), Request: one.request(), Local: owner, Notify: one.note,
		Params: json.RawMessage(`{"_meta":{"progressToken":1}}`),
		Client: &tool.Client{Name: clientName, Program: clientName, Key: one.key(s), Capabilities: json.RawMessage(`{"elicitation":{"form":{},"url":{}},"sampling":{}` + one.declared() + `}`), Ask: one.ask},
	}
	start := time.Now()
	one.result, one.err = tool.Safely(ctx, handler, call)
	one.took = time.Since(start)
	if one.err != nil && ctx.Err() != nil {
		one.err = context.Cause(ctx)
	}
}

// key is that of the client: a server may keep what it was told of roots.
func (one *run) key(s *session) string {
	key := "page " + trust.Digest(string(s.id[:]))
	if one.Roots != "" {
		key += " " + trust.Digest(one.Roots)
	}
	return key
}

func (one *run) declared() string {
	if one.Roots == "" {
		return ""
	}
	return `,"roots":{}`
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

// ask has somebody answer what a server asks. Roots are those that were typed in.
func (one *run) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	switch {
	case method == "roots/list" && one.Roots != "":
		return rootsOf(one.Roots), nil
	case method != "elicitation/create" && method != "sampling/createMessage":
		return nil, &tool.RPCError{Code: tool.CodeMethodNotFound, Message: "the page does not answer " + rawjson.Clip(method, 64)}
	}
	one.mu.Lock()
	if len(one.asks) >= maxAsks {
		one.mu.Unlock()
		return nil, &tool.RPCError{Code: tool.CodeInternal, Message: "too much is asked at once"}
	}
	one.asked++
	a := &ask{ID: one.asked, Method: method, Params: params, reply: make(chan reply, 1)}
	one.asks = append(one.asks, a)
	one.mu.Unlock()
	defer one.take(a.ID)
	select {
	case r := <-a.reply:
		return r.result, r.err
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
func (one *run) waiting() (asks []*ask, notes []string, gone bool) {
	one.mu.Lock()
	defer one.mu.Unlock()
	return slices.Clone(one.asks), slices.Clone(one.notes), one.gone
}

// rootsOf are the roots of lines of URIs.
func rootsOf(lines string) json.RawMessage {
	var all []json.RawMessage
	for line := range strings.Lines(lines) {
		if uri := strings.TrimSpace(line); uri != "" {
			var root rawjson.Object
			root.AddText("uri", uri)
			all = append(all, root.JSON())
		}
	}
	var out rawjson.Object
	out.Add("roots", rawjson.Array(all))
	return out.JSON()
}
