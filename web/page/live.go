package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/telemetry"
	"toolfinch/trust"
)

// House of the operations.
type watching interface {
	// Feed has the operations of all clients.
	Feed() *telemetry.Feed
	// Sees returns what who asks may know of an operation; false is nothing.
	Sees(ctx context.Context, o *telemetry.Operation) (telemetry.Operation, bool)
}

var (
	liveScreen = &screen{Path: "live", title: "Live", Menu: "Live", file: "live.html", script: "live.js", show: showLive}
	liveEvents = &screen{Path: "live/events", title: "Live", file: "live.html", raw: streamLive}
)

// Bounds of what is shown. static/live.js keeps twice as many rows.
const (
	maxDone    = 100
	maxRunning = 50
)

// filter is which operations somebody wants to see. All of it is in the query of the screen
// and of its stream.
type filter struct {
	Server, Tool, Client, Text string
	Outcome                    string // one of trust's, or unsuccessful
}

// unsuccessful are all outcomes but trust.Success.
const unsuccessful = "unsuccessful"

func filterOf(values url.Values) filter {
	return filter{Server: values.Get("server"), Tool: values.Get("tool"), Client: values.Get("client"), Text: values.Get("q"), Outcome: values.Get("outcome")}
}

// Query is the query that has the filter, "" for one that takes everything.
func (f filter) Query() string {
	values := url.Values{}
	for name, value := range map[string]string{"server": f.Server, "tool": f.Tool, "client": f.Client, "q": f.Text, "outcome": f.Outcome} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

func (f filter) takes(o *telemetry.Operation) bool {
	has := func(want string, texts ...string) bool {
		want = strings.ToLower(strings.TrimSpace(want))
		return want == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), want) })
	}
	switch {
	case f.Server != "" && f.Server != o.Server:
		return false
	case f.Outcome == unsuccessful && (o.Outcome == trust.Success || o.Outcome == ""):
		return false
	case f.Outcome != "" && f.Outcome != unsuccessful && f.Outcome != o.Outcome:
		return false
	}
	return has(f.Tool, o.Tool, o.Name) && has(f.Client, o.Client) && has(f.Text, o.Kind, o.Tool, o.Name, o.Client, o.Principal, o.View, o.Session, o.Reason, o.Said)
}

// operation is one as the templates show it.
type operation struct {
	telemetry.Operation
	Running bool
}

// Called is what was called, as its server names it where there is one.
func (o operation) Called() string {
	if o.Tool != "" {
		return o.Tool
	}
	return o.Name
}

// What is the kind of the operation, "" for a call.
func (o operation) What() string {
	switch o.Kind {
	case trust.EventRead:
		return "read"
	case trust.EventPrompt:
		return "prompt"
	case trust.EventRetrieve:
		return "search"
	}
	return ""
}

// State is the outcome, or that there is none yet.
func (o operation) State() string {
	if o.Running {
		return "running"
	}
	return o.Outcome
}

// Why is why it did not succeed: in words of ours, and in those of who answered.
func (o operation) Why() string {
	if o.Reason == "" || o.Said == "" {
		return o.Reason + o.Said
	}
	return o.Reason + ": " + o.Said
}

// Word is the state as people say it.
func (o operation) Word() string { return strings.ReplaceAll(o.State(), "_", " ") }

// Lasted is how long it took, or has run.
func (o operation) Lasted() string {
	if o.Running {
		return took(o.Duration.Truncate(time.Second / 10))
	}
	return took(o.Duration)
}

func (o operation) In() string    { return size(o.BytesIn) }
func (o operation) Out() string   { return size(o.BytesOut) }
func (o operation) Clock() string { return o.Time.Local().Format("15:04:05.000") }
func (o operation) Ours() string  { return took(o.Own) }

// stage is one as a bar: x and width are of a thousand.
type stage struct {
	telemetry.Stage
	Inside   int // how many others it lies within
	X, Width float64
	Lasted   string
}

