// Package gate owns what may be called within a budget, and whose it is: the
// provisioned tools of each owner. It does not know how clients connect, what they
// are listed, or where sets are stored; Clients and Store do.
package gate

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/tool"
)

// Errors of provisioning.
var (
	// ErrNotProvisioned is wrapped by the error of a call that the gate refuses.
	ErrNotProvisioned = errors.New("not provisioned")
	// ErrNotGated is returned where there is nothing to provision.
	ErrNotGated = errors.New("this view is not gated: every tool can be called")
	// ErrSessionEnded is wrapped if the owner is a session that has ended.
	ErrSessionEnded = errors.New("the session has ended")
	// ErrNotStored is wrapped by the error of a change that could not be stored.
	ErrNotStored = errors.New("provisioned tools cannot be stored now: nothing was changed; ask again later")
)

// Catalog is the tools behind the gate at one time.
type Catalog interface {
	// ByID finds a tool by its ID.
	ByID(id tool.ID) (*tool.Tool, bool)
	// Pinned returns the tools that anybody may call.
	Pinned() []*tool.Tool
	// Tokens is what the definition of t costs a model that is listed it.
	Tokens(t *tool.Tool) int
}

// Terms are what holds at one time. A smaller budget than before takes nothing away.
type Terms struct {
	Catalog
	Budget *Budget // of each owner; nil: every tool can be called
}

// Clients are the sessions that a gate serves.
type Clients interface {
	// Knows reports whether a session is still there.
	Knows(session string) bool
	// Relist tells the clients of owner that their list has changed, if it has, and
	// returns once the calling session has asked for the new list, as far as it is
	// known to do so.
	Relist(ctx context.Context, owner, calling string)
}

// Store keeps sets beyond the end of the program.
type Store interface {
	// Change replaces what is stored of an owner by what f makes of it, while no other process does.
	// f may be called several times; if it fails nothing is stored, and its error is returned.
	// For one owner Change is called in the order of the changes, which wait for it.
	Change(ctx context.Context, owner string, f func(stored []tool.Provisioned) ([]tool.Provisioned, error)) error
}

// Read reads what is stored of an owner.
type Read func(ctx context.Context, owner string) ([]tool.Provisioned, error)

// Options of a Gate.
type Options struct {
	Clients Clients
	Store   Store              // nil: sets end with the program
	Kept    []tool.Provisioned // what the store had at the start, by owner in order
	Read    Read               // nil: no other process provisions tools
	Limit   *limit.Limit       // as of NewLimit, of all gates for the same clients; nil: of this one
}

// Gate decides which tools each owner may call. Its methods are safe for
// concurrent use.
type Gate struct {
	terms   func() Terms
	clients Clients
	store   Store
	read    Read
	log     *slog.Logger
	ledger  *ledger
	seed    maphash.Seed
	turns   [64]chan struct{} // by hash of the owner; each holds one: taken while a set is changed and written
}

// New returns a gate on the terms that the function returns, which is asked once
// for each request and must not block.
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

// recall takes what the store had, of as many owners as can be held.
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

// unstored is ErrNotStored because of an error of the store, whose words are not for clients.
type unstored struct{ cause error }

func (u unstored) Error() string { return ErrNotStored.Error() }

func (u unstored) Unwrap() []error { return []error{ErrNotStored, u.cause} }

// IsProvisioned reports whether owner may call the tool now: it is provisioned or
// pinned, or nothing is gated. The catalog need not have it.
func (g *Gate) IsProvisioned(owner string, id tool.ID) bool {
	terms := g.terms()
	return terms.Budget == nil || g.ledger.has(owner, id) || terms.pins(id)
}

// Granted returns the tools that are provisioned for owner now, in that order.
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

// Has reports whether a tool of the catalog is there for one client of an owner: policies may
// hide it from that one. nil: all of them are.
type Has func(id tool.ID) bool

// Provisions returns what owner has provisioned, in that order, without the tools
// that have ended, are pinned, are not in the catalog, or are not there for who asks.
func (g *Gate) Provisions(owner string, has Has) ([]tool.Provisioned, State) {
	terms := g.terms()
	if terms.Budget == nil {
		return nil, State{}
	}
	is := terms.presentTo(has)
	all := terms.priced(g.ledger.of(owner)).only(is)
	return all, State{all.usage(is), *terms.Budget}
}

// Drop forgets the set of a session that has ended.
func (g *Gate) Drop(session string) { g.ledger.put(tool.SessionOwner(session), nil) }

func (t Terms) pins(id tool.ID) bool {
	for _, pinned := range t.Pinned() {
		if pinned.Def.ID == id {
			return true
		}
	}
	return false
}

// present reports whether a tool is one that can be provisioned.
func (t Terms) present(id tool.ID) bool {
	_, has := t.ByID(id)
	return has && !t.pins(id)
}

// presentTo is present for one client.
func (t Terms) presentTo(has Has) present {
	if has == nil {
		return t.present
	}
	return func(id tool.ID) bool { return has(id) && t.present(id) }
}

// priced returns the tools whose time has not come, with what they cost now.
func (t Terms) priced(all set) set {
	all = all.current(time.Now())
	for i := range all {
		if one, ok := t.ByID(all[i].ID); ok && !t.pins(all[i].ID) {
			all[i].Tokens = t.Tokens(one)
		}
	}
	return all
}

// Of returns the set of an owner as it is kept, with tools that have ended or are not in the
// catalog. It must not be changed.
func (g *Gate) Of(owner string) []tool.Provisioned { return g.ledger.of(owner) }

// Take makes a set, which was kept elsewhere, that of an owner. Nobody is told.
func (g *Gate) Take(owner string, kept []tool.Provisioned) { g.ledger.put(owner, kept) }
