package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"toolfinch/tool"
)

// listing is the list of a server's definitions of one kind.
type listing struct {
	defs   []*tool.Def
	faults Faults
	hint   *CacheHint // nil if the server sent none
}

const (
	// answersWait bounds how long answers and lists wait for lists of servers.
	answersWait = time.Second
	// askedAgain and namedAgain are how often a client that lists, and an unknown name, can have
	// the lists of a server read again.
	askedAgain = time.Second
	namedAgain = 100 * time.Millisecond
)

// lists are the listings of a server, and the kinds that must be listed again. Each wish to
// list again has a number; a list fulfils all wishes before it.
type lists struct {
	due chan struct{} // holds one signal: pending is not empty, or there is other news to report

	mu       sync.Mutex // guards the fields below; never held over I/O
	pending  map[tool.Kind]bool
	known    map[tool.Kind]listing
	wishes   int         // number of the newest wish
	told     int         // number of the newest wish that the server itself caused
	served   int         // newest wish whose lists are served, or could not be had
	serving  event       // served has grown
	began    time.Time   // when the last list began; zero before the first
	watched  bool        // somebody lists again
	resting  bool        // lists always change, so the next one is put off
	notifies func() bool // whether the server says when its lists change; nil before the first lists
}

func newLists() *lists {
	return &lists{due: make(chan struct{}, 1), pending: map[tool.Kind]bool{}, known: map[tool.Kind]listing{}}
}

// changed notes that the server's lists of these kinds have changed. Without kinds it
// only causes a new report about the server.
func (l *lists) changed(kinds ...tool.Kind) {
	l.mu.Lock()
	l.wish(kinds)
	l.mu.Unlock()
}

// notified is changed for a notification of the server.
func (l *lists) notified(kinds []tool.Kind) {
	l.mu.Lock()
	l.wish(kinds)
	l.told = l.wishes
	l.mu.Unlock()
}

// wish is changed with the lock held.
func (l *lists) wish(kinds []tool.Kind) {
	l.wishes++
	for _, kind := range kinds {
		l.pending[kind] = true
	}
	wake(l.due)
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
	return kinds, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if wishes > l.served {
			l.served = wishes
			l.serving.happen()
		}
	}
}

// announced returns a function that reports whether the server has announced a change since.
func (l *lists) announced() (since func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.told
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.told > before
	}
}

// await waits until all wishes are served, until nobody would serve them soon, or until ctx ends.
func (l *lists) await(ctx context.Context) {
	l.mu.Lock()
	wishes := l.wishes
	l.mu.Unlock()
	for {
		l.mu.Lock()
		over, serving := l.served >= wishes || !l.watched || l.resting, l.serving.next()
		l.mu.Unlock()
		if over {
			return
		}
		select {
		case <-serving:
		case <-ctx.Done():
			return
		}
	}
}

// renew asks for new lists of a server that does not say when they change, unless they are fresh.
func (l *lists) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched && l.notifies != nil && !l.notifies() && time.Since(l.began) >= max(askedAgain, l.ttl()) {
		l.wish(tool.Kinds)
	}
}

// renewNamed asks for new lists because somebody names what is not in them.
func (l *lists) renewNamed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched && time.Since(l.began) >= namedAgain {
		l.wish(tool.Kinds)
	}
}

const (
	// listsAge is after how long the lists of a server that does not say when they change are
	// read again. It is jittered, so that the servers of a restarted gateway do not get all at once.
	listsAge = 5 * time.Minute
	// leastAge bounds how often a server can have its lists read with ttlMs.
	leastAge = 5 * time.Second
)

// ages returns when the lists must be read again without a notification; 0 for never.
func (l *lists) ages() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := listsAge
	if ttl := l.ttl(); ttl > 0 {
		age = max(ttl, leastAge)
	} else if l.notifies() {
		return 0
	}
	return age + rand.N(age/5)
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

// set changes what is known of the connection and the watch.
func (l *lists) set(f func(l *lists)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
	l.serving.happen()
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
