package register

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"toolfinch/tool"
)

// Register puts tools on the live server of a session: one change of its set
// and one list_changed. It returns once the client has asked for the new list,
// as far as it is known to do so (see hold), and reports which of the tools
// are registered now. Without a session, or with registration off, none are.
func (l *Live) Register(ctx context.Context, sessionID string, tools []*tool.Tool) map[string]bool {
	served := l.served()
	now := map[string]bool{}
	for _, t := range served.Pinned() {
		now[t.Name] = true
	}
	s := l.session(sessionID)
	if s != nil && served.direct(s) {
		for _, t := range tools {
			now[t.Name] = true
		}
		return now
	}
	if s == nil || !served.Register || served.gated() {
		return now
	}
	s.mu.Lock()
	served = l.served() // under the lock that Sync takes after each change, so that nothing outdated stays
	var wanted []*tool.Tool
	for _, t := range tools {
		if current, ok := served.Lookup(t.Name); ok && !now[t.Name] && current.Def.ID == t.Def.ID {
			wanted = append(wanted, current)
		}
	}
	set, change := s.set.plan(wanted, cmp.Or(served.MaxRegistered, DefaultMaxRegistered))
	s.set = set
	listed, client := s.listed, s.client
	if !change.Empty() {
		s.notified = time.Now()
	}
	s.mu.Unlock()
	for _, name := range set.names() {
		now[name] = true
	}
	if !change.Empty() {
		l.announce(s, change)
		l.hold(ctx, client, listed)
	}
	return now
}

// announce tells one session, and the owner's hook, that its list changed.
func (l *Live) announce(s *session, change Change) {
	l.Notify(s.id, toolsChanged, nil)
	if l.notifier != nil {
		s.mu.Lock()
		client := s.client
		s.mu.Unlock()
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
		s.set = set
		direct := now.all != "" && s.direct && s.mode == served.mode()
		s.mu.Unlock()
		if gated {
			change, differs = Change{}, false
		}
		if s.shown.isKnown() {
			if _, provisioned, other := s.shown.follow("", served.granted); gated {
				change, differs = provisioned, other
			}
		}
		switch {
		case direct && !all, !direct && !base && !differs:
		case base: // the owner of the program changed it, and needs no hook for that
			l.Notify(s.id, toolsChanged, nil)
		default:
			l.announce(s, change)
		}
	}
	l.listeners.tell(toolsChanged, func(t *listener) bool {
		_, _, differs := t.shown.follow("", served.granted)
		return differs || before.modern != now.modern
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
	lists  map[tool.Kind]string // of tools what is listed without any registered
	all    string               // what a client sees that is listed every tool, "" where none is
	modern string               // what a 2026-07-28 client sees of tools
}

func seenOf(v *Served) seen {
	now := seen{lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(v.Items(kind))
	}
	now.lists[tool.KindTool] = v.mode() + fingerprint(slices.Concat(v.Search, v.Meta, v.Pinned()))
	now.modern = now.lists[tool.KindTool]
	if v.Direct != nil && !v.gated() {
		now.all = v.mode() + fingerprint(slices.Concat(v.Meta, v.Tools()))
		if v.direct(nil) {
			now.modern = now.all
		}
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
