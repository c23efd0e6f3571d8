package proxy

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"toolfinch/retrieve"
	"toolfinch/store"
)

// counter counts the tokens of definitions and keeps the counts in the store.
type counter struct {
	store    *store.Store
	log      *slog.Logger
	catalogs func() []*retrieve.Catalog
	idle     func()
	work     chan struct{} // wakes run
}

// run counts new definitions in the background.
func (c *counter) run(ctx context.Context) {
	wake(c.work)
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-c.work:
		}
		fresh := c.count(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second): // idle collects garbage, which would slow the first answer
			if first || fresh >= manyNew {
				c.idle()
			}
		}
	}
}

// manyNew new definitions leave enough garbage to collect it at once. Collecting takes time in proportion to all
// memory in use.
const manyNew = 100

// count counts the tokens of definitions without a count, and returns the number of these definitions.
func (c *counter) count(ctx context.Context) int {
	fresh := map[string]int{}
	for _, catalog := range c.catalogs() {
		maps.Copy(fresh, catalog.CountTokens(ctx))
	}
	c.put(ctx, fresh)
	return len(fresh)
}

func (c *counter) put(ctx context.Context, fresh map[string]int) {
	if len(fresh) == 0 || ctx.Err() != nil {
		return
	}
	if err := c.store.PutTokens(ctx, fresh); err != nil && ctx.Err() == nil {
		c.log.Log(context.Background(), store.Level(err), "token counts not written to the store", "error", err)
	}
}
