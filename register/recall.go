package register

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"sync"

	"toolfinch/tool"
)

// Bounds of what is remembered: of callers, which may call themselves anything, and of
// the tools of one.
const (
	maxCallers = 1000
	maxCalled  = 50
)

// recent remembers which tools clients called in their last eight sessions: through
// call_tool or by their names, which the model of a resumed conversation calls again
// though its agent refuses what its new session was not listed.
type recent struct {
	remember func(by tool.Caller, called []tool.Called)

	mu     sync.Mutex // guards called, whose lists are replaced, never edited; remember is called outside of it
	called map[tool.Caller][]tool.Called
}

func newRecent(known map[tool.Caller][]tool.Called, remember func(tool.Caller, []tool.Called)) *recent {
	return &recent{remember: remember, called: maps.Clone(known)}
}

// Recalled takes in what callers called in their last sessions, in this process and others. What is known
// here and not stored may be about to be.
func (l *Live) Recalled(known map[tool.Caller][]tool.Called) {
	r := l.recent
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[tool.Caller][]tool.Called{}
	maps.Copy(now, known)
	for by, called := range r.called {
		all := slices.Clone(now[by])
		for _, c := range called {
			if !slices.ContainsFunc(all, func(stored tool.Called) bool { return stored.Name == c.Name }) {
				all = append(all, c)
			}
		}
		if _, stored := now[by]; stored || len(now) < maxCallers {
			now[by] = all[:min(len(all), maxCalled)]
		}
	}
	r.called = now
}

// of returns the names of up to most tools with which a new session of a caller begins:
// those of the last two sessions, and of more than half of the known ones; the most
// usual, then the last called. They are sorted, so that lists of the same tools are equal.
func (r *recent) of(by tool.Caller, most int) (names []string) {
	r.mu.Lock()
	called := slices.Clone(r.called[by])
	r.mu.Unlock()
	known := 0
	for _, c := range called {
		known = max(known, bits.Len8(c.Sessions))
	}
	slices.SortStableFunc(called, func(a, b tool.Called) int {
		return cmp.Compare(bits.OnesCount8(b.Sessions), bits.OnesCount8(a.Sessions))
	})
	for _, c := range called {
		if len(names) < most && (c.Sessions&3 != 0 || 2*bits.OnesCount8(c.Sessions) > known) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// note notes a call; first says that it is the first of its session.
func (r *recent) note(by tool.Caller, name string, first bool) {
	r.mu.Lock()
	before, known := r.called[by]
	if !known && len(r.called) >= maxCallers {
		clear(r.called)
	}
	if r.called == nil {
		r.called = map[tool.Caller][]tool.Called{}
	}
	now, news := []tool.Called{{Name: name, Sessions: 1}}, true
	for _, c := range before {
		if first {
			c.Sessions <<= 1
		}
		switch {
		case c.Name == name:
			news = c.Sessions&1 == 0
			now[0].Sessions |= c.Sessions
		case c.Sessions != 0:
			now = append(now, c)
		}
	}
	now = now[:min(len(now), maxCalled)]
	r.called[by] = now
	r.mu.Unlock()
	if news { // that the order changed is not worth a write
		r.remember(by, now)
	}
}

// Used notes that a client called a tool, by its name or through call_tool.
func (l *Live) Used(call *tool.Call, t *tool.Tool) {
	s := l.sessionFor(call)
	if s == nil {
		return
	}
	served := l.servedNow(s)
	if !served.recalls(call) {
		return
	}
	s.mu.Lock()
	first := !s.called
	s.called = true
	news := len(s.used) < served.maxRegistered() && !slices.Contains(s.used, t)
	if news {
		s.used = append(s.used, t)
	}
	s.mu.Unlock()
	if news || first {
		l.observer.Changed(s.id)
	}
	l.recent.note(callerOf(call), t.Name, first)
}

// recall registers, before a session's first list, the tools that its client is likely
// to call.
func (l *Live) recall(served *Served, call *tool.Call, s *session) {
	if !served.recalls(call) {
		return
	}
	names := l.recent.of(callerOf(call), served.Recall)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recalled {
		return
	}
	s.recalled = true
	var tools []*tool.Tool
	for _, name := range names {
		if t, ok := served.Lookup(name); ok {
			tools = append(tools, t)
		}
	}
	tools = served.registrable(tools)
	free := max(served.maxRegistered()-len(s.set.tools), 0) // what its client has searched for is not displaced
	s.set, _ = s.set.plan(tools[:min(len(tools), served.Recall, free)], served.maxRegistered())
}

// recalls reports whether new sessions of the client that makes a call begin with tools
// that it called before: those of clients for which tools are registered, and with Learn
// of all.
func (v *Served) recalls(call *tool.Call) bool {
	return v.Recall > 0 && v.Register != nil && !v.gated() && call.Client != nil && (v.Learn || v.Register(call.Client.Name) != Never)
}

func callerOf(call *tool.Call) tool.Caller {
	return tool.Caller{Principal: call.Principal, Client: call.Client.Name}
}

// sessionFor is the session of a call. On stdio a 2026-07-28 client has one, too: the
// process.
func (l *Live) sessionFor(call *tool.Call) *session {
	if s := l.session(call.Session); s != nil || call.Client == nil || !call.Client.Modern || call.Header != nil {
		return s
	}
	return l.process
}
