package register

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"weak"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// When says when found tools are registered for a client.
type When string

// AtOnce: with the answer, in one change of the list. WhenUsed: once they were called,
// when the list changes anyway, and for the client's next sessions. Never: the list stays.
// Tried: AtOnce until the client was waited for in vain, then WhenUsed.
const (
	AtOnce   When = "at_once"
	WhenUsed When = "when_used"
	Never    When = "never"
	Tried    When = "tried"
)

// when is Served.Register for a client as it is known by now.
func (l *Live) when(v *Served, client string) When {
	switch when := v.when(client); {
	case when != Tried:
		return when
	case l.clients.never(client):
		return WhenUsed
	}
	return AtOnce
}

// Register registers found tools for the client that made the call, where it is one for
// which that is done at once: one change of its set and one list_changed. It returns
// once the client has asked for the new list, as far as it is known to do so (see hold),
// and reports by name what is registered now, and whether the client has been listed all
// of that.
func (l *Live) Register(ctx context.Context, call *tool.Call, tools []*tool.Tool) (now map[string]bool, relisted bool) {
	party, _ := identity.PartyOf(ctx)
	served := l.served(party)
	now = map[string]bool{}
	for _, t := range served.Pinned() {
		now[t.Name] = true
	}
	s := l.sessionFor(call)
	if s != nil && s != l.process && s.direct.in(served) {
		for _, t := range tools {
			now[t.Name] = true
		}
		return now, true
	}
	if s == nil || served.gated() {
		return now, true
	}
	s.mu.Lock()
	served = l.served(party) // under the lock that Sync takes after each change, so that nothing outdated stays
	var change Change
	if s != l.process && l.when(served, s.client) == AtOnce {
		s.set, change = s.set.plan(served.registrable(tools), served.maxRegistered())
	}
	listed, client := s.listed, s.client
	relisted = s.lists > 0 && !s.stale
	for _, name := range s.set.names() {
		now[name] = true
	}
	s.mu.Unlock()
	if !change.Empty() {
		l.announce(s, change)
		relisted = l.hold(ctx, served, client, listed)
	}
	return now, relisted
}

// registrable are those of tools that are served now, and are not pinned.
func (v *Served) registrable(tools []*tool.Tool) (out []*tool.Tool) {
	for _, t := range tools {
		if now, ok := v.Lookup(t.Name); ok && now.Def.ID == t.Def.ID && !v.isPinned(now.Def.ID) {
			out = append(out, now)
		}
	}
	return out
}

// announce tells one session, and the owner's hook, that its list changed.
func (l *Live) announce(s *session, change Change) {
	client, _ := s.expect()
	l.Notify(s.id, toolsChanged, nil)
	l.observer.Registered(s.id, client, s.by(), change)
	l.observer.Changed(s.id)
	if l.notifier != nil {
		l.notifier.notify(s.id, client, change)
	}
}

// Sync follows a change of what is served: it updates registrations, and tells the
// clients whose lists differ now.
func (l *Live) Sync() {
	l.announced.forget()
	for _, s := range l.everySession() {
		l.follow(s, l.servedNow(s))
	}
	for _, t := range l.listeners.all() {
		l.tell(t, l.served(t.party))
	}
}

// follow updates the registrations of a session, and tells its client which lists differ
// now from what it was told of. The first time there is nothing to tell.
func (l *Live) follow(s *session, served *Served) {
	now := l.announced.of(served)
	before := s.told.Swap(now)
	defer l.observer.Changed(s.id) // when all of it is known
	if before == nil {
		return
	}
	base, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	gated := served.gated()
	s.mu.Lock()
	set, change, differs := s.set.sync(served.Lookup)
	if (base || differs) && l.when(served, s.client) == WhenUsed { // so what was used costs no change of its own
		var added Change
		set, added = set.plan(served.registrable(s.used), served.maxRegistered())
		change, s.used = change.then(added), nil
	}
	s.set = set
	s.mu.Unlock()
	if gated {
		change, differs = Change{}, false
	}
	if s.shown.isKnown() {
		if _, provisioned, other := s.shown.follow("", served.granted); gated {
			change, differs = provisioned, other
		}
	}
	switch direct := s.direct.was(served); {
	case direct && !all, !direct && !base && !differs:
	case base: // the owner of the program changed it, and needs no hook for that
		s.expect()
		l.Notify(s.id, toolsChanged, nil)
	default:
		l.announce(s, change)
	}
	for _, method := range before.others(now) {
		l.Notify(s.id, method, nil)
	}
}

