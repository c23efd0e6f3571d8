package hf

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// team shares the steps of one run among goroutines. A step takes some tens of microseconds, less than waking a
// processor, so members spin between steps. They take the parts of a step one by one, so that none waits for a
// member that is not scheduled.
type team struct {
	size  int
	step  atomic.Pointer[step]
	ended atomic.Bool
}

// step is one function over parts 0 to n-1.
type step struct {
	do   func(part, member int)
	n    int64
	next atomic.Int64 // the next part
	done atomic.Int64
}

// newTeam returns a team of the caller and size-1 goroutines. wait counts these; they end soon after end.
func newTeam(size int, wait *sync.WaitGroup) *team {
	t := &team{size: size}
	for member := 1; member < size; member++ {
		wait.Go(func() {
			for i := 1; !t.ended.Load(); i++ {
				if s := t.step.Load(); s == nil || !s.take(member) {
					yield(i)
				}
			}
		})
	}
	return t
}

func (t *team) end() { t.ended.Store(true) }

// each calls do for every part, and returns when all are done. No two calls
// with the same member run at once.
func (t *team) each(parts int, do func(part, member int)) {
	if t.size == 1 {
		for part := range parts {
			do(part, 0)
		}
		return
	}
	s := &step{do: do, n: int64(parts)}
	t.step.Store(s)
	for s.take(0) {
	}
	var began time.Time
	for i := 1; s.done.Load() < s.n; i++ {
		yield(i)
		switch {
		case i == spinsTimed:
			began = time.Now()
		case i%spinsTimed == 0 && t.size > 1 && time.Since(began) > patience:
			// The machine is busy: a member has lost its processor during a part, and would again.
			t.end()
			t.size = 1
		}
	}
}

// patience bounds how long one part may delay the others.
const patience = 200 * time.Microsecond

// spinsTimed is the number of spins between two looks at the clock.
const spinsTimed = 64

// take does one part, and reports false if there is none left.
func (s *step) take(member int) bool {
	if s.next.Load() >= s.n { // a read, because a write would slow down the working members
		return false
	}
	part := s.next.Add(1) - 1
	if part >= s.n {
		return false
	}
	s.do(int(part), member)
	s.done.Add(1)
	return true
}

// yield sometimes lets other goroutines run.
func yield(spins int) {
	if spins%256 == 0 {
		runtime.Gosched()
	}
}
