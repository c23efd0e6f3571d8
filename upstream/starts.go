package upstream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// startsWithin bounds how long a server that is starting keeps its place. A server that takes
// longer waits for a network or for nothing, and must not hold up the others.
const startsWithin = 15 * time.Second

// starts bounds how many servers start at once. Further servers queue: first those that
// somebody waits for, then the others, each in the order in which they came.
type starts struct {
	mu    sync.Mutex // guards the fields below and the field asked of each start; never held over I/O
	free  int        // places that no server has
	queue []*start
}

// start is one start of a server.
type start struct {
	asked bool          // somebody waits for the server
	turn  chan struct{} // closed when the server may start
}

func newStart(asked bool) *start { return &start{asked, make(chan struct{})} }

// wait queues a start, and waits for its turn. done gives its place to the next start; after
// startsWithin the next start gets it in any case. The error is the cause of ctx's end.
func (s *starts) wait(ctx context.Context, one *start) (done func(), err error) {
	s.join(one)
	select {
	case <-one.turn:
	case <-ctx.Done():
		if s.leave(one) {
			return nil, context.Cause(ctx)
		}
	}
	free := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free++
		s.admit()
	})
	patience := time.AfterFunc(startsWithin, free)
	return func() { patience.Stop(); free() }, nil
}

func (s *starts) join(one *start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.insert(one)
	s.admit()
}

// ask puts a start before all that nobody waits for, also if it is not queued yet.
func (s *starts) ask(one *start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.asked {
		return
	}
	one.asked = true
	if s.remove(one) {
		s.insert(one)
	}
}

// leave takes a start out of the queue. It reports false if its turn has come already.
func (s *starts) leave(one *start) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(one)
}

// insert queues a start. The lock is held.
func (s *starts) insert(one *start) {
	at := len(s.queue)
	if one.asked {
		if i := slices.IndexFunc(s.queue, func(other *start) bool { return !other.asked }); i >= 0 {
			at = i
		}
	}
	s.queue = slices.Insert(s.queue, at, one)
}

// remove takes a start out of the queue, and reports whether it was there. The lock is held.
func (s *starts) remove(one *start) bool {
	at := slices.Index(s.queue, one)
	if at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	return at >= 0
}

// admit gives free places to the front of the queue. The lock is held.
func (s *starts) admit() {
	for s.free > 0 && len(s.queue) > 0 {
		s.free--
		close(s.queue[0].turn)
		s.queue = slices.Delete(s.queue, 0, 1)
	}
}
