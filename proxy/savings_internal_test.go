package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

// newAccounts is an accountant whose log is read by the test, and a view without
// tools.
func newAccounts() (*accountant, *View, *strings.Builder) {
	var logged strings.Builder
	a := newAccountant(nil, slog.New(slog.NewTextHandler(&logged, nil)), func(context.Context, map[string]int) {})
	return a, &View{endpoint: &endpoint{name: "v"}, catalog: retrieve.NewCatalog(nil)}, &logged
}

// someTools are tools whose names end in a number from first on.
func someTools(t testing.TB, first, n int) []*tool.Tool {
	t.Helper()
	tools := make([]*tool.Tool, n)
	for i := range tools {
		name := fmt.Sprint("tool_", first+i)
		def, err := tool.ParseDef("up", []byte(`{"name":"`+name+`","inputSchema":{"type":"object"}}`))
		if err != nil {
			t.Fatal(err)
		}
		tools[i] = &tool.Tool{Name: name, Def: def}
	}
	return tools
}

// sumOf is the one account there is.
func sumOf(t testing.TB, a *accountant) store.Savings {
	t.Helper()
	got := a.totals(t.Context())
	if len(got) != 1 {
		t.Fatalf("accounted %+v, want one account", got)
	}
	return got[0]
}

// A client without sessions has one until it was away for half an hour. A list
// and an answer keep it.
func TestSessionOfAClientWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, v, _ := newAccounts()
		tools := someTools(t, 0, 3)
		answer := func() {
			a.note(note{account: account{"v", "c"}, view: v, answer: tool.TextResult("found"), search: true})
		}
		a.listed(v, "", "c", tools)
		once := sumOf(t, a)
		for _, step := range []struct {
			name     string
			after    time.Duration
			do       func()
			sessions int
		}{
			{"a list", 0, func() { a.listed(v, "", "c", tools) }, 1},
			{"a late list", maxIdle, func() { a.listed(v, "", "c", tools) }, 1},
			{"a late answer", maxIdle, answer, 1},
			{"a list after the answer", maxIdle, func() { a.listed(v, "", "c", tools) }, 1},
			{"an answer that is too late", maxIdle + 1, answer, 1},
			{"a list after that", 0, func() { a.listed(v, "", "c", tools) }, 2},
			{"a list that is too late", maxIdle + 1, func() { a.listed(v, "", "c", tools) }, 3},
		} {
			time.Sleep(step.after)
			step.do()
			got := sumOf(t, a)
			if got.Sessions != step.sessions || got.Listed != int64(step.sessions)*once.Listed {
				t.Errorf("%s: %+v, want %d sessions that were listed %d tokens each", step.name, got, step.sessions, once.Listed)
			}
		}
		if got := sumOf(t, a); got.Retrievals != 2 || once.Listed == 0 {
			t.Errorf("accounted %+v, want 2 retrievals", got)
		}
		a.listed(v, "", "another", tools)
		a.listed(&View{endpoint: &endpoint{name: "other"}, catalog: v.catalog}, "", "c", tools)
		for _, got := range a.totals(t.Context()) {
			if got.Client == "another" && got.Sessions != 1 || got.View == "other" && got.Sessions != 1 {
				t.Errorf("accounted %+v, want one session", got)
			}
		}
	})
}

// A session of a client that has sessions does not end by itself.
func TestSessionThatIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, v, _ := newAccounts()
		for range 2 {
			a.listed(v, "s", "c", nil)
			time.Sleep(24 * time.Hour)
			if got := sumOf(t, a); got.Sessions != 1 {
				t.Errorf("accounted %+v, want one session", got)
			}
		}
	})
}

// A list that was under way when its session ended begins no other.
func TestListAfterTheEndOfItsSession(t *testing.T) {
	a, v, _ := newAccounts()
	a.listed(v, "s", "c", nil)
	a.forget("s")
	a.listed(v, "s", "c", nil)
	if got := sumOf(t, a); got.Sessions != 1 || len(a.sessions) != 0 {
		t.Errorf("one session counts as %d, and %d are remembered", got.Sessions, len(a.sessions))
	}
	a.listed(v, "s", "c", nil)
	if got := sumOf(t, a); got.Sessions != 2 {
		t.Errorf("the next session is not accounted: %+v", got)
	}
}

// Of too many sessions those are forgotten that were not used for longest.
func TestTooManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, v, _ := newAccounts()
		list := func(session int) {
			a.listed(v, fmt.Sprint(session), "c", nil)
			time.Sleep(time.Millisecond)
			a.totals(t.Context())
		}
		for i := range maxAccounted {
			list(i)
		}
		list(0)
		list(maxAccounted) // a tenth makes room
		for _, kept := range []int{0, maxAccounted/10 + 1, maxAccounted - 1, maxAccounted} {
			if a.sessions[fmt.Sprint(kept)] == nil {
				t.Errorf("session %d is forgotten", kept)
			}
		}
		if n := len(a.sessions); n != maxAccounted*9/10+1 || a.sessions["1"] != nil {
			t.Errorf("%d sessions are remembered", n)
		}
	})
}

