package retrieve

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
)

// toolID reads "server.name", as tests write it.
func toolID(s string) tool.ID {
	server, name, _ := strings.Cut(s, ".")
	return tool.ID{Server: server, Name: name}
}

func toolIDs(s string) (out []tool.ID) {
	for _, id := range strings.Fields(s) {
		out = append(out, toolID(id))
	}
	return out
}

// learnedIn is a Memory that knows one query and the tool called after it.
func learnedIn(query, called string) *Memory {
	m := NewMemory(nil, nil)
	m.Asked("", "s", query, toolIDs("other.a other.b other.c "+called))
	m.Called("s", toolID(called))
	return m
}

func TestAToolIsExpectedAfterSimilarQueries(t *testing.T) {
	const learned = "Convert 20 miles to kilometres for the hiking map"
	for _, test := range []struct {
		query       string
		least, most float64 // of the prior; 0 and 0 for none at all
	}{
		{learned, 0.63, 0.64}, // 1 - 1/e
		{"convert 20 mile to kilometres, for the HIKING maps!", 0.63, 0.64},
		{"for the hiking map convert miles to kilometres", 0.4, 0.63},
		{"convert miles to kilometres", 0.1, 0.5},
		{"convert markdown to a web page", 0, 0},
		{"where is the hiking map", 0.01, 0.1},
		{"where is the map", 0, 0},
		{"send a mail", 0, 0},
		{"to the for", 0, 0},
		{"", 0, 0},
	} {
		got := learnedIn(learned, "math.convert").Prior("", test.query)
		p, known := got[toolID("math.convert")]
		if p < test.least || p > test.most || known != (test.most > 0) || len(got) > 1 || !known && got != nil {
			t.Errorf("%q: %v, want %v to %v", test.query, got, test.least, test.most)
		}
	}
}

func TestRareWordsMakeQueriesSimilar(t *testing.T) {
	m := learnedIn("list grafana dashboards", "grafana.list")
	for _, thing := range []string{"files", "issues", "users", "pods", "events", "songs", "rooms", "orders"} {
		m.Asked("", "s", "list open "+thing, toolIDs("some."+thing))
		m.Called("s", toolID("some."+thing))
	}
	if got := m.Prior("", "list open invoices"); got != nil {
		t.Errorf("a common word is enough: %v", got)
	}
	if got := m.Prior("", "show grafana dashboards"); got[toolID("grafana.list")] == 0 || len(got) != 1 {
		t.Errorf("rare words are not enough: %v", got)
	}
}

// play returns the uses that a memory makes of a session's steps, in a bubble of its own: "ask Q: TOOLS",
// "call TOOL", "wait DURATION"; "as NAME" changes the session.
func play(t *testing.T, steps string) (uses []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(nil, func(u Use) {
			uses = append(uses, fmt.Sprint(u.Query, " ", u.Tool, " ", u.Count))
			if !u.At.Equal(time.Now()) {
				t.Errorf("at %v, not now", u.At)
			}
		})
		session := "s"
		for step := range strings.SplitSeq(steps, ";") {
			verb, rest, _ := strings.Cut(strings.TrimSpace(step), " ")
			switch verb {
			case "as":
				session = strings.Trim(rest, `"`)
			case "ask":
				query, tools, _ := strings.Cut(rest, ":")
				m.Asked("", session, query, toolIDs(tools))
			case "call":
				m.Called(session, toolID(rest))
			case "wait":
				d := must.Get(time.ParseDuration(rest))(t)
				time.Sleep(d)
			default:
				t.Fatalf("step %q", step)
			}
		}
	})
	return uses
}