// Bars are the stages of the operation.
func (o operation) Bars() (bars []stage) {
	whole := max(o.Duration, time.Nanosecond)
	for i, s := range o.Stages {
		ran := s.Duration
		if ran == telemetry.Unfinished {
			ran = max(whole-s.Start, 0)
		}
		bar := stage{Stage: s, X: 1000 * float64(s.Start) / float64(whole), Width: max(4, 1000*float64(ran)/float64(whole)), Lasted: took(ran)}
		bar.X = min(bar.X, 1000-4)
		bar.Width = min(bar.Width, 1000-bar.X)
		for _, before := range o.Stages[:i] {
			if before.Duration == telemetry.Unfinished || before.Start+before.Duration > s.Start {
				bar.Inside++
			}
		}
		bars = append(bars, bar)
	}
	return bars
}

// size is a number of bytes.
func size(n int) string {
	switch {
	case n < 1000:
		return strconv.Itoa(n) + " B"
	case n < 1000_000:
		return strconv.FormatFloat(float64(n)/1000, 'f', 1, 64) + " kB"
	}
	return strconv.FormatFloat(float64(n)/1000_000, 'f', 1, 64) + " MB"
}

// live is what the template shows: all, or one.
type live struct {
	Filter        filter
	Running, Done []operation
	More          int // operations that run, beside those shown
	Pager         pager
	Servers       []Upstream
	Outcomes      []string
	Owner         bool
	One           *operation
	Gone          bool // the one that was asked for is not kept any more
}

func (l live) Title() string {
	if l.One == nil {
		return ""
	}
	return l.One.Called()
}

func showLive(q *request) (any, error) {
	values := q.URL.Query()
	l := live{Filter: filterOf(values), Owner: q.owner(), Outcomes: []string{unsuccessful, trust.Success, trust.ToolError, trust.Denied, trust.Failed, trust.Cancelled, trust.Timeout}}
	if n, err := strconv.ParseInt(values.Get("n"), 10, 64); err == nil {
		if l.One = q.operation(n); l.One != nil {
			return l, nil
		}
		l.Gone = true
	}
	l.Servers = q.server.House.Servers(q.Context())
	offset, _ := strconv.Atoi(values.Get("offset"))
	all := q.done(l.Filter)
	l.Pager = pager{Offset: min(max(offset, 0), len(all)), Limit: maxDone, Total: len(all), link: "live" + l.Filter.Query()}
	if l.Pager.link += "?offset="; l.Filter.Query() != "" {
		l.Pager.link = "live" + l.Filter.Query() + "&offset="
	}
	l.Done = all[l.Pager.Offset:min(l.Pager.Offset+maxDone, len(all))]
	l.Running, l.More = q.running(l.Filter)
	return l, nil
}

// done are the finished operations that a filter takes and who asks may see, the last first.
func (q *request) done(f filter) (all []operation) {
	for _, o := range q.server.House.Feed().Recent(1<<20, nil) {
		if one, ok := q.sees(o, f); ok {
			all = append(all, operation{Operation: one})
		}
	}
	return all
}

func (q *request) sees(o *telemetry.Operation, f filter) (telemetry.Operation, bool) {
	one, ok := q.server.House.Sees(q.Context(), o)
	return one, ok && f.takes(&one)
}

// running are those that run, the oldest first, and how many there are beside. A filter by
// outcome takes none of them.
func (q *request) running(f filter) (shown []operation, more int) {
	all, n := q.server.House.Feed().InFlight()
	if q.owner() && f == (filter{}) {
		more = n - len(all)
	}
	for i := range all {
		if one, ok := q.sees(&all[i], f); ok {
			one.Duration = time.Since(one.Time)
			shown = append(shown, operation{one, true})
		}
	}
	if len(shown) > maxRunning {
		shown, more = shown[:maxRunning], more+len(shown)-maxRunning
	}
	return shown, more
}

// operation returns the one with a number, nil where it is not there any more, or is not
// for who asks.
func (q *request) operation(n int64) *operation {
	feed := q.server.House.Feed()
	running, _ := feed.InFlight() // first: it may end meanwhile
	for _, o := range feed.Recent(1, func(o *telemetry.Operation) bool { return o.N == n }) {
		if one, ok := q.sees(o, filter{}); ok {
			return &operation{Operation: one}
		}
	}
	for i := range running {
		if running[i].N == n {
			if one, ok := q.sees(&running[i], filter{}); ok {
				one.Duration = time.Since(one.Time)
				return &operation{one, true}
			}
		}
	}
	return nil
}

