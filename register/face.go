package register

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"toolfinch/tool"
)

// Face is what a Live shows beside what its source has. It may change while
// clients are connected.
type Face struct {
	// Mode names how tools reach clients: when it changes, sessions that stay are
	// shown the new way.
	Mode string
	// Direct reports whether a client that comes now is listed every tool; nil:
	// none is. What a session was shown first it is shown to its end.
	Direct func() bool
	// Search are the meta-tools of clients that are not listed every tool. Meta are
	// those of all.
	Search, Meta []*tool.Tool
	// Unlisted are meta-tools that answer when they are called, and are not listed.
	Unlisted []*tool.Tool
	// Gate says that tools can be called once they are provisioned, and is how much
	// of them an owner may have; nil: they can be called. Where there is one, only
	// what is provisioned is listed beside the meta-tools and the pinned ones, Direct
	// and Register notwithstanding. A smaller budget than before takes nothing away.
	Gate *Budget
	// Register says that retrieved tools are registered, MaxRegistered how many of
	// them per session; default DefaultMaxRegistered.
	Register      bool
	MaxRegistered int
	// SearchTool is the name of the one of Search that finds tools, "" without.
	SearchTool string
	// Around wraps every call, the last outermost.
	Around []tool.Middleware
}

// DefaultMaxRegistered is how many tools a session may have registered.
const DefaultMaxRegistered = 40

// offeredFace is a Face with the handler of calls that follows from it.
type offeredFace struct {
	Face
	call tool.Handler
}

// Offer sets what is shown beside the source's tools. Sync tells clients.
func (l *Live) Offer(face Face) {
	if face.MaxRegistered == 0 {
		face.MaxRegistered = DefaultMaxRegistered
	}
	if face.Gate != nil {
		face.Direct, face.Register = nil, false
		face.Mode += " gated"
	}
	next := &offeredFace{Face: face, call: l.dispatch}
	for _, wrap := range face.Around {
		next.call = wrap(next.call)
	}
	before := l.face.Swap(next)
	if before == nil || before.Mode == face.Mode {
		return
	}
	for _, s := range l.everySession() {
		s.mu.Lock()
		s.direct = nil
		s.mu.Unlock()
	}
}

// direct reports whether the client of s, nil for one of 2026-07-28, is listed
// every tool.
func (l *Live) direct(s *session) bool {
	direct := l.face.Load().Direct
	if direct == nil || s == nil {
		return direct != nil && direct()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.direct == nil {
		is := direct()
		s.direct = &is
	}
	return *s.direct
}

// Register puts tools on the live server of a session: one change of its set
// and one list_changed. It returns once the client has asked for the new list,
// as far as it is known to do so (see hold), and reports which of the tools
// are registered now. Without a session, or with registration off, none are.
func (l *Live) Register(ctx context.Context, sessionID string, tools []*tool.Tool) map[string]bool {
	now := map[string]bool{}
	for _, t := range l.source.Pinned() {
		now[t.Name] = true
	}
	s := l.session(sessionID)
	if s != nil && l.direct(s) {
		for _, t := range tools {
			now[t.Name] = true
		}
		return now
	}
	face := l.face.Load()
	if s == nil || !face.Register {
		return now
	}
	var wanted []*tool.Tool
	for _, t := range tools {
		if !now[t.Name] {
			wanted = append(wanted, t)
		}
	}
	s.mu.Lock()
	set, change := s.set.plan(wanted, face.MaxRegistered)
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

// Sync lets registrations follow the catalog and the face after they changed,
// and tells those clients of a list who see it differently now.
func (l *Live) Sync() {
	now := l.seen()
	l.mu.Lock()
	before := l.announced
	l.announced = now
	l.mu.Unlock()
	gated := l.Gated()
	offered, all := before.lists[tool.KindTool] != now.lists[tool.KindTool], before.all != now.all
	for _, s := range l.everySession() {
		s.mu.Lock()
		set, change, differs := s.set.sync(l.source.Lookup)
		s.set = set
		direct := s.direct != nil && *s.direct
		s.mu.Unlock()
		if gated {
			change, differs = Change{}, false
		}
		if s.shown.isKnown() {
			if _, provisioned, other := s.shown.follow("", l.listedTo); gated {
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
		_, _, differs := t.shown.follow("", l.listedTo)
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

func (l *Live) seen() seen {
	face := l.face.Load()
	now := seen{lists: map[tool.Kind]string{}}
	for _, kind := range tool.Kinds[1:] {
		now.lists[kind] = fingerprint(l.source.Items(kind))
	}
	now.lists[tool.KindTool] = face.Mode + fingerprint(slices.Concat(face.Search, face.Meta, l.source.Pinned()))
	now.modern = now.lists[tool.KindTool]
	if face.Direct != nil {
		now.all = face.Mode + fingerprint(slices.Concat(face.Meta, l.source.Tools()))
		if face.Direct() {
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
