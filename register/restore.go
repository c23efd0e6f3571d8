package register

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// State is what another process needs to take over a session, beside the client's initialize request.
type State struct {
	Level       string   `json:"level,omitempty"`       // of logging/setLevel
	Registered  []Listed `json:"registered,omitempty"`  // tools, in their order
	Provisioned []Listed `json:"provisioned,omitempty"` // the provisioned tools that the client knows, in a gated view
	Followed    bool     `json:"followed,omitempty"`    // the client has a list of Provisioned, which can be out of date
	Recalled    bool     `json:"recalled,omitempty"`    // tools of earlier sessions are registered
	Called      bool     `json:"called,omitempty"`      // the client has called a tool
	Used        []string `json:"used,omitempty"`        // called tools, registered with the next change of the list
	Lists       int      `json:"lists,omitempty"`       // number of tools/list requests
	Stale       bool     `json:"stale,omitempty"`       // the list has changed since the last tools/list
	Direct      *Direct  `json:"direct,omitempty"`      // nil: not decided
	Told        *Told    `json:"told,omitempty"`        // nil: the client was told of no list
	Apps        []string `json:"apps,omitempty"`        // servers whose apps the client has read
	Subscribed  []string `json:"subscribed,omitempty"`  // URIs of resources
}

// Listed is a tool in a client's list.
type Listed struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // of the definition
}

// Direct is the decision whether a client is listed every tool.
type Direct struct {
	Mode string `json:"mode"` // of the decision
	Is   bool   `json:"is"`
}

// Told are the fingerprints of the last lists that a client was told of.
type Told struct {
	Class string               `json:"class,omitempty"`
	Lists map[tool.Kind][]byte `json:"lists"`
	All   []byte               `json:"all,omitempty"`
}

// maxSubscribedBytes bounds the URIs in a State: the last ones are dropped.
const maxSubscribedBytes = 64 << 10

func asListed(tools []*tool.Tool) []Listed {
	out := make([]Listed, len(tools))
	for i, t := range tools {
		out[i] = Listed{t.Name, t.Def.Hash}
	}
	return out
}

// unlisted makes tools from a client's list; sync replaces them by the served tools.
func unlisted(all []Listed) []*tool.Tool {
	out := make([]*tool.Tool, len(all))
	for i, one := range all {
		out[i] = &tool.Tool{Name: one.Name, Def: &tool.Def{Hash: one.Hash}}
	}
	return out
}

// State returns the state of a session; false if the session is gone.
func (l *Live) State(id string) (State, bool) {
	s := l.session(id)
	if s == nil {
		return State{}, false
	}
	restoring := s.restoring.left() // read before the subscriptions: a URI restored meanwhile is then in both, not in neither
	state := State{Subscribed: bounded(append(l.subscriptions.uris(id), restoring...))}
	s.mu.Lock()
	state.Level, state.Lists, state.Stale, state.Apps = s.client.LogLevel, s.lists, s.stale, s.apps
	state.Recalled, state.Called = s.recalled, s.called
	for _, t := range s.used {
		state.Used = append(state.Used, t.Name)
	}
	for _, r := range s.set.tools {
		state.Registered = append(state.Registered, Listed{r.Name, r.Def.Hash})
	}
	s.mu.Unlock()
	s.provisioned.mu.Lock()
	state.Followed, state.Provisioned = s.provisioned.known, asListed(s.provisioned.tools)
	s.provisioned.mu.Unlock()
	s.direct.mu.Lock()
	if s.direct.decided {
		state.Direct = &Direct{s.direct.mode, s.direct.is}
	}
	s.direct.mu.Unlock()
	if told := s.told.Load(); told != nil {
		state.Told = &Told{Class: told.class, Lists: map[tool.Kind][]byte{}, All: []byte(told.all)}
		for kind, print := range told.lists {
			state.Told.Lists[kind] = []byte(print)
		}
	}
	return state, true
}

