package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// watching is the Backend of the screen Live.
type watching interface {
	// Feed returns the operations of all clients.
	Feed() *telemetry.Feed
	// Sees returns the part of an operation that the user may see; false means nothing.
	Sees(ctx context.Context, o *telemetry.Operation) (telemetry.Operation, bool)
}

var liveScreen = &screen{Path: "live", title: "Live", Menu: "Live", file: "live.html", show: showLive, do: doLive}

// maxRunning bounds the running operations that are shown.
const maxRunning = 50

// filter selects operations. The query of the screen states it.
type filter struct {
	Server, Text string
	Outcome      string // an outcome of package identity, or unsuccessful
}

// unsuccessful stands for all outcomes except identity.Success.
const unsuccessful = "unsuccessful"

func filterOf(values url.Values) filter {
	return filter{Server: values.Get("server"), Text: values.Get("q"), Outcome: values.Get("outcome")}
}

func (f filter) Link() string {
	return address("live", "server", f.Server, "q", f.Text, "outcome", f.Outcome)
}

func (f filter) Active() bool { return f != filter{} }

func (f filter) takes(o *telemetry.Operation, searches []telemetry.Search) bool {
	switch {
	case f.Server != "" && f.Server != o.Server:
		return false
	case f.Outcome == unsuccessful && (o.Outcome == identity.Success || o.Outcome == ""):
		return false
	case f.Outcome != "" && f.Outcome != unsuccessful && f.Outcome != o.Outcome:
		return false
	}
	want := strings.ToLower(strings.TrimSpace(f.Text))
	texts := []string{o.Kind, o.Tool, o.Name, o.Client, o.Principal, o.View, o.Session, o.Reason, o.Said}
	for _, s := range searches {
		texts = append(texts, s.Query)
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), want)
	})
}

// operation is an operation as the templates show it.
type operation struct {
	telemetry.Operation
	Running  bool
	Searches []telemetry.Search // only for the owner
}

// Called is the ID of the called definition or, if unknown, the name that the client used.
func (o operation) Called() string {
	if o.Tool != "" {
		return o.Tool
	}
	return o.Name
}

// What names the kind of the operation, "" for a call.
func (o operation) What() string {
	switch o.Kind {
	case identity.EventRead:
		return "read"
	case identity.EventPrompt:
		return "prompt"
	case identity.EventRetrieve:
		return "search"
	}
	return ""
}

func (o operation) State() string {
	if o.Running {
		return "running"
	}
	return o.Outcome
}

// Why says why the operation did not succeed: toolfinch's reason, and the server's message.
func (o operation) Why() string {
	if o.Reason == "" || o.Said == "" {
		return o.Reason + o.Said
	}
	return o.Reason + ": " + o.Said
}

func (o operation) Word() string { return strings.ReplaceAll(o.State(), "_", " ") }

// Lasted is the duration so far.
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

// stage is drawn as a bar. X and Width are thousandths of the operation's duration.
type stage struct {
	telemetry.Stage
	Inside   int // number of stages that contain this stage
	X, Width float64
	Lasted   string
}

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

func size(n int) string {
	switch {
	case n < 1000:
		return strconv.Itoa(n) + " B"
	case n < 1000_000:
		return strconv.FormatFloat(float64(n)/1000, 'f', 1, 64) + " kB"
	}
	return strconv.FormatFloat(float64(n)/1000_000, 'f', 1, 64) + " MB"
}

// live is the data of the template: operations, or the operation One.
type live struct {
	Filter        filter
	Running, Done []operation
	More          int // number of running operations that are not shown
	Pager         pager
	Servers       []Upstream
	Outcomes      []string
	Owner         bool
	One           *operation
	Asked         []searched // searches of One
	Corrections   []correction
	Gone          bool // the requested operation is not kept any more
}

func (l live) Title() string {
	if l.One == nil {
		return ""
	}
	return l.One.Called()
}

