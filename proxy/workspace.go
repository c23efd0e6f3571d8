package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/internal/leeway"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// Workspace has the views of a configuration over the listings in the store. The views can be searched and their tools
// called, but no client is served. Before Learn or Embed it writes only tokens of logins. One goroutine at a time may
// use it.
type Workspace struct {
	*views
	stored *store.Store
}

// OpenWorkspace opens a Workspace. It dials nothing and writes nothing.
func OpenWorkspace(ctx context.Context, config *configs.Config, options ...Option) (*Workspace, error) {
	o := optionsOf(options)
	db, err := store.OpenReadOnly(ctx, config.Places().Store, o.log)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	all, _, err := newViews(ctx, config, o, db, upstream.Events{Started: o.observer.spawned}, nil)
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", errors.Join(err, db.Close()))
	}
	all.known.readOnly = true
	w := &Workspace{all, db}
	if err := w.refresh(ctx); err != nil {
		return nil, fmt.Errorf("workspace: %w", errors.Join(err, w.Close()))
	}
	return w, nil
}

func (w *Workspace) refresh(ctx context.Context) error {
	next, err := w.rebuild(ctx, nil, false)
	if err == nil {
		w.now.Store(next)
	}
	return err
}

// Learn makes later calls of Refresh and Embed write to the store. It reports whether the store outlives the program.
func (w *Workspace) Learn(ctx context.Context) (durable bool, err error) {
	if w.known.readOnly {
		db, err := store.Open(ctx, w.first.Places().Store, w.log)
		if err != nil {
			return false, fmt.Errorf("workspace: %w", err)
		}
		if err := db.MadeFor(w.first.Path); err != nil {
			w.log.Warn("toolfinch store --clean will not know whose store this is", "error", err)
		}
		if err := w.stored.Close(); err != nil {
			return false, errors.Join(err, db.Close())
		}
		w.stored, w.known.store, w.embedder.store, w.known.readOnly = db, db, db, false
		w.logins.rows.store.Store(db)
	}
	return w.stored.Durable(), nil
}

// Refreshed is the result of refreshing one server.
type Refreshed struct {
	Server string
	Diff   store.Diff // without Learn only the totals are set
	Faults upstream.Faults
	Took   time.Duration
	Err    error            // nothing was learned; the last known tools stay
	Failed upstream.Failure // its last failure, if it was not listed since
	Lost   error            // why the new list, or the failure, is not in the store; Diff is zero then
	Held   int              // definitions that await approval, without rejected ones
}

// Refresh connects to the servers in parallel, once, and takes in their lists. Without servers it refreshes all
// servers of the configuration. done, unless nil, is called for each finished server, never concurrently. The result
// has the order of servers, or of the configuration. After Learn, a refresh of all servers makes the store forget
// servers outside of the configuration.
func (w *Workspace) Refresh(ctx context.Context, done func(Refreshed), servers ...string) []Refreshed {
	if len(servers) == 0 {
		for _, s := range w.first.Servers {
			servers = append(servers, s.Name)
		}
		if !w.known.readOnly {
			w.known.forget(ctx, w.first)
		}
	}
	rows := make([]Refreshed, len(servers))
	each(ctx, servers, w.pool.Refresh, func(i int, took time.Duration, change upstream.Change) {
		rows[i] = Refreshed{Server: servers[i], Took: took, Err: change.Err, Faults: change.Faults, Failed: w.known.failures[servers[i]]}
		if change.Err != nil && ctx.Err() == nil {
			rows[i].Lost = w.known.fail(ctx, change.Server, change.Err)
		}
		if change.Err == nil {
			rows[i].Diff, rows[i].Lost = w.known.learn(ctx, w.first, change)
			rows[i].Held = w.known.waiting(w.first, change.Server)
		}
		if done != nil {
			done(rows[i])
		}
	})
	if err := w.refresh(ctx); err != nil {
		w.log.Error("the catalog was not refreshed", "error", err)
	}
	if !w.known.readOnly {
		count := &counter{store: w.stored, log: w.log, catalogs: w.catalogs}
		count.count(ctx)
	}
	return rows
}

// each asks servers in parallel, and calls done for each answer, never concurrently.
func each(ctx context.Context, servers []string, ask func(ctx context.Context, server string) upstream.Change, done func(i int, took time.Duration, change upstream.Change)) {
	var asking sync.WaitGroup
	var one sync.Mutex // held while done runs
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

// Unlisted returns the servers that were never listed, except servers with a fault in their configuration, in config
// order.
func (w *Workspace) Unlisted() []string {
	var names []string
	for _, s := range w.first.Servers {
		if w.known.byServer[s.Name] == nil && s.Fault == "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// Held returns the held definitions; nil if the store cannot be read.
func (w *Workspace) Held(ctx context.Context) []pins.Report {
	all, _ := ReadPins(ctx, w.stored, w.first, nil)
	return all.Reports
}

// Warnings returns the warnings about the definitions of all servers, approved or not.
func (w *Workspace) Warnings() map[tool.ID][]pins.Warning {
	all := map[tool.ID][]pins.Warning{}
	for server, listed := range w.known.byServer {
		for _, def := range listed.defs {
			warn(all, def.ID, def.Raw)
		}
		warn(all, instructionsID(server), json.RawMessage(listed.instructions))
	}
	return all
}

// Embed gives every tool its vector and makes searches hybrid. Without a configured embedder it does nothing. It calls
// Learn, so that no text is embedded twice. progress, unless nil, is told how many tools have a vector.
func (w *Workspace) Embed(ctx context.Context, progress func(done, total int)) error {
	if w.first.Embed.Kind == embed.KindBM25 {
		return nil
	}
	if _, err := w.Learn(ctx); err != nil {
		return err
	}
	_, err := w.embedder.embed(ctx, progress)
	return err
}

// Close closes every connection and the store. It may be called twice.
func (w *Workspace) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(closeWithin))
	defer cancel()
	return errors.Join(w.closeAll(ctx), w.stored.Close(), w.audit.log.Close())
}
