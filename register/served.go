package register

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"toolfinch/tool"
)

// Served is all that a Live shows and does at one time. It never changes; each
// request uses one to its end.
type Served struct {
	Source
	Instructions string // sent with initialize and server/discover
	Offered      Offered

	// Mode names how tools reach clients: when it changes, sessions that stay are
	// shown the new way.
	Mode string
	// Direct reports whether a client that comes now is listed every tool; nil:
	// none is. It is decided once per session and Mode, and not asked with Granted.
	Direct func() bool
	// Search are the meta-tools of clients that are not listed every tool. Meta are
	// those of all.
	Search, Meta []*tool.Tool
	// Unlisted are meta-tools that answer when they are called, and are not listed.
	Unlisted []*tool.Tool
	// Granted returns what is provisioned for an owner (see tool.Call.Owner), where
	// tools can be called only then; nil: they can be called. Where it is set, only
	// what is provisioned is listed beside the meta-tools and the pinned ones, and
	// nothing is registered. It must not block.
	Granted func(owner string) []tool.ID
	// Register says that retrieved tools are registered, MaxRegistered how many of
	// them per session; default DefaultMaxRegistered.
	Register      bool
	MaxRegistered int
	// SearchTool is the name of the one of Search that finds tools, "" without.
	SearchTool string
}

// Offered is what is declared to clients beside tools: what upstreams offer.
type Offered struct {
	Prompts, Resources, Subscribe, Completions, Logging bool
	Tasks                                               bool // the extension of 2026-07-28
	// Extensions are the other extensions, each as a server declared it.
	Extensions map[string]json.RawMessage
}

// DefaultMaxRegistered is how many tools a session may have registered.
const DefaultMaxRegistered = 40

func (v *Served) gated() bool { return v.Granted != nil }

// mode is Mode, and another one behind a gate.
func (v *Served) mode() string {
	if v.gated() {
		return v.Mode + " gated"
	}
	return v.Mode
}

// direct reports whether the client of s, nil for one of 2026-07-28, is listed
// every tool.
func (v *Served) direct(s *session) bool {
	if v.Direct == nil || v.gated() {
		return false
	}
	if s == nil {
		return v.Direct()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode != v.mode() {
		s.mode, s.direct = v.mode(), v.Direct()
	}
	return s.direct
}

// metaTool finds a meta-tool by name, listed or not.
func (v *Served) metaTool(name string) *tool.Tool {
	for _, meta := range [][]*tool.Tool{v.Search, v.Meta, v.Unlisted} {
		for _, t := range meta {
			if t.Name == name {
				return t
			}
		}
	}
	return nil
}

func (v *Served) isPinned(id tool.ID) bool {
	return slices.ContainsFunc(v.Pinned(), func(t *tool.Tool) bool { return t.Def.ID == id })
}

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

// Sync lets registrations follow what is served after that changed, and tells those
// clients of a list who see it differently now.
func (l *Live) Sync() {
	served := l.served()
	now := seenOf(served)
	l.mu.Lock()
	before := l.announced
	l.announced = now
	l.mu.Unlock()
	gated := served.gated()
	offered, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
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
		case direct && !all, !direct && !offered && !differs:
		case offered: // by the owner, who needs no hook for it
			l.Notify(s.id, toolsChanged, nil)
		default:
			l.announce(s, change)
		}
	}
	l.tellListeners(toolsChanged, func(t *listener) bool {
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

// fingerprint is the same for lists that look the same.
func fingerprint(items []*tool.Tool) string {
	sum := sha256.New()
	for _, t := range items {
		sum.Write([]byte(t.Name))
		sum.Write([]byte(t.Def.Hash))
	}
	return string(sum.Sum(nil))
}
