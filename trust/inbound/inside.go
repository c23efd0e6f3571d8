package inbound

import (
	"context"
	"net/http"
	"sync"
)

// inside are the requests that were let in and are being answered.
type inside struct {
	mu  sync.Mutex // guards all; held for look-ups only
	all map[*entered]struct{}
}

// entered is such a request.
type entered struct {
	*verified
	stream bool // it lasts: an event stream
	end    context.CancelFunc
}

// stay notes a request, whose context ends with its credentials, until leave.
func (g *Gate) stay(ctx context.Context, v *verified, stream bool) (_ context.Context, leave func()) {
	ctx, end := context.WithCancel(ctx)
	e := &entered{v, stream, end}
	g.inside.mu.Lock()
	defer g.inside.mu.Unlock()
	if g.inside.all == nil {
		g.inside.all = map[*entered]struct{}{}
	}
	g.inside.all[e] = struct{}{}
	return ctx, func() {
		end()
		g.inside.mu.Lock()
		defer g.inside.mu.Unlock()
		delete(g.inside.all, e)
	}
}

// lookAround ends the requests whose API key was revoked or has expired, and the event
// streams whose token has. A call goes on past the end of its token.
func (g *Gate) lookAround(ctx context.Context) {
	g.inside.mu.Lock()
	all := make([]*entered, 0, len(g.inside.all))
	for e := range g.inside.all {
		all = append(all, e)
	}
	g.inside.mu.Unlock()
	for _, e := range all {
		over := e.stream && !e.ends.IsZero() && g.now().After(e.ends)
		if e.by == ByKey {
			_, refused := g.keys.look(ctx, e.key)
			over = refused != nil && refused.status == http.StatusUnauthorized
		}
		if over {
			e.end()
		}
	}
}