// What sessions have received takes a bit a definition, in whatever order they
// were listed, and is forgotten when there were too many definitions.
func TestDefinitionsThatSessionsHaveReceived(t *testing.T) {
	const each = 1000
	a, v, _ := newAccounts()
	tools := someTools(t, 0, each)
	reversed := slices.Clone(tools)
	slices.Reverse(reversed)
	a.listed(v, "one", "c", tools)
	a.listed(v, "two", "c", reversed)
	a.listed(v, "two", "c", tools)
	once := sumOf(t, a).Listed / 2
	for session, s := range a.sessions {
		if s.seen.BitLen() != each {
			t.Errorf("session %s takes %d bits", session, s.seen.BitLen())
		}
	}
	a.listed(v, "one", "c", someTools(t, each, 1))
	more := sumOf(t, a).Listed
	if once == 0 || more <= 2*once || len(a.numbers) != each+1 {
		t.Errorf("%d definitions have numbers, and of one more than %d tokens %d are accounted", len(a.numbers), 2*once, more)
	}

	for key := range uint64(maxNumbered) {
		a.numbers[key] = int(key)
	}
	a.listed(v, "one", "c", tools)
	got := sumOf(t, a)
	if got.Sessions != 3 || got.Listed != more+once || len(a.sessions) != 1 || len(a.numbers) != each {
		t.Errorf("accounted %+v of %d sessions, with %d definitions: everything was to begin anew", got, len(a.sessions), len(a.numbers))
	}
}

// Searches are retrievals; other answers with definitions cost tokens alone, and
// what failed is not accounted.
func TestAnswersThatAreAccounted(t *testing.T) {
	found, failed := tool.TextResult("a definition"), tool.ErrorResult("over budget")
	for _, test := range []struct {
		name, arguments     string
		result              tool.Result
		err                 error
		retrievals, answers bool
	}{
		{"retrieve_tools", `{}`, found, nil, true, true},
		{"discover_tools", `{}`, found, nil, true, true},
		{"v_search_tools", `{}`, found, nil, true, true},
		{"v_describe_tool", `{}`, found, nil, false, true},
		{"provision_tools", `{"query":"x"}`, found, nil, false, true},
		{"list_provisioned", `{}`, found, nil, false, true},
		{"retrieve_tools", `{}`, failed, nil, false, false},
		{"v_describe_tool", `{}`, failed, nil, false, false},
		{"provision_tools", `{}`, failed, nil, false, false},
		{"retrieve_tools", `{}`, nil, errors.New("canceled"), false, false},
		{"retrieve_tools", `{}`, nil, nil, false, false},
		{"unprovision_tools", `{}`, found, nil, false, false},
		{"call_tool", `{}`, found, nil, false, false},
		{"door", `{"action":"list"}`, found, nil, false, true},
		{"door", `{"action":"info"}`, found, nil, false, true},
		{"door", `{"action":"batch"}`, found, nil, false, true},
		{"door", `{"action":"call"}`, found, nil, false, false},
		{"door", `{"action":"list"}`, failed, nil, false, false},
	} {
		t.Run(test.name+test.arguments, func(t *testing.T) {
			a, v, _ := newAccounts()
			meta := &tool.Tool{Name: test.name, Handler: func(context.Context, *tool.Call) (tool.Result, error) {
				return test.result, test.err
			}}
			got, err := a.around(v, []*tool.Tool{meta}, "door")[0].Handler(t.Context(), &tool.Call{Arguments: []byte(test.arguments)})
			if string(got) != string(test.result) || err != test.err {
				t.Errorf("it answers %s, %v", got, err)
			}
			var sum store.Savings
			for _, one := range a.totals(t.Context()) {
				sum = one
			}
			if (sum.Retrievals == 1) != test.retrievals || (sum.Answers > 0) != test.answers {
				t.Errorf("accounted %+v", sum)
			}
		})
	}
}

// Of more than may wait the rest is lost, and the log says so; the ends of
// sessions are not.
func TestMoreThanMayWait(t *testing.T) {
	a, v, logged := newAccounts()
	a.listed(v, "s", "c", nil)
	ofSize := func(bytes int) tool.Result { // of a kind that nobody counts
		return tool.Result(`{"content":[{"type":"image","data":"` + strings.Repeat("x", bytes) + `"}]}`)
	}
	answer := ofSize(maxWaiting / 4)
	for range 6 {
		a.note(note{account: account{"v", "c"}, view: v, session: "s", answer: answer, search: true})
	}
	a.listed(v, "lost", "c", make([]*tool.Tool, maxWaiting/8))
	a.forget("s")
	if got := sumOf(t, a); got.Sessions != 1 || got.Retrievals != 3 || len(a.sessions) != 0 {
		t.Errorf("accounted %+v, and %d sessions remembered; want one session with 3 retrievals, that has ended", got, len(a.sessions))
	}
	if !strings.Contains(logged.String(), "missing=4") {
		t.Errorf("the log does not say that 4 are missing: %s", logged)
	}
	logged.Reset()
	a.note(note{account: account{"v", "c"}, view: v, answer: ofSize(2 * maxWaiting)})
	if sumOf(t, a); logged.Len() > 0 { // one that is too long waits alone
		t.Errorf("logged %s", logged)
	}
}

func BenchmarkSavingsSessions(b *testing.B) {
	tools := someTools(b, 0, 1328)
	for b.Loop() {
		a, v, _ := newAccounts()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range maxAccounted {
			a.listed(v, fmt.Sprint(i), "c", tools)
			if i%100 == 0 {
				a.totals(b.Context())
			}
		}
		a.totals(b.Context())
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MB")
		b.ReportMetric(float64(len(a.sessions)), "sessions")
		runtime.KeepAlive(a)
	}
}
