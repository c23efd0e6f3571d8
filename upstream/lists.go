package upstream

import (
	"sync"

	"toolfinch/tool"
)

// listing is the list of a server's definitions of one kind.
type listing struct {
	defs   []*tool.Def
	faults Faults
	hint   *CacheHint // nil if the server sent none
}

// lists are the listings of a server, and the kinds that must be listed again.
type lists struct {
	due chan struct{} // holds one signal: pending is not empty, or there is other news to report

	mu      sync.Mutex // guards the fields below; never held over I/O
	pending map[tool.Kind]bool
	known   map[tool.Kind]listing
}

func newLists() *lists {
	return &lists{due: make(chan struct{}, 1), pending: map[tool.Kind]bool{}, known: map[tool.Kind]listing{}}
}

// changed notes that the server's lists of these kinds have changed. Without kinds it
// only causes a new report about the server.
func (l *lists) changed(kinds ...tool.Kind) {
	l.mu.Lock()
	for _, kind := range kinds {
		l.pending[kind] = true
	}
	l.mu.Unlock()
	wake(l.due)
}

// take returns the kinds whose lists have changed, and forgets the changes.
func (l *lists) take() (kinds []tool.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range tool.Kinds {
		if l.pending[kind] {
			kinds = append(kinds, kind)
		}
	}
	clear(l.pending)
	return kinds
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
