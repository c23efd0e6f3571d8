package inbound

import (
	"context"
	"net/http"
	"sync"

	"toolfinch/internal/identity"
)

// inside are the requests that were let in and are being answered.
type inside struct {
	mu  sync.Mutex // guards all, and the streams in it; held for look-ups only
	all map[*entered]struct{}
}

// entered is such a request.
type entered struct {
	*verified
	stream bool // its answer is an event stream
	end    context.CancelFunc
}

// stay notes a request, whose context ends with its credentials, until leave. Whether it is
// an event stream is said by who answers it, with identity.Lasts.
func (g *Gate) stay(ctx context.Context, v *verified) (_ context.Context, leave func()) {
	ctx, end := context.WithCancel(ctx)
	e := &entered{verified: v, end: end}
	g.inside.mu.Lock()
	defer g.inside.mu.Unlock()
	if g.inside.all == nil {
		g.inside.all = map[*entered]struct{}{}
	}
	g.inside.all[e] = struct{}{}
	lasts := func() {
		g.inside.mu.Lock()
		defer g.inside.mu.Unlock()
		e.stream = true
	}
	return identity.WithLasts(ctx, lasts), func() {
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
