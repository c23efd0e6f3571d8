package upstream

import (
	"sync"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// relistAfter is the shortest time between two lists caused by the end of a stream: some
// servers end their streams all the time.
const relistAfter = 30 * time.Second

// relisting asks for new lists after a stream of notifications has ended, because the
// server may be gone, or its lists may have changed without a notification.
type relisting struct {
	conn  *conn.Conn
	lists *lists // nil for connections over which nothing is listed

	mu   sync.Mutex // guards the fields below
	last time.Time  // when a stream's end last led to new lists
	due  bool       // new lists will be asked for
}

// streamEnded asks for new lists, at once or relistAfter the last time.
func (r *relisting) streamEnded() {
	if r.lists == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due {
		return
	}
	r.due = true
	wait := time.Until(r.last.Add(relistAfter))
	r.conn.Go(func() {
		again := wait <= 0 || r.conn.Pause(r.conn.Life, wait)
		r.mu.Lock()
		r.due, r.last = false, time.Now()
		r.mu.Unlock()
		if again && !r.conn.Dead() {
			r.lists.changed(tool.Kinds...)
		}
	})
}