func showLive(q *request) (any, error) {
	values := q.URL.Query()
	l := live{Filter: filterOf(values), Owner: q.owner(), Outcomes: []string{unsuccessful, identity.Success, identity.ToolError, identity.Denied, identity.Failed, identity.Cancelled, identity.Timeout}}
	if n, err := strconv.ParseInt(values.Get("n"), 10, 64); err == nil {
		if l.One = q.operation(n); l.One != nil {
			if l.Owner {
				kept, _ := q.server.Backend.Feed().SearchesOf(n)
				l.Asked, l.Corrections = q.searchedAgain(kept), q.server.corrections.of(n)
			}
			return l, nil
		}
		l.Gone = true
	}
	l.Servers = q.server.Backend.Servers(q.Context())
	offset, _ := strconv.Atoi(values.Get("offset"))
	all := q.done(l.Filter)
	l.Pager = pager{Offset: min(max(offset, 0), len(all)), Limit: perPage, Total: len(all), link: l.Filter.Link()}
	l.Done = all[l.Pager.Offset:l.Pager.Last()]
	l.Running, l.More = q.running(l.Filter)
	return l, nil
}

// done returns the finished operations that pass the filter and that the user may see, latest first.
func (q *request) done(f filter) (all []operation) {
	kept := map[int64][]telemetry.Search{}
	if q.owner() {
		for _, s := range q.server.Backend.Feed().Searches() {
			kept[s.N] = s.All
		}
	}
	for _, o := range q.server.Backend.Feed().Recent(1<<20, nil) {
		if one, ok := q.sees(o, kept[o.N], f); ok {
			all = append(all, operation{Operation: one, Searches: kept[o.N]})
		}
	}
	return all
}

func (q *request) sees(o *telemetry.Operation, searches []telemetry.Search, f filter) (telemetry.Operation, bool) {
	one, ok := q.server.Backend.Sees(q.Context(), o)
	return one, ok && f.takes(&one, searches)
}

// running returns the running operations, oldest first, and how many are left out. Filters by outcome exclude them all.
func (q *request) running(f filter) (shown []operation, more int) {
	all, n := q.server.Backend.Feed().InFlight()
	if q.owner() && f == (filter{}) {
		more = n - len(all)
	}
	for i := range all {
		if one, ok := q.sees(&all[i], nil, f); ok {
			one.Duration = time.Since(one.Time)
			shown = append(shown, operation{Operation: one, Running: true})
		}
	}
	if len(shown) > maxRunning {
		shown, more = shown[:maxRunning], more+len(shown)-maxRunning
	}
	return shown, more
}

// operation returns the operation with number n, nil if it is not kept any more or the user may not see it.
func (q *request) operation(n int64) *operation {
	feed := q.server.Backend.Feed()
	running, _ := feed.InFlight() // before Recent, because an operation may end in between
	for _, o := range feed.Recent(1, func(o *telemetry.Operation) bool { return o.N == n }) {
		if one, ok := q.sees(o, nil, filter{}); ok {
			return &operation{Operation: one}
		}
	}
	for i := range running {
		if running[i].N == n {
			if one, ok := q.sees(&running[i], nil, filter{}); ok {
				one.Duration = time.Since(one.Time)
				return &operation{Operation: one, Running: true}
			}
		}
	}
	return nil
}

// doLive handles the forms of one search: a hit or another tool was meant, or is hidden.
func doLive(q *request) (answer, error) {
	to := answer{to: "live" + query(q)}
	if !q.owner() {
		return to, errOwner
	}
	n, _ := strconv.ParseInt(q.URL.Query().Get("n"), 10, 64)
	kept, ok := q.server.Backend.Feed().SearchesOf(n)
	if !ok {
		return to, errors.New("this search is not kept any more")
	}
	name := strings.TrimSpace(q.PostForm.Get("tool"))
	switch do := q.PostForm.Get("do"); do {
	case "meant":
		i, err := strconv.Atoi(q.PostForm.Get("search"))
		if err != nil || i < 0 || i >= len(kept.All) {
			return to, refusef(http.StatusBadRequest, "there is no such search")
		}
		return to, q.meant(kept, i, name, q.server.Backend.Feed().Searches())
	case "hide":
		catalogue, _, err := catalogueOf(q, kept.View)
		if err != nil {
			return to, err
		}
		return to, q.hide(catalogue, name)
	case "undo":
		server, words, _ := strings.Cut(q.PostForm.Get("words"), " ")
		return to, q.forget(tool.ID{Server: server, Name: name}, strings.Fields(words))
	default:
		return to, refusef(http.StatusBadRequest, "this page does not do %q", do)
	}
}
