package proxy

import (
	"context"
	"net/url"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/register"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// behind is what the live server and the gate of a view ask of the rest of the
// proxy: the upstreams, the store, and whoever observes clients.
type behind struct{ of *endpoint }

// Complete answers completion/complete.
func (b behind) Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error) {
	return b.pool().Complete(ctx, server, call)
}

// Task answers a request about a task of an upstream that the view has something of.
func (b behind) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	escaped, _, _ := strings.Cut(call.Name, "/") // as upstream.Pool names tasks
	if server, err := url.PathUnescape(escaped); err != nil || !b.of.now().of(ctx).has(server) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	return b.pool().Task(ctx, method, call)
}

// SetLevel takes the level of log messages that the view's clients ask for.
func (b behind) SetLevel(level string) { b.of.desk.levels.set(b.of, level, b.pool().SetLogLevel) }

// RootsChanged tells upstreams of a session whose client has other roots.
func (b behind) RootsChanged(session string) { b.pool().RootsChanged(session) }

// Relists remembers whether a client lists tools again after list_changed.
func (b behind) Relists(client string, relists tool.Relists) {
	d := b.of.desk
	d.later("a client", func(ctx context.Context) error { return d.store.Usage().PutClient(ctx, client, relists) })
}

// Called remembers which tools a client called in its last sessions in the view.
func (b behind) Called(by tool.Caller, called []tool.Called) {
	d := b.of.desk
	d.later("what a client called", func(ctx context.Context) error { return d.store.Usage().PutCalled(ctx, b.of.view, by, called) })
}

// Listed counts what a client was listed.
func (b behind) Listed(session, client string, tools []*tool.Tool) {
	b.of.desk.meter.Listed(metered{b.of.now()}, session, client, tools)
}

// Calling counts a call of a client, and its answer.
func (b behind) Calling(call *tool.Call) func(tool.Result) {
	v, client := b.of.now(), ""
	if call.Client != nil {
		client = call.Client.Name
	}
	answered := b.of.desk.meter.Called(metered{v}, call.Session, client, v.kindOf(call))
	return func(result tool.Result) { answered(result) }
}

// Ended forgets a session.
func (b behind) Ended(session string, was register.Connected) {
	b.pool().Forget(session)
	b.of.desk.meter.Ended(session)
	b.of.gate.Drop(session)
	ctx := identity.WithSource(context.Background(), identity.Source{Transport: was.Transport})
	b.of.desk.views.observer.record(ctx, identity.Event{
		Kind: identity.EventSession, View: b.of.view, Session: session, Client: was.Client, Principal: was.Principal, Took: time.Since(was.Since),
	})
}

// Change writes what an owner has provisioned in the view.
func (b behind) Change(ctx context.Context, owner string, f func(stored []tool.Provisioned) ([]tool.Provisioned, error)) error {
	return b.of.desk.store.Usage().ChangeProvisions(ctx, b.of.view, owner, f)
}

func (b behind) pool() *upstream.Pool { return b.of.desk.views.pool }