// tell tells the stream of a 2026-07-28 client which lists differ now.
func (l *Live) tell(t *listener, served *Served) {
	now := l.announced.of(served)
	before := t.told.Swap(now)
	base, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	var sees bool
	if l.togetherIn(served) {
		sees = l.direct.sees(served, base, all)
	} else if direct := l.listsAll(nil, served); direct {
		sees = !t.direct.Swap(true) || all
	} else {
		sees = t.direct.Swap(false) || base
	}
	if _, _, differs := t.shown.follow("", served.granted); differs || sees {
		t.notify(toolsChanged)
	}
	for _, method := range before.others(now) {
		t.notify(method)
	}
}

// Relist tells the clients of owner that their list has changed, if it has, and
// returns once the calling session has asked for the new list, as far as it is
// known to do so (see hold).
func (l *Live) Relist(ctx context.Context, owner, calling string) {
	var client string
	var shown *Served
	var listed <-chan struct{} // nil: nobody is waited for
	if session, is := tool.SessionOf(owner); is {
		l.observer.Changed(session) // also where its client sees no difference: another end, a tool that is away
	}
	for _, s := range l.sessionsOf(owner) {
		served := l.servedNow(s)
		_, change, differs := s.shown.follow("", served.granted)
		if !differs {
			continue
		}
		if s.id == calling {
			shown = served
			client, listed = s.expect()
		}
		l.announce(s, change)
	}
	for _, t := range l.listeners.all() {
		if !t.shown.isOf(owner) {
			continue
		}
		if _, _, differs := t.shown.follow("", l.served(t.party).granted); differs {
			t.notify(toolsChanged)
		}
	}
	if listed != nil {
		l.hold(ctx, shown, client, listed)
	}
}

// seen are fingerprints of what clients see.
type seen struct {
	class string
	lists map[tool.Kind]string // of tools what is listed without any registered
	all   string               // what a client sees that is listed every tool, "" where none is
}

func seenOf(v *Served) *seen {
	now := &seen{class: v.Class, lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(v.Items(kind))
	}
	now.lists[tool.KindTool] = v.mode() + fingerprint(slices.Concat(v.Search, v.Meta, v.Pinned()))
	if v.Direct != nil && !v.gated() {
		now.all = v.mode() + fingerprint(slices.Concat(v.Beside, v.Meta, v.Tools()))
	}
	return now
}

// others are the notifications of the lists of what is no tool that differ.
func (before *seen) others(now *seen) (methods []string) {
	changed := func(kind tool.Kind) bool { return before.lists[kind] != now.lists[kind] }
	if changed(tool.KindPrompt) {
		methods = append(methods, promptsChanged)
	}
	if changed(tool.KindResource) || changed(tool.KindTemplate) {
		methods = append(methods, resourcesChanged)
	}
	return methods
}

// announced has the fingerprints of what is served, made once for each value. It keeps no
// value from being collected: one is part of all that a class of parties has of a view.
type announced struct {
	mu    sync.Mutex // guards known; held while fingerprints are made, so that each is made once
	known map[weak.Pointer[Served]]*seen
}

// maxSeen bounds the values whose fingerprints are kept between two changes.
const maxSeen = 1000

func (a *announced) of(v *Served) *seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := weak.Make(v)
	if now := a.known[key]; now != nil {
		return now
	}
	if len(a.known) >= maxSeen {
		clear(a.known)
	}
	if a.known == nil {
		a.known = map[weak.Pointer[Served]]*seen{}
	}
	a.known[key] = seenOf(v)
	return a.known[key]
}

// forget forgets the values that are served no more.
func (a *announced) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.known)
}

// fingerprint is equal for lists that look the same to clients.
func fingerprint(items []*tool.Tool) string {
	sum := sha256.New()
	for _, t := range items {
		sum.Write([]byte(t.Name))
		sum.Write([]byte(t.Def.Hash))
	}
	return string(sum.Sum(nil))
}
