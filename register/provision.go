package register

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/tool"
)

// Anonymous owns what callers provision who have neither a principal nor a
// session.
const Anonymous = "anonymous"

// Errors of provisioning.
var (
	// ErrNotProvisioned is wrapped by the error of a call that the gate refused.
	ErrNotProvisioned = errors.New("not provisioned")
	// ErrNotGated is returned where there is nothing to provision.
	ErrNotGated = errors.New("this view is not gated: every tool can be called")
	// ErrSessionEnded is wrapped where the owner is a session that is no more.
	ErrSessionEnded = errors.New("the session has ended")
)

// NotProvisionedError is a call of a tool that was not provisioned for its
// caller.
type NotProvisionedError struct{ Name string } // as it was called

// Error says what to do.
func (e *NotProvisionedError) Error() string {
	return fmt.Sprintf("Tool %s not provisioned. Use provision_tools first.", e.Name)
}

func (e *NotProvisionedError) Unwrap() error { return ErrNotProvisioned }

// Provision is a tool that is, was, or would be provisioned.
type Provision struct {
	*tool.Tool
	Tokens int       // of its definition as clients are listed it
	Until  time.Time // when it ends; zero: never
}

// KeptProvision is a provisioned tool as the store has it.
type KeptProvision struct {
	Owner  string
	ID     tool.ID
	Until  time.Time // zero: for good
	Tokens int       // of its definition, when that was last counted
}

// ProvisionRequest is what to provision.
type ProvisionRequest struct {
	Tools     []*tool.Tool // of the catalog
	Fit       bool         // best first: take those that fit and leave the others; else all or nothing
	MaxTokens int          // bounds what this request adds, beside the budget; 0: no bound
	// TTL is how long they stay, counted from now: no longer than the budget's, where
	// that has one, which is also what 0 asks for. A tool that is provisioned already
	// ends then too; only with neither it stays as it is. With Fit it keeps the later
	// of both ends: a query shortens nothing.
	TTL time.Duration
	// Session is the calling one, which is held for; "" for the one that the owner
	// names, if any.
	Session string
}

// Provisioned is the outcome of a ProvisionRequest.
type Provisioned struct {
	Added []Provision
	Kept  []Provision // provisioned before, or pinned
	Left  []Provision // did not fit, with their cost
	Usage Usage       // now
	// Budget is what all of the owner's tools together must fit.
	Budget Budget
}

// sessionOwner begins the owner that a session without a principal is.
const sessionOwner = "session "

func sessionIn(owner string) (id string, is bool) {
	if id, is = strings.CutPrefix(owner, sessionOwner); !is {
		return "", false
	}
	return id, true
}

// keepTimeout bounds how long a changed set may take to be written.
const keepTimeout = 10 * time.Second

// Owner is who the tools belong to that a call provisions, and may call.
func Owner(call *tool.Call) string {
	if owner := call.Owner(); owner != "" {
		return owner
	}
	return Anonymous
}

// Gated reports whether tools must be provisioned before they can be called.
func (l *Live) Gated() bool { return l.served().gated() }

// Gate is the handler of t behind the gate: it answers calls of tools that are
// provisioned for the caller, or pinned, and the owner's own. For others the
// error is a *NotProvisionedError. It passes everything where nothing is gated.
func (l *Live) Gate(t *tool.Tool) tool.Handler {
	id, handler := t.Def.ID, t.Handler
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		if err := l.Admit(call, id); err != nil {
			return nil, err
		}
		return handler(ctx, call)
	}
}

// Admit returns the *NotProvisionedError of a call that Gate would refuse, nil
// of another.
func (l *Live) Admit(call *tool.Call, id tool.ID) error {
	if l.Gated() && !call.Local && !l.IsProvisioned(Owner(call), id) {
		return &NotProvisionedError{call.Name}
	}
	return nil
}

// IsProvisioned reports whether owner may call the tool now: it is provisioned,
// or pinned, or nothing is gated. It says nothing of whether the catalog has it.
func (l *Live) IsProvisioned(owner string, id tool.ID) bool {
	served := l.served()
	return !served.gated() || l.ledger.has(owner, id) || served.isPinned(id)
}

