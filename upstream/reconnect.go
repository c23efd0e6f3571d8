package upstream

import (
	"context"
	"fmt"
	"sync"

	"toolfinch/upstream/conn"
)

// errReplaced is why a connection ends that another is to take the place of.
var errReplaced = fmt.Errorf("%w: the server is being connected anew", ErrClosed)

// reconnects are the Reconnects of a server, of which one runs at a time.
type reconnects struct {
	*server
	mu      sync.Mutex // guards running; never held over I/O
	running *reconnect // nil for none
}

// reconnect is one Reconnect that any number of callers wait for.
type reconnect struct {
	done   chan struct{} // closed when change is there
	over   chan struct{} // closed when the connections before are closed, too
	change Change
}

// reconnect connects anew. See Pool.Reconnect.
func (r *reconnects) reconnect(ctx context.Context) Change {
	for {
		one, began := r.join()
		wait := one.done
		if !began {
			select {
			case <-one.done: // it began before this one was wanted
				wait = one.over
			default:
			}
		}
		select {
		case <-wait:
			if wait == one.done {
				return one.change
			}
		case <-ctx.Done():
			return r.failed("reconnect", context.Cause(ctx))
		}
	}
}

// join returns the Reconnect that runs, and whether it was begun here.
func (r *reconnects) join() (one *reconnect, began bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running, false
	}
	one = &reconnect{done: make(chan struct{}), over: make(chan struct{})}
	r.running = one
	if !r.main.spawn(func(old *connection) { r.run(one, old) }) {
		one.change, r.running = r.failed("reconnect", ErrClosed), nil
		close(one.done)
	}
	return one, true
}

// spawn runs f with the connection that there is, unless nothing is to be begun any
// more. It does not wait.
func (l *connector) spawn(f func(old *connection)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.now
	if l.ended() {
		return false
	}
	l.server.work.Go(func() { f(old) })
	return true
}

// retire has those of the connections that are current finish. The main one is made again at once, by whoever
// watches the server. It does not wait.
func (s *server) retire(which func(l *connector, c *connection) bool) {
	for _, l := range s.sharing.connectors() {
		l.spawn(func(c *connection) {
			switch {
			case c == nil || !which(l, c):
			case l.main:
				c.Retire()
			default:
				c.finish(errReplaced)
			}
		})
	}
}

// run makes the new connection while the old one serves, so that calls in flight end
// where they are. Where no second connection comes up, because the server holds
// something that only one process can have, all connections are closed first, once
// the calls over them have ended, and new calls wait; an attempt to connect is given
// up. The connections beside the main one are made again when they are needed.
func (r *reconnects) run(one *reconnect, old *connection) {
	var closing, listing sync.WaitGroup
	next := newDialing(r.life)
	defer next.giveUp(nil)
	end, replaced := r.replaceBeside(old)
	beside := replaced
	if !beside {
		end, replaced = r.main.replace(next)
	}
	if !replaced {
		one.change = r.failed("reconnect", ErrClosed)
		close(one.done)
	} else {
		end(&closing)
		for _, l := range r.sharing.connectors() {
			if !l.main {
				end, _ := l.replace(nil)
				end(&closing)
			}
		}
		wake(r.supervisor.anew) // now that whoever is woken waits for the new connection
		listing.Go(func() {
			one.change = r.refresh(r.life)
			close(one.done)
		})
		closing.Wait()
		if !beside {
			r.main.dial(next)
		}
		listing.Wait()
	}
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	close(one.over)
}

// replaceBeside puts a new connection in the place of old, which end closes. It
// reports false when no second connection came up.
func (r *reconnects) replaceBeside(old *connection) (end func(closing *sync.WaitGroup), replaced bool) {
	if old == nil || old.Dead() {
		return nil, false
	}
	ctx, cancel := context.WithTimeoutCause(r.life, r.settings.ConnectTimeout, ErrTimeout)
	defer cancel()
	c, err := dial(ctx, r.main)
	if err != nil {
		r.log.Debug("no second connection came up beside the one that is to be replaced", "error", conn.Plain(err))
		return nil, false
	}
	if r.main.swap(old, c) {
		r.dialled(r.main, c, nil)
	} else {
		c.Close() // the old one has ended meanwhile: refresh uses what took its place
	}
	return func(closing *sync.WaitGroup) { closing.Go(func() { old.finish(errReplaced) }) }, true
}
