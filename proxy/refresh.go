package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"toolfinch/store"
	"toolfinch/upstream"
)

// Refreshed is what a refresh learned from one server.
type Refreshed struct {
	Server string
	Diff   store.Diff
	Faults upstream.Faults
	Took   time.Duration
	Err    error // nothing was learned; the last known tools stay
	Lost   error // why what was learned is not in the store; Diff is zero then
}

// Refresh connects to the servers once, to all of them when none is named, in
// parallel, and brings the store up to date. done, if not nil, is called for each
// server as it finishes, one at a time. The result is in the order asked for, or
// in config order. Use it instead of Run, not beside it.
func (p *Proxy) Refresh(ctx context.Context, done func(Refreshed), servers ...string) []Refreshed {
	if len(servers) == 0 {
		for _, s := range p.served.Load().config.Servers {
			servers = append(servers, s.Name)
		}
	}
	rows := make([]Refreshed, len(servers))
	each(ctx, servers, p.pool.Refresh, func(i int, took time.Duration, change upstream.Change) {
		diff, err := p.learn(ctx, change)
		rows[i] = Refreshed{Server: servers[i], Took: took, Err: change.Err, Faults: change.Faults, Lost: err, Diff: diff}
		if done != nil {
			done(rows[i])
		}
	})
	if err := p.refresh(ctx, nil); err != nil {
		p.log.Error("the catalog was not refreshed", "error", err)
	}
	p.putTokens(ctx, p.countNew(ctx))
	return rows
}

// Durable reports whether what is learned is kept when the program ends.
func (p *Proxy) Durable() bool { return p.store.Durable() }

// Unlisted returns the enabled servers that were never listed, in config order:
// what they have is not known. Use it before Run, not beside it.
func (p *Proxy) Unlisted() []string {
	var names []string
	for _, s := range p.served.Load().config.Servers {
		if p.known[s.Name] == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// each asks servers in parallel, and calls done for each as it answers, one at a
// time.
func each(ctx context.Context, servers []string, ask func(ctx context.Context, server string) upstream.Change, done func(i int, took time.Duration, change upstream.Change)) {
	var asking sync.WaitGroup
	var one sync.Mutex // held over done
	for i, server := range servers {
		asking.Go(func() {
			start := time.Now()
			change := ask(ctx, server)
			one.Lock()
			defer one.Unlock()
			done(i, time.Since(start), change)
		})
	}
	asking.Wait()
}

// news is what was learned beside the refresh loop, and where that says what of it
// is new.
type news struct {
	changes []upstream.Change
	diffs   chan []store.Diff
}

// relist asks servers in parallel while Run runs, and returns once what they have
// can be found. The result is in the order asked for.
func (p *Proxy) relist(ctx context.Context, servers []string, ask func(ctx context.Context, server string) upstream.Change) ([]Refreshed, error) {
	rows := make([]Refreshed, len(servers))
	n := news{make([]upstream.Change, len(servers)), make(chan []store.Diff, 1)}
	each(ctx, servers, ask, func(i int, took time.Duration, change upstream.Change) {
		rows[i] = Refreshed{Server: servers[i], Took: took, Err: change.Err, Faults: change.Faults}
		n.changes[i] = change
	})
	select {
	case p.news <- n:
	case <-p.ended:
		return nil, fmt.Errorf("list servers: %w", ErrEnded)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case diffs := <-n.diffs:
		for i := range rows {
			rows[i].Diff = diffs[i]
		}
		return rows, nil
	case <-p.ended:
		return nil, fmt.Errorf("list servers: %w", ErrEnded)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
