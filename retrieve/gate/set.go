package gate

import (
	"slices"
	"time"

	"toolfinch/tool"
)

// set is the tools that one owner has provisioned, in that order, each once. It
// is a value: its methods return a new one. A tool of it is present while the
// catalog has it and does not pin it; others are remembered, cost nothing and are
// shown to nobody.
type set []tool.Provisioned

// present reports whether a tool is one that can be provisioned now.
type present func(id tool.ID) bool

// maxAbsent bounds the absent tools that are remembered for an owner whose budget
// does not bound the number of tools.
const maxAbsent = 1000

// usage is what the present tools cost.
func (s set) usage(is present) Usage {
	var used Usage
	for _, p := range s {
		if is(p.ID) {
			used = used.plus(p.Tokens)
		}
	}
	return used
}

func (s set) index(id tool.ID) int {
	// Every call behind the gate looks here: nothing is copied, and names differ
	// where servers are the same.
	for i := range s {
		if s[i].ID.Name == id.Name && s[i].ID == id {
			return i
		}
	}
	return -1
}

// addition is a request to add tools to a set.
type addition struct {
	wanted    set // present, each
	budget    Budget
	maxTokens int // bounds what is new; 0: no bound
	fit       bool
}

// add provisions what is wanted as far as both bounds allow. Tools that are there
// already cost nothing, and end as renewed says. What has no room is left out with
// fit; without, nothing is added and the error is a *BudgetError.
func (s set) add(a addition, is present) (set, Outcome, error) {
	next, used := slices.Clone(s), s.usage(is)
	var done Outcome
	var asked, taken Usage // of the new tools: of all, and of those that have room
	seen := make(map[tool.ID]bool, len(a.wanted))
	for _, one := range a.wanted {
		if seen[one.ID] {
			continue
		}
		seen[one.ID] = true
		at := next.index(one.ID)
		if at >= 0 {
			next[at].Until = renewed(next[at].Until, one.Until, a.fit)
			done.Kept = append(done.Kept, next[at])
			continue
		}
		asked = asked.plus(one.Tokens)
		if !a.budget.holds(used.plus(one.Tokens)) || a.maxTokens > 0 && taken.Tokens+one.Tokens > a.maxTokens {
			done.Left = append(done.Left, one)
			continue
		}
		used, taken = used.plus(one.Tokens), taken.plus(one.Tokens)
		next = append(next, one)
		done.Added = append(done.Added, one)
	}
	if len(done.Left) > 0 && !a.fit {
		return s, Outcome{}, &BudgetError{Asked: asked, Used: s.usage(is), Budget: a.budget, MaxTokens: a.maxTokens}
	}
	done.State = State{used, a.budget}
	return next.trim(a.budget, is), done, nil
}

// renewed is when a tool ends that is provisioned again. A request that names the
// tool sets the new end, if it has one; a request that found it by a query never
// shortens.
func renewed(before, now time.Time, fit bool) time.Time {
	switch {
	case !fit && now.IsZero(), fit && before.IsZero(), fit && !now.IsZero() && before.After(now):
		return before
	}
	return now
}

// trim forgets absent tools, the oldest first, until the budget has room for all
// that is remembered: it must hold when they come back, too.
func (s set) trim(budget Budget, is present) set {
	var all Usage
	absent := 0
	for _, p := range s {
		all = all.plus(p.Tokens)
		if !is(p.ID) {
			absent++
		}
	}
	return slices.DeleteFunc(slices.Clone(s), func(p tool.Provisioned) bool {
		if is(p.ID) || budget.holds(all) && absent <= maxAbsent {
			return false
		}
		all, absent = Usage{all.Tools - 1, all.Tokens - p.Tokens}, absent-1
		return true
	})
}

// without takes tools away, all if ids is nil.
func (s set) without(ids []tool.ID) (next, removed set) {
	for _, p := range s {
		if ids != nil && !slices.Contains(ids, p.ID) {
			next = append(next, p)
		} else {
			removed = append(removed, p)
		}
	}
	return next, removed
}

// only returns the present tools, nil if there are none.
func (s set) only(is present) set {
	var all set
	for _, p := range s {
		if is(p.ID) {
			all = append(all, p)
		}
	}
	return all
}

// current leaves out the tools whose time has come.
func (s set) current(now time.Time) set {
	return slices.DeleteFunc(slices.Clone(s), func(p tool.Provisioned) bool { return p.Over(now) })
}

// same reports whether both have the same tools in the same order until the same
// times.
func (s set) same(other set) bool {
	return slices.EqualFunc(s, other, func(a, b tool.Provisioned) bool { return a.ID == b.ID && a.Until.Equal(b.Until) })
}

// first is the earliest time at which a tool ends, zero if none does.
func (s set) first() time.Time {
	var first time.Time
	for _, p := range s {
		if !p.Until.IsZero() && (first.IsZero() || p.Until.Before(first)) {
			first = p.Until
		}
	}
	return first
}

// Outcome is what a Request did.
type Outcome struct {
	Added []tool.Provisioned
	Kept  []tool.Provisioned // provisioned before, or pinned
	Left  []tool.Provisioned // did not fit, with their cost
	State
}
