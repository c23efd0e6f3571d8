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
type recentCalls struct {
	remember func(by tool.Caller, called []tool.Called)

	mu     sync.Mutex // guards called, whose lists are replaced, never edited; remember is called outside of it
	called map[tool.Caller][]tool.Called
}

func newRecentCalls(known map[tool.Caller][]tool.Called, remember func(tool.Caller, []tool.Called)) *recentCalls {
	return &recentCalls{remember: remember, called: maps.Clone(known)}
}

// of returns the names of up to most tools with which a new session of a caller begins:
// those of the last two sessions, and of more than half of the known ones; the most
// usual, then the last called. They are sorted, so that lists of the same tools are equal.
func (r *recentCalls) of(by tool.Caller, most int) (names []string) {
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
func (r *recentCalls) note(by tool.Caller, name string, first bool) {
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

func callerOf(call *tool.Call) tool.Caller {
	return tool.Caller{Principal: call.Principal, Client: call.Client.Name}
}
