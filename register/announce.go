package register

import (
	"context"
	"crypto/sha256"
	"slices"

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
	served := l.served()
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
	served = l.served() // under the lock that Sync takes after each change, so that nothing outdated stays
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
		relisted = l.hold(ctx, client, listed)
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
	if l.notifier != nil {
		l.notifier.notify(s.id, client, change)
	}
}

// Sync follows a change of what is served: it updates registrations, and tells the
// clients whose lists differ now.
func (l *Live) Sync() {
	served := l.served()
	now := seenOf(served)
	before := l.announced.Swap(&now)
	gated := served.gated()
	base, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	for _, s := range l.everySession() {
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
	}
	l.listeners.tell(toolsChanged, func(t *listener) bool {
		_, _, differs := t.shown.follow("", served.granted)
		return differs || l.direct.sees(served, base, all)
	})
	changed := func(kind tool.Kind) bool { return before.lists[kind] != now.lists[kind] }
	if changed(tool.KindPrompt) {
		l.broadcast(promptsChanged)
	}
	if changed(tool.KindResource) || changed(tool.KindTemplate) {
		l.broadcast(resourcesChanged)
	}
}

// broadcast tells every client that a list changed.
func (l *Live) broadcast(method string) {
	for _, s := range l.everySession() {
		l.Notify(s.id, method, nil)
	}
	l.listeners.tell(method, func(*listener) bool { return true })
}

// Relist tells the clients of owner that their list has changed, if it has, and
// returns once the calling session has asked for the new list, as far as it is
// known to do so (see hold).
func (l *Live) Relist(ctx context.Context, owner, calling string) {
	granted := l.served().granted
	var client string
	var listed <-chan struct{} // nil: nobody is waited for
	for _, s := range l.sessionsOf(owner) {
		_, change, differs := s.shown.follow("", granted)
		if !differs {
			continue
		}
		if s.id == calling {
			client, listed = s.expect()
		}
		l.announce(s, change)
	}
	l.listeners.tell(toolsChanged, func(t *listener) bool {
		if !t.shown.isOf(owner) {
			return false
		}
		_, _, differs := t.shown.follow("", granted)
		return differs
	})
	if listed != nil {
		l.hold(ctx, client, listed)
	}
}

// seen are fingerprints of what clients see.
type seen struct {
	lists map[tool.Kind]string // of tools what is listed without any registered
	all   string               // what a client sees that is listed every tool, "" where none is
}

func seenOf(v *Served) seen {
	now := seen{lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(v.Items(kind))
	}
	now.lists[tool.KindTool] = v.mode() + fingerprint(slices.Concat(v.Search, v.Meta, v.Pinned()))
	if v.Direct != nil && !v.gated() {
		now.all = v.mode() + fingerprint(slices.Concat(v.Meta, v.Tools()))
	}
	return now
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