func TestWhichCallsAreUses(t *testing.T) {
	for _, test := range []struct{ name, steps, want string }{
		{"a tool that was found", "ask red: a.x a.y; call a.y", "red a.y 0.5"},
		{"the higher it stood, the less is learned", "ask red: a.x a.y a.z a.v a.w; call a.x; call a.y; call a.z; call a.v; call a.w",
			"red a.x 0.25, red a.y 0.5, red a.z 0.75, red a.v 1, red a.w 1"},
		{"a tool that was not found", "ask red: a.x; call a.y", ""},
		{"a call before any query", "call a.x; ask red: a.x", ""},
		{"a query without hits", "ask red:; call a.x", ""},
		{"a query without words", "ask of the:a.x; call a.x", ""},
		{"the same call again", "ask red: a.x; call a.x; call a.x", "red a.x 0.25"},
		{"the same query and call again", "ask red: a.x; call a.x; ask red: a.x; call a.x; ask red: a.x; call a.x", "red a.x 0.25"},
		{"after a while it is a new use", "ask red: a.x; call a.x; wait 16m; ask red: a.x; call a.x", "red a.x 0.25, red a.x 0.25"},
		{"the latest query that found it", "ask red: a.x; ask blue: a.y a.x; ask green: a.y; call a.x", "blue a.x 0.5"},
		{"and no earlier one", "ask red: a.x; ask blue: a.x; call a.x; call a.x", "blue a.x 0.25"},
		{"a query made for both", "ask red: a.x; ask blue: a.x; call a.x; ask red: a.x; call a.x", "blue a.x 0.25, red a.x 0.25"},
		{"eight queries are remembered", "ask red: a.x; ask 1: a.y; ask 2: a.y; ask 3: a.y; ask 4: a.y; ask 5: a.y; ask 6: a.y; ask 7: a.y; call a.x", "red a.x 0.25"},
		{"and no ninth", "ask red: a.x; ask 1: a.y; ask 2: a.y; ask 3: a.y; ask 4: a.y; ask 5: a.y; ask 6: a.y; ask 7: a.y; ask 8: a.y; call a.x", ""},
		{"for fifteen minutes", "ask red: a.x; wait 15m; call a.x", "red a.x 0.25"},
		{"and no longer", "ask red: a.x; wait 15m1s; call a.x", ""},
		{"sessions are apart", "as one; ask red: a.x; as two; call a.x", ""},
		{"two sessions are two uses", "as one; ask red: a.x; call a.x; as two; ask red: a.x; call a.x", "red a.x 0.25, red a.x 0.25"},
		{"no session, no use", `as ""; ask red: a.x; call a.x`, ""},
		{"spaces are one", "ask  deep \n\x1b red : a.x; call a.x", "deep red a.x 0.25"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(play(t, test.steps), ", "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhatIsNotUsedFades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, id := learnedIn("red apples", "fruit.red"), toolID("fruit.red")
		for _, want := range []float64{1, 0.5, 0.25} {
			if p := m.Prior("", "red apples")[id]; math.Abs(p-(1-math.Exp(-want))) > 1e-12 {
				t.Errorf("prior %v, want that of %v uses", p, want)
			}
			time.Sleep(halfLife)
		}
		time.Sleep(10 * 365 * 24 * time.Hour)
		if p := m.Prior("", "red apples")[id]; p > 1e-9 {
			t.Errorf("after ten years: %v", p)
		}
	})
}

func TestAClockThatWasSetBackMakesNothingCountMore(t *testing.T) {
	u := Use{Count: 2, At: time.Now().Add(1000 * time.Hour)}
	if w := u.Weight(time.Now()); w != 2 {
		t.Errorf("weight %v, want 2", w)
	}
}

// However often a tool is called, its prior stays below 1 for the same query
// and below their similarity for another one, and two months undo half of it.
func TestNoNumberOfCallsRunsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, id := NewMemory(nil, nil), toolID("web.fetch")
		for i := range 10_000 {
			session := fmt.Sprint(i)
			m.Asked("", session, "download the yearly report", toolIDs("a.a b.b c.c web.fetch"))
			m.Called(session, id)
		}
		if p := m.Prior("", "download the yearly report")[id]; p < 0.9 || p >= 1 {
			t.Errorf("the same query: %v", p)
		}
		few := learnedIn("download the yearly report", "web.fetch").Prior("", "upload the yearly report")[id]
		if p := m.Prior("", "upload the yearly report")[id]; p <= few || p > 0.5 {
			t.Errorf("a similar query: %v, after one call %v", p, few)
		}
		if got := m.Prior("", "upload a picture"); got != nil {
			t.Errorf("another query: %v", got)
		}
		time.Sleep(3 * halfLife)
		if p := m.Prior("", "download the yearly report")[id]; p > 0.5 {
			t.Errorf("three months later: %v", p)
		}
	})
}

