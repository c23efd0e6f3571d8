package savings

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		def, err := tool.ParseDef("up", []byte(`{"name":"`+name+`","inputSchema":{"type":"object"}}`))
		if err != nil {
			t.Fatal(err)
		}
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

// A definition counts when it comes into the list of its session.
func TestWhatIsNewInAListCounts(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	m.Listed(fake(100), "s", "c", tools(t, "a", "b"))
	want(t, m, store.Savings{Sessions: 1, Full: 100, Listed: 20})
	m.Listed(fake(90), "s", "c", tools(t, "b", "c"))
	want(t, m, store.Savings{Sessions: 1, Full: 100, Listed: 30})
	m.Listed(fake(150), "s", "c", tools(t, "a", "c"))
	want(t, m, store.Savings{Sessions: 1, Full: 150, Listed: 40})
	m.Forget("s")
	m.Listed(fake(100), "s", "c", tools(t, "a"))
	want(t, m, store.Savings{Sessions: 2, Full: 250, Listed: 50})
	if m.held != 1 {
		t.Errorf("%d tools are held, want those of the list of the last session", m.held)
	}
}

func TestBenchmarksDoNotCount(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler))
	m.Listed(fake(100), "s", Benchmark+" 1", tools(t, "a"))
	if got := m.Totals(t.Context()); len(got) > 0 {
		t.Errorf("counted %+v", got)
	}
}

// A client without sessions has one a day.
func TestClientsWithoutSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(slog.New(slog.DiscardHandler))
		for range 2 {
			m.Listed(fake(100), "", "c", tools(t, "a"))
			m.Listed(fake(100), "", "c", tools(t, "a"))
			time.Sleep(24 * time.Hour)
		}
		want(t, m, store.Savings{Sessions: 2, Full: 200, Listed: 20})
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
	want(t, m, store.Savings{Sessions: maxSessions + 1, Full: maxSessions + 1, Listed: 10 * (maxSessions + 1)})
	if len(m.sessions) != 1 {
		t.Errorf("%d sessions are held", len(m.sessions))
	}
	for range 3 {
		m.note(fake(1), "s", "c", note{answer: tool.Result(strings.Repeat(" ", maxNoted))})
	}
	m.Totals(t.Context())
	if !strings.Contains(log.String(), "missing=2") {
		t.Errorf("log: %s", &log)
	}
}