// Provision provisions tools for owner within the budget: what is provisioned
// already costs nothing again. It tells the owner's clients, and returns once the
// calling session has asked for the new list, as far as it is known to do so (see
// hold). Errors are *BudgetError, ErrNotGated, ErrSessionEnded, tool.ErrNotFound
// for what is not in the catalog, and the reason why ctx ended; nothing has
// changed then. Of more than 10,000 owners the one whose tools were used longest
// ago loses them.
func (l *Live) Provision(ctx context.Context, owner string, r ProvisionRequest) (Provisioned, error) {
	served := l.served()
	gate := served.Gate
	if gate == nil {
		return Provisioned{}, ErrNotGated
	}
	wanted, pinned, err := l.wanted(served, r)
	if err != nil {
		return Provisioned{}, err
	}
	answer := Provisioned{Budget: *gate}
	err = l.amend(ctx, owner, true, func(all grants) (grants, error) {
		next, done, err := all.add(wanted, *gate, r.MaxTokens, r.Fit)
		answer.Added, answer.Left, answer.Usage = done.added.public(), done.left.public(), next.usage()
		answer.Kept = append(pinned.public(), done.kept.public()...)
		return next, err
	})
	if err != nil {
		return Provisioned{}, err
	}
	l.makeRoom(ctx)
	if id, is := sessionIn(owner); is && r.Session == "" {
		r.Session = id
	}
	l.tellOwner(ctx, owner, r.Session)
	return answer, nil
}

// wanted are the tools of a request as grants, and apart those that are pinned.
func (l *Live) wanted(served *Served, r ProvisionRequest) (wanted, pinned grants, err error) {
	gate := served.Gate
	if r.TTL == 0 || gate.TTL != 0 && r.TTL > gate.TTL {
		r.TTL = gate.TTL
	}
	var until time.Time
	if r.TTL != 0 {
		until = time.Now().Add(r.TTL).Round(0) // clients and the store are told the clock's time
	}
	for _, t := range r.Tools {
		now, ok := served.ByID(t.Def.ID)
		if !ok && r.Fit {
			continue // it went since it was found
		}
		if !ok {
			return nil, nil, fmt.Errorf("%w: %s", tool.ErrNotFound, t.Name)
		}
		one := grant{t.Def.ID, l.tokens(now), until, now}
		if served.isPinned(one.id) {
			one.until = time.Time{}
			pinned = append(pinned, one)
			continue
		}
		wanted = append(wanted, one)
	}
	return wanted, pinned, nil
}

// Unprovision takes tools away from owner, all that it has where tools is nil,
// and tells the owner's clients. It returns those that were provisioned.
func (l *Live) Unprovision(ctx context.Context, owner string, tools []*tool.Tool) (removed []Provision, err error) {
	if !l.Gated() {
		return nil, ErrNotGated
	}
	var ids []tool.ID
	if tools != nil {
		ids = make([]tool.ID, len(tools))
	}
	for i, t := range tools {
		ids[i] = t.Def.ID
	}
	err = l.amend(ctx, owner, false, func(all grants) (grants, error) {
		next, gone := all.without(ids)
		removed = gone.public()
		return next, nil
	})
	if err != nil {
		return nil, err
	}
	l.tellOwner(ctx, owner, "")
	return removed, nil
}

// Provisions returns what owner has provisioned, in that order, of what the
// catalog has now and whose time has not come. Pinned tools are not among them.
func (l *Live) Provisions(owner string) ([]Provision, Usage, Budget) {
	gate := l.served().Gate
	if gate == nil {
		return nil, Usage{}, Budget{}
	}
	all := l.priced(l.ledger.of(owner).current(time.Now()))
	return all.public(), all.usage(), *gate
}

// amend changes the grants of owner by f, which is given those whose time has
// not come, and has them written. Changes of one owner wait for each other. An
// owner who has none is left alone unless some are to be made.
func (l *Live) amend(ctx context.Context, owner string, makes bool, f func(grants) (grants, error)) error {
	a := l.ledger.open(owner, makes)
	if a == nil {
		return nil
	}
	defer l.ledger.close(owner, a)
	if err := a.wait(ctx); err != nil {
		return err
	}
	defer func() { <-a.turn }()
	id, ofSession := sessionIn(owner)
	if ofSession && l.session(id) == nil { // it is forgotten before its grants are
		return fmt.Errorf("%w: connect again", ErrSessionEnded)
	}
	before := l.ledger.of(owner)
	next, err := f(l.priced(before.current(time.Now())))
	if err != nil {
		return err
	}
	if next.same(before) {
		return nil
	}
	l.ledger.put(a, next)
	if !ofSession {
		l.write(ctx, owner, next)
	}
	return nil
}

// makeRoom takes the tools from those who used theirs longest ago, while there are
// more owners than can be held, and tells their clients.
func (l *Live) makeRoom(ctx context.Context) {
	for {
		owner, a := l.ledger.evict()
		if a == nil {
			return
		}
		l.log.Info("too many clients have tools provisioned: who used theirs longest ago has none any more", "owner", owner)
		l.write(ctx, owner, nil)
		<-a.turn
		l.ledger.close(owner, a)
		l.tellOwner(ctx, owner, "")
	}
}

// write has a changed set written, which holds whether that works or not.
func (l *Live) write(ctx context.Context, owner string, all grants) {
	if l.settings.Keep == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	kept := make([]KeptProvision, len(all))
	for i, one := range all {
		kept[i] = KeptProvision{owner, one.id, one.until, one.tokens}
	}
	if err := l.settings.Keep(ctx, owner, kept); err != nil {
		l.log.Warn("provisioned tools are not stored: they are lost when the program ends", "error", err)
	}
}

