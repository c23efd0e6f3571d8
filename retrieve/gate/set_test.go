package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
)

// setOf reads "a:10 b:20 (c:5)": tools and their tokens; those in parentheses
// the catalog has not.
func setOf(text string, until time.Time) set {
	var all set
	for _, word := range strings.Fields(text) {
		bare := strings.Trim(word, "()")
		one := tool.Provisioned{Until: until}
		if _, err := fmt.Sscanf(strings.Replace(bare, ":", " ", 1), "%s %d", &one.ID.Name, &one.Tokens); err != nil {
			panic(err)
		}
		if bare != word {
			one.ID.Server = "gone"
		}
		all = append(all, one)
	}
	return all
}

// isPresent is present of the catalog of these tests.
func isPresent(id tool.ID) bool { return id.Server != "gone" }

func (s set) String() string {
	var words []string
	for _, one := range s {
		word := fmt.Sprintf("%s:%d", one.ID.Name, one.Tokens)
		if !isPresent(one.ID) {
			word = "(" + word + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestAddKeepsTheBudget(t *testing.T) {
	for _, test := range []struct {
		name, has, wanted       string
		tools, tokens, max      int
		fit                     bool
		want, added, kept, left string
		refused                 string // the whole error
	}{
		{name: "without bounds all fit", has: "a:10", wanted: "b:1000 c:1", want: "a:10 b:1000 c:1", added: "b:1000 c:1"},
		{name: "up to the budget, not beyond", has: "a:10", wanted: "b:20", tools: 2, tokens: 30, want: "a:10 b:20", added: "b:20"},
		{name: "one token too many", has: "a:10", wanted: "b:21", tools: 2, tokens: 30, want: "a:10",
			refused: "over budget: asked for 1 tool (21 tokens) beside 1 tool (10 tokens) already provisioned; the budget is 2 tools and 30 tokens. Nothing was changed: unprovision tools, or ask for fewer"},
		{name: "one tool too many", has: "a:1 b:1", wanted: "c:1", tools: 2, want: "a:1 b:1",
			refused: "over budget: asked for 1 tool (1 token) beside 2 tools (2 tokens) already provisioned; the budget is 2 tools and any number of tokens. Nothing was changed: unprovision tools, or ask for fewer"},
		{name: "all or nothing", has: "a:10", wanted: "b:5 c:50 d:5", tokens: 30, want: "a:10",
			refused: "over budget: asked for 3 tools (60 tokens) beside 1 tool (10 tokens) already provisioned; the budget is any number of tools and 30 tokens. Nothing was changed: unprovision tools, or ask for fewer"},
		{name: "the best that fit", has: "a:10", wanted: "b:5 c:50 d:15 e:1", tokens: 30, fit: true, want: "a:10 b:5 d:15", added: "b:5 d:15", left: "c:50 e:1"},
		{name: "nothing fits", has: "a:10", wanted: "b:21", tokens: 30, fit: true, want: "a:10", left: "b:21"},
		{name: "what is there costs nothing again", has: "a:10 b:20", wanted: "b:20 a:10", tools: 2, tokens: 30, want: "a:10 b:20", kept: "b:20 a:10"},
		{name: "nor where the budget has become too small", has: "a:10 b:20", wanted: "b:20", tools: 1, tokens: 1, want: "a:10 b:20", kept: "b:20"},
		{name: "twice in a request is once", wanted: "a:10 a:10", tools: 1, tokens: 10, want: "a:10", added: "a:10"},
		{name: "twice of what is there", has: "a:10", wanted: "a:10 a:10", want: "a:10", kept: "a:10"},
		{name: "the request's own bound", has: "a:10", wanted: "b:20 c:20", tokens: 100, max: 30, want: "a:10",
			refused: "over budget: asked for 2 tools (40 tokens) beside 1 tool (10 tokens) already provisioned; the budget is any number of tools and 100 tokens, of which this request may add 30 tokens. Nothing was changed: unprovision tools, or ask for fewer"},
		{name: "the request's own bound counts what is new", has: "a:100", wanted: "a:100 b:20 c:20 d:10", max: 30, fit: true, want: "a:100 b:20 d:10", added: "b:20 d:10", kept: "a:100", left: "c:20"},
		{name: "what is gone does not count, and is remembered while there is room", has: "(a:10) b:10", wanted: "c:10", tools: 3, tokens: 30, want: "(a:10) b:10 c:10", added: "c:10"},
		{name: "what is gone makes room, the oldest first", has: "(a:10) b:10 (c:10)", wanted: "d:10", tools: 3, tokens: 100, want: "b:10 (c:10) d:10", added: "d:10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := setOf(test.has, time.Time{})
			has := slices.Clone(before)
			got, done, err := has.add(addition{setOf(test.wanted, time.Now()), Budget{MaxTools: test.tools, MaxTokens: test.tokens}, test.max, test.fit}, isPresent)
			if got.String() != test.want {
				t.Errorf("set = %s, want %s", got, test.want)
			}
			if set(done.Added).String() != test.added || set(done.Kept).String() != test.kept || set(done.Left).String() != test.left {
				t.Errorf("added %v, kept %v, left %v", done.Added, done.Kept, done.Left)
			}
			var over *BudgetError
			if refused := errors.As(err, &over); refused != (test.refused != "") || refused && err.Error() != test.refused {
				t.Errorf("error %v, want %s", err, test.refused)
			}
			if !has.same(before) {
				t.Error("the set that was added to has changed")
			}
		})
	}
}

func TestAddingAgainRenewsTheTime(t *testing.T) {
	var never time.Time
	soon, late := time.Now(), time.Now().Add(time.Hour)
	for _, test := range []struct {
		before, now, named, found time.Time // with fit it is found, without it is named
	}{
		{never, never, never, never},
		{never, soon, soon, never},
		{soon, never, soon, never},
		{soon, late, late, late},
		{late, soon, soon, late},
	} {
		for fit, want := range map[bool]time.Time{false: test.named, true: test.found} {
			got, done, err := setOf("a:1 b:1", test.before).add(addition{wanted: setOf("b:1", test.now), fit: fit}, isPresent)
			if err != nil || !got[0].Until.Equal(test.before) || !got[1].Until.Equal(want) || !done.Kept[0].Until.Equal(want) {
				t.Errorf("until %v, then %v, fit %t: %+v, %v", test.before, test.now, fit, got, err)
			}
		}
	}
}

func TestWhatIsGoneIsNotRememberedWithoutBound(t *testing.T) {
	var has set
	for i := range maxAbsent + 10 {
		has = append(has, tool.Provisioned{ID: tool.ID{Server: "gone", Name: fmt.Sprint(i)}})
	}
	got, _, err := has.add(addition{wanted: setOf("new:1", time.Time{})}, isPresent)
	if err != nil || len(got) != maxAbsent+1 || got[0].ID.Name != "10" {
		t.Errorf("%d remembered from %v, %v", len(got), got[0].ID, err)
	}
}

func TestWithout(t *testing.T) {
	for _, test := range []struct{ ids, want, removed string }{
		{"a", "(b:2) c:3", "a:1"},
		{"c a", "(b:2)", "a:1 c:3"},
		{"b", "a:1 c:3", ""},
		{"x", "a:1 (b:2) c:3", ""},
		{"", "a:1 (b:2) c:3", ""},
		{"all", "", "a:1 c:3"},
	} {
		ids := []tool.ID{}
		for _, name := range strings.Fields(test.ids) {
			id := tool.ID{Name: name}
			if name == "b" {
				id.Server = "gone"
			}
			ids = append(ids, id)
		}
		if test.ids == "all" {
			ids = nil
		}
		next, removed := setOf("a:1 (b:2) c:3", time.Time{}).without(ids)
		if got := removed.withOnly(isPresent).String(); next.String() != test.want || got != test.removed {
			t.Errorf("without %q: %s, removed %s", test.ids, next, got)
		}
	}
}

func TestSetsEnd(t *testing.T) {
	now := time.Now()
	all := slices.Concat(setOf("a:1", now), setOf("b:1", time.Time{}), setOf("c:1", now.Add(time.Second)), setOf("d:1", now.Add(-time.Hour)))
	if got := all.current(now).String(); got != "b:1 c:1" {
		t.Errorf("current = %s", got)
	}
	if got := all.first(); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("first = %v", got)
	}
	if got := setOf("b:1", time.Time{}).first(); !got.IsZero() {
		t.Errorf("first of what lasts = %v", got)
	}
}
