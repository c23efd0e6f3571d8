package gate

import (
	"slices"
	"time"

	"toolfinch/tool"
)

// set holds the provisioned tools of one owner, in order, each once. It is a value: its methods return a new set. A
// tool is present if the catalog has it and does not pin it; absent tools are remembered, cost nothing and are
// shown to nobody.
type set []tool.Provisioned

// present reports whether a tool can be provisioned now.
type present func(id tool.ID) bool

// maxAbsent bounds the absent tools of an owner whose budget does not bound the number of tools.
const maxAbsent = 1000

// usage returns the cost of the present tools.
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
	// Every call behind the gate looks here: nothing is copied, and names, which differ more often, are compared
	// first.
	for i := range s {
		if s[i].ID.Name == id.Name && s[i].ID == id {
			return i
		}
	}
	return -1
}

// addition is a request to add tools to a set.
type addition struct {
	wanted    set // all present
	budget    Budget
	maxTokens int // bounds the tokens of new tools; 0: no bound
	fit       bool
}

// add provisions the wanted tools within both bounds. Tools of the set cost nothing; renewed decides their end.
// With fit, tools without room are left out; else nothing is added, and the error is a *BudgetError.
func (s set) add(a addition, is present) (set, Outcome, error) {
	next, used := slices.Clone(s), s.usage(is)
	var done Outcome
	var asked, taken Usage // of all new tools, and of the new tools with room
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
		if !a.budget.allows(used.plus(one.Tokens)) || a.maxTokens > 0 && taken.Tokens+one.Tokens > a.maxTokens {
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

// renewed returns when a tool ends that is provisioned again. A request by ID sets the new end, if it has one; a
// request by query never shortens.
func renewed(before, now time.Time, fit bool) time.Time {
	switch {
	case !fit && now.IsZero(), fit && before.IsZero(), fit && !now.IsZero() && before.After(now):
		return before
	}
	return now
}

// trim removes absent tools, the oldest first, until the budget has room for all tools: it must also hold when they
// come back.
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
		if is(p.ID) || budget.allows(all) && absent <= maxAbsent {
			return false
		}
		all, absent = Usage{all.Tools - 1, all.Tokens - p.Tokens}, absent-1
		return true
	})
}

// without removes tools, all if ids is nil.
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

// withOnly returns the present tools; nil if there are none.
func (s set) withOnly(is present) set {
	var all set
	for _, p := range s {
		if is(p.ID) {
			all = append(all, p)
		}
	}
	return all
}

// current returns the unexpired tools.
func (s set) current(now time.Time) set {
	return slices.DeleteFunc(slices.Clone(s), func(p tool.Provisioned) bool { return p.Over(now) })
}

// same reports whether both have the same tools, in the same order, until the same times.
func (s set) same(other set) bool {
	return slices.EqualFunc(s, other, func(a, b tool.Provisioned) bool { return a.ID == b.ID && a.Until.Equal(b.Until) })
}

// first returns the earliest end of a tool; zero if none ends.
func (s set) first() time.Time {
	var first time.Time
	for _, p := range s {
		if !p.Until.IsZero() && (first.IsZero() || p.Until.Before(first)) {
			first = p.Until
		}
	}
	return first
}

// Outcome is the result of a Request.
type Outcome struct {
	Added []tool.Provisioned
	Kept  []tool.Provisioned // already provisioned, or pinned
	Left  []tool.Provisioned // did not fit; with their cost
	State
}
