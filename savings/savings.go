// Package savings owns the count of what a choice of tools saves: the tokens that
// the models of clients were listed and answered, beside what listing every tool
// would have cost them. It decides nothing about what is listed.
package savings

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
)

const (
	// every is how often what was noted is counted and written.
	every = 5 * time.Second
	// maxNoted bounds the bytes that wait to be counted: counting as much takes up
	// to 0.4 s.
	maxNoted = 4 << 20
	// maxSessions bounds the sessions, and maxHeld the tools in their lists.
	maxSessions = 10_000
	maxHeld     = 2_000_000
)

// Benchmark is how the name of a client begins whose traffic is not counted.
const Benchmark = "toolfinch-bench"

// View is a view of tools whose traffic is counted.
type View interface {
	Name() string
	// Tokens is what listing one tool costs, and ListingCost what listing every
	// tool of the view costs now.
	Tokens(t *tool.Tool) int
	ListingCost(ctx context.Context) int
}

// Meter counts by view. A session counts from its first list on: clients that never
// list are left out. Where a client waits only a note is made.
type Meter struct {
	log *slog.Logger

	mu    sync.Mutex // guards the next three; held for an append
	notes []note
	noted int // bytes of the notes
	lost  int // notes there was no room for

	counting sync.Mutex // guards the rest; held while tokens are counted and sums are written, never where a client waits
	sessions map[string]*session
	held     int                      // tools in the lists of the sessions
	unsaved  map[string]store.Savings // by view
	total    map[string]store.Savings // by view, since the start
}

// session is what one client has received.
type session struct {
	full int          // what listing every tool cost, at its most
	list []*tool.Tool // what it was listed last
}

// note is a list, an answer, or the end of a session.
type note struct {
	view    View // nil at the end of a session
	session string
	list    []*tool.Tool
	answer  tool.Result // nil of a list
	search  bool        // the answer is that of a search
}

// New returns a meter that has counted nothing.
func New(log *slog.Logger) *Meter {
	return &Meter{log: log, sessions: map[string]*session{}, unsaved: map[string]store.Savings{}, total: map[string]store.Savings{}}
}

// Listed notes an answer to tools/list. id is "" for a client without sessions:
// clients of one name share one session a day then. Nobody may change tools
// afterwards.
func (m *Meter) Listed(v View, id, client string, tools []*tool.Tool) {
	m.note(v, id, client, note{list: tools})
}

// Around returns t with a handler that notes what it answers. search says that it
// searches; an answer to a call for which skip reports true is not noted.
func (m *Meter) Around(v View, t *tool.Tool, search bool, skip func(*tool.Call) bool) *tool.Tool {
	return &tool.Tool{Name: t.Name, Def: t.Def, Handler: func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := t.Handler(ctx, call)
		if err == nil && len(result) > 0 && !result.Failed() && !skip(call) {
			client := ""
			if call.Client != nil {
				client = call.Client.Name
			}
			m.note(v, call.Session, client, note{answer: result, search: search})
		}
		return result, err
	}}
}

// Forget notes that a session has ended. That is never lost.
func (m *Meter) Forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, note{session: id})
}

func (m *Meter) note(v View, id, client string, n note) {
	if strings.HasPrefix(client, Benchmark) {
		return
	}
	n.view, n.session = v, cmp.Or(id, strings.Join([]string{"", v.Name(), client, today()}, "\x00"))
	size := 128 + len(n.answer) + 8*len(n.list)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noted > 0 && m.noted+size > maxNoted {
		m.lost++
		return
	}
	m.notes = append(m.notes, n)
	m.noted += size
}

func today() string { return time.Now().UTC().Format(time.DateOnly) }

// Run counts what is noted and adds it to db until ctx ends, and then the rest.
func (m *Meter) Run(ctx context.Context, db *store.Store) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			m.save(ctx, db)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), every)
	defer cancel()
	m.save(ctx, db)
}

// save counts, and writes what was not written yet. What cannot be written is kept
// for the next time.
func (m *Meter) save(ctx context.Context, db *store.Store) {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.count(ctx)
	if len(m.unsaved) == 0 {
		return
	}
	if err := db.AddSavings(ctx, today(), sorted(m.unsaved)); err != nil {
		m.log.Warn("savings are not written to the store yet", "error", err)
		return
	}
	clear(m.unsaved)
}

// Totals counts, and returns the sums since the start by view. Their Day is empty.
func (m *Meter) Totals(ctx context.Context) []store.Savings {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.count(ctx)
	return sorted(m.total)
}

func sorted(sums map[string]store.Savings) []store.Savings {
	return slices.SortedFunc(maps.Values(sums), func(a, b store.Savings) int { return cmp.Compare(a.View, b.View) })
}

// count counts what was noted, in its order. The lock counting is held.
func (m *Meter) count(ctx context.Context) {
	m.mu.Lock()
	notes, lost := m.notes, m.lost
	m.notes, m.noted, m.lost = nil, 0, 0
	m.mu.Unlock()
	if lost > 0 {
		m.log.Warn("too much at once: lists or answers are missing from the savings", "missing", lost)
	}
	for _, n := range notes {
		s := m.sessions[n.session]
		switch {
		case n.view == nil:
			m.end(n.session)
		case n.answer == nil:
			m.countList(ctx, s, n)
		case s != nil:
			sum := store.Savings{Answers: int64(tool.CountTokens(textOf(n.answer))), Full: s.grow(ctx, n.view)}
			if n.search {
				sum.Retrievals = 1
			}
			m.add(n.view, sum)
		}
	}
}

// countList counts a list: what was not in the session's list before.
func (m *Meter) countList(ctx context.Context, s *session, n note) {
	if len(m.sessions) >= maxSessions || m.held > maxHeld {
		clear(m.sessions)
		m.held, s = 0, nil
	}
	sum := store.Savings{}
	if s == nil {
		s = &session{}
		m.sessions[n.session] = s
		sum.Sessions = 1
	}
	before := make(map[[2]string]bool, len(s.list))
	for _, t := range s.list {
		before[[2]string{t.Name, t.Def.Hash}] = true
	}
	for _, t := range n.list {
		if !before[[2]string{t.Name, t.Def.Hash}] {
			sum.Listed += int64(n.view.Tokens(t))
		}
	}
	m.held += len(n.list) - len(s.list)
	s.list = n.list
	sum.Full = s.grow(ctx, n.view)
	m.add(n.view, sum)
}

func (m *Meter) end(id string) {
	if s := m.sessions[id]; s != nil {
		m.held -= len(s.list)
		delete(m.sessions, id)
	}
}

// grow returns by how much listing every tool costs the session more than ever
// before: servers that are listed later count when they come.
func (s *session) grow(ctx context.Context, v View) int64 {
	by := max(0, v.ListingCost(ctx)-s.full)
	s.full += by
	return int64(by)
}

// add adds to the sums of a view.
func (m *Meter) add(v View, sum store.Savings) {
	sum.View = v.Name()
	for _, sums := range []map[string]store.Savings{m.total, m.unsaved} {
		sums[sum.View] = sum.Plus(sums[sum.View])
	}
}

// textOf is the text of the content blocks of an answer, embedded resources too.
func textOf(answer tool.Result) (text []byte) {
	for block := range rawjson.Elements(rawjson.Member([]byte(answer), "content")) {
		if resource := rawjson.Member(block, "resource"); resource != nil {
			block = resource
		}
		text = append(text, rawjson.Text(rawjson.Member(block, "text"))...)
	}
	return text
}
