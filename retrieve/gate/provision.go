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

// Request is what to provision.
type Request struct {
	Tools     []*tool.Tool // of the catalog
	Fit       bool         // best first: take those that fit and leave the others; else all or nothing
	MaxTokens int          // bounds what this request adds, beside the budget; 0: no bound
	// TTL is how long they stay, counted from now and cut to the budget's TTL, which 0
	// also asks for. A tool that is provisioned already gets the new end; if neither
	// TTL is set, its end stays unchanged. With Fit it keeps the later end: a query
	// shortens nothing.
	TTL time.Duration
	Has Has // of whoever asks
	// Session is the calling one, which is waited for; "": the session that the owner
	// is, if it is one.
	Session string
}

// storeTimeout bounds how long a changed set may take to be written.
const storeTimeout = 10 * time.Second

// turnTimeout bounds how long the program's own changes wait for their turn.
const turnTimeout = time.Second

// Provision provisions tools for owner within the budget. Tools that are
// provisioned already cost nothing again. It tells the owner's clients, see
// Clients. Errors are *BudgetError, ErrNotGated, ErrSessionEnded, ErrNotStored, tool.ErrNotFound
// for a tool that is not in the catalog, and the reason why ctx ended; after an
// error nothing has changed. Of more than 10,000 owners, the one that used its
// tools longest ago loses them.
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
	changed, err := g.change(ctx, owner, terms, func(all set) (next set, err error) {
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

// wanted returns the tools of a request, the pinned ones apart.
func (t Terms) wanted(owner string, r Request) (wanted, pinned set, err error) {
	if most := t.Budget.TTL; r.TTL == 0 || most != 0 && r.TTL > most {
		r.TTL = most
	}
	var until time.Time
	if r.TTL != 0 {
		until = time.Now().Add(r.TTL).Round(0) // clients and the store are told the clock's time
	}
	for _, one := range r.Tools {
		now, ok := t.ByID(one.Def.ID)
		switch {
		case !ok && r.Fit: // it went since it was found
		case !ok:
			return nil, nil, fmt.Errorf("%w: %s", tool.ErrNotFound, one.Name)
		case t.pins(now.Def.ID):
			pinned = append(pinned, tool.Provisioned{Owner: owner, ID: now.Def.ID, Tokens: t.Tokens(now)})
		default:
			wanted = append(wanted, tool.Provisioned{Owner: owner, ID: now.Def.ID, Until: until, Tokens: t.Tokens(now)})
		}
	}
	return wanted, pinned, nil
}

// Unprovision takes tools away from owner, all if ids is nil, and tells the owner's
// clients. It returns the tools that were provisioned. Errors are as of Provision.
func (g *Gate) Unprovision(ctx context.Context, owner string, ids []tool.ID) (removed []tool.Provisioned, err error) {
	terms := g.terms()
	if terms.Budget == nil {
		return nil, ErrNotGated
	}
	changed, err := g.change(ctx, owner, terms, func(all set) (set, error) {
		next, gone := all.without(ids)
		removed = gone.only(terms.present)
		return next, nil
	})
	if err != nil {
		g.refused(ctx, owner, changed, err)
		return nil, err
	}
	g.clients.Relist(ctx, owner, "")
	return removed, nil
}

// refused logs why a change could not be stored, and tells the clients of an owner of what other
// processes have changed.
func (g *Gate) refused(ctx context.Context, owner string, changed bool, err error) {
	if why, is := errors.AsType[unstored](err); is {
		g.log.Warn("provisioned tools cannot be stored: what was asked for was refused", "error", why.cause)
	}
	g.relistIf(ctx, owner, changed)
}

// relistIf tells the clients of an owner of what other processes have changed, if they have.
func (g *Gate) relistIf(ctx context.Context, owner string, changed bool) {
	if changed {
		g.clients.Relist(ctx, owner, "")
	}
}

// Recall makes what the store has of an owner, whom another process has provisioned
// something or taken it away, the owner's set; read reads it. It tells the owner's
// clients. Sets of sessions are never stored.
func (g *Gate) Recall(ctx context.Context, owner string, read Read) error {
	if _, ofSession := tool.SessionOf(owner); ofSession {
		return nil
	}
	changed, err := g.recallOne(ctx, owner, read)
	if changed {
		g.makeRoom(ctx)
		g.clients.Relist(ctx, owner, "")
	}
	return err
}

func (g *Gate) recallOne(ctx context.Context, owner string, read Read) (changed bool, err error) {
	end, err := g.turn(ctx, owner) // what this process writes is read after it is written
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

// storedOf is what is stored of an owner.
func storedOf(owner string, stored []tool.Provisioned) (all set) {
	for _, p := range stored {
		if p.Owner == owner && all.index(p.ID) < 0 {
			all = append(all, p)
		}
	}
	return all
}

// Owners are those who have something provisioned, without sessions.
func (g *Gate) Owners() []string { return g.ledger.owners() }

// turn waits for the turn to change the set of an owner, until end.
func (g *Gate) turn(ctx context.Context, owner string) (end func(), err error) {
	turn := g.turns[maphash.String(g.seed, owner)%uint64(len(g.turns))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// change replaces the set of an owner by what f makes of it, without the tools
// whose time has come, and has it written. Changes of one owner wait for each other. changed says that
// the set is another now, which it may be after an error of f, too: other processes had changed it.
func (g *Gate) change(ctx context.Context, owner string, terms Terms, f func(set) (set, error)) (changed bool, err error) {
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
	if !g.clients.Knows(session) { // it ended meanwhile, perhaps before its set was there to be dropped
		g.Drop(session)
	}
	return true, nil
}

// errSame says that there is nothing to store.
var errSame = errors.New("the set is the same")

// apply replaces the set of an owner that is no session by what f makes of what is stored now, for
// other processes change it, too. A set that cannot be stored is not changed. The turn is held.
func (g *Gate) apply(ctx context.Context, owner string, f func(set) (set, error)) (changed bool, err error) {
	before := g.ledger.of(owner)
	next, refused := f(before)
	switch {
	case refused == nil && g.read == nil && next.same(before): // as if nobody else changed it
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
		return false, unstored{err}
	}
	g.ledger.put(owner, next)
	return !next.same(before), refused
}

// makeRoom takes the tools from owners who used theirs longest ago, while there are
// more owners than can be held, and tells their clients.
func (g *Gate) makeRoom(ctx context.Context) {
	for {
		owner := g.ledger.excess()
		if owner == "" {
			return
		}
		g.log.Info("evicted the least recently used set of provisioned tools: too many clients have one", "owner", owner)
		_ = g.ledger.limit.Refuse() // counted
		if !g.clear(ctx, owner, func(set) (set, error) { return nil, nil }) {
			return
		}
	}
}

// clear changes the set of an owner for the program's own reasons. It reports false
// if the set is being written for long.
func (g *Gate) clear(ctx context.Context, owner string, f func(set) (set, error)) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnTimeout)
	defer cancel()
	changed, err := g.change(ctx, owner, g.terms(), f)
	if err != nil {
		g.log.Debug("a set of provisioned tools cannot be changed yet", "owner", owner, "error", err)
	}
	g.relistIf(ctx, owner, changed)
	return err == nil
}

// Run tells clients when the time of their tools has come, until ctx ends. Calls do not
// depend on it.
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
			g.clear(ctx, owner, func(all set) (set, error) { return all, nil })
		}
		if due.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(due))
		}
	}
}