func TestAMemoryIsBounded(t *testing.T) {
	t.Run("sessions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			saved := 0
			m := NewMemory(nil, func(Use) { saved++ })
			for i := range maxSessions + 1 {
				m.Asked("", fmt.Sprint(i), "red apples", toolIDs("a.x"))
				time.Sleep(time.Millisecond)
			}
			m.Called("0", toolID("a.x"))
			if saved != 0 {
				t.Error("the oldest session is still known")
			}
			m.Called("1", toolID("a.x"))
			if saved != 1 || len(m.sessions) != maxSessions {
				t.Errorf("%d sessions are known, and the second oldest learned %d uses", len(m.sessions), saved)
			}
		})
	})
	t.Run("uses", func(t *testing.T) {
		now := time.Now()
		known := []Use{{Query: "weakest of all", Tool: toolID("a.x"), Count: 0.2, At: now}}
		for i := range maxUses - 1 {
			known = append(known, Use{Query: fmt.Sprint("query", i), Tool: toolID("a.x"), Count: 1, At: now})
		}
		m := NewMemory(known, nil)
		for i, query := range []string{"weakest of all", "brand new", "even newer"} {
			if i > 0 {
				m.Asked("", "s", query, toolIDs("a.x"))
				m.Called("s", toolID("a.x"))
			}
			if m.Prior("", query) == nil || i > 0 && m.Prior("", []string{"weakest of all", "brand new"}[i-1]) != nil {
				t.Errorf("after %q the wrong use is forgotten", query)
			}
			if m.size != maxUses || len(m.queries) != maxUses || len(m.learned) > maxUses+1 || i > 0 && m.byTerm["weakest"] != nil {
				t.Errorf("%d uses of %d queries in %d places", m.size, len(m.queries), len(m.learned))
			}
		}
	})
	t.Run("uses at start", func(t *testing.T) {
		now := time.Now()
		var known []Use
		for i := range 2 * maxUses {
			known = append(known, Use{Query: fmt.Sprint("query", i), Tool: toolID("a.x"), Count: 1 + float64(i%2), At: now})
		}
		m := NewMemory(known, nil)
		if m.size != maxUses || m.Prior("", "query 0") != nil || m.Prior("", "query1") == nil {
			t.Errorf("%d uses, not those that count most", m.size)
		}
	})
	t.Run("queries", func(t *testing.T) {
		var saved Use
		m := NewMemory(nil, func(u Use) { saved = u })
		for _, query := range []string{strings.Repeat("漢字 ", 1<<20), "x" + strings.Repeat(" été", 200), strings.Repeat("a b\xff", 999)} {
			m.Asked("", "s", query, toolIDs("a.x"))
			m.Called("s", toolID("a.x"))
			if n := len(saved.Query); n > maxUseQuery || n < maxUseQuery-10 || strings.ToValidUTF8(saved.Query, "?") != saved.Query {
				t.Errorf("a query of %d bytes became %q", len(query), saved.Query)
			}
			if m.Prior("", query) == nil {
				t.Error("the query that was cut is not similar to itself")
			}
		}
	})
}

func TestDamagedUsesAreLeftOut(t *testing.T) {
	now := time.Now()
	m := NewMemory([]Use{
		{"", "red apples", toolID("a.nan"), math.NaN(), now}, {"", "red apples", toolID("a.zero"), 0, now},
		{"", "red apples", toolID("a.minus"), -1, now}, {"", "", toolID("a.empty"), 1, now},
		{"", "red apples", toolID("a.infinite"), math.Inf(1), now}, {"", "red apples", toolID("a.fine"), 1, now},
	}, nil)
	got := m.Prior("", "red apples")
	if names := slices.Sorted(func(yield func(string) bool) {
		for id := range got {
			if !yield(id.Name) {
				return
			}
		}
	}); !slices.Equal(names, []string{"fine", "infinite"}) || !(got[toolID("a.infinite")] < 1) {
		t.Errorf("got %v", got)
	}
}

