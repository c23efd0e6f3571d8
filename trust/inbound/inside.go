package inbound

import (
	"context"
	"net/http"
	"sync"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
)

// inside has the admitted requests in progress, and the sessions that API keys have opened.
type inside struct {
	mu  sync.Mutex // guards all and entered.stream; held for look-ups only
	all map[*entered]struct{}
}

// entered is an admitted request or session.
type entered struct {
	*verified
	stream bool // the request's answer is an event stream
	end    func()
}

// enter records a request or session, which end ends, until leave is called.
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

// stay records a request until leave is called; its context ends with its credentials. The handler reports event
// streams with identity.Lasts, and sessions with identity.Outlives. A session ends with its key. The end of a token
// ends only the streams of a session, which the client opens again with its next token.
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

// lookAround ends the requests and sessions whose API key was revoked or has expired, and the event streams whose
// token has expired. A call may outlast its token.
func (g *Gate) lookAround(ctx context.Context) {
	g.inside.mu.Lock()
	all := make(map[*entered]bool, len(g.inside.all)) // to: is an event stream
	for e := range g.inside.all {
		all[e] = e.stream
	}
	g.inside.mu.Unlock()
	// A store that hangs holds up nothing but this round.
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(lookEvery))
	defer cancel()
	gone := map[[32]byte]bool{} // by key: each is looked up once
	for e, stream := range all {
		over := stream && !e.ends.IsZero() && g.now().After(e.ends)
		if e.by == ByKey {
			known := false
			if over, known = gone[e.key]; !known && ctx.Err() == nil {
				_, refused := g.keys.look(ctx, e.key)
				over = refused != nil && refused.status == http.StatusUnauthorized
				gone[e.key] = over
			}
		}
		if over {
			e.end()
		}
	}
}
