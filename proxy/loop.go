package proxy

import (
	"cmp"
	"context"
	"errors"
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
)

// ErrEnded is wrapped by the error of what needs Run, once that has ended.
var ErrEnded = errors.New("the proxy has ended")

// loop is the refresh loop: while a proxy runs it is the only writer of store and
// views.
type loop struct {
	*views
	store *store.Store
	count *counter

	asked chan func(ctx context.Context) // to be done now; whoever asks waits
	notes chan func(ctx context.Context) // to be done at some time; nobody waits
	ended chan struct{}                  // closed when nothing is done any more

	life     context.Context // of Run; nil before
	closing  sync.WaitGroup  // views that are no more
	reported map[view.Problem]bool
	waiting  map[string]upstream.Change // by server: what could not be stored, or read, and may be later
	decided  int64                      // what store.Decisions was when what is held was last compared; -1 for never
}

func newLoop(all *views, db *store.Store, count *counter) *loop {
	return &loop{
		views: all, store: db, count: count, decided: -1, reported: map[view.Problem]bool{}, waiting: map[string]upstream.Change{},
		asked: make(chan func(context.Context)), notes: make(chan func(context.Context), 256), ended: make(chan struct{}),
	}
}

// do runs f on the loop and waits for it. The error wraps ErrEnded, or is why ctx
// ended; f may still run then.
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

// later has the loop write what was learned; what names it in the log when that
// fails. It never blocks: a call or a client waits. What is lost is learned again.
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

// soon has the loop do something, and waits until it has room for that.
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

// run takes changes, and does what it is asked for, until ctx ends.
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
	wake(l.embedder.work) // vectors are read beside
	if l.partial {
		if err := l.refresh(ctx, nil); err != nil && ctx.Err() == nil {
			l.log.Error("not all known tools are indexed", "error", err)
		}
	}
	l.indexed()
	l.wake()
	var due <-chan time.Time   // nil while nothing is held
	var again <-chan time.Time // nil while everything is stored
	for {
		if again == nil && len(l.waiting) > 0 {
			again = time.After(l.rest())
		}
		if due == nil && l.known.someHeld() {
			due = time.After(decisionsEvery)
		}
		select {
		case <-ctx.Done():
			return nil
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

// wake wakes what follows news of upstreams.
func (l *loop) wake() {
	wake(l.count.work)
	wake(l.embedder.work)
	wake(l.segments.work)
}

// wait has a change taken again later, if its err may pass; nil: it was taken.
func (l *loop) wait(change upstream.Change, err error) {
	delete(l.waiting, change.Server)
	if store.Transient(err) {
		l.waiting[change.Server] = change
	}
}

// unsaved reports whether this replica has listed a server, waits to store that, and nobody else has stored or listed
// it since, as far as a change says.
func (l *loop) unsaved(change upstream.Change) bool {
	listed, waits := l.waiting[change.Server]
	if !waits || listed.Followed || l.others == nil {
		return false
	}
	leads, _ := l.others.leads.Leads(change.Server)
	return leads || change.Version == 0 && !l.others.ledElsewhere(change.Server)
}

const (
	// storeAgain is how long what could not be stored or read waits for the next try.
	storeAgain = time.Second
	// refusedAgain is that while the database answers and stores nothing: a full disk may last, and
	// every try of every server is a transaction under the lock of all that write.
	refusedAgain = 15 * time.Second
)

// rest is how long what waits does so from now on.
func (l *loop) rest() time.Duration {
	if trouble := l.store.Trouble(); trouble != nil && trouble.Refuses {
		return refusedAgain
	}
	return storeAgain
}

const (
	// pause is how long the refresh loop waits for more changes to come.
	pause = 20 * time.Millisecond
	// maxPause bounds that wait while changes keep coming.
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

// take makes what became known of servers what is found and called.
func (l *loop) take(ctx context.Context, changes []upstream.Change) []store.Diff {
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
			change.Followed = true // who leads it now has listed it, too
		}
		if change.Followed {
			if l.unsaved(change) || change.Version != 0 && change.Version == l.known.wrote[change.Server] {
				continue // what is stored is out of date, or known
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
		if change.Err == nil { // after an error its last known tools stay; the pool has logged it
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
			now.defs, now.tools, now.of = before.defs, before.tools, before.of // which is what is served
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

// refresh serves all that is known. Views that use none of the changed servers stay
// as they are; nil: none does.
func (l *loop) refresh(ctx context.Context, changed map[string]bool) error {
	partial := l.partial
	if partial {
		changed, l.partial = nil, false // more is known than what changed
	}
	next, err := l.rebuild(ctx, changed)
	if err != nil {
		l.partial = partial
		return err
	}
	l.stored = nil
	l.show(ctx, next)
	return nil
}

// show serves next, by one store, tells clients, and ends the views that are no
// more.
func (l *loop) show(ctx context.Context, next *current) {
	before := l.now.Load()
	if isClosed(before.ready) && !next.Complete {
		next.ready = make(chan struct{})
	}
	l.now.Store(next)
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
			l.closing.Go(func() { // beside: its calls may take long to end
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

// report logs what is wrong with the views, each thing once, while the loop runs.
// Warnings wait until each server was listed or has failed: until then a view lacks
// what may yet come.
func (l *loop) report(problems []view.Problem) {
	if l.life == nil {
		return // whoever opened the proxy asks for Problems
	}
	pending := slices.ContainsFunc(l.pool.Health(), func(s upstream.Health) bool { return s.State == upstream.StatePending })
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

// readyForScripts keeps a process waiting for the next script of a model where a
// view takes such.
func (l *loop) readyForScripts() {
	l.scripts.Ready(slices.ContainsFunc(l.now.Load().Config.Views, func(s view.Settings) bool { return s.RunScript != nil }))
}

// decisionsEvery is how often the store is asked whether the owner has decided
// something, while something is held: toolfinch pins is a process of its own.
const decisionsEvery = time.Second

// decisions takes in what was decided since the last time.
func (l *loop) decisions(ctx context.Context) {
	n, err := l.store.Pins().Decisions(ctx)
	if err != nil || n == l.decided {
		return // it is asked again
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