// Bounds of streams.
const (
	maxStreams  = 4 // of a session: browsers have six connections for all tabs
	maxBatch    = 50
	beat        = 15 * time.Second // something is written at least so often
	writeWithin = 10 * time.Second // a browser that reads nothing for so long is gone
	lookEvery   = time.Second      // at what runs
)

// streamLive tells of operations as they finish and of those that run, as rows. It begins
// with the last ones, so that nothing is lost between the page and the stream, or two streams.
func streamLive(q *request) {
	s := q.server
	if q.session.streams.Add(1) > maxStreams {
		q.session.streams.Add(-1)
		http.Error(q.w, "too many tabs of this session follow", http.StatusTooManyRequests)
		return
	}
	defer q.session.streams.Add(-1)
	calls, ok := s.House.Feed().Subscribe()
	if !ok {
		http.Error(q.w, "too many browsers follow", http.StatusServiceUnavailable)
		return
	}
	defer calls.Close()
	trust.Lasts(q.Context())
	q.w.Header().Set("Content-Type", "text/event-stream")
	q.w.Header().Set("X-Accel-Buffering", "no")
	if q.Method == http.MethodHead { // it asks whether there would be one
		return
	}
	out := &events{w: q.w, control: http.NewResponseController(q.w)}
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }()
	err := out.follow(q, calls)
	if err != nil && q.Context().Err() == nil && !errors.Is(err, errClosing) {
		s.Log.Debug("page: a stream has ended", "error", err)
	}
}

// events is an event stream.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	last    time.Time // something was written
}

var errClosing = errors.New("toolfinch ends")

func (e *events) follow(q *request, calls *telemetry.Subscription) error {
	f, ctx := filterOf(q.URL.Query()), q.Context()
	last := q.done(f)
	last = last[:min(maxDone, len(last))]
	slices.Reverse(last)
	if err := e.write("", nil); err != nil { // that it is open
		return err
	}
	if err := e.rows(q, "calls", last); err != nil {
		return err
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	shown := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-q.server.closing:
			return errClosing
		case o := <-calls.Operations():
			if err := e.rows(q, "calls", q.batch(f, o, calls)); err != nil {
				return err
			}
		case <-look.C:
			q.server.sessions.use(q.session)
			if n := calls.Dropped(); n > 0 {
				if err := e.write("dropped", []byte(strconv.Itoa(n))); err != nil {
					return err
				}
			}
			running, more := q.running(f)
			html, err := q.rows(running, more)
			switch {
			case err != nil:
				return err
			case string(html) != shown:
				shown = string(html)
				err = e.write("running", html)
			case time.Since(e.last) >= beat:
				err = e.write("", nil)
			}
			if err != nil {
				return err
			}
		}
	}
}

// batch are an operation that has finished and those after it that wait already, the first
// first.
func (q *request) batch(f filter, first *telemetry.Operation, calls *telemetry.Subscription) (all []operation) {
	o := first
	for {
		if one, ok := q.sees(o, f); ok {
			all = append(all, operation{Operation: one})
		}
		if len(all) == maxBatch {
			return all
		}
		select {
		case o = <-calls.Operations():
		default:
			return all
		}
	}
}

// rows renders operations as rows of the table.
func (q *request) rows(all []operation, more int) ([]byte, error) {
	var b bytes.Buffer
	err := parsed()[liveScreen.file].ExecuteTemplate(&b, "live-rows", map[string]any{"All": all, "More": more, "Owner": q.owner()})
	return revealed(b.Bytes()), err
}

func (e *events) rows(q *request, event string, all []operation) error {
	if len(all) == 0 {
		return nil
	}
	html, err := q.rows(all, 0)
	if err != nil {
		return err
	}
	return e.write(event, html)
}

// write sends an event; one without a name is a comment. A line break would end a line of
// it: there are none in rows but those of names, which mean nothing.
func (e *events) write(event string, data []byte) error {
	var b bytes.Buffer
	if event == "" {
		b.WriteString(":\n\n")
	} else {
		b.WriteString("event: " + event + "\ndata: ")
		b.Write(bytes.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return ' '
			}
			return r
		}, data))
		b.WriteString("\n\n")
	}
	e.last = time.Now()
	_ = e.control.SetWriteDeadline(e.last.Add(writeWithin))
	if _, err := e.w.Write(b.Bytes()); err != nil {
		return err
	}
	return e.control.Flush()
}
