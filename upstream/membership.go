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
func (ms *membership) watch(ctx context.Context, changes chan<- Change) {
	w := &watcher{ctx: ctx, changes: changes}
	ms.mu.Lock()
	ms.watcher = w
	for _, s := range ms.now.Load().order {
		w.begin(s, nil)
	}
	ms.mu.Unlock()
	<-ctx.Done()
	ms.mu.Lock()
	ms.watcher = nil
	ms.mu.Unlock()
	w.work.Wait()
}

// update applies settings. See Pool.Update.
func (ms *membership) update(settings []Settings, known map[string]Known) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.env.life.Err() != nil {
		return
	}
	was := ms.now.Load()
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
			m = ms.successor(old, s, known)
			before[m] = ms.predecessor(old, s.Name)
		}
		next.order = append(next.order, m)
		next.byName[s.Name] = m
	}
	for _, old := range was.order {
		if !kept[old] {
			ms.dismiss(old)
		}
	}
	ms.now.Store(next)
	if ms.watcher != nil {
		for m, old := range before {
			ms.watcher.begin(m, old)
		}
	}
}

// successor makes a server that replaces old, which may be nil. The lock is held.
func (ms *membership) successor(old *member, s Settings, known map[string]Known) *member {
	remembered, ok := known[s.Name]
	if old != nil {
		old.uses.retire() // so that its state no longer changes when the successor inherits it
		if !ok {
			remembered = old.known()
		}
	}
	m := newMember(newServer(ms.env, s, remembered))
	if old != nil {
		m.inherit(old.server)
	}
	m.levels.set(ms.level)
	return m
}

// predecessor returns the last watched server of a name: current, or else the last leaving
// server; nil for none. The lock is held.
func (ms *membership) predecessor(current *member, name string) *member {
	if current != nil {
		return current
	}
	for _, gone := range slices.Backward(ms.leaving) {
		if gone.settings.Name == name {
			return gone
		}
	}
	return nil
}

// dismiss closes a server once it is unused, or after finishWithin. The lock is held.
func (ms *membership) dismiss(old *member) {
	old.uses.retire()
	ms.leaving = append(ms.leaving, old)
	ms.work.Go(func() {
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
		ms.mu.Lock()
		defer ms.mu.Unlock()
		ms.leaving = slices.DeleteFunc(ms.leaving, func(gone *member) bool { return gone == old })
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
func (ms *membership) barrier() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
}

// enter returns the server of a name, and begins a use, which uses.exit ends. It returns nil
// for an unknown name.
func (ms *membership) enter(name string) *member {
	for {
		s := ms.now.Load().byName[name]
		if s == nil || s.uses.enter() {
			return s
		}
		ms.barrier() // an update is about to replace the server
	}
}

// all returns the servers, including the leaving ones.
func (ms *membership) all() []*member {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return slices.Concat(ms.now.Load().order, ms.leaving)
}

// setLevel sets the log level that legacy clients want, for present and later servers. It
// returns the present servers.
func (ms *membership) setLevel(level string) []*member {
	ms.mu.Lock()
	ms.level = level
	servers := ms.now.Load().order
	ms.mu.Unlock()
	for _, s := range servers {
		s.levels.set(level)
	}
	return servers
}

// privateConnections counts the private connections of all servers.
func (ms *membership) privateConnections() (n int64) {
	for _, s := range ms.now.Load().order {
		s.sharing.mu.Lock()
		n += int64(s.sharing.count())
		s.sharing.mu.Unlock()
	}
	return n
}

// close closes the servers and waits until every leaving server is closed. The
// environment's life has ended.
func (ms *membership) close() {
	ms.barrier() // a later update sees that the life has ended
	var closing sync.WaitGroup
	for _, s := range ms.now.Load().order {
		closing.Go(s.close)
	}
	closing.Wait()
	ms.work.Wait()
}
