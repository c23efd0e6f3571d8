package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/view/skills"
)

// ErrEnded is wrapped by the errors of methods that need Run, after Run has ended.
var ErrEnded = errors.New("the proxy has ended")

// loop is the refresh loop. While a proxy runs, only the loop writes listings and replaces views.
type loop struct {
	*views
	store *store.Store
	count *counter

	asked chan func(ctx context.Context) // functions whose callers wait
	notes chan func(ctx context.Context) // functions that nobody waits for
	ended chan struct{}                  // closed when run has ended

	life     context.Context // of Run; nil before Run
	closing  sync.WaitGroup  // goroutines that close removed views
	reported map[view.Problem]bool
	waiting  map[string]upstream.Change // by server: changes that are taken again, because the store failed
	late     map[string]bool            // servers that were noted as late since the configuration was loaded
	decided  int64                      // result of store.Pins.Decisions when decisions were last read; -1 for never
}

func newLoop(all *views, db *store.Store, count *counter) *loop {
	return &loop{
		views: all, store: db, count: count, decided: -1, reported: map[view.Problem]bool{}, waiting: map[string]upstream.Change{}, late: map[string]bool{},
		asked: make(chan func(context.Context)), notes: make(chan func(context.Context), 256), ended: make(chan struct{}),
	}
}

