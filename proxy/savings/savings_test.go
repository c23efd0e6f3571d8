package savings

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
)

// fake is a view in which a tool costs 10 tokens and all tools cost its number.
type fake int

func (fake) Name() string                      { return "v" }
func (fake) Tokens(*tool.Tool) int             { return 10 }
func (f fake) ListingCost(context.Context) int { return int(f) }

func tools(t testing.TB, names ...string) (all []*tool.Tool) {
	t.Helper()
	for _, name := range names {
		def := must.Get(tool.ParseDef("up", []byte(`{"name":"`+name+`","inputSchema":{"type":"object"}}`)))(t)
		all = append(all, &tool.Tool{Name: name, Def: def})
	}
	return all
}

func want(t *testing.T, m *Meter, sum store.Savings) {
	t.Helper()
	sum.View = "v"
	if got := m.Totals(t.Context()); len(got) != 1 || got[0] != sum {
		t.Errorf("counted %+v, want %+v", got, sum)
	}
}

// played is what happens in the session "s" of a client.
type played struct {
	t    testing.TB
	m    *Meter
	v    fake
	wait func(time.Duration) // in the bubble of the test
}

func play(t testing.TB) *played {
	return &played{t: t, m: New(slog.New(slog.DiscardHandler)), v: 100, wait: time.Sleep}
}

// lists answers tools/list with these tools, each a letter.
func (p *played) lists(names string) {
	p.m.Listed(p.v, "s", "c", tools(p.t, strings.Split(names, "")...))
}

func (p *played) calls(kind Kind) (answered func(tokens int)) {
	done := p.m.Called(p.v, "s", "c", kind)
	return func(tokens int) { done(textAnswer(tokens)) }
}

// textAnswer is an answer of so many tokens, exactly and by its length.
func textAnswer(tokens int) []byte {
	return tool.TextResult(strings.Repeat("word", tokens))
}

func TestStepsOfASession(t *testing.T) {
	for _, test := range []struct {
		name string
		play func(p *played)
		want store.Savings
	}{
		{"a list alone is read by nobody", func(p *played) { p.lists("ab") }, store.Savings{Sessions: 1}},
		{"the first call shows that the list was read", func(p *played) {
			p.lists("ab")
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 1, Listed: 20, AllSteps: 1, AllListed: 100}},
		{"what was read is read again, what was answered is read first", func(p *played) {
			p.lists("ab")
			p.calls(Use)(7)
			p.calls(Use)(5)
			p.m.Ended("s") // the last answer was read, too
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 3, Listed: 20, Results: 12, Cached: 20 + 20 + 7,
			AllSteps: 3, AllListed: 100, AllCached: 100 + 100 + 7}},
		{"with every tool listed a search is no step, and its answer is not read", func(p *played) {
			p.lists("ab")
			p.calls(Search)(30)
			p.calls(Describe)(40)
			p.calls(Use)(5)
			p.m.Ended("s")
		}, store.Savings{Sessions: 1, Retrievals: 1, Starts: 1, Steps: 4, Listed: 20, Answers: 70, Results: 5, Cached: 20 + 20 + 30 + 20 + 70,
			AllSteps: 2, AllListed: 100, AllCached: 100}},
		{"a list that grows at its end is read on from there, with all answers", func(p *played) {
			p.lists("ab")
			done := p.calls(Search)
			p.lists("abc") // while the answer is held
			done(30)
			p.calls(Use)
		}, store.Savings{Sessions: 1, Retrievals: 1, Starts: 1, Steps: 2, Appended: 1, Listed: 20, Relisted: 10, Answers: 30, Cached: 20,
			AllSteps: 1, AllListed: 100}},
		{"a list that changes inside is read from there", func(p *played) {
			p.lists("abcd")
			p.calls(Use)(8)
			p.calls(Use)(9)
			p.lists("aecd")
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 3, Changed: 1, Listed: 40, Relisted: 30, Results: 17, Reread: 8, Cached: 40 + 10,
			AllSteps: 3, AllListed: 100, AllCached: 100 + 100 + 8}},
		{"a list that loses its end has changed inside", func(p *played) {
			p.lists("ab")
			p.calls(Use)(0)
			p.lists("a")
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 2, Changed: 1, Listed: 20, Cached: 10, AllSteps: 2, AllListed: 100, AllCached: 100}},
		{"a list that comes again as it was spoils nothing", func(p *played) {
			p.lists("ab")
			p.calls(Use)(0)
			p.lists("ab")
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 2, Listed: 20, Cached: 20, AllSteps: 2, AllListed: 100, AllCached: 100}},
		{"lists between two steps are one change, those before the first are none", func(p *played) {
			p.lists("a")
			p.lists("ab")
			p.calls(Use)(0)
			p.lists("b")
			p.lists("abc")
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 2, Appended: 1, Listed: 20, Relisted: 10, Cached: 20, AllSteps: 2, AllListed: 100, AllCached: 100}},
		{"calls that overlap are of one step", func(p *played) {
			p.lists("ab")
			first, second := p.calls(Use), p.calls(Search)
			first(3)
			third := p.calls(Use)
			second(4)
			third(5)
			p.calls(Use)
		}, store.Savings{Sessions: 1, Retrievals: 1, Starts: 1, Steps: 2, Listed: 20, Answers: 4, Results: 8, Cached: 20, AllSteps: 2, AllListed: 100, AllCached: 100}},
		{"servers that come later would be listed when they come", func(p *played) {
			p.lists("ab")
			p.calls(Use)(0)
			p.v = 150
			p.calls(Use)(0)
			p.v = 90 // what was read stays read
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 1, Steps: 3, Listed: 20, Cached: 40, AllSteps: 3, AllListed: 150, AllCached: 100 + 150}},
		{"after a long pause nothing is cached", func(p *played) {
			p.lists("ab")
			p.calls(Use)(7)
			p.wait(cacheLife + time.Second)
			p.lists("abc") // nothing to spoil
			p.calls(Use)(9)
			p.calls(Use)
		}, store.Savings{Sessions: 1, Starts: 2, Steps: 4, Appended: 1, Listed: 20 + 30, Relisted: 10, Results: 16, Cached: 20 + 30,
			AllSteps: 4, AllListed: 200, AllCached: 100 + 100}},
		{"a session that ended has ended", func(p *played) {
			p.lists("ab")
			p.calls(Use)(0)
			p.m.Ended("s")
			p.m.Ended("s")
			p.calls(Use)(0)
			p.lists("a")
		}, store.Savings{Sessions: 2, Starts: 1, Steps: 2, Listed: 20, Cached: 20, AllSteps: 2, AllListed: 100, AllCached: 100}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := play(t)
				test.play(p)
				want(t, p.m, test.want)
				want(t, p.m, test.want) // what was counted is not again
			})
		})
	}
}

