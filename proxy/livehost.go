package proxy

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/register"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// liveHost gives the live server and the gate of a view access to the upstreams, the store, the meter and the observer.
type liveHost struct{ of *endpoint }

// Complete answers completion/complete.
func (h liveHost) Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error) {
	return h.pool().Complete(ctx, server, call)
}

// Task answers a request about a task, if the view contains the upstream of the task.
func (h liveHost) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, _, _ := strings.Cut(call.Name, "/") // upstream.Pool puts the server first in the name of a task
	if server, err := url.PathUnescape(escaped); err != nil || !h.of.now().Of(ctx).Has(server) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	return h.pool().Task(ctx, method, call)
}

// SetLevel sets the log level that the view's clients ask for.
func (h liveHost) SetLevel(level string) { h.of.desk.levels.set(h.of, level, h.pool().SetLogLevel) }

// RootsChanged tells the upstreams of a session that the client's roots have changed.
func (h liveHost) RootsChanged(session string) { h.pool().RootsChanged(session) }

// Relists stores whether a client lists tools again after list_changed.
func (h liveHost) Relists(client string, relists tool.Relists) {
	d := h.of.desk
	d.later("a client", func(ctx context.Context) error { return d.store.Usage().PutClient(ctx, client, relists) })
}

// Called stores which tools a client called in its last sessions in the view.
func (h liveHost) Called(by tool.Caller, called []tool.Called) {
	d := h.of.desk
	d.later("what a client called", func(ctx context.Context) error { return d.store.Usage().PutCalled(ctx, h.of.view, by, called) })
}

// Listed counts the tokens of a list that a client got.
func (h liveHost) Listed(session, client string, tools []*tool.Tool) {
	h.of.desk.meter.Listed(metered{h.of.now(), h.of.desk.counter}, session, client, tools)
}

// Calling counts the tokens of a call; the returned function counts the tokens of its result.
func (h liveHost) Calling(call *tool.Call) func(tool.Result) {
	v, client := h.of.now(), ""
	if call.Client != nil {
		client = call.Client.Name
	}
	answered := h.of.desk.meter.Called(metered{v, h.of.desk.counter}, call.Session, client, kindOf(v, call))
	return func(result tool.Result) { answered(result) }
}

// Ended forgets a session and records its end.
func (h liveHost) Ended(session string, was register.Connected) {
	h.pool().Forget(session)
	h.of.desk.meter.Ended(session)
	h.of.gate.Drop(session)
	h.of.desk.views.observer.left.note(was)
	ctx := identity.WithSource(context.Background(), identity.Source{Transport: was.Transport})
	h.of.desk.views.observer.record(ctx, identity.Event{
		Kind: identity.EventSession, View: h.of.view, Session: session, Client: was.Client, Principal: was.Principal, Took: time.Since(was.Since),
	})
}

// Change changes the stored tools that an owner has provisioned in the view.
func (h liveHost) Change(ctx context.Context, owner string, f func(stored []tool.Provisioned) ([]tool.Provisioned, error)) error {
	return h.of.desk.store.Usage().ChangeProvisions(ctx, h.of.view, owner, f)
}

func (h liveHost) pool() *upstream.Pool { return h.of.desk.views.pool }

// Began records the start of a session.
func (h liveHost) Began(ctx context.Context, session, client string) {
	h.of.desk.views.observer.record(ctx, identity.Event{Kind: identity.EventSessionOn, View: h.of.view, Session: session, Client: client})
}

// Unknown records a call with a name that the view does not have.
func (h liveHost) Unknown(ctx context.Context, call *tool.Call) {
	s := subject{kind: eventOf(call.Kind), view: h.of.view}
	revealed(ctx, h.of.now().Of(ctx), call, call.Name, &s)
	h.of.desk.views.observer.note(ctx, s, call, call.Name, tool.ErrNotFound.Error())
}

// Registered records that the list of a client has changed.
func (h liveHost) Registered(session, client string, party identity.Party, change register.Change) {
	o := h.of.desk.views.observer
	o.metrics.Registered(h.of.view)
	if !o.log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	line := lineFor(h.of.view, identity.Digest(session), client, "")
	if party.Principal != nil {
		line.text("principal", party.Principal.ID)
	}
	line.text("transport", party.Transport)
	for key, names := range map[string][]string{"added": change.Added, "removed": change.Removed} {
		if len(names) > maxNamed {
			line.add(slog.Int("more_"+key, len(names)-maxNamed))
		}
		line.text(key, strings.Join(names[:min(maxNamed, len(names))], " "))
	}
	o.log.LogAttrs(context.Background(), slog.LevelInfo, "tools registered", line.attrs...)
}

// Changed has the state of a session stored again.
func (h liveHost) Changed(session string) {
	if h.of.sessions != nil {
		h.of.sessions.Changed(session)
	}
}