// Restore gives a session, whose client has just been initialized again, its state of another process.
// The client is told of every list that differs or may have changed unseen.
func (l *Live) Restore(id string, state State) {
	s := l.session(id)
	if s == nil {
		return
	}
	served := l.servedNow(s)
	s.restoring.begin(state.Subscribed)
	s.mu.Lock()
	s.lists, s.stale, s.apps = state.Lists, state.Stale, state.Apps[:min(len(state.Apps), maxApps)]
	s.recalled, s.called, s.used = state.Recalled, state.Called, nil
	for _, name := range state.Used {
		if t, ok := served.Lookup(name); ok {
			s.used = append(s.used, t)
		}
	}
	s.set, _ = s.set.plan(unlisted(state.Registered), served.maxRegistered())
	s.mu.Unlock()
	if state.Level != "" {
		l.setLevel(s, state.Level)
	}
	s.provisioned.mu.Lock()
	s.provisioned.owner = (&tool.Call{Session: s.id, Principal: s.principal}).Owner()
	s.provisioned.known, s.provisioned.tools = state.Followed, unlisted(state.Provisioned)
	s.provisioned.mu.Unlock()
	if d := state.Direct; d != nil {
		s.direct.mu.Lock()
		s.direct.decided, s.direct.mode, s.direct.is = true, d.Mode, d.Is
		s.direct.mu.Unlock()
	}
	if told := state.Told; told != nil {
		before := &fingerprints{class: told.Class, lists: map[tool.Kind]string{}, all: string(told.All)}
		for kind, print := range told.Lists {
			if kind != tool.KindTool && len(served.Items(kind)) > 0 { // for tools the State itself has Stale
				continue
			}
			before.lists[kind] = string(print)
		}
		s.told.Store(before)
	}
	l.follow(s, served)
	if state.Stale {
		l.Notify(s.id, toolsChanged, nil)
	}
	if len(state.Subscribed) > 0 {
		l.suspended.background(func(ctx context.Context) { l.resubscribe(ctx, s) })
	}
}

const (
	// rejoinFirst and rejoinMost bound the doubling pause between two attempts to subscribe.
	rejoinFirst, rejoinMost = time.Second, time.Minute
)

// resubscribe retries the subscriptions of a session from another process until all are restored or the
// session ends: a server may be away or unknown.
func (l *Live) resubscribe(ctx context.Context, s *session) {
	for pause := rejoinFirst; ; pause = min(2*pause, rejoinMost) {
		for _, uri := range s.restoring.left() {
			if err := l.rejoin(ctx, s, uri); err != nil && pause == rejoinFirst {
				l.log.Warn("a subscription of a session that was taken over is not restored yet", "error", err)
			}
		}
		if len(s.restoring.left()) == 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-s.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// rejoin subscribes a session to a resource again. The client may have missed updates, so it is told of
// one.
func (l *Live) rejoin(ctx context.Context, s *session, uri string) error {
	t, ok := l.servedNow(s).Resource(uri)
	if !ok {
		return notFound(tool.KindResource, uri, "", false)
	}
	s.restoring.join(uri)
	if err := l.subscriptions.join(ctx, uri, t.Def.ID, s.id); err != nil {
		return fmt.Errorf("server %s: %w", t.Def.ID.Server, err)
	}
	wanted := s.restoring.joined(uri)
	switch {
	case s.ended():
		l.subscriptions.leave(context.WithoutCancel(ctx), s.id)
	case !wanted: // the client has unsubscribed meanwhile
		l.subscriptions.leave(context.WithoutCancel(ctx), s.id, uri)
	default:
		l.Notify(s.id, resourceUpdated, json.RawMessage(`{"uri":`+string(rawjson.Quote(uri))+`}`))
	}
	return nil
}

// bounded sorts the URIs of a State and drops URIs past maxSubscribedBytes.
func bounded(uris []string) []string {
	slices.Sort(uris)
	uris = slices.Compact(uris)
	size := 0
	for i, uri := range uris {
		if size += len(uri); size > maxSubscribedBytes {
			return uris[:i]
		}
	}
	return uris
}
