package proxy

import (
	"context"
	"time"

	"toolfinch/internal/leeway"
)

const (
	// snapshotFirst is how long after the start the first snapshot is written.
	snapshotFirst = 10 * time.Second
	// snapshotEvery is at least between two. One that takes long is written less often, so that
	// it takes no more than a twentieth of the time.
	snapshotEvery = time.Minute
	snapshotShare = 20
	// snapshotLast bounds the one that is written at the end.
	snapshotLast = 5 * time.Second
)

// keepSnapshot keeps a snapshot of the store in a file, until ctx ends and once more then.
func (p *Proxy) keepSnapshot(ctx context.Context, path string) {
	write := func(ctx context.Context) bool {
		if p.store.Health() != nil {
			return false
		}
		err := p.store.Snapshot(ctx, path)
		if err != nil && ctx.Err() == nil {
			p.log.Warn("the snapshot of the store is not up to date: without PostgreSQL the next start knows less", "error", err)
		}
		return err == nil
	}
	due := time.NewTimer(snapshotFirst)
	defer due.Stop()
	for outdated := true; ; {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(snapshotLast))
			defer cancel()
			if outdated || len(p.outdated) > 0 {
				write(last)
			}
			return
		case <-p.outdated:
			outdated = true
		case <-due.C:
			begun := time.Now()
			outdated = outdated && !write(ctx)
			due.Reset(max(snapshotEvery, snapshotShare*time.Since(begun)))
		}
	}
}
