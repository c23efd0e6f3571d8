package upstream

import (
	"context"
	"sync"

	"toolfinch/upstream/conn"
)

// reconnects runs the calls of Pool.Reconnect for a server, one at a time.
type reconnects struct {
	sharing *sharing
	anew    chan struct{} // holds one signal: the watch must connect at once

	mu      sync.Mutex // guards running; never held over I/O
	running *reconnect // nil for none
}

// reconnect is one run of Pool.Reconnect. Any number of callers wait for it.
type reconnect struct {
	done   chan struct{} // closed when change is set
	over   chan struct{} // closed when the old connections are closed, too
	change Change
}

// reconnect makes a new connection. See Pool.Reconnect.
func (r *reconnects) reconnect(ctx context.Context) Change {
	for {
		run, began := r.join()
		wait := run.done
		if !began {
			select {
			case <-run.done: // this run began before the caller came
				wait = run.over
			default:
			}
		}
		select {
		case <-wait:
			if wait == run.done {
				return run.change
			}
		case <-ctx.Done():
			return r.sharing.server.failed("reconnect", context.Cause(ctx))
		}
	}
}

// join returns the running reconnect. It begins one if none runs, and reports whether it did.
func (r *reconnects) join() (joined *reconnect, began bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running, false
	}
	joined = &reconnect{done: make(chan struct{}), over: make(chan struct{})}
	r.running = joined
	if !r.sharing.main.spawn(func(old *connection) { r.run(joined, old) }) {
		joined.change, r.running = r.sharing.server.failed("reconnect", ErrClosed), nil
		close(joined.done)
	}
	return joined, true
}

// run makes the new connection while the old one serves, so that calls in flight end over
// the old one. A server may hold something that only one process can have, so that no second
// connection comes up. Then new calls wait, a running attempt is given up, and all
// connections are closed first, once their calls have ended. The connections beside main are
// made again when calls need them.
func (r *reconnects) run(now *reconnect, old *connection) {
	main := r.sharing.main
	var closing, listing sync.WaitGroup
	next := newDialing(r.sharing.server.life, true)
	defer next.giveUp(nil)
	end, replaced := r.replaceBeside(old)
	beside := replaced
	if !beside {
		end, replaced = main.replace(next)
	}
	if !replaced {
		now.change = r.sharing.server.failed("reconnect", ErrClosed)
		close(now.done)
	} else {
		end(&closing)
		for _, l := range r.sharing.connectors() {
			if !l.main {
				end, _ := l.replace(nil)
				end(&closing)
			}
		}
		wake(r.anew) // the watch now waits for the new connection
		listing.Go(func() {
			now.change = main.refresh(r.sharing.server.life)
			close(now.done)
		})
		closing.Wait()
		if !beside {
			main.dial(next)
		}
		listing.Wait()
	}
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	close(now.over)
}

// replaceBeside replaces the connection old by a new one; end closes old. It reports false if
// no second connection came up.
func (r *reconnects) replaceBeside(old *connection) (end func(closing *sync.WaitGroup), replaced bool) {
	if old == nil || old.Dead() {
		return nil, false
	}
	s, main := r.sharing.server, r.sharing.main
	done, err := s.turn(s.life, newStart(true))
	if err != nil {
		return nil, false
	}
	defer done()
	within := s.connectWithin()
	ctx, cancel := context.WithTimeoutCause(s.life, within, ErrTimeout)
	defer cancel()
	c, err := dial(ctx, s, main.purpose, within)
	if err != nil {
		s.log.Debug("no second connection came up beside the one that is to be replaced", "error", conn.Plain(err))
		return nil, false
	}
	if main.swap(old, c) {
		main.dialled(c, nil)
	} else {
		c.Close() // the old connection has ended meanwhile, and refresh uses its successor
	}
	return func(closing *sync.WaitGroup) { closing.Go(func() { old.finish(errReplaced) }) }, true
}
