package proxy

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/identity"
	"toolfinch/upstream"
)

// Run keeps the proxy connected and serves clients until serve returns or ctx ends. The context of serve also ends
// when another part of the proxy fails. When Run returns, everything it started has ended.
func (p *Proxy) Run(ctx context.Context, serve func(context.Context) error) error {
	// Upstreams live on while serve drains its calls.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	changes := make(chan upstream.Change, 16)
	g.Go(func() error { return quiet(p.pool.Watch(life, changes)) })
	g.Go(func() error { return p.loop.run(life, changes) })
	if p.others != nil {
		g.Go(func() error { p.others.leads.Run(life); return nil })
		g.Go(func() error { p.hear(life, changes); return nil })
		g.Go(func() error { p.attend(life); return nil })
	}
	if p.desk.sessions != nil {
		g.Go(func() error { p.desk.sessions.Run(life); return nil })
	}
	g.Go(func() error { p.desk.counter.run(life); return nil })
	g.Go(func() error { p.embedder.run(life); return nil })
	g.Go(func() error { p.segments.run(life); return nil })
	g.Go(func() error { p.outputs.Sweep(life); return nil })
	g.Go(func() error { p.desk.entrance.Run(life); return nil })
	g.Go(func() error { p.desk.sweepKeys(life); return nil })
	g.Go(func() error { p.desk.meter.Run(life, p.store.Usage()); return nil })
	g.Go(func() error {
		<-life.Done()
		p.servedPage().Close()
		return nil
	})
	if p.audit.log != nil {
		g.Go(func() error { p.audit.log.Run(life); return nil })
		p.audit.log.Record(life, identity.Event{Kind: identity.EventStart, Details: map[string]string{"version": p.version}})
		p.audit.loaded(life, p.first, nil)
	}
	g.Go(func() error {
		defer end()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		return quiet(serve(serving))
	})
	return g.Wait()
}

// quiet returns err, or nil for a cancellation: the end was requested.
func quiet(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
