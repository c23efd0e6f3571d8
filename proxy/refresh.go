package proxy

import (
	"context"
	"sync"
	"time"

	"toolfinch/store"
	"toolfinch/upstream"
)

// Refreshed is what a refresh learned from one server.
type Refreshed struct {
	Server string
	Diff   store.Diff
	Took   time.Duration
	Err    error // nothing was learned; the last known tools stay
}

// Refresh connects to the servers once, to all of them when none is named, in
// parallel, and brings the store up to date. done, if not nil, is called for each
// server as it finishes, one at a time. The result is in the order asked for, or
// in config order. Use it instead of Run, not beside it.
func (p *Proxy) Refresh(ctx context.Context, done func(Refreshed), servers ...string) []Refreshed {
	if len(servers) == 0 {
		for _, s := range p.config.Load().Servers {
			servers = append(servers, s.Name)
		}
	}
	type outcome struct {
		i      int
		took   time.Duration
		change upstream.Change
	}
	outcomes := make(chan outcome)
	var dials sync.WaitGroup
	for i, server := range servers {
		dials.Go(func() {
			start := time.Now()
			change := p.pool.Refresh(ctx, server)
			outcomes <- outcome{i, time.Since(start), change}
		})
	}
	rows := make([]Refreshed, len(servers))
	for range rows {
		o := <-outcomes
		row := Refreshed{Server: servers[o.i], Took: o.took, Err: o.change.Err}
		row.Diff = p.learn(ctx, o.change)
		rows[o.i] = row
		if done != nil {
			done(row)
		}
	}
	dials.Wait()
	if err := p.swap(ctx); err != nil {
		p.log.Error("the catalog was not refreshed", "error", err)
	}
	p.putTokens(ctx, p.countNew(ctx))
	return rows
}

// Unlisted returns the enabled servers that were never listed, in config order:
// what they have is not known. Use it before Run, not beside it.
func (p *Proxy) Unlisted() []string {
	var names []string
	for _, s := range p.config.Load().Servers {
		if p.known[s.Name] == nil {
			names = append(names, s.Name)
		}
	}
	return names
}
