package register

import (
	"maps"
	"slices"

	"toolfinch/tool"
)

// Recalled merges stored calls of all processes into the known ones. Calls that are known only here may
// still wait for the store.
func (l *Live) Recalled(known map[tool.Caller][]tool.Called) {
	r := l.recentCalls
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
	maps.DeleteFunc(r.last, func(by tool.Caller, _ int64) bool { return now[by] == nil })
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
	l.recentCalls.note(callerOf(call), t.Name, first)
}

// recall registers the client's recent tools before the first list of a session.
func (l *Live) recall(served *Served, call *tool.Call, s *session) {
	if !served.recalls(call) {
		return
	}
	names := l.recentCalls.of(callerOf(call), served.Recall)
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
	free := max(served.maxRegistered()-len(s.set.tools), 0) // recalled tools do not displace found ones
	s.set, _ = s.set.plan(tools[:min(len(tools), served.Recall, free)], served.maxRegistered())
	for i := range s.set.tools { // plan has made a list of its own
		s.set.tools[i].recalled = true
	}
}
