package inbound

import (
	"context"
	"net/http"
	"sync"

	"toolfinch/internal/identity"
)

// inside are the requests that were let in and are being answered, and the sessions that API keys
// have opened.
type inside struct {
	mu  sync.Mutex // guards all, and the streams in it; held for look-ups only
	all map[*entered]struct{}
}

// entered is such a request or session.
type entered struct {
	*verified
	stream bool // a request whose answer is an event stream
	end    func()
}

// enter notes what end ends, until leave.
func (i *inside) enter(v *verified, end func()) (e *entered, leave func()) {
	e = &entered{verified: v, end: end}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all == nil {
		i.all = map[*entered]struct{}{}
	}
	i.all[e] = struct{}{}
	return e, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.all, e)
	}
}

// stay notes a request, whose context ends with its credentials, until leave. Whether it is
// an event stream is said by who answers it, with identity.Lasts. Sessions are noted with identity.Outlives:
// they end with a key; with a token only their streams do, which the client opens again with the next token.
func (g *Gate) stay(ctx context.Context, v *verified) (_ context.Context, leave func()) {
	ctx, end := context.WithCancel(ctx)
	e, left := g.inside.enter(v, end)
	ctx = identity.WithLasts(ctx, func() {
		g.inside.mu.Lock()
		defer g.inside.mu.Unlock()
		e.stream = true
	})
	if v.by == ByKey {
		ctx = identity.WithOutlives(ctx, func(end func()) func() {
			_, left := g.inside.enter(v, end)
			return left
		})
	}
	return ctx, func() {
		end()
		left()
	}
}

// lookAround ends the requests and sessions whose API key was revoked or has expired, and the event
// streams whose token has. A call goes on past the end of its token.
func (g *Gate) lookAround(ctx context.Context) {
	g.inside.mu.Lock()
	all := make(map[*entered]bool, len(g.inside.all)) // whether it is a stream
	for e := range g.inside.all {
		all[e] = e.stream
	}
	g.inside.mu.Unlock()
	for e, stream := range all {
		over := stream && !e.ends.IsZero() && g.now().After(e.ends)
		if e.by == ByKey {
			_, refused := g.keys.look(ctx, e.key)
			over = refused != nil && refused.status == http.StatusUnauthorized
		}
		if over {
			e.end()
		}
	}
}
