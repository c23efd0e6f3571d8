package register

import (
	"fmt"
	"slices"
	"time"

	"toolfinch/tool"
)

// Budget bounds what one owner may have provisioned. Zero bounds are none.
type Budget struct {
	MaxTools  int `json:"max_tools,omitempty"`
	MaxTokens int `json:"max_tokens,omitempty"`
	// TTL is how long a tool stays provisioned at most, and where the request does
	// not say; 0: for good.
	TTL time.Duration `json:"-"`
}

// holds reports whether the budget has room for that much.
func (b Budget) holds(u Usage) bool {
	return (b.MaxTools == 0 || u.Tools <= b.MaxTools) && (b.MaxTokens == 0 || u.Tokens <= b.MaxTokens)
}

// String names both bounds.
func (b Budget) String() string {
	tools, tokens := "any number of tools", "any number of tokens"
	if b.MaxTools > 0 {
		tools = count(b.MaxTools, "tool")
	}
	if b.MaxTokens > 0 {
		tokens = count(b.MaxTokens, "token")
	}
	return tools + " and " + tokens
}

// Usage is how much of a Budget is used: by the tools that the catalog has now.
type Usage struct {
	Tools  int `json:"tools"`
	Tokens int `json:"tokens"`
}

func (u Usage) plus(g grant) Usage { return Usage{u.Tools + 1, u.Tokens + g.tokens} }

// String names both numbers.
func (u Usage) String() string {
	return fmt.Sprintf("%s (%s)", count(u.Tools, "tool"), count(u.Tokens, "token"))
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// BudgetError is a request that does not fit. Nothing was changed by it.
type BudgetError struct {
	Tools, Tokens         int // asked for beyond what is provisioned
	UsedTools, UsedTokens int // provisioned already
	Budget                Budget
	MaxTokens             int // what the request itself allowed; 0: no bound
}

// Error has all numbers, for a model to act on.
func (e *BudgetError) Error() string {
	own := ""
	if e.MaxTokens > 0 {
		own = fmt.Sprintf(", of which this request may add %s", count(e.MaxTokens, "token"))
	}
	return fmt.Sprintf("over budget: asked for %s beside %s already provisioned; the budget is %s%s. Nothing was changed: unprovision tools, or ask for fewer",
		Usage{e.Tools, e.Tokens}, Usage{e.UsedTools, e.UsedTokens}, e.Budget, own)
}

// grants are the tools that one owner has provisioned, in that order, each once.
// It is a value: its methods return a new one.
type grants []grant

type grant struct {
	id     tool.ID
	tokens int        // of its definition, when that was last counted
	until  time.Time  // zero: for good
	tool   *tool.Tool // while a change is planned; nil for what takes no part: the catalog has it not, or pins it
}

// over reports whether the time of the grant has come.
func over(until, now time.Time) bool { return !until.IsZero() && !until.After(now) }

// maxAbsent is how many tools that the catalog has not are remembered for an
// owner without a bound on tools.
const maxAbsent = 1000

// usage is what those cost that take part.
func (g grants) usage() Usage {
	var used Usage
	for _, one := range g {
		if one.tool != nil {
			used = used.plus(one)
		}
	}
	return used
}

func (g grants) index(id tool.ID) int {
	// Every call behind the gate looks here: nothing is copied, and names differ
	// where servers are the same.
	for i := range g {
		if g[i].id.Name == id.Name && g[i].id == id {
			return i
		}
	}
	return -1
}

// added says what a request did.
type added struct{ added, kept, left grants }

// add provisions wanted, each of which takes part, as far as the budget and the
// request's own bound, maxTokens, hold: what is there already costs nothing, and
// ends as renewed says. With fit, what has no room is left; else nothing is added
// then, and the error is a *BudgetError.
func (g grants) add(wanted grants, budget Budget, maxTokens int, fit bool) (grants, added, error) {
	next, used := slices.Clone(g), g.usage()
	var done added
	var asked, taken Usage // by what is new of wanted: in all, and of what has room
	seen := make(map[tool.ID]bool, len(wanted))
	for _, one := range wanted {
		if seen[one.id] {
			continue
		}
		seen[one.id] = true
		at := next.index(one.id)
		if at >= 0 && next[at].tool != nil {
			next[at].until = renewed(next[at].until, one.until, fit)
			done.kept = append(done.kept, next[at])
			continue
		}
		asked = asked.plus(one)
		if !budget.holds(used.plus(one)) || maxTokens > 0 && taken.Tokens+one.tokens > maxTokens {
			done.left = append(done.left, one)
			continue
		}
		if at >= 0 { // the catalog has it again since a moment ago
			next = slices.Delete(next, at, at+1)
		}
		used, taken = used.plus(one), taken.plus(one)
		next = append(next, one)
		done.added = append(done.added, one)
	}
	if len(done.left) > 0 && !fit {
		before := g.usage()
		return g, added{}, &BudgetError{asked.Tools, asked.Tokens, before.Tools, before.Tokens, budget, maxTokens}
	}
	return next.trim(budget), done, nil
}

// renewed is when a tool ends that is provisioned again. Who names it means the
// new end, unless there is none; who found it by a query shortens nothing.
func renewed(before, now time.Time, fit bool) time.Time {
	switch {
	case !fit && now.IsZero(), fit && before.IsZero(), fit && !now.IsZero() && before.After(now):
		return before
	}
	return now
}

// trim forgets what takes no part, the oldest first, until the budget has room
// for all that is remembered: it must hold too when tools come back.
func (g grants) trim(budget Budget) grants {
	var all Usage
	absent := 0
	for _, one := range g {
		all = all.plus(one)
		if one.tool == nil {
			absent++
		}
	}
	return slices.DeleteFunc(slices.Clone(g), func(one grant) bool {
		if one.tool != nil || budget.holds(all) && absent <= maxAbsent {
			return false
		}
		all, absent = Usage{all.Tools - 1, all.Tokens - one.tokens}, absent-1
		return true
	})
}

// without takes tools away, all where ids is nil, and returns those that took
// part.
func (g grants) without(ids []tool.ID) (next, removed grants) {
	for _, one := range g {
		switch {
		case ids != nil && !slices.Contains(ids, one.id):
			next = append(next, one)
		case one.tool != nil:
			removed = append(removed, one)
		}
	}
	return next, removed
}

// current leaves out those whose time has come.
func (g grants) current(now time.Time) grants {
	return slices.DeleteFunc(slices.Clone(g), func(one grant) bool { return over(one.until, now) })
}

// same reports whether both have the same tools in the same order until the
// same times.
func (g grants) same(other grants) bool {
	return slices.EqualFunc(g, other, func(a, b grant) bool { return a.id == b.id && a.until.Equal(b.until) })
}

// first is the earliest time at which one ends, zero when none does.
func (g grants) first() time.Time {
	var first time.Time
	for _, one := range g {
		if !one.until.IsZero() && (first.IsZero() || one.until.Before(first)) {
			first = one.until
		}
	}
	return first
}

// public returns those that take part as others see them.
func (g grants) public() []Provision {
	var all []Provision
	for _, one := range g {
		if one.tool != nil {
			all = append(all, Provision{one.tool, one.tokens, one.until})
		}
	}
	return all
}
