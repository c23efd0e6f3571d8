package upstream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/leeway"
)

// members are the servers of a pool at one moment. They are replaced, never edited.
type members struct {
	order  []*member
	byName map[string]*member
}

// membership replaces, watches and removes the servers of a pool.
type membership struct {
	env  *environment
	now  atomic.Pointer[members] // replaced under mu, read without a lock
	work sync.WaitGroup          // goroutines that close servers

	mu      sync.Mutex // guards the fields below and the replacement of now; never held over I/O
	leaving []*member  // removed or replaced, not yet closed
	watcher *watcher   // nil unless watch runs
	level   string     // log level that legacy clients want
}

// watcher is a running watch.
type watcher struct {
	ctx     context.Context
	changes chan<- Change
	work    sync.WaitGroup // one goroutine for each watched server
}

// watch watches every server until ctx ends, and returns when no watch runs any more.
func (p *membership) watch(ctx context.Context, changes chan<- Change) {
	w := &watcher{ctx: ctx, changes: changes}
	p.mu.Lock()
	p.watcher = w
	for _, s := range p.now.Load().order {
		w.begin(s, nil)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.watcher = nil
	p.mu.Unlock()
	w.work.Wait()
}

// update makes settings the servers. See Pool.Update.
func (p *membership) update(settings []Settings, known map[string]Known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.env.life.Err() != nil {
		return
	}
	was := p.now.Load()
	next := &members{byName: make(map[string]*member, len(settings))}
	kept := make(map[*member]bool, len(settings))
	before := map[*member]*member{} // successor → predecessor whose watch must end first
	for _, s := range settings {
		if next.byName[s.Name] != nil {
			continue
		}
		s = s.complete()
		m := was.byName[s.Name]
		if m != nil && m.settings.dialsLike(s) {
			m.limits.Store(s.limits())
			kept[m] = true
		} else {
			old := m
			m = p.successor(old, s, known)
			before[m] = p.predecessor(old, s.Name)
		}
		next.order = append(next.order, m)
		next.byName[s.Name] = m
	}
	for _, old := range was.order {
		if !kept[old] {
			p.dismiss(old)
		}
	}
	p.now.Store(next)
	if p.watcher != nil {
		for m, old := range before {
			p.watcher.begin(m, old)
		}
	}
}

// successor makes a server that replaces old, which may be nil. The lock is held.
func (p *membership) successor(old *member, s Settings, known map[string]Known) *member {
	remembered, ok := known[s.Name]
	if old != nil {
		old.uses.retire() // so that its state no longer changes when the successor inherits it
		if !ok {
			remembered = old.known()
		}
	}
	m := newMember(newServer(p.env, s, remembered))
	if old != nil {
		m.inherit(old.server)
	}
	m.levels.set(p.level)
	return m
}

// predecessor returns the last watched server of a name: the current one, or one that is
// leaving; nil for none. The lock is held.
func (p *membership) predecessor(current *member, name string) *member {
	if current != nil {
		return current
	}
	for _, gone := range slices.Backward(p.leaving) {
		if gone.settings.Name == name {
			return gone
		}
	}
	return nil
}

// dismiss closes a server once it is unused, or after finishWithin. The lock is held.
func (p *membership) dismiss(old *member) {
	old.uses.retire()
	p.leaving = append(p.leaving, old)
	p.work.Go(func() {
		patience := time.NewTimer(leeway.Of(finishWithin))
		defer patience.Stop()
		select {
		case <-old.uses.vacant:
		case <-patience.C:
			old.log.Warn("calls did not end in time on a server that was removed or changed", "waited", finishWithin)
		case <-old.life.Done(): // the pool is being closed
		}
		old.close()
		old.uses.watching.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaving = slices.DeleteFunc(p.leaving, func(gone *member) bool { return gone == old })
	})
}

// begin watches a server once the watch of its predecessor, which may be nil, has ended:
// otherwise the predecessor's last change could come after the successor's first. The lock
// of membership is held.
func (w *watcher) begin(s, before *member) {
	s.uses.watching.Add(1)
	w.work.Go(func() {
		defer s.uses.watching.Done()
		if before != nil {
			before.uses.watching.Wait()
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		defer context.AfterFunc(s.uses.term, cancel)()
		s.supervisor.watch(ctx, w.changes)
	})
}

// barrier waits until every update that has begun has ended.
func (p *membership) barrier() {
	p.mu.Lock()
	defer p.mu.Unlock()
}

// enter returns the server of a name for one use, which uses.exit ends; nil if there is no
// such server.
func (p *membership) enter(name string) *member {
	for {
		s := p.now.Load().byName[name]
		if s == nil || s.uses.enter() {
			return s
		}
		p.barrier() // an update is about to replace the server
	}
}

// all returns the servers, including the leaving ones.
func (p *membership) all() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(p.now.Load().order, p.leaving)
}

// setLevel sets the log level that legacy clients want, for present and later servers. It
// returns the present servers.
func (p *membership) setLevel(level string) []*member {
	p.mu.Lock()
	p.level = level
	servers := p.now.Load().order
	p.mu.Unlock()
	for _, s := range servers {
		s.levels.set(level)
	}
	return servers
}

// privateConnections counts the private connections of all servers.
func (p *membership) privateConnections() (n int64) {
	for _, s := range p.now.Load().order {
		s.sharing.mu.Lock()
		n += int64(s.sharing.count())
		s.sharing.mu.Unlock()
	}
	return n
}

// close closes the servers and waits until every leaving server is closed. The
// environment's life has ended.
func (p *membership) close() {
	p.barrier() // a later update sees that the life has ended
	var closing sync.WaitGroup
	for _, s := range p.now.Load().order {
		closing.Go(s.close)
	}
	closing.Wait()
	p.work.Wait()
}