// The table and the memory forget by the same rules, and the order in which
// things were learned makes no difference.
func TestAMemoryReadFromTheStoreIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		m := NewMemory(nil, func(u Use) {
			if err := s.Usage().PutLearned(t.Context(), store.LearnedUse(u)); err != nil {
				t.Error(err)
			}
		})
		queries := []string{"find red apples", "find green apples in the garden", "buy red apples", "find red pears"}
		for i := range 40 {
			session := fmt.Sprint(i)
			m.Asked("", session, queries[i*i%len(queries)], toolIDs("fruit.a fruit.b fruit.c"))
			m.Called(session, toolIDs("fruit.a fruit.b fruit.c")[i%3])
			time.Sleep(time.Duration(i*i) * 10 * time.Minute)
		}
		rows, err := s.Usage().Learned(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var known []Use
		for _, row := range rows {
			known = append(known, Use(row))
		}
		again := NewMemory([]Use{
			{Query: "what was forgotten", Tool: toolIDs("fruit.a")[0], Count: 1, At: time.Now()},
			{Query: queries[0], Tool: toolIDs("fruit.b")[0], Count: 4, At: time.Now()},
			{Principal: "another", Query: queries[1], Tool: toolIDs("fruit.c")[0], Count: 4, At: time.Now()},
		}, nil)
		again.Recall(known)
		if forgotten := again.Prior("", "what was forgotten"); forgotten != nil {
			t.Errorf("what is not stored any more: %v", forgotten)
		}
		for _, query := range queries {
			want, got := m.Prior("", query), again.Prior("", query)
			if len(want) == 0 || !slices.Equal(slices.SortedFunc(maps.Keys(want), byID), slices.SortedFunc(maps.Keys(got), byID)) {
				t.Errorf("%s: %v, want %v", query, got, want)
			}
			for id, p := range want {
				if math.Abs(got[id]-p) > 1e-9 {
					t.Errorf("%s: %s has %v, want %v", query, id, got[id], p)
				}
			}
		}
	})
}

func byID(a, b tool.ID) int { return strings.Compare(a.String(), b.String()) }

// The lock is not held while a use is saved: else this would wait for itself.
func TestSaveMayUseTheMemory(t *testing.T) {
	var m *Memory
	var prior map[tool.ID]float64
	m = NewMemory(nil, func(u Use) {
		prior = m.Prior("", u.Query)
		m.Called("s", u.Tool)
	})
	m.Asked("", "s", "red apples", toolIDs("a.x"))
	m.Called("s", toolID("a.x"))
	if len(prior) != 1 {
		t.Errorf("prior %v", prior)
	}
}

func TestManySessionsShareAMemory(t *testing.T) {
	var saved sync.Map
	m := NewMemory(nil, func(u Use) { saved.Store(u.Query, u) })
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				query := fmt.Sprintf("apples %d of tree %d", i, g)
				m.Asked("", fmt.Sprint(g), query, toolIDs("a.x a.y"))
				m.Called(fmt.Sprint(g), toolID("a.y"))
				if m.Prior("", query)[toolID("a.y")] == 0 {
					t.Errorf("%s was not learned", query)
				}
			}
		})
	}
	all.Wait()
	n := 0
	for range saved.Range {
		n++
	}
	if n != 8*200 || m.size != n {
		t.Errorf("%d uses saved, %d known, want %d", n, m.size, 8*200)
	}
}

// manyUses returns what a long life leaves: n uses of queries as people write
// them, and such queries.
func manyUses(n int) (uses []Use, queries []string) {
	verbs := strings.Fields("create list update delete search send convert summarize translate download")
	things := strings.Fields("issue file calendar event message invoice customer repository branch weather flight hotel image video song stock recipe article ticket report")
	for i := range n {
		query := fmt.Sprintf("%s the %s with number %d for the %s of team %s and %s it to channel%d",
			verbs[i%10], things[i/10%20], i/7, things[i/200%20], things[(i*7)%20], verbs[i/3%10], i%300)
		uses = append(uses, Use{Query: query, Tool: tool.ID{Server: "s", Name: fmt.Sprint("tool", i%900)}, Count: 1, At: time.Now()})
		if i%50 == 0 {
			queries = append(queries, query+" today")
		}
	}
	return uses, queries
}