// do runs f on the loop and waits for it. The error is ErrEnded or the cause of ctx; after the latter f may still run.
func (l *loop) do(ctx context.Context, f func(ctx context.Context)) error {
	done := make(chan struct{})
	select {
	case l.asked <- func(ctx context.Context) { defer close(done); f(ctx) }:
	case <-l.ended:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// later has the loop call write, and logs an error with the name given as what. later never blocks,
// because a call or a client waits. If the loop is too busy, the write is dropped: its content is learned again.
func (l *loop) later(what string, write func(ctx context.Context) error) {
	select {
	case l.notes <- func(ctx context.Context) {
		if err := write(ctx); err != nil && ctx.Err() == nil {
			l.log.Log(ctx, store.Level(err), "not written to the store", "what", what, "error", err)
		}
	}:
	default:
	}
}

// soon queues f for the loop, and waits until the queue has room.
func (l *loop) soon(ctx context.Context, f func(ctx context.Context)) {
	select {
	case l.notes <- f:
	case <-l.ended:
	case <-ctx.Done():
	}
}

func (l *loop) rememberUse(use retrieve.Use) {
	l.later("what was learned from a call", func(ctx context.Context) error { return l.store.Usage().PutLearned(ctx, store.LearnedUse(use)) })
}

// run takes changes and runs queued functions until ctx ends.
func (l *loop) run(ctx context.Context, changes <-chan upstream.Change) error {
	defer close(l.ended)
	l.life = ctx
	l.report(l.Problems())
	for _, e := range l.now.Load().endpoints {
		e.run(ctx)
	}
	l.readyForScripts()
	defer func() {
		l.scripts.Ready(false)
		for _, e := range l.now.Load().endpoints {
			<-e.ended
		}
		l.closing.Wait()
	}()
	wake(l.embedder.work) // reads vectors while the rest is indexed
	if l.partial {
		if err := l.refresh(ctx, nil); err != nil && ctx.Err() == nil {
			l.log.Error("not all known tools are indexed", "error", err)
		}
	}
	l.indexed()
	l.wake()
	var due <-chan time.Time   // when decisions are read; nil while nothing is held
	var again <-chan time.Time // when waiting changes are taken again; nil while there are none
	var late <-chan time.Time  // when servers that start for the first time are looked at; nil while there are none
	for {
		if again == nil && len(l.waiting) > 0 {
			again = time.After(l.rest())
		}
		if due == nil && l.known.someHeld() {
			due = time.After(decisionsEvery)
		}
		if late == nil && l.someMayBeLate() {
			late = time.After(lateAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			late = nil
			l.noteLate(ctx)
		case <-l.reread:
			if err := l.refresh(ctx, map[string]bool{skills.Server: true}); err != nil && ctx.Err() == nil {
				l.log.Error("the catalog was not refreshed", "error", err)
			}
			l.wake()
		case <-due:
			due = nil
			l.decisions(ctx)
		case <-again:
			if again = nil; l.store.Health() == nil {
				l.take(ctx, slices.Collect(maps.Values(l.waiting)))
			} else {
				again = time.After(l.rest())
			}
		case f := <-l.asked:
			f(ctx)
		case f := <-l.notes:
			f(ctx)
		case change := <-changes:
			l.take(ctx, collect(ctx, changes, change))
		}
	}
}

// wake has new definitions counted, embedded and stored in segments.
func (l *loop) wake() {
	wake(l.count.work)
	wake(l.embedder.work)
	wake(l.segments.work)
}

// wait has a change taken again later if err is transient. Otherwise the change no longer waits.
func (l *loop) wait(change upstream.Change, err error) {
	delete(l.waiting, change.Server)
	if store.Transient(err) {
		l.waiting[change.Server] = change
	}
}

// unsaved reports whether our list of a server waits to be stored and is newer than the list that change announces.
func (l *loop) unsaved(change upstream.Change) bool {
	listed, waits := l.waiting[change.Server]
	if !waits || listed.Followed || l.others == nil {
		return false
	}
	leads, _ := l.others.leads.Leads(change.Server)
	return leads || change.Version == 0 && !l.others.ledElsewhere(change.Server)
}

const (
	// storeAgain is the pause before waiting changes are taken again.
	storeAgain = time.Second
	// refusedAgain is the pause while the database answers but refuses to write. A full disk may last, and each
	// server's attempt is a transaction under a lock that all writers share.
	refusedAgain = 15 * time.Second
)

// rest returns the pause before waiting changes are taken again.
func (l *loop) rest() time.Duration {
	if trouble := l.store.Trouble(); trouble != nil && trouble.Refuses {
		return refusedAgain
	}
	return storeAgain
}

const (
	// pause is how long the refresh loop waits for another change.
	pause = 20 * time.Millisecond
	// maxPause bounds how long the refresh loop collects changes.
	maxPause = 200 * time.Millisecond
)

// collect gathers the changes of one burst.
func collect(ctx context.Context, changes <-chan upstream.Change, first upstream.Change) []upstream.Change {
	batch := []upstream.Change{first}
	most := time.NewTimer(maxPause)
	defer most.Stop()
	for {
		select {
		case change := <-changes:
			batch = append(batch, change)
		case <-time.After(pause):
			return batch
		case <-most.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
}

// take takes in changes of servers and serves them. It returns the differences, in the order of changes.
func (l *loop) take(ctx context.Context, changes []upstream.Change) []store.Diff {
	defer func() {
		for _, change := range changes {
			change.Served()
		}
	}()
	diffs := make([]store.Diff, len(changes))
	changed := map[string]bool{}
	news := false
	config := l.now.Load().Config
	for i, change := range changes {
		if config.Server(change.Server) == nil { // it was removed meanwhile
			delete(l.waiting, change.Server)
			continue
		}
		if change.Err == nil && !change.Followed && l.others.ledElsewhere(change.Server) {
			change.Followed = true // the new leader has listed the server, too
		}
		if change.Followed {
			if l.unsaved(change) || change.Version != 0 && change.Version == l.known.wrote[change.Server] {
				continue // the stored list is older than ours, or known
			}
			diff, known, other := l.follow(ctx, config, change)
			diffs[i] = diff
			if other || known && !l.known.listedThisRun[change.Server] {
				changed[change.Server] = true
			}
			l.known.listedThisRun[change.Server] = l.known.listedThisRun[change.Server] || known
			news = news || other
			continue
		}
		before := l.known.byServer[change.Server]
		if change.Err != nil {
			if err := l.known.fail(ctx, change.Server, change.Err); err != nil && ctx.Err() == nil {
				l.log.Log(ctx, store.Level(err), "not written to the store", "what", "why a server failed", "error", err)
			}
		}
		if change.Err == nil { // after an error the last known tools stay; the pool has logged the error
			var err error
			if diffs[i], err = l.known.learn(ctx, config, change); err != nil && ctx.Err() == nil {
				kept := "until the program ends"
				if store.Transient(err) {
					kept = "until they are stored"
				}
				l.log.Log(context.Background(), store.Level(err), "not written to the store; the tools are known "+kept, "server", change.Server, "error", err)
			}
			l.wait(change, err)
		}
		if now := l.known.byServer[change.Server]; change.Err == nil && now != nil && before != nil && now.same(before) {
			now.defs, now.tools, now.of = before.defs, before.tools, before.of // keep the served values
			l.known.listedThisRun[change.Server] = true
			continue
		}
		news = news || change.Err == nil
		if change.Err == nil || l.known.byServer[change.Server] == nil && !l.known.listedThisRun[change.Server] {
			changed[change.Server] = true
		}
		l.known.listedThisRun[change.Server] = true
	}
	if len(changed) == 0 && l.now.Load().Complete {
		return diffs // the last known tools stay
	}
	if err := l.refresh(ctx, changed); err != nil {
		if ctx.Err() == nil {
			l.log.Error("the catalog was not refreshed", "error", err)
		}
		return diffs
	}
	if news {
		l.wake()
	}
	return diffs
}

// refresh rebuilds the views from all listings and serves them. Views that use none of the changed servers are
// reused; if changed is nil, no view is.
func (l *loop) refresh(ctx context.Context, changed map[string]bool) error {
	partial, reread := l.partial, changed[skills.Server]
	if partial {
		changed, l.partial = nil, false // tools of unchanged servers are added, too
	}
	next, err := l.rebuild(ctx, changed, reread)
	if err != nil {
		l.partial = partial
		return err
	}
	l.stored = nil
	l.show(ctx, next)
	return nil
}

// searchesKept returns for how many operations the page's owner is shown searches.
func searchesKept(c *configs.Config) int {
	if c.UI {
		return c.UIKeep
	}
	return 0
}

// show serves next with one atomic store, notifies clients, and closes removed views.
func (l *loop) show(ctx context.Context, next *current) {
	before := l.now.Load()
	if isClosed(before.ready) && !next.Complete {
		next.ready = make(chan struct{})
	}
	l.now.Store(next)
	l.observer.feed.Keep(searchesKept(next.Config))
	if before.replaced != nil {
		close(before.replaced)
	}
	if l.life != nil {
		l.readyForScripts()
	}
	for name, e := range next.endpoints {
		if l.life != nil && e.end == nil {
			e.run(l.life)
		}
		if before.ByName[name] != next.ByName[name] {
			e.live.Sync()
		}
	}
	for name, e := range before.endpoints {
		if next.endpoints[name] != e {
			l.closing.Go(func() { // its calls may take long to end
				if err := e.close(); err != nil {
					l.log.Warn("a removed view did not end well", "view", name, "error", err)
				}
			})
		}
	}
	l.report(next.Problems)
	if next.Complete && !isClosed(next.ready) {
		close(next.ready)
	}
}

// report logs each problem of the views once, while the loop runs. Warnings wait until each server was listed or has
// failed, because a server may still bring the missing definitions.
func (l *loop) report(problems []view.Problem) {
	if l.life == nil {
		return // before Run, the program that opened the proxy reads Problems
	}
	pending := slices.ContainsFunc(l.pool.Health(), func(s upstream.Health) bool { return s.State.Starts() })
	for _, problem := range problems {
		level := slog.LevelError
		if problem.Warning {
			level = slog.LevelWarn
		}
		if !l.reported[problem] && !(problem.Warning && pending) {
			l.reported[problem] = true
			l.log.Log(context.Background(), level, problem.Error(), "line", problem.At.Line)
		}
	}
}

// lateAfter is how long a server that was never listed may take to come up before that is stored as a failure. It
// is stored while the server starts, because an agent may end the process at any time.
const lateAfter = 3 * time.Second

// someMayBeLate reports whether a server is starting for the first time.
func (l *loop) someMayBeLate() bool {
	return slices.ContainsFunc(l.now.Load().Config.Servers, func(s upstream.Settings) bool { return l.mayBeLate(s.Name) })
}

func (l *loop) mayBeLate(server string) bool {
	return l.known.byServer[server] == nil && !l.known.listedThisRun[server] && !l.late[server]
}

// isLate reports whether a server has been starting for long. A server that waits for its turn is not late.
func isLate(s upstream.Health, now time.Time) bool {
	return s.State.Starts() && !s.Began.IsZero() && now.Sub(s.Began) >= lateAfter
}

// noteLate stores which servers take long to come up for the first time. Their next list deletes that.
func (l *loop) noteLate(ctx context.Context) {
	now := time.Now()
	for _, s := range l.pool.Health() {
		if !isLate(s, now) || !l.mayBeLate(s.Server) {
			continue
		}
		l.late[s.Server] = true
		reason := fmt.Sprintf("it had not come up %s after its start, and may not have been given more time", lateAfter)
		if err := l.store.PutFailure(ctx, store.Failure{Server: s.Server, Reason: reason, At: now}); err != nil && ctx.Err() == nil {
			l.log.Log(ctx, store.Level(err), "not written to the store", "what", "that a server is late", "error", err)
		}
	}
}

// readyForScripts keeps a process ready for the next script of a model, if a view runs scripts.
func (l *loop) readyForScripts() {
	l.scripts.Ready(slices.ContainsFunc(l.now.Load().Config.Views, func(s view.Settings) bool { return s.RunScript != nil }))
}

// decisionsEvery is how often the owner's decisions are read from the store while definitions are held. The store is
// polled, because the command toolfinch pins is another process.
const decisionsEvery = time.Second

// decisions takes in the decisions since the last call, and serves the result.
func (l *loop) decisions(ctx context.Context) {
	n, err := l.store.Pins().Decisions(ctx)
	if err != nil || n == l.decided {
		return // the next round asks again
	}
	changed, err := l.known.decided(ctx, l.now.Load().Config)
	if err != nil {
		l.log.Warn("what was decided could not be read; it is asked again", "error", err)
		return
	}
	l.decided = n
	if len(changed) == 0 {
		return
	}
	if err := l.refresh(ctx, changed); err != nil && ctx.Err() == nil {
		l.log.Error("the catalog was not refreshed", "error", err)
	}
	l.wake()
}

// followPatience is how long this process waits for the first list of a server that another process lists.
const followPatience = 30 * time.Second

// follow takes in the stored list of a server that another process lists. known is false while no process has listed
// the server.
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
