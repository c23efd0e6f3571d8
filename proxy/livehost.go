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

// liveHost is what the live server and the gate of a view ask of the rest of the
// proxy: the upstreams, the store, and whoever observes clients.
type liveHost struct{ of *endpoint }

// Complete answers completion/complete.
func (h liveHost) Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error) {
	return h.pool().Complete(ctx, server, call)
}

// Task answers a request about a task of an upstream that the view has something of.
func (h liveHost) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, _, _ := strings.Cut(call.Name, "/") // as upstream.Pool names tasks
	if server, err := url.PathUnescape(escaped); err != nil || !h.of.now().Of(ctx).Has(server) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	return h.pool().Task(ctx, method, call)
}

// SetLevel takes the level of log messages that the view's clients ask for.
func (h liveHost) SetLevel(level string) { h.of.desk.levels.set(h.of, level, h.pool().SetLogLevel) }

// RootsChanged tells upstreams of a session whose client has other roots.
func (h liveHost) RootsChanged(session string) { h.pool().RootsChanged(session) }

// Relists remembers whether a client lists tools again after list_changed.
func (h liveHost) Relists(client string, relists tool.Relists) {
	d := h.of.desk
	d.later("a client", func(ctx context.Context) error { return d.store.Usage().PutClient(ctx, client, relists) })
}

// Called remembers which tools a client called in its last sessions in the view.
func (h liveHost) Called(by tool.Caller, called []tool.Called) {
	d := h.of.desk
	d.later("what a client called", func(ctx context.Context) error { return d.store.Usage().PutCalled(ctx, h.of.view, by, called) })
}

// Listed counts what a client was listed.
func (h liveHost) Listed(session, client string, tools []*tool.Tool) {
	h.of.desk.meter.Listed(metered{h.of.now(), h.of.desk.counter}, session, client, tools)
}

// Calling counts a call of a client, and its answer.
func (h liveHost) Calling(call *tool.Call) func(tool.Result) {
	v, client := h.of.now(), ""
	if call.Client != nil {
		client = call.Client.Name
	}
	answered := h.of.desk.meter.Called(metered{v, h.of.desk.counter}, call.Session, client, kindOf(v, call))
	return func(result tool.Result) { answered(result) }
}

// Ended forgets a session.
func (h liveHost) Ended(session string, was register.Connected) {
	h.pool().Forget(session)
	h.of.desk.meter.Ended(session)
	h.of.gate.Drop(session)
	ctx := identity.WithSource(context.Background(), identity.Source{Transport: was.Transport})
	h.of.desk.views.observer.record(ctx, identity.Event{
		Kind: identity.EventSession, View: h.of.view, Session: session, Client: was.Client, Principal: was.Principal, Took: time.Since(was.Since),
	})
}

// Change writes what an owner has provisioned in the view.
func (h liveHost) Change(ctx context.Context, owner string, f func(stored []tool.Provisioned) ([]tool.Provisioned, error)) error {
	return h.of.desk.store.Usage().ChangeProvisions(ctx, h.of.view, owner, f)
}

func (h liveHost) pool() *upstream.Pool { return h.of.desk.views.pool }

// Began takes down a session.
func (h liveHost) Began(ctx context.Context, session, client string) {
	h.of.desk.views.observer.record(ctx, identity.Event{Kind: identity.EventSessionOn, View: h.of.view, Session: session, Client: client})
}

// Unknown takes down a call of a name that nothing in the view has.
func (h liveHost) Unknown(ctx context.Context, call *tool.Call) {
	s := subject{kind: eventOf(call.Kind), view: h.of.view}
	revealed(ctx, h.of.now().Of(ctx), call, call.Name, &s)
	h.of.desk.views.observer.note(ctx, s, call, call.Name, tool.ErrNotFound.Error())
}

// Registered takes down that what a client is listed has changed.
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

// Changed hears of a session that has something else now.
func (h liveHost) Changed(session string) {
	if h.of.sessions != nil {
		h.of.sessions.Changed(session)
	}
}