// The sessions that are open when a proxy ends have read their last answers.
func TestTheEndOfARunEndsSessions(t *testing.T) {
	p := play(t)
	p.lists("ab")
	p.calls(Use)(7)
	db, err := store.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.m.Run(ctx, db.Usage())
	got, err := db.Usage().Savings(t.Context(), time.Time{})
	if err != nil || len(got) != 1 || got[0].Steps != 2 || p.m.held != 0 {
		t.Errorf("stored %+v, %v; %d tools held", got, err, p.m.held)
	}
}

// What a model reads of an answer counts, images do not.
func TestWhatIsReadOfAnAnswer(t *testing.T) {
	for answer, tokens := range map[string]int64{
		`{"content":[{"type":"text","text":"12345678"},{"type":"image","data":"AAAAAAAAAAAAAAAA","mimeType":"image/png"}],"structuredContent":{"a":1}}`: 2,
		`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"1234"}}]}`:                                                                      1,
		`{"content":[],"structuredContent":{"a":1}}`:                                                                                                    1,
		``: 0,
	} {
		p := play(t)
		p.lists("a")
		p.m.Called(p.v, "s", "c", Use)([]byte(answer))
		if got := p.m.Totals(t.Context())[0].Results; got != tokens {
			t.Errorf("%s: %d tokens, want %d", answer, got, tokens)
		}
	}
}

// A client without sessions has one a day.
func TestClientsWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(slog.New(slog.DiscardHandler))
		for range 2 {
			for range 2 {
				m.Listed(fake(100), "", "c", tools(t, "a"))
				m.Called(fake(100), "", "c", Use)(textAnswer(0))
			}
			time.Sleep(24 * time.Hour)
		}
		want(t, m, store.Savings{Sessions: 2, Starts: 2, Steps: 4, Listed: 20, Cached: 20, AllSteps: 4, AllListed: 200, AllCached: 200})
	})
}

// What clients can make the meter hold is bounded; what is left out is logged.
func TestBounds(t *testing.T) {
	var log strings.Builder
	m := New(slog.New(slog.NewTextHandler(&log, nil)))
	one := tools(t, "a")
	for i := range maxSessions + 1 {
		m.Listed(fake(1), fmt.Sprint("session ", i), "c", one)
		if i%1000 == 0 {
			m.Totals(t.Context())
		}
	}
	want(t, m, store.Savings{Sessions: maxSessions + 1})
	if len(m.sessions) != 1 {
		t.Errorf("%d sessions are held", len(m.sessions))
	}
	const many = maxNoted / 5 // tokens: one such answer has room
	for range 2 {
		m.Called(fake(1), "session 10000", "c", Use)(textAnswer(many))
	}
	m.Listed(fake(1), "session 10000", "c", slices.Repeat(one, maxNoted/20))
	if got := m.Totals(t.Context())[0].Results; got < 2*many || got > 2*many+100 {
		t.Errorf("an answer without room for its text counts otherwise: %d tokens of %d", got, 2*many)
	}
	if !strings.Contains(log.String(), "missing=1") {
		t.Errorf("log: %s", &log)
	}
}

// Notes are counted before there is no room for more.
func TestNotesAreCountedWhenThereAreMany(t *testing.T) {
	p := play(t)
	p.lists("a")
	p.calls(Use)(maxNoted / 6)
	if len(p.m.wake) != 1 {
		t.Error("nothing wakes Run")
	}
}

// BenchmarkCalled is what a call waits for.
func BenchmarkCalled(b *testing.B) {
	m, answer := New(slog.New(slog.DiscardHandler)), textAnswer(25)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.Called(fake(1), "s", "c", Use)(answer)
		if i%1000 == 0 {
			b.StopTimer()
			m.Totals(b.Context())
			b.StartTimer()
		}
	}
}
