package register

import (
	"context"
	"slices"
	"sync"
	"time"

	"toolfinch/limit"
	"toolfinch/tool"
)

// ledger holds the grants of all owners. What it hands out is never changed.
type ledger struct {
	wake chan struct{} // holds one signal: due is earlier than it was
	sets *limit.Limit  // of owners that are no sessions

	mu       sync.Mutex // guards what follows, and the accounts; held for look-ups and assignments only
	accounts map[string]*account
	due      time.Time // when Run is to look for grants that have ended; zero: not at all
	uses     uint64    // counts look-ups and changes
}

// account is one owner's. It goes once it is empty and nobody uses it.
type account struct {
	ofSession bool

	turn   chan struct{} // holds one: taken while the grants are changed and written
	users  int           // who wait for the turn, or have it
	used   uint64        // the ledger's uses at the last of this account
	grants grants
}

func newLedger(sets *limit.Limit) *ledger {
	return &ledger{wake: make(chan struct{}, 1), sets: sets, accounts: map[string]*account{}}
}

// open returns the account of an owner, for whom it stays until close. Where
// there is none it makes one, or returns nil.
func (l *ledger) open(owner string, makes bool) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[owner]
	if a == nil && makes {
		a = newAccount(owner)
		l.accounts[owner] = a
	}
	if a != nil {
		a.users++
		l.use(a)
	}
	return a
}

func newAccount(owner string) *account {
	_, ofSession := sessionIn(owner)
	return &account{turn: make(chan struct{}, 1), ofSession: ofSession}
}

// use is for who has the lock.
func (l *ledger) use(a *account) {
	l.uses++
	a.used = l.uses
}

func (l *ledger) close(owner string, a *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.users--; a.users == 0 && len(a.grants) == 0 && l.accounts[owner] == a {
		delete(l.accounts, owner)
	}
}

// wait takes the turn of an account, or returns why ctx ended first.
func (a *account) wait(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// evict empties the account that was used longest ago, of those that nobody uses,
// where more than maxOwners have grants; sessions, which end with what they have,
// neither count nor lose it. The caller gets it with its turn, as from
// open; nil when there are not too many.
func (l *ledger) evict() (owner string, oldest *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.accounts) <= maxOwners {
		return "", nil
	}
	held := 0
	for name, a := range l.accounts {
		if a.ofSession || len(a.grants) == 0 {
			continue // it goes by itself
		}
		held++
		if a.users == 0 && (oldest == nil || a.used < oldest.used) {
			owner, oldest = name, a
		}
	}
	if held <= maxOwners || oldest == nil {
		return "", nil
	}
	oldest.users++
	oldest.turn <- struct{}{} // nobody has it, who has no user
	l.set(oldest, nil)
	_ = l.sets.Refuse() // counted
	return owner, oldest
}

// of returns the grants of an owner, also those whose time has come.
func (l *ledger) of(owner string) grants {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[owner]
	if a == nil {
		return nil
	}
	l.use(a)
	return a.grants
}

// has reports whether an owner has a grant of a tool now.
func (l *ledger) has(owner string, id tool.ID) bool {
	all := l.of(owner)
	i := all.index(id)
	return i >= 0 && !over(all[i].until, time.Now())
}

// put is for who has the turn of the account.
func (l *ledger) put(a *account, all grants) {
	all = slices.Clone(all)
	for i := range all {
		all[i].tool = nil // a catalog must not live as long as what was provisioned of it
	}
	first := all.first()
	l.mu.Lock()
	l.set(a, all)
	sooner := !first.IsZero() && (l.due.IsZero() || first.Before(l.due))
	if sooner {
		l.due = first
	}
	l.mu.Unlock()
	if sooner {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// drop forgets an owner. A change that is under way changes nothing any more.
func (l *ledger) drop(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.accounts, owner)
}

// set is for who has the lock.
func (l *ledger) set(a *account, all grants) {
	if !a.ofSession {
		l.sets.Count(int64(min(len(all), 1) - min(len(a.grants), 1)))
	}
	a.grants = all
}

// next returns when Run is to look, and the owners of grants that have ended.
// Where there are some it is to look again soon, lest one cannot be changed now.
func (l *ledger) next(now time.Time) (owners []string, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due.IsZero() || l.due.After(now) {
		return nil, l.due
	}
	l.due = time.Time{}
	for owner, a := range l.accounts {
		at := a.grants.first()
		if over(at, now) {
			owners = append(owners, owner)
			at = now.Add(time.Second)
		}
		if !at.IsZero() && (l.due.IsZero() || at.Before(l.due)) {
			l.due = at
		}
	}
	return owners, l.due
}