// recall takes what the store had at the start, of as many owners as can be held.
func (l *Live) recall(kept []KeptProvision) {
	byOwner := map[string]grants{}
	for _, k := range kept {
		all, known := byOwner[k.Owner]
		_, ofSession := sessionIn(k.Owner)
		if ofSession || all.index(k.ID) >= 0 || !known && len(byOwner) == maxOwners {
			continue
		}
		byOwner[k.Owner] = append(all, grant{id: k.ID, until: k.Until, tokens: k.Tokens})
	}
	for owner, all := range byOwner {
		a := newAccount(owner)
		l.ledger.accounts[owner] = a
		l.ledger.put(a, all)
	}
}

// priced gives those their tool and what it costs now that take part.
func (l *Live) priced(all grants) grants {
	all, served := slices.Clone(all), l.served()
	for i := range all {
		if t, ok := served.ByID(all[i].id); ok && !served.isPinned(t.Def.ID) {
			all[i].tool, all[i].tokens = t, l.tokens(t)
		}
	}
	return all
}

func (l *Live) tokens(t *tool.Tool) int {
	if l.settings.Tokens != nil {
		return l.settings.Tokens(t)
	}
	return tool.CountTokens(Listed(t))
}

// listedTo returns the provisioned tools that are listed to an owner. Those of
// Anonymous are not: a 2026-07-28 client's list must not vary by its calls.
func (l *Live) listedTo(served *Served) func(owner string) []*tool.Tool {
	return func(owner string) []*tool.Tool {
		if owner == Anonymous || !served.gated() {
			return nil
		}
		now := time.Now()
		var tools []*tool.Tool
		for _, one := range l.ledger.of(owner) {
			if over(one.until, now) {
				continue
			}
			if t, ok := served.ByID(one.id); ok && !served.isPinned(one.id) {
				tools = append(tools, t)
			}
		}
		return tools
	}
}

// shown is which provisioned tools one client was last listed, or told of. It
// is told of a change when what it would be listed differs from that.
type shown struct {
	mu    sync.Mutex // guards what follows; held over look-ups, never over a write to the client
	owner string     // of the client's last request
	known bool       // the client has a list that can be out of date
	tools []*tool.Tool
}

// by takes the owner of a request.
func (s *shown) by(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = owner
}

func (s *shown) isOf(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner == owner
}

func namesOf(tools []*tool.Tool) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}

// isKnown reports whether the client has a list that can be out of date.
func (s *shown) isKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// follow makes what is listed now what is shown, and returns it with how it
// differs from what was, which is nothing for a client that never asked. owner is
// whom the request is from that asks for it, "" for none.
func (s *shown) follow(owner string, listedTo func(owner string) []*tool.Tool) (now []*tool.Tool, change Change, differs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner, s.known = cmp.Or(owner, s.owner), s.known || owner != ""
	now = listedTo(s.owner)
	before := s.tools
	s.tools = now
	if slices.EqualFunc(before, now, func(a, b *tool.Tool) bool { return a.Name == b.Name && a.Def.Hash == b.Def.Hash }) {
		return now, Change{}, false
	}
	was, is := namesOf(before), namesOf(now)
	return now, Change{Added: without(is, was), Removed: without(was, is)}, true
}

// tellOwner tells the clients of owner that their list has changed, if it has,
// and holds for the calling session.
func (l *Live) tellOwner(ctx context.Context, owner, calling string) {
	listedTo := l.listedTo(l.served())
	var client string
	var listed <-chan struct{} // nil: nobody is waited for
	for _, s := range l.sessionsOf(owner) {
		_, change, differs := s.shown.follow("", listedTo)
		if !differs {
			continue
		}
		if s.id == calling {
			client, listed = s.expect()
		}
		l.announce(s, change)
	}
	l.tellListeners(toolsChanged, func(t *listener) bool {
		if !t.shown.isOf(owner) {
			return false
		}
		_, _, differs := t.shown.follow("", listedTo)
		return differs
	})
	if listed != nil {
		l.hold(ctx, client, listed)
	}
}

// expire tells clients that the time of their tools has come, until ctx ends.
// Calls do not depend on it.
func (l *Live) expire(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ledger.wake:
		case <-timer.C:
		}
		owners, due := l.ledger.next(time.Now())
		for _, owner := range owners {
			l.settle(ctx, owner)
		}
		if due.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(due))
		}
	}
}

// settle forgets what has ended of an owner. One whose set is being written for
// long comes again later.
func (l *Live) settle(ctx context.Context, owner string) {
	l.tellOwner(ctx, owner, "")
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := l.amend(ctx, owner, false, func(all grants) (grants, error) { return all, nil })
	if err != nil {
		l.log.Debug("ended provisions are not forgotten yet", "error", err)
	}
}