func BenchmarkPrior(b *testing.B) {
	for _, n := range []int{100, 1000, maxUses} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			uses, queries := manyUses(n)
			m := NewMemory(uses, nil)
			for i := 0; b.Loop(); i++ {
				if m.Prior("", queries[i%len(queries)]) == nil {
					b.Fatal("nothing is similar")
				}
			}
		})
	}
	b.Run("all similar", func(b *testing.B) {
		var uses []Use
		for i := range maxUses {
			uses = append(uses, Use{Query: fmt.Sprint("create an issue in the repository of the team now ", i), Tool: toolID("a.x"), Count: 1, At: time.Now()})
		}
		m := NewMemory(uses, nil)
		for b.Loop() {
			m.Prior("", "create an issue in the repository of the team now")
		}
	})
}

func BenchmarkCalledWhenFull(b *testing.B) {
	uses, _ := manyUses(maxUses)
	m := NewMemory(uses, nil)
	for i := 0; b.Loop(); i++ {
		m.Asked("", "s", fmt.Sprint("something new number ", i), toolIDs("a.x"))
		m.Called("s", toolID("a.x"))
	}
}

func BenchmarkNewMemory(b *testing.B) {
	uses, _ := manyUses(maxUses)
	for b.Loop() {
		NewMemory(uses, nil)
	}
}

// BenchmarkRecall recalls what is known, but for one use that is new.
func BenchmarkRecall(b *testing.B) {
	uses, _ := manyUses(maxUses)
	m := NewMemory(uses[1:], nil)
	for b.Loop() {
		m.Recall(uses)
		m.Recall(uses[1:])
	}
}

// What was learned of a tool is that tool's, although another's server and name
// read the same with a dot between them.
func TestWhatWasLearnedIsOfOneTool(t *testing.T) {
	of := func(server, name string) *tool.Tool {
		return &tool.Tool{Def: def(t, server, `{"name":"`+name+`","description":"Sends a letter"}`)}
	}
	one, other := of("mail", "box.send"), of("mail.box", "send")
	for range 2 {
		memory := NewMemory([]Use{{Query: "send a letter", Tool: one.Def.ID, Count: 2, At: time.Now()}}, nil)
		catalog := newCatalog(t, []Server{{Name: one.Def.ID.Server, Tools: []*tool.Tool{one}}, {Name: other.Def.ID.Server, Tools: []*tool.Tool{other}}})
		r := New(catalog, Settings{Memory: memory})
		found, ok := catalog.ByID(one.Def.ID)
		if !ok {
			t.Fatal("the tool is not in the catalog")
		}
		if got := r.prior("", "send a letter"); len(got) != 1 || got[found.Name] == 0 {
			t.Errorf("the prior is %v, want that of %s", got, found.Name)
		}
		one, other = other, one
	}
}

// What one principal asks and calls changes nothing of what another finds.
func TestUsesAreOfTheirPrincipal(t *testing.T) {
	var saved []Use
	m := NewMemory(nil, func(use Use) { saved = append(saved, use) })
	for _, who := range []string{"ann", "bob", ""} {
		session := "session of " + who
		m.Asked(who, session, "fetch the salaries", toolIDs("other.a some."+strings.TrimSpace("x"+who)))
		m.Called(session, toolID("some.x"+who))
	}
	for _, who := range []string{"ann", "bob", ""} {
		if got := m.Prior(who, "fetch the salaries"); len(got) != 1 || got[toolID("some.x"+who)] == 0 {
			t.Errorf("%q expects %v", who, got)
		}
	}
	if got := m.Prior("cleo", "fetch the salaries"); got != nil {
		t.Errorf("cleo expects %v", got)
	}
	again := NewMemory(saved, nil)
	if got := again.Prior("bob", "fetch the salaries"); len(got) != 1 || got[toolID("some.xbob")] == 0 {
		t.Errorf("read again, bob expects %v", got)
	}
}
