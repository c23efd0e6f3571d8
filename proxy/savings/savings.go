// Package savings owns the account of the tokens that a choice of tools saves: the tokens that clients'
// models read in each step, as far as a proxy sees them, and the tokens that they would read if every
// tool were listed. It decides nothing about lists.
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
	// every is the pause between two counts of the notes.
	every = 5 * time.Second
	// maxNoted bounds the bytes of uncounted notes: counting them all takes up to 0.4 s. At half of it
	// they are counted at once.
	maxNoted = 4 << 20
	// maxSessions bounds the sessions, and maxHeld the tools in their lists.
	maxSessions = 10_000
	maxHeld     = 2_000_000
)

// View is a view of tools whose traffic is counted.
type View interface {
	Name() string
	// Tokens is the cost of listing one tool, ListingCost the present cost of listing every tool of the
	// view.
	Tokens(t *tool.Tool) int
	ListingCost(ctx context.Context) int
}

// Kind compares a call with a session that is listed every tool.
type Kind int

// The kinds of calls.
const (
	Use      Kind = iota // made in both
	Search               // it finds tools
	Describe             // describes tools like a list, or manages the choice
)

// Meter counts by view. A session counts from its first list: clients that never list are left out.
// Clients wait only for a note.
type Meter struct {
	log  *slog.Logger
	wake chan struct{} // has room for one

	mu    sync.Mutex // guards the next three; held for an append
	notes []note
	noted int // bytes of the notes
	lost  int // notes dropped for lack of room

	counting sync.Mutex // guards the rest; held during a count and a write of the sums, never while a client waits
	sessions map[string]*session
	held     int                      // tools in the lists of the sessions
	unsaved  map[string]store.Savings // by view
	total    map[string]store.Savings // by view, since the start
}

// event is the event of a note.
type event int

const (
	isListed event = iota
	isCalled
	isAnswered
	isEnded
)

// note is one event of a session.
type note struct {
	of              event
	at              time.Time
	view            View
	session, client string
	kind            Kind         // of a call
	list            []*tool.Tool // the answer to tools/list
	answer          []byte       // to a call; nil for lack of room
	size            int          // bytes of the answer
}

// New returns a meter with nothing counted.
func New(log *slog.Logger) *Meter {
	return &Meter{log: log, wake: make(chan struct{}, 1), sessions: map[string]*session{},
		unsaved: map[string]store.Savings{}, total: map[string]store.Savings{}}
}

// Listed notes an answer to tools/list. id is "" for a client without sessions: clients of one name
// then share one session a day. tools must not change afterwards.
func (m *Meter) Listed(v View, id, client string, tools []*tool.Tool) {
	m.note(note{of: isListed, view: v, session: id, client: client, list: tools})
}

// Called notes a call, and returns a function that notes its answer, which must not change afterwards.
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

// Ended notes the end of a session.
func (m *Meter) Ended(id string) { m.note(note{of: isEnded, session: id}) }

// note reports whether it noted n. Only lists and calls are dropped for lack of room; an answer may
// lose its text.
func (m *Meter) note(n note) bool {
	n.at = time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	const alone = 200 // bytes of a note without its answer
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

// Run counts notes and adds the sums to stored until ctx ends, and then once more.
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

// save counts, and writes the unsaved sums. After a failure they are kept for the next time.
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

// Totals counts, and returns the sums since the start by view, without a Day. The step that reads a
// session's last answers counts with its next call or its end.
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

// count counts the notes in their order. The lock counting is held.
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
		case s == nil: // the session never listed
		case n.of == isCalled:
			m.add(s.view, s.call(ctx, n))
		case n.of == isAnswered:
			m.add(s.view, s.answer(n))
		}
	}
}

// list counts a session's list; s is nil for a new session.
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

// end counts the step that reads a session's last answers, and forgets the session.
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
