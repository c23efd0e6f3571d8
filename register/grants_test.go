package register

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
)

// grantsOf reads "a:10 b:20 (c:5)": tools and their tokens; those in parentheses
// the catalog has not.
func grantsOf(text string, until time.Time) grants {
	var all grants
	for _, word := range strings.Fields(text) {
		bare := strings.Trim(word, "()")
		one := grant{until: until}
		if _, err := fmt.Sscanf(strings.Replace(bare, ":", " ", 1), "%s %d", &one.id.Name, &one.tokens); err != nil {
			panic(err)
		}
		if bare == word {
			one.tool = &tool.Tool{Name: one.id.Name}
		}
		all = append(all, one)
	}
	return all
}

func (g grants) String() string {
	var words []string
	for _, one := range g {
		word := fmt.Sprintf("%s:%d", one.id.Name, one.tokens)
		if one.tool == nil {
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
		{name: "what came back a moment ago is new", has: "(a:10) b:10", wanted: "a:12", tokens: 30, want: "b:10 a:12", added: "a:12"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := grantsOf(test.has, time.Time{})
			has := slices.Clone(before)
			got, done, err := has.add(grantsOf(test.wanted, time.Now()), Budget{MaxTools: test.tools, MaxTokens: test.tokens}, test.max, test.fit)
			if got.String() != test.want {
				t.Errorf("set = %s, want %s", got, test.want)
			}
			if fmt.Sprint(done.added) != test.added || fmt.Sprint(done.kept) != test.kept || fmt.Sprint(done.left) != test.left {
				t.Errorf("added %s, kept %s, left %s", done.added, done.kept, done.left)
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
			got, done, err := grantsOf("a:1 b:1", test.before).add(grantsOf("b:1", test.now), Budget{}, 0, fit)
			if err != nil || !got[0].until.Equal(test.before) || !got[1].until.Equal(want) || !done.kept[0].until.Equal(want) {
				t.Errorf("until %v, then %v, fit %t: %+v, %v", test.before, test.now, fit, got, err)
			}
		}
	}
}

func TestWhatIsGoneIsNotRememberedWithoutBound(t *testing.T) {
	var has grants
	for i := range maxAbsent + 10 {
		has = append(has, grant{id: tool.ID{Name: fmt.Sprint(i)}})
	}
	got, _, err := has.add(grantsOf("new:1", time.Time{}), Budget{}, 0, false)
	if err != nil || len(got) != maxAbsent+1 || got[0].id.Name != "10" {
		t.Errorf("%d remembered from %v, %v", len(got), got[0].id, err)
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
			ids = append(ids, tool.ID{Name: name})
		}
		if test.ids == "all" {
			ids = nil
		}
		next, removed := grantsOf("a:1 (b:2) c:3", time.Time{}).without(ids)
		if next.String() != test.want || removed.String() != test.removed {
			t.Errorf("without %q: %s, removed %s", test.ids, next, removed)
		}
	}
}

func TestGrantsEnd(t *testing.T) {
	now := time.Now()
	all := slices.Concat(grantsOf("a:1", now), grantsOf("b:1", time.Time{}), grantsOf("c:1", now.Add(time.Second)), grantsOf("d:1", now.Add(-time.Hour)))
	if got := all.current(now).String(); got != "b:1 c:1" {
		t.Errorf("current = %s", got)
	}
	if got := all.first(); !got.Equal(now.Add(-time.Hour)) {
		t.Errorf("first = %v", got)
	}
	if got := grantsOf("b:1", time.Time{}).first(); !got.IsZero() {
		t.Errorf("first of what lasts = %v", got)
	}
}
