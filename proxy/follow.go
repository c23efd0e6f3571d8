package proxy

import (
	"cmp"
	"context"
	"time"

	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/upstream"
)

// followed is what following a server came to.
type followed struct {
	known   bool // the store has a list of it
	changed bool // it is another one
	listed  *store.Listed
}

// follow takes in what another process has stored of a server. What is not stored, which
// is how long a list may be kept and what was logged, stays as it was.
func (k *listings) follow(ctx context.Context, config *configs.Config, server string) (f followed, err error) {
	listed, err := k.store.Listed(ctx, server)
	delete(k.wrote, server)
	if err != nil || listed == nil {
		return followed{known: k.byServer[server] != nil}, err
	}
	now, before := storedOf(listed.Upstream), k.byServer[server]
	now.defs = k.defsOf(listed.Defs, before)
	now.unpinned = heldBy(config, listed.Unpinned)
	if before != nil {
		now.cache, now.faults = before.cache, before.faults
	}
	f = followed{known: true, changed: before == nil || !before.same(now), listed: listed}
	if f.changed {
		k.byServer[server] = now
	}
	return f, nil
}

// followPatience is how long a server that another process lists, and that was never
// listed, is counted as one that may still come.
const followPatience = 30 * time.Second

// follow takes in a Change of a server that another process lists: what that has stored.
// known is false while nobody has listed the server.
func (l *loop) follow(ctx context.Context, config *configs.Config, change upstream.Change) (diff store.Diff, known, changed bool) {
	if w := l.waiting[change.Server]; w.Followed {
		change.Outdated, change.Interactive = change.Outdated || w.Outdated, change.Interactive || w.Interactive
	}
	f, err := l.known.follow(ctx, config, change.Server)
	if err != nil && ctx.Err() == nil {
		l.log.Log(context.Background(), store.Level(err), "what another replica lists could not be read; what was known before stays", "server", change.Server, "error", err)
	}
	if f.listed != nil {
		diff = countOf(f.listed.Defs)
		l.pool.Follow(change.Server, diff.Total, upstream.Faults{LeftOut: f.listed.LeftOut, Mended: f.listed.Mended}, f.listed.Interactive)
		if change.Interactive && !f.listed.Interactive {
			l.later("that a server asks clients", func(ctx context.Context) error { return l.store.Asks(ctx, change.Server) })
		}
	}
	if !f.known {
		time.AfterFunc(followPatience, func() {
			l.later("that a server was not listed", func(ctx context.Context) error {
				if l.known.byServer[change.Server] != nil || l.known.listedThisRun[change.Server] {
					return nil
				}
				l.known.listedThisRun[change.Server] = true
				return l.refresh(ctx, map[string]bool{change.Server: true})
			})
		})
	}
	if change.Outdated {
		err = cmp.Or(err, l.others.relist(ctx, change.Server))
	}
	l.wait(change, err)
	return diff, f.known, f.changed
}
