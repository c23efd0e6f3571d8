package gate

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

// Request says what to provision.
type Request struct {
	Tools     []*tool.Tool // of the catalog
	Fit       bool         // tools are sorted, best first: provision those that fit; else all or nothing
	MaxTokens int          // bounds the tokens that this request adds, beside the budget; 0: no bound
	// TTL is how long the tools stay, from now, at most the budget's TTL, which 0 also means. A tool that is
	// already provisioned gets the new end; if neither TTL is set, its end stays. With Fit it keeps the later end:
	// a query shortens nothing.
	TTL time.Duration
	Has Has // hides tools from the client
	// Session is the calling session, whose next list Provision waits for; "": the owner, if it is a session.
	Session string
}

// storeTimeout bounds how long storing a changed set may take.
const storeTimeout = 10 * time.Second

// turnTimeout bounds how long changes by the process itself wait for their turn.
const turnTimeout = time.Second

// Provision provisions tools for owner within the budget, and tells the owner's clients. Tools that are already
// provisioned cost nothing. Errors are *BudgetError, ErrNotGated, ErrSessionEnded, ErrNotStored, tool.ErrNotFound
// for a tool that is not in the catalog, and ctx's cause; after an error nothing has changed. Above 10,000 owners,
// the least recently used owner loses its tools.
func (g *Gate) Provision(ctx context.Context, owner string, r Request) (Outcome, error) {
	terms := g.terms()
	if terms.Budget == nil {
		return Outcome{}, ErrNotGated
	}
	wanted, pinned, err := terms.wanted(owner, r)
	if err != nil {
		return Outcome{}, err
	}
	var done Outcome
	changed, err := g.update(ctx, owner, terms, func(all set) (next set, err error) {
		next, done, err = all.add(addition{wanted, *terms.Budget, r.MaxTokens, r.Fit}, terms.presentTo(r.Has))
		return next, err
	})
	if err != nil {
		g.refused(ctx, owner, changed, err)
		return Outcome{}, err
	}
	done.Kept = append(pinned, done.Kept...)
	g.makeRoom(ctx)
	if session, is := tool.SessionOf(owner); is && r.Session == "" {
		r.Session = session
	}
	g.clients.Relist(ctx, owner, r.Session)
	return done, nil
}

// wanted returns the tools of a request; pinned tools are separate.
func (t Terms) wanted(owner string, r Request) (wanted, pinned set, err error) {
	if most := t.Budget.TTL; r.TTL == 0 || most != 0 && r.TTL > most {
		r.TTL = most
	}
	var until time.Time
	if r.TTL != 0 {
		until = time.Now().Add(r.TTL).Round(0) // without the monotonic clock, as clients and the store see it
	}
	for _, one := range r.Tools {
		now, ok := t.ByID(one.Def.ID)
		switch {
		case !ok && r.Fit: // the tool has gone since it was found
		case !ok:
			return nil, nil, fmt.Errorf("%w: %s", tool.ErrNotFound, one.Name)
		case t.isPinned(now.Def.ID):
			pinned = append(pinned, tool.Provisioned{Owner: owner, ID: now.Def.ID, Tokens: t.Tokens(now)})
		default:
			wanted = append(wanted, tool.Provisioned{Owner: owner, ID: now.Def.ID, Until: until, Tokens: t.Tokens(now)})
		}
	}
	return wanted, pinned, nil
}

// Unprovision takes tools from owner, all if ids is nil, and tells the owner's clients. It returns the removed
// tools. Errors are those of Provision.
func (g *Gate) Unprovision(ctx context.Context, owner string, ids []tool.ID) (removed []tool.Provisioned, err error) {
	terms := g.terms()
	if terms.Budget == nil {
		return nil, ErrNotGated
	}
	changed, err := g.update(ctx, owner, terms, func(all set) (set, error) {
		next, gone := all.without(ids)
		removed = gone.withOnly(terms.present)
		return next, nil
	})
	if err != nil {
		g.refused(ctx, owner, changed, err)
		return nil, err
	}
	g.clients.Relist(ctx, owner, "")
	return removed, nil
}

// refused logs why a change could not be stored, and tells the owner's clients of changes by other processes.
func (g *Gate) refused(ctx context.Context, owner string, changed bool, err error) {
	if why, is := errors.AsType[unstoredError](err); is {
		g.log.Warn("provisioned tools cannot be stored: the request was refused", "error", why.cause)
	}
	g.relistIf(ctx, owner, changed)
}

// relistIf tells the owner's clients that the set has changed, if it has.
func (g *Gate) relistIf(ctx context.Context, owner string, changed bool) {
	if changed {
		g.clients.Relist(ctx, owner, "")
	}
}

// Recall reads the stored set of an owner, which another process has changed, and tells the owner's clients. Sets
// of sessions are never stored.
func (g *Gate) Recall(ctx context.Context, owner string, read Read) error {
	if _, ofSession := tool.SessionOf(owner); ofSession {
		return nil
	}
	changed, err := g.reread(ctx, owner, read)
	if changed {
		g.makeRoom(ctx)
		g.clients.Relist(ctx, owner, "")
	}
	return err
}

