package gate

import (
	"sync"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/tool"
)

// maxOwners bounds the owners with sets. Sessions do not count: their sets end with them.
const maxOwners = 10_000

// NewLimit returns the limit on owners with provisioned tools, shared by all gates of the same clients. It only
// counts; each gate enforces its own bound of 10,000 owners.
func NewLimit() *limit.Limit {
	return limit.New("provisioned_sets", maxOwners, "clients have provisioned tools", "the set that was used longest ago goes")
}

// ledger holds the sets of all owners. It returns sets that are never changed.
type ledger struct {
	wake  chan struct{} // has room for one signal: due has become earlier
	limit *limit.Limit  // of owners that are not sessions

	mu       sync.Mutex // guards the fields below and the accounts; locked for look-ups and assignments only
	accounts map[string]*account
	due      time.Time // when the next tool expires; zero: never
	uses     uint64    // counter of look-ups and changes
}

// account is the set of one owner; it is never empty.
type account struct {
	set  set
	used uint64 // the ledger's uses when this account was last used
}

func newLedger(limit *limit.Limit) *ledger {
	return &ledger{wake: make(chan struct{}, 1), limit: limit, accounts: map[string]*account{}}
}

// of returns the set of an owner, including expired tools. It counts as a use.
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

// put replaces the set of an owner.
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

// owners returns the owners with sets, without sessions.
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

// leastUsed returns the least recently used owner if too many owners have sets; else "".
func (l *ledger) leastUsed() (oldest string) {
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

// next returns the owners with expired tools, and when to look again: soon if there are some, because a set may be
// locked now.
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
