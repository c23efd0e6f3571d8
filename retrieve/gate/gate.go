// Package gate owns the provisioned tools of each owner, within a budget, and refuses calls of other tools. It does
// not know how clients connect, what they are listed, or where sets are stored: see Clients and Store.
package gate

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/tool"
)

// Errors of provisioning.
var (
	// ErrNotProvisioned is wrapped by the error of a refused call.
	ErrNotProvisioned = errors.New("not provisioned")
	// ErrNotGated is returned if the view has no budget.
	ErrNotGated = errors.New("this view is not gated: every tool can be called")
	// ErrSessionEnded is wrapped if the owner is an ended session.
	ErrSessionEnded = errors.New("the session has ended")
	// ErrNotStored is wrapped by the error of a change that could not be stored.
	ErrNotStored = errors.New("provisioned tools cannot be stored now: nothing was changed; ask again later")
)

// Catalog holds the tools behind the gate at one time.
type Catalog interface {
	// ByID finds a tool by its ID.
	ByID(id tool.ID) (*tool.Tool, bool)
	// Pinned returns the tools that every client may call.
	Pinned() []*tool.Tool
	// Tokens returns the tokens that the definition of t takes in a list.
	Tokens(t *tool.Tool) int
}

// Terms are the catalog and budget at one time. A budget that shrinks takes no tool away.
type Terms struct {
	Catalog
	Budget *Budget // of each owner; nil: every tool can be called
}

// Clients are the sessions that a gate serves.
type Clients interface {
	// Knows reports whether a session still exists.
	Knows(session string) bool
	// Relist tells the owner's clients that their list has changed, if it has. If the calling session is known to
	// ask for the new list, Relist returns after it has asked.
	Relist(ctx context.Context, owner, calling string)
}

// Store keeps sets beyond the end of the process.
type Store interface {
	// Change replaces the stored set of an owner by the result of f, while no other process changes it. f may be
	// called several times; if it fails, nothing is stored, and its error is returned. For one owner the gate calls
	// Change for one change at a time.
	Change(ctx context.Context, owner string, f func(stored []tool.Provisioned) ([]tool.Provisioned, error)) error
}

// Read reads the stored set of an owner.
type Read func(ctx context.Context, owner string) ([]tool.Provisioned, error)

// Options of a Gate.
type Options struct {
	Clients Clients
	Store   Store              // nil: sets end with the process
	Kept    []tool.Provisioned // stored sets at the start, by owner in order
	Read    Read               // nil: no other process provisions tools
	Limit   *limit.Limit       // see NewLimit; shared by all gates of the same clients; nil: a limit of its own
}

// Gate decides which tools each owner may call. Its methods are safe for concurrent use.
type Gate struct {
	terms   func() Terms
	clients Clients
	store   Store
	read    Read
	log     *slog.Logger
	ledger  *ledger
	seed    maphash.Seed
	turns   [64]chan struct{} // by hash of the owner; each has one token, which is taken while a set is changed and stored
}

// New returns a gate. It calls terms once for each request; terms must not block.
func New(options Options, terms func() Terms, log *slog.Logger) *Gate {
	g := &Gate{
		terms: terms, clients: options.Clients, store: options.Store, read: options.Read, log: log,
		ledger: newLedger(cmp.Or(options.Limit, NewLimit())), seed: maphash.MakeSeed(),
	}
	for i := range g.turns {
		g.turns[i] = make(chan struct{}, 1)
	}
	g.recall(options.Kept)
	return g
}

// recall loads the stored sets, up to the bound of owners.
func (g *Gate) recall(kept []tool.Provisioned) {
	byOwner := map[string]set{}
	for _, p := range kept {
		all, known := byOwner[p.Owner]
		_, ofSession := tool.SessionOf(p.Owner)
		if ofSession || all.index(p.ID) >= 0 || !known && len(byOwner) == maxOwners {
			continue
		}
		byOwner[p.Owner] = append(all, p)
	}
	for owner, all := range byOwner {
		g.ledger.put(owner, all)
	}
}

// Gated reports whether tools must be provisioned before they can be called.
func (g *Gate) Gated() bool { return g.terms().Budget != nil }

// unstoredError is ErrNotStored with its cause, whose words are not for clients.
type unstoredError struct{ cause error }

func (u unstoredError) Error() string { return ErrNotStored.Error() }

func (u unstoredError) Unwrap() []error { return []error{ErrNotStored, u.cause} }

// IsProvisioned reports whether owner may call the tool now: it is provisioned or pinned, or the view is not gated.
// The catalog need not have it.
func (g *Gate) IsProvisioned(owner string, id tool.ID) bool {
	terms := g.terms()
	return terms.Budget == nil || g.ledger.has(owner, id) || terms.isPinned(id)
}

// Granted returns the tools that are provisioned for owner now, in order.
func (g *Gate) Granted(owner string) []tool.ID {
	now := time.Now()
	var ids []tool.ID
	for _, p := range g.ledger.of(owner) {
		if !p.Over(now) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// Has reports whether one client of an owner may see a tool: policies may hide it. A nil Has hides nothing.
type Has func(id tool.ID) bool

// Provisions returns the owner's provisioned tools, in order, without tools that are expired, pinned, missing from
// the catalog, or hidden by has.
func (g *Gate) Provisions(owner string, has Has) ([]tool.Provisioned, State) {
	terms := g.terms()
	if terms.Budget == nil {
		return nil, State{}
	}
	is := terms.presentTo(has)
	all := terms.priced(g.ledger.of(owner)).withOnly(is)
	return all, State{all.usage(is), *terms.Budget}
}

// Drop removes the set of a session that has ended.
func (g *Gate) Drop(session string) { g.ledger.put(tool.SessionOwner(session), nil) }

func (t Terms) isPinned(id tool.ID) bool {
	return slices.ContainsFunc(t.Pinned(), func(pinned *tool.Tool) bool { return pinned.Def.ID == id })
}

// present reports whether a tool can be provisioned.
func (t Terms) present(id tool.ID) bool {
	_, has := t.ByID(id)
	return has && !t.isPinned(id)
}

// presentTo is present for one client.
func (t Terms) presentTo(has Has) present {
	if has == nil {
		return t.present
	}
	return func(id tool.ID) bool { return has(id) && t.present(id) }
}

// priced returns the unexpired tools with their present costs.
func (t Terms) priced(all set) set {
	all = all.current(time.Now())
	for i := range all {
		if one, ok := t.ByID(all[i].ID); ok && !t.isPinned(all[i].ID) {
			all[i].Tokens = t.Tokens(one)
		}
	}
	return all
}

// Of returns the whole set of an owner, including tools that are expired or missing from the catalog. The caller
// must not change it.
func (g *Gate) Of(owner string) []tool.Provisioned { return g.ledger.of(owner) }

// Take replaces the set of an owner by a set that was kept elsewhere. It tells no client.
func (g *Gate) Take(owner string, kept []tool.Provisioned) { g.ledger.put(owner, kept) }
