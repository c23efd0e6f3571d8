package proxy

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolfinch/upstream"
)

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

// RefreshOf is Refresh for some of the servers.
func (p *Proxy) RefreshOf(ctx context.Context, servers []string, done func(Refreshed)) []Refreshed {
	type outcome struct {
		server string
		took   time.Duration
		change upstream.Change
	}
	outcomes := make(chan outcome)
	var dials sync.WaitGroup
	for _, server := range servers {
		dials.Go(func() {
			start := time.Now()
			change := p.pool.Refresh(ctx, server)
			outcomes <- outcome{server, time.Since(start), change}
		})
	}
	rows := make([]Refreshed, len(servers))
	for range rows {
		o := <-outcomes
		row := Refreshed{Server: o.server, Took: o.took, Err: o.change.Err}
		row.Diff = p.learn(ctx, o.change)
		rows[slices.Index(servers, o.server)] = row
		if done != nil {
			done(row)
		}
	}
	dials.Wait()
	if err := p.swap(ctx); err != nil {
		p.log.Error("the catalog was not refreshed", "error", err)
	}
	return rows
}
