package register

import (
	"context"
	"slices"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// when is Served.Register, where Tried depends on whether the client re-lists.
func (c *relists) when(v *Served, client string) When {
	switch when := v.when(client); {
	case when != Tried:
		return when
	case c.never(client):
		return WhenUsed
	}
	return AtOnce
}

// maxBest bounds the bytes of what models read of a tool that is registered as the best: a longer definition costs a
// conversation more than parameters in the answer and a call through call_tool.
const maxBest = 800

// Register registers found tools for the client that made the call, if Served.Register says at once, or the best of
// them: one change of its set and one list_changed. It returns when the hold ends. now has the names that are
// registered; relisted says whether the client has listed all of them.
func (l *Live) Register(ctx context.Context, call *tool.Call, tools, best []*tool.Tool) (now map[string]bool, relisted bool) {
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
	served = l.served(party) // read under the lock that Sync takes after each change: an older value cannot overwrite a newer one
	var change Change
	if when := l.relists.when(served, s.client.Name); s != l.process && (when == AtOnce || when == Best) {
		if when == Best {
			s.set = s.set.afresh(best)
			tools = slices.DeleteFunc(slices.Clone(best), func(t *tool.Tool) bool { return len(t.Def.Description)+len(t.Def.InputSchema) > maxBest })
		}
		s.set, change = s.set.plan(served.registrable(tools), served.maxRegistered())
	}
	listed, client := s.listed, s.client.Name
	relisted = s.lists > 0 && !s.stale
	for _, name := range s.set.names() {
		now[name] = true
	}
	s.mu.Unlock()
	if !change.Empty() {
		l.announce(s, change)
		relisted = l.relists.hold(ctx, served, client, listed)
	}
	return now, relisted
}

// announce tells one session and the shell hook that the session's list changed.
func (l *Live) announce(s *session, change Change) {
	client, _ := s.expect()
	l.Notify(s.id, toolsChanged, nil)
	l.observer.Registered(s.id, client, s.lastParty(), change)
	l.observer.Changed(s.id)
	if l.notifier != nil {
		l.notifier.notify(s.id, client, change)
	}
}

// Sync updates registrations after what is served has changed, and tells the clients whose lists
// differ.
func (l *Live) Sync() {
	l.fingerprints.forget()
	for _, s := range l.everySession() {
		l.follow(s, l.servedNow(s))
	}
	for _, t := range l.listeners.all() {
		l.tell(t, l.served(t.party))
	}
}

// follow updates the registrations of a session, and tells its client which lists differ from the last
// ones. A new session is told nothing.
func (l *Live) follow(s *session, served *Served) {
	now := l.fingerprints.of(served)
	before := s.told.Swap(now)
	defer l.observer.Changed(s.id) // after every change below
	if before == nil {
		return
	}
	base, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	gated := served.gated()
	s.mu.Lock()
	set, change, differs := s.set.sync(served.Lookup)
	if (base || differs) && l.relists.when(served, s.client.Name) == WhenUsed { // the list changes anyway: the used tools join without a change of their own
		var added Change
		set, added = set.plan(served.registrable(s.used), served.maxRegistered())
		change, s.used = change.then(added), nil
	}
	s.set = set
	s.mu.Unlock()
	if gated {
		change, differs = Change{}, false
	}
	if s.provisioned.isKnown() {
		if _, provisioned, other := s.provisioned.follow("", served.granted); gated {
			change, differs = provisioned, other
		}
	}
	switch direct := s.direct.was(served); {
	case s.direct.turns(served):
		s.expect()
		l.Notify(s.id, toolsChanged, nil)
	case direct && !all, !direct && !base && !differs:
	case base: // the owner changed the configuration: the hook is not run
		s.expect()
		l.Notify(s.id, toolsChanged, nil)
	default:
		l.announce(s, change)
	}
	for _, method := range before.otherLists(now) {
		l.Notify(s.id, method, nil)
	}
}

// tell tells the stream of a 2026-07-28 client which lists changed.
func (l *Live) tell(t *listener, served *Served) {
	now := l.fingerprints.of(served)
	before := t.told.Swap(now)
	base, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	var sees bool
	if l.countAsOne(served) {
		sees = l.direct.sees(served, base, all)
	} else if direct := l.listsAll(nil, served); direct {
		sees = !t.direct.Swap(true) || all
	} else {
		sees = t.direct.Swap(false) || base
	}
	if _, _, differs := t.provisioned.follow("", served.granted); differs || sees {
		t.notify(toolsChanged)
	}
	for _, method := range before.otherLists(now) {
		t.notify(method)
	}
}

// Relist tells the clients of owner whose lists changed. It returns when the hold of the calling
// session ends.
func (l *Live) Relist(ctx context.Context, owner, calling string) {
	var client string
	var shown *Served
	var listed <-chan struct{} // nil: no client is waited for
	if session, is := tool.SessionOf(owner); is {
		l.observer.Changed(session) // also if its client sees no difference: the absent tools belong to the State, too
	}
	for _, s := range l.sessionsOf(owner) {
		served := l.servedNow(s)
		_, change, differs := s.provisioned.follow("", served.granted)
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
		if !t.provisioned.isOf(owner) {
			continue
		}
		if _, _, differs := t.provisioned.follow("", l.served(t.party).granted); differs {
			t.notify(toolsChanged)
		}
	}
	if listed != nil {
		l.relists.hold(ctx, shown, client, listed)
	}
}
