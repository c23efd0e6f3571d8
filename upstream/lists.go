package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/tool"
)

// listing is the list of a server's definitions of one kind.
type listing struct {
	defs   []*tool.Def
	faults Faults
	hint   *CacheHint // nil if the server sent none
}

// add adds the definitions whose names are only in other.
func (l *listing) add(other listing) {
	has := map[string]bool{}
	for _, def := range l.defs {
		has[def.ID.Name] = true
	}
	for _, def := range other.defs {
		if !has[def.ID.Name] {
			l.defs = append(l.defs, def)
		}
	}
}

const (
	// answersWait bounds how long answers and lists wait for lists of servers.
	answersWait = time.Second
	// askedAgain is how often clients that list can have the lists of a server read again.
	askedAgain = time.Second
)

// watching says whether a server is listed again soon.
type watching int

const (
	unwatched watching = iota
	pausing            // until the next attempt to connect
	resting            // the lists change all the time
	active
)

// lists are the listings of a server, and the kinds that must be listed again. Each wish to
// list again has a number; a list fulfils all wishes before it.
type lists struct {
	due    chan struct{}        // holds one signal: pending is not empty, or there is other news to report
	beside atomic.Pointer[link] // the common connection; nil for none

	mu       sync.Mutex // guards the fields below; never held over I/O
	pending  map[tool.Kind]bool
	known    map[tool.Kind]listing
	wishes   int   // number of the newest wish
	told     int   // number of the newest wish that the server itself caused
	served   int   // newest wish whose lists are served, or could not be had
	change   event // of served or state
	state    watching
	began    time.Time   // when the last report on the lists began; zero before the first
	notifies func() bool // whether the server says when its lists change; nil before the first lists
}

func newLists() *lists {
	return &lists{due: make(chan struct{}, 1), pending: map[tool.Kind]bool{}, known: map[tool.Kind]listing{}}
}

// set changes fields.
func (l *lists) set(f func(l *lists)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
	l.change.happen()
}

func (l *lists) enter(state watching) { l.set(func(l *lists) { l.state = state }) }

// changed notes that the server's lists of these kinds have changed. Without kinds it
// only causes a new report about the server.
func (l *lists) changed(kinds ...tool.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wish(kinds)
}

// notified is changed for a notification of the server.
func (l *lists) notified(kinds []tool.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wish(kinds)
	l.told = l.wishes
}

// wish is changed with the lock held.
func (l *lists) wish(kinds []tool.Kind) {
	l.wishes++
	for _, kind := range kinds {
		l.pending[kind] = true
	}
	wake(l.due)
}

// also has a common connection listed, too, until it ends: the server may have tools for its
// session alone.
func (l *lists) also(c *link) {
	l.beside.Store(c)
	c.Go(func() {
		<-c.Service.Done()
		if l.beside.CompareAndSwap(c, nil) {
			l.changed(tool.Kinds...)
		}
	})
}

// take returns the kinds whose lists have changed, and forgets the changes. done notes that
// the lists are served, or could not be had.
func (l *lists) take() (kinds []tool.Kind, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range tool.Kinds {
		if l.pending[kind] {
			kinds = append(kinds, kind)
		}
	}
	clear(l.pending)
	drainSignal(l.due)
	wishes := l.wishes
	return kinds, func() { l.set(func(l *lists) { l.served = max(l.served, wishes) }) }
}

// announced returns the number of the newest change that the server has announced.
func (l *lists) announced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// await waits until all wishes are served, until nobody would serve them soon, or until ctx ends.
func (l *lists) await(ctx context.Context) {
	l.mu.Lock()
	wishes := l.wishes
	for l.served < wishes && l.state == active && ctx.Err() == nil {
		change := l.change.next()
		l.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
}

// renew asks for new lists if named: somebody has named what is not in them. Otherwise it asks
// if the server does not say when they change and they are not fresh.
func (l *lists) renew(named bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == active && (named || l.notifies != nil && !l.notifies() && time.Since(l.began) >= max(askedAgain, l.ttl())) {
		l.wish(tool.Kinds)
	}
}

// hurry asks for new lists of a server that is not connected. anew ends the pause between
// attempts.
func (l *lists) hurry(anew chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == unwatched {
		return
	}
	l.wish(tool.Kinds)
	l.state = active
	wake(anew)
}

const (
	// listsAge is after how long the lists of a server that does not say when they change are
	// read again. It is jittered, so that the servers of a restarted gateway do not get all at once.
	listsAge = 5 * time.Minute
	// leastAge bounds how often a server can have its lists read with ttlMs.
	leastAge = 5 * time.Second
)

// old returns a channel that tells when the lists must be read again without a notification;
// nil for never.
func (l *lists) old() <-chan time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := listsAge
	if ttl := l.ttl(); ttl > 0 {
		age = max(ttl, leastAge)
	} else if l.notifies() {
		return nil
	}
	return time.After(age + rand.N(age/5))
}

// ttl returns how long the server lets its lists be kept; 0 if it does not say. The lock is held.
func (l *lists) ttl() (least time.Duration) {
	for _, listed := range l.known {
		if listed.hint != nil && listed.hint.TTL > 0 && (least == 0 || listed.hint.TTL < least) {
			least = listed.hint.TTL
		}
	}
	return least
}

// keep stores the new listings of some kinds, and adds the listings of all kinds to a
// change. It returns the number of tools.
func (l *lists) keep(got map[tool.Kind]listing, change *Change) (tools int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change.Cache = map[tool.Kind]CacheHint{}
	for _, kind := range tool.Kinds {
		latest, ok := got[kind]
		if ok {
			l.known[kind] = latest
		} else if latest, ok = l.known[kind]; !ok {
			change.Unheard = append(change.Unheard, kind)
		}
		change.Defs = append(change.Defs, latest.defs...)
		change.Faults.add(latest.faults)
		if latest.hint != nil {
			change.Cache[kind] = *latest.hint
		}
	}
	return len(l.known[tool.KindTool].defs)
}
