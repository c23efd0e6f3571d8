package limit

import (
	"context"
	"slices"
	"sync"
)

// Turns admits a number of runs at a time. An owner gets another turn only while more are free than it has, so that
// others always find one: of 16 turns the first owner can have 8, the second 4 (dynamic thresholds, Choudhury and Hahne,
// 1998). Owners that wait take turns. The methods are safe for concurrent use.
type Turns struct {
	mu      sync.Mutex // guards the fields below; held for look-ups only
	free    int
	has     map[string]int // turns by owner, never 0
	waiting []*waiting
}

type waiting struct {
	owner string
	turn  chan struct{} // closed when the turn has come
}

// NewTurns returns n free turns.
func NewTurns(n int) *Turns { return &Turns{free: n, has: map[string]int{}} }

// Take waits for a turn of owner. The owner of the turn calls end once. The error is that of ctx.
func (t *Turns) Take(ctx context.Context, owner string) (end func(), err error) {
	w := &waiting{owner, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.serve()
	t.mu.Unlock()
	end = func() { t.end(owner) }
	select {
	case <-w.turn:
		return end, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at := slices.Index(t.waiting, w)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // the turn came meanwhile
		end()
	}
	return nil, context.Cause(ctx)
}

func (t *Turns) end(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	if t.has[owner]--; t.has[owner] == 0 {
		delete(t.has, owner)
	}
	t.serve()
}

// serve gives free turns to those who wait. Others of the same owner then wait behind all. The caller holds the lock.
func (t *Turns) serve() {
	for {
		at := slices.IndexFunc(t.waiting, func(w *waiting) bool { return t.has[w.owner] < t.free })
		if at < 0 {
			return
		}
		w := t.waiting[at]
		t.waiting = slices.Delete(t.waiting, at, at+1)
		slices.SortStableFunc(t.waiting, func(a, b *waiting) int {
			switch {
			case a.owner == b.owner || a.owner != w.owner && b.owner != w.owner:
				return 0
			case a.owner == w.owner:
				return 1
			}
			return -1
		})
		t.has[w.owner]++
		t.free--
		close(w.turn)
	}
}
