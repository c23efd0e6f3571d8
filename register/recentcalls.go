package register

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"

	"toolfinch/tool"
)

// Bounds for callers, which choose their own names, and for the tools of one caller.
const (
	maxCallers = 1000
	maxCalled  = 50
)

// recentCalls has the tools that clients called in their last eight sessions. The model of a resumed
// conversation calls them by name again, but its agent refuses names that its new session was not
// listed.
type recentCalls struct {
	remember func(by tool.Caller, called []tool.Called)

	mu     sync.Mutex // guards the fields below; slices in called are never edited; remember is called outside of it
	called map[tool.Caller][]tool.Called
	last   map[tool.Caller]int64 // number of the last call in this run
	calls  int64
}

func newRecentCalls(known map[tool.Caller][]tool.Called, remember func(tool.Caller, []tool.Called)) *recentCalls {
	called := map[tool.Caller][]tool.Called{}
	maps.Copy(called, known)
	return &recentCalls{remember: remember, called: called, last: map[tool.Caller]int64{}}
}

// of returns up to most names for a new session of a caller: tools of the last two sessions, and of
// more than half of the known sessions. The most frequent win, then the latest. Sorting makes equal
// sets equal lists.
func (r *recentCalls) of(by tool.Caller, most int) (names []string) {
	r.mu.Lock()
	called := slices.Clone(r.called[by])
	r.mu.Unlock()
	known := sessionsOf(called)
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

// sessionsOf returns how many sessions are known of a caller.
func sessionsOf(called []tool.Called) (known int) {
	for _, c := range called {
		known = max(known, bits.Len8(c.Sessions))
	}
	return known
}

// forget forgets one caller: of those with the fewest sessions, the one that called longest ago. So callers that make
// up names displace each other. The lock is held.
func (r *recentCalls) forget() {
	var victim tool.Caller
	least := int64(math.MaxInt64)
	for by, called := range r.called {
		if rank := int64(sessionsOf(called))<<56 + r.last[by]; rank < least {
			victim, least = by, rank
		}
	}
	delete(r.called, victim)
	delete(r.last, victim)
}

// note notes a call; first marks the first call of a session.
func (r *recentCalls) note(by tool.Caller, name string, first bool) {
	r.mu.Lock()
	before, known := r.called[by]
	if !known && len(r.called) >= maxCallers {
		r.forget()
	}
	r.calls++
	r.last[by] = r.calls
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
	if news { // a new order alone is not written
		r.remember(by, now)
	}
}

func callerOf(call *tool.Call) tool.Caller {
	return tool.Caller{Principal: call.Principal, Client: call.Client.Name}
}
