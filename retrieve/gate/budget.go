package gate

import (
	"fmt"
	"time"
)

// Budget bounds what one owner may have provisioned. A zero bound is no bound.
type Budget struct {
	MaxTools  int `json:"max_tools,omitempty"`
	MaxTokens int `json:"max_tokens,omitempty"`
	// TTL is the longest time a tool stays provisioned, and the default of requests; 0: no end.
	TTL time.Duration `json:"-"`
}

// allows reports whether the budget has room for u.
func (b Budget) allows(u Usage) bool {
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

// Usage is the used part of a Budget. Only tools of the present catalog count.
type Usage struct {
	Tools  int `json:"tools"`
	Tokens int `json:"tokens"`
}

func (u Usage) plus(tokens int) Usage { return Usage{u.Tools + 1, u.Tokens + tokens} }

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

// State is an owner's budget and its used part.
type State struct {
	Usage  Usage  `json:"usage"`
	Budget Budget `json:"budget"`
}

// BudgetError says that a request does not fit the budget. It changed nothing.
type BudgetError struct {
	Asked     Usage // by the new tools of the request
	Used      Usage // by provisioned tools
	Budget    Budget
	MaxTokens int // the request's own bound; 0: no bound
}

// Error names all numbers, so that a model can act on it.
func (e *BudgetError) Error() string {
	own := ""
	if e.MaxTokens > 0 {
		own = fmt.Sprintf(", of which this request may add %s", count(e.MaxTokens, "token"))
	}
	return fmt.Sprintf("over budget: asked for %s beside %s already provisioned; the budget is %s%s. Nothing was changed: unprovision tools, or ask for fewer",
		e.Asked, e.Used, e.Budget, own)
}
