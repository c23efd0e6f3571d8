package upstream

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// members are the servers of a pool at one moment. They are replaced, never edited.
type members struct {
	order  []*server
	byName map[string]*server
}

// watcher is a Watch that runs.
type watcher struct {
	ctx     context.Context
	changes chan<- Change
	work    sync.WaitGroup // one for each server that is or was watched
}

// finishWithin is how long the calls on a server that was removed or changed
// may take to end before its connections are closed.
const finishWithin = 10 * time.Second

// Update makes settings the servers of the pool, in this order; of several with
// one name the first counts. It waits for no server. known is what is remembered
// of servers, by name; without it a changed one's own past counts.
//
// A server whose settings are the same goes on untouched, as does one of which
// only Description, Prefix, Validate, CallTimeout, CallTimeoutTotal or AskTimeout is
// another, which counts from the next call on. Any other change makes the server anew:
// subscriptions and log levels are its successor's, new calls go to that, and
// those that run have 10 s to end on the old connections. The same is true of a
// removed server, new calls of which fail with ErrUnknownServer.
//
// While Watch runs, new and changed servers are watched too. A Change of a
// removed server may still be on its way when Update returns; none of a server's
// past comes after one of its successor. A closed pool stays as it is.
func (p *Pool) Update(settings []Settings, known map[string]Known) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return
	}
	was := p.now.Load()
	next := &members{byName: make(map[string]*server, len(settings))}
	kept := make(map[*server]bool, len(settings))
	before := map[*server]*server{} // of those that are new: whom to watch no more first
	for _, s := range settings {
		if next.byName[s.Name] != nil {
			continue
		}
		s = s.complete()
		one := was.byName[s.Name]
		if one != nil && one.settings.dialsLike(s) {
			one.adjust(s)
			kept[one] = true
		} else {
			old := one
			one = p.successor(old, s, known)
			before[one] = p.predecessor(old, s.Name)
		}
		next.order = append(next.order, one)
		next.byName[s.Name] = one
	}
	for _, one := range was.order {
		if !kept[one] {
			p.dismiss(one)
		}
	}
	p.now.Store(next)
	if p.watcher != nil {
		for one, old := range before {
			p.watcher.begin(one, old)
		}
	}
}

// successor makes a server that takes the place of old, nil for none. Lock held.
func (p *Pool) successor(old *server, s Settings, known map[string]Known) *server {
	remembered, ok := known[s.Name]
	if old != nil {
		old.retire() // before its state is taken over: afterwards it gets no other
		if !ok {
			remembered = old.known()
		}
	}
	one := newServer(p, s, remembered)
	if old != nil {
		one.inherit(old)
	}
	one.level = p.level
	return one
}

// predecessor is the last server of a name that was watched, nil for none: the
// current one, or one that left just before. Lock held.
func (p *Pool) predecessor(current *server, name string) *server {
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

// dismiss closes a server once nothing uses it any more. Lock held.
func (p *Pool) dismiss(old *server) {
	old.retire()
	p.leaving = append(p.leaving, old)
	p.work.Go(func() {
		patience := time.NewTimer(finishWithin)
		defer patience.Stop()
		select {
		case <-old.vacant:
		case <-patience.C:
			old.log.Warn("calls did not end in time on a server that was removed or changed", "waited", finishWithin)
		case <-old.life.Done(): // the pool is being closed
		}
		old.close()
		old.watching.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaving = slices.DeleteFunc(p.leaving, func(one *server) bool { return one == old })
	})
}

// begin watches a server once the one before it, nil for none, is not watched
// any more: its word could come last otherwise. The pool's lock is held.
func (w *watcher) begin(s, before *server) {
	s.watching.Add(1)
	w.work.Go(func() {
		defer s.watching.Done()
		if before != nil {
			before.watching.Wait()
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		defer context.AfterFunc(s.term, cancel)()
		s.watch(ctx, w.changes)
	})
}

// barrier returns once no Update runs that began before.
func (p *Pool) barrier() {
	p.mu.Lock()
	defer p.mu.Unlock()
}

// enter returns the server of a name for one use, which exit ends; nil when
// there is none.
func (p *Pool) enter(name string) *server {
	for {
		s := p.now.Load().byName[name]
		if s == nil || s.enter() {
			return s
		}
		p.barrier() // an Update is about to put another in its place
	}
}

// enter begins a use of the server, unless it gets none any more.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.uses++
	return true
}

func (s *server) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses--; s.uses == 0 && s.retired {
		close(s.vacant)
	}
}

// retire sees to it that the server gets no new uses and is not watched. It may
// be called twice.
func (s *server) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return
	}
	s.retired = true
	s.resign()
	if s.uses == 0 {
		close(s.vacant)
	}
}

func (s *server) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// known is what is to be remembered of the server.
func (s *server) known() Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Known{Era: s.era, Interactive: s.interactive}
}

// inherit takes over what clients want of a server that has retired.
func (s *server) inherit(old *server) {
	old.mu.Lock()
	defer old.mu.Unlock()
	s.subscriptions, s.raised, s.opened = maps.Clone(old.subscriptions), old.raised, old.opened
}

// limits are the settings of a server that may change while it runs.
type limits struct{ call, total, ask time.Duration }

// adjust takes over the settings that need no new connection.
func (s *server) adjust(to Settings) {
	s.limits.Store(&limits{to.CallTimeout, to.CallTimeoutTotal, to.AskTimeout})
}

// complete is s with its defaults, and sharing nothing with s that can change.
func (s Settings) complete() Settings {
	if s.ConnectTimeout <= 0 {
		s.ConnectTimeout = DefaultConnectTimeout
	}
	if s.CallTimeout <= 0 {
		s.CallTimeout = DefaultCallTimeout
	}
	if s.CallTimeoutTotal <= 0 {
		s.CallTimeoutTotal = DefaultCallTimeoutTotal
	}
	if s.AskTimeout <= 0 {
		s.AskTimeout = DefaultAskTimeout
	}
	if s.Transport == "" {
		s.Transport = TransportAuto
	}
	if s.Protocol == "" {
		s.Protocol = ProtocolAuto
	}
	if s.Isolate == "" {
		s.Isolate = IsolateAuto
	}
	s.Args, s.Secrets, s.Env, s.Headers = slices.Clone(s.Args), slices.Clone(s.Secrets), maps.Clone(s.Env), maps.Clone(s.Headers)
	return s
}

// dialsLike reports whether connections made with s serve other as well: all
// but what no connection depends on is the same. Both are complete.
func (s Settings) dialsLike(other Settings) bool {
	return reflect.DeepEqual(s.dialled(), other.dialled())
}

// dialled is s without what no connection depends on. What a new field means is
// not known here, so it stays.
func (s Settings) dialled() Settings {
	s.Description, s.Prefix, s.Validate = "", nil, false
	s.CallTimeout, s.CallTimeoutTotal, s.AskTimeout = 0, 0, 0
	if len(s.Args) == 0 {
		s.Args = nil
	}
	if len(s.Secrets) == 0 {
		s.Secrets = nil
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	if len(s.Headers) == 0 {
		s.Headers = nil
	}
	return s
}