func (g *Gate) reread(ctx context.Context, owner string, read Read) (changed bool, err error) {
	end, err := g.turn(ctx, owner) // so that own writes are complete when the set is read
	if err != nil {
		return false, err
	}
	defer end()
	stored, err := read(ctx, owner)
	if err != nil {
		return false, err
	}
	next := storedOf(owner, stored)
	if next.same(g.ledger.of(owner)) {
		return false, nil
	}
	g.ledger.put(owner, next)
	return true, nil
}

// storedOf returns the stored set of an owner.
func storedOf(owner string, stored []tool.Provisioned) (all set) {
	for _, p := range stored {
		if p.Owner == owner && all.index(p.ID) < 0 {
			all = append(all, p)
		}
	}
	return all
}

// Owners returns the owners with provisioned tools, without sessions.
func (g *Gate) Owners() []string { return g.ledger.owners() }

// turn waits until this caller alone may change the set of an owner, until end.
func (g *Gate) turn(ctx context.Context, owner string) (end func(), err error) {
	turn := g.turns[maphash.String(g.seed, owner)%uint64(len(g.turns))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// update replaces the set of an owner, without expired tools, by the result of f, and stores it. Updates of one
// owner wait for each other. changed reports a difference to the former set, even after an error of f: other
// processes may have changed the set.
func (g *Gate) update(ctx context.Context, owner string, terms Terms, f func(set) (set, error)) (changed bool, err error) {
	end, err := g.turn(ctx, owner)
	if err != nil {
		return false, err
	}
	defer end()
	session, ofSession := tool.SessionOf(owner)
	if ofSession && !g.clients.Knows(session) {
		return false, fmt.Errorf("%w: connect again", ErrSessionEnded)
	}
	current := func(all set) (set, error) { return f(terms.priced(all)) }
	if !ofSession {
		return g.apply(context.WithoutCancel(ctx), owner, current)
	}
	before := g.ledger.of(owner)
	next, err := current(before)
	if err != nil || next.same(before) {
		return false, err
	}
	g.ledger.put(owner, next)
	if !g.clients.Knows(session) { // the session ended meanwhile, perhaps before its set could be dropped
		g.Drop(session)
	}
	return true, nil
}

// errSame says that there is nothing to store.
var errSame = errors.New("the set is the same")

// apply replaces the set of an owner, not a session, by the result of f on the stored set, which other processes
// change too. A set that cannot be stored stays unchanged. The caller has the turn.
func (g *Gate) apply(ctx context.Context, owner string, f func(set) (set, error)) (changed bool, err error) {
	before := g.ledger.of(owner)
	next, refused := f(before)
	switch {
	case refused == nil && g.read == nil && next.same(before): // no other process can have changed it
		return false, nil
	case g.store == nil && refused != nil:
		return false, refused
	case g.store == nil:
		g.ledger.put(owner, next)
		return true, nil
	}
	refused = nil
	storing, cancel := context.WithTimeout(ctx, leeway.Of(storeTimeout))
	defer cancel()
	err = g.store.Change(storing, owner, func(all []tool.Provisioned) ([]tool.Provisioned, error) {
		stored := storedOf(owner, all)
		if next, refused = f(stored); refused != nil {
			next = stored
			return nil, refused
		}
		if next.same(stored) {
			return nil, errSame
		}
		return next, nil
	})
	if err != nil && refused == nil && !errors.Is(err, errSame) {
		return false, unstoredError{err}
	}
	g.ledger.put(owner, next)
	return !next.same(before), refused
}

// makeRoom removes the sets of the least recently used owners while there are too many, and tells their clients.
func (g *Gate) makeRoom(ctx context.Context) {
	for {
		owner := g.ledger.leastUsed()
		if owner == "" {
			return
		}
		g.log.Info("evicted the least recently used set of provisioned tools: too many clients have one", "owner", owner)
		_ = g.ledger.limit.Refuse() // counted
		if !g.tidy(ctx, owner, func(set) (set, error) { return nil, nil }) {
			return
		}
	}
}

// tidy updates the set of an owner for the process itself. It reports false if the set stays locked for long.
func (g *Gate) tidy(ctx context.Context, owner string, f func(set) (set, error)) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnTimeout)
	defer cancel()
	changed, err := g.update(ctx, owner, g.terms(), f)
	if err != nil {
		g.log.Debug("a set of provisioned tools cannot be changed yet", "owner", owner, "error", err)
	}
	g.relistIf(ctx, owner, changed)
	return err == nil
}

// Run tells clients when their tools expire, until ctx ends. Calls do not depend on it.
func (g *Gate) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.ledger.wake:
		case <-timer.C:
		}
		owners, due := g.ledger.next(time.Now())
		for _, owner := range owners {
			g.clients.Relist(ctx, owner, "")
			g.tidy(ctx, owner, func(all set) (set, error) { return all, nil })
		}
		if due.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(due))
		}
	}
}
