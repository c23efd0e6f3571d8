package gate

import (
	"sync"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/tool"
)

// maxOwners bounds the owners whose sets are held. Sessions do not count: their
// sets end with them.
const maxOwners = 10_000

// NewLimit returns the limit of owners that have tools provisioned, for all gates
// that serve the same clients. It counts; each gate holds at most 10,000 owners.
func NewLimit() *limit.Limit {
	return limit.New("provisioned_sets", maxOwners, "clients have provisioned tools", "the set that was used longest ago goes")
}

// ledger holds the sets of all owners. What it hands out is never changed.
type ledger struct {
	wake  chan struct{} // holds one signal: due is earlier than it was
	limit *limit.Limit  // of owners that are no sessions

	mu       sync.Mutex // guards what follows, and the accounts; held for look-ups and assignments only
	accounts map[string]*account
	due      time.Time // when to look for tools that have ended; zero: not at all
	uses     uint64    // counts look-ups and changes
}

// account is the set of one owner, which is never empty.
type account struct {
	set  set
	used uint64 // the ledger's uses at the last of this account
}

func newLedger(limit *limit.Limit) *ledger {
	return &ledger{wake: make(chan struct{}, 1), limit: limit, accounts: map[string]*account{}}
}

// of returns the set of an owner, with the tools whose time has come. It counts as
// a use.
func (l *ledger) of(owner string) set {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[owner]
	if a == nil {
		return nil
	}
	l.uses++
	a.used = l.uses
	return a.set
}

// has reports whether a tool is provisioned for an owner now.
func (l *ledger) has(owner string, id tool.ID) bool {
	all := l.of(owner)
	i := all.index(id)
	return i >= 0 && !all[i].Over(time.Now())
}

// put makes all the set of an owner.
func (l *ledger) put(owner string, all set) {
	first := all.first()
	l.mu.Lock()
	defer l.mu.Unlock()
	_, had := l.accounts[owner]
	l.uses++
	if len(all) > 0 {
		l.accounts[owner] = &account{set: all, used: l.uses}
	} else {
		delete(l.accounts, owner)
	}
	if _, ofSession := tool.SessionOf(owner); !ofSession && had != (len(all) > 0) {
		if had {
			l.limit.Count(-1)
		} else {
			l.limit.Count(1)
		}
	}
	if first.IsZero() || !l.due.IsZero() && !first.Before(l.due) {
		return
	}
	l.due = first
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// owners are those who have a set, without sessions.
func (l *ledger) owners() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for owner := range l.accounts {
		if _, ofSession := tool.SessionOf(owner); !ofSession {
			all = append(all, owner)
		}
	}
	return all
}

// excess returns the owner who used its tools longest ago, if too many owners have
// some; else "".
func (l *ledger) excess() (oldest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.accounts) <= maxOwners {
		return ""
	}
	held, used := 0, l.uses
	for owner, a := range l.accounts {
		if _, ofSession := tool.SessionOf(owner); ofSession {
			continue
		}
		held++
		if a.used <= used {
			oldest, used = owner, a.used
		}
	}
	if held <= maxOwners {
		return ""
	}
	return oldest
}

// next returns the owners of tools that have ended, and when to look again. If
// there are some that is soon, because one may not be changed now.
func (l *ledger) next(now time.Time) (owners []string, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due.IsZero() || l.due.After(now) {
		return nil, l.due
	}
	l.due = time.Time{}
	for owner, a := range l.accounts {
		at := a.set.first()
		if !at.IsZero() && !at.After(now) {
			owners = append(owners, owner)
			at = now.Add(time.Second)
		}
		if !at.IsZero() && (l.due.IsZero() || at.Before(l.due)) {
			l.due = at
		}
	}
	return owners, l.due
}
