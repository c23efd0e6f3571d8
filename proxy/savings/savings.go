// Package savings owns the account of what a choice of tools saves: what the models
// of clients read step by step, as far as a proxy sees it, beside what they would
// have read had every tool been listed. It decides nothing about what is listed.
package savings

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/store"
	"toolfinch/tool"
)

const (
	// every is how often what was noted is counted and written.
	every = 5 * time.Second
	// maxNoted bounds the bytes that wait to be counted: counting as much takes up
	// to 0.4 s. At half of it they are counted at once.
	maxNoted = 4 << 20
	// maxSessions bounds the sessions, and maxHeld the tools in their lists.
	maxSessions = 10_000
	maxHeld     = 2_000_000
)

// View is a view of tools whose traffic is counted.
type View interface {
	Name() string
	// Tokens is what listing one tool costs, and ListingCost what listing every
	// tool of the view costs now.
	Tokens(t *tool.Tool) int
	ListingCost(ctx context.Context) int
}

// Kind is what a call is, beside listing every tool.
type Kind int

// The kinds of calls.
const (
	Use      Kind = iota // a client that is listed every tool makes it, too
	Search               // it finds tools
	Describe             // it says of tools what a list says, or manages the choice
)

// Meter counts by view. A session counts from its first list on: clients that never
// list are left out. Where a client waits only a note is made.
type Meter struct {
	log  *slog.Logger
	wake chan struct{} // has room for one

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

// event is what a note is about.
type event int

const (
	isListed event = iota
	isCalled
	isAnswered
	isEnded
)

// note is one thing that happened in a session.
type note struct {
	of              event
	at              time.Time
	view            View
	session, client string
	kind            Kind         // of a call
	list            []*tool.Tool // that was listed
	answer          []byte       // to a call; nil where there was no room for it
	size            int          // bytes of the answer
}

// New returns a meter that has counted nothing.
func New(log *slog.Logger) *Meter {
	return &Meter{log: log, wake: make(chan struct{}, 1), sessions: map[string]*session{},
		unsaved: map[string]store.Savings{}, total: map[string]store.Savings{}}
}

// Listed notes an answer to tools/list. id is "" for a client without sessions:
// clients of one name share one session a day then. Nobody may change tools
// afterwards.
func (m *Meter) Listed(v View, id, client string, tools []*tool.Tool) {
	m.note(note{of: isListed, view: v, session: id, client: client, list: tools})
}

// Called notes a call, and returns what notes its answer, which nobody may change
// afterwards.
func (m *Meter) Called(v View, id, client string, kind Kind) (answered func(answer []byte)) {
	n := note{of: isCalled, view: v, session: id, client: client, kind: kind}
	if !m.note(n) {
		return func([]byte) {}
	}
	return func(answer []byte) {
		n.of, n.answer, n.size = isAnswered, answer, len(answer)
		m.note(n)
	}
}

// Ended notes that a session has ended.
func (m *Meter) Ended(id string) { m.note(note{of: isEnded, session: id}) }

// note reports whether it noted n. Only lists and calls may find no room; an answer
// may lose its text.
func (m *Meter) note(n note) bool {
	n.at = time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	const alone = 200 // bytes of a note
	size := alone + len(n.answer) + 8*len(n.list)
	if m.noted > 0 && m.noted+size > maxNoted {
		switch n.of {
		case isListed, isCalled:
			m.lost++
			return false
		}
		n.answer, size = nil, alone
	}
	m.notes = append(m.notes, n)
	m.noted += size
	if m.noted > maxNoted/2 {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return true
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Run counts what is noted and adds it to db until ctx ends, and then the rest.
func (m *Meter) Run(ctx context.Context, stored *store.Usage) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-m.wake:
			m.Totals(ctx)
		case <-tick.C:
			m.save(ctx, stored)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(every))
	defer cancel()
	m.finish(ctx)
	m.save(ctx, stored)
}

// save counts, and writes what was not written yet. What cannot be written is kept
// for the next time.
func (m *Meter) save(ctx context.Context, stored *store.Usage) {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.count(ctx)
	if len(m.unsaved) == 0 {
		return
	}
	if err := stored.AddSavings(ctx, day(time.Now()), sorted(m.unsaved)); err != nil {
		m.log.Log(ctx, store.Level(err), "savings are not written to the store yet", "error", err)
		return
	}
	clear(m.unsaved)
}

// Totals counts, and returns the sums since the start by view. Their Day is empty.
// The step that reads the last answers of a session counts with its next call, or
// when the session ends.
func (m *Meter) Totals(ctx context.Context) []store.Savings {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.count(ctx)
	return sorted(m.total)
}

// finish ends all sessions.
func (m *Meter) finish(ctx context.Context) {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.count(ctx)
	for id := range m.sessions {
		m.end(id)
	}
}

func sorted(sums map[string]store.Savings) []store.Savings {
	all := slices.Collect(maps.Values(sums))
	sort.Slice(all, func(i, j int) bool { return all[i].View < all[j].View })
	return all
}

// count counts what was noted, in its order. The lock counting is held.
func (m *Meter) count(ctx context.Context) {
	m.mu.Lock()
	notes, lost := m.notes, m.lost
	m.notes, m.noted, m.lost = nil, 0, 0
	m.mu.Unlock()
	if lost > 0 {
		m.log.Warn("too much at once: lists or calls are missing from the savings", "missing", lost)
	}
	for _, n := range notes {
		id := n.session
		if id == "" && n.view != nil {
			id = strings.Join([]string{"", n.view.Name(), n.client, day(n.at)}, "\x00")
		}
		s := m.sessions[id]
		switch {
		case n.of == isEnded:
			m.end(id)
		case n.of == isListed:
			m.list(ctx, id, s, n)
		case s == nil: // it never listed
		case n.of == isCalled:
			m.add(s.view, s.call(ctx, n))
		case n.of == isAnswered:
			m.add(s.view, s.answer(n))
		}
	}
}

// list takes a list that a session was answered; s is nil of a new one.
func (m *Meter) list(ctx context.Context, id string, s *session, n note) {
	if len(m.sessions) >= maxSessions || m.held > maxHeld {
		clear(m.sessions)
		m.held, s = 0, nil
	}
	if s == nil {
		s = &session{view: n.view.Name()}
		m.sessions[id] = s
		m.add(s.view, store.Savings{Sessions: 1})
	}
	m.held += len(n.list) - len(s.list)
	s.lists(ctx, n)
}

// end counts the step that reads the last answers of a session, and forgets it.
func (m *Meter) end(id string) {
	s := m.sessions[id]
	if s == nil {
		return
	}
	if s.began {
		m.add(s.view, s.step())
	}
	m.held -= len(s.list)
	delete(m.sessions, id)
}

// add adds to the sums of a view.
func (m *Meter) add(view string, sum store.Savings) {
	sum.View = view
	for _, sums := range []map[string]store.Savings{m.total, m.unsaved} {
		sums[view] = sum.Plus(sums[view])
	}
}
