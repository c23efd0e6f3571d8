package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMetricsOfCasesComputedByHand(t *testing.T) {
	log2 := math.Log2
	for name, test := range map[string]struct {
		relevant  int
		ranks     []int
		want      row // recall@1, 3, 5, 10, ndcg@5, 10, mrr@10, complete@10, whole
		producers int
	}{
		"nothing found":  {2, nil, row{0, 0, 0, 0, 0, 0, 0, 0, 0}, 0},
		"at once":        {1, []int{1}, row{1, 1, 1, 1, 1, 1, 1, 1, 1}, 0},
		"third place":    {1, []int{3}, row{0, 1, 1, 1, .5, .5, 1. / 3, 1, 1}, 0},
		"last place":     {1, []int{10}, row{0, 0, 0, 1, 0, 1 / log2(11), .1, 1, 1}, 0},
		"best order":     {2, []int{1, 2}, row{.5, 1, 1, 1, 1, 1, 1, 1, 1}, 0},
		"one of two":     {2, []int{2}, row{0, .5, .5, .5, (1 / log2(3)) / (1 + 1/log2(3)), (1 / log2(3)) / (1 + 1/log2(3)), .5, 0, 0}, 0},
		"by a producer":  {2, []int{2}, row{0, .5, .5, .5, (1 / log2(3)) / (1 + 1/log2(3)), (1 / log2(3)) / (1 + 1/log2(3)), .5, 0, 1}, 1},
		"across 5":       {2, []int{1, 7}, row{.5, .5, .5, 1, 1 / (1 + 1/log2(3)), (1 + 1./3) / (1 + 1/log2(3)), 1, 1, 1}, 0},
		"beyond 10":      {2, []int{11, 12}, row{0, 0, 0, 0, 0, 0, 0, 0, 1}, 0},
		"more than fit":  {12, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, row{1. / 12, .25, 5. / 12, 10. / 12, 1, 1, 1, 0, 0}, 0},
		"completed late": {2, []int{1, 11}, row{.5, .5, .5, .5, 1 / (1 + 1/log2(3)), 1 / (1 + 1/log2(3)), 1, 0, 1}, 0},
	} {
		got := rowOf(Outcome{Relevant: test.relevant, Ranks: test.ranks, Producers: test.producers}, 50)
		for i, m := range metrics {
			if math.Abs(got[i]-test.want[i]) > 1e-12 {
				t.Errorf("%s: %s = %v, want %v", name, m.name, got[i], test.want[i])
			}
		}
	}
}

// What an answer is too short for is unknown, not zero.
func TestMetricsBeyondTheLimit(t *testing.T) {
	g := groupOf([][]row{rowsOf([]Outcome{{Relevant: 1, Ranks: []int{1}}, {Relevant: 1}}, 3)})
	for i, score := range g.all() {
		_, interval := g.Intervals[metrics[i].name]
		if known := metrics[i].k <= 3; (score != nil) != known || interval != known {
			t.Errorf("%s at limit 3: score %v, interval %t", metrics[i].name, score, interval)
		}
	}
	if *g.Recall3 != .5 {
		t.Errorf("recall@3 = %v", *g.Recall3)
	}
}

// constant returns n rows full of v.
func constant(v float64, n int) []row {
	var r row
	for i := range r {
		r[i] = v
	}
	return slices.Repeat([]row{r}, n)
}

func TestEverySetCountsTheSame(t *testing.T) {
	strata := [][]row{constant(0, 98), constant(1, 2)}
	if got := mean(strata)[0]; got != .5 {
		t.Errorf("mean %v, want 0.5", got)
	}
	// Drawn within the sets, such rows cannot vary.
	if got := bootstrap(strata)["recall@1"]; got != (Interval{.5, .5}) {
		t.Errorf("interval %v, want [0.5 0.5]", got)
	}
}

func TestBootstrapIsThatOfTheMean(t *testing.T) {
	rows := append(constant(0, 200), constant(1, 200)...)
	got := bootstrap([][]row{rows})["ndcg@10"]
	want := 1.96 * .5 / math.Sqrt(400) // of a fair coin
	if half := (got[1] - got[0]) / 2; math.Abs(half-want) > .1*want {
		t.Errorf("interval %v has half a width of %.4f, want about %.4f", got, half, want)
	}
	if math.Abs((got[0]+got[1])/2-.5) > .01 {
		t.Errorf("interval %v is not about 0.5", got)
	}
	if again := bootstrap([][]row{rows})["ndcg@10"]; again != got {
		t.Errorf("the same rows gave %v, then %v", got, again)
	}
	if got := bootstrap([][]row{constant(1, 1)}); got != nil {
		t.Errorf("a single query has the interval %v", got)
	}
}

func write(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.jsonl")
	must.Do(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	return path
}

func TestReadToolsNamesTheLine(t *testing.T) {
	good := `{"server":"s","name":"a"}`
	for line, want := range map[string]string{
		`{"server":"s","name":"b"`:              "file.jsonl:3: not a JSON object",
		`[]`:                                    "file.jsonl:3: ",
		`{"name":"b"}`:                          "file.jsonl:3: no server",
		`{"server":7,"name":"b"}`:               "file.jsonl:3: server must not be a number",
		`{"server":"s"}`:                        "file.jsonl:3: not a definition: no name",
		`{"server":"s","name":"a","title":"2"}`: "file.jsonl:3: s:a is on line 1 already",
	} {
		if _, err := ReadTools(write(t, good, "", line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
	if _, err := ReadTools(write(t, slices.Repeat([]string{"x"}, 50)...)); err == nil || strings.Count(err.Error(), "\n") != maxProblems-1 {
		t.Errorf("fifty mistakes: %v", err)
	}
	if _, err := ReadTools(write(t)); err == nil || !strings.Contains(err.Error(), "no tools") {
		t.Errorf("empty file: error %v", err)
	}
	if _, err := ReadTools("none.jsonl"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: error %v", err)
	}
	defs, err := ReadTools(write(t, "\ufeff"+good+"\r", "  ", `{"server":"t","name":"a","inputSchema":{"x":1.0}}`))
	if err != nil || len(defs) != 2 || label(defs[1]) != "t:a" || string(defs[1].InputSchema) != `{"x":1.0}` {
		t.Errorf("good lines: %v, %v", defs, err)
	}
}

func TestReadQueriesNamesTheLine(t *testing.T) {
	good := `{"id":"1st","query":"q","relevant":["s:a","s:b","s:a"],"kind":"k","source":"ignored"}`
	for line, want := range map[string]string{
		`{"id":"2","query":" ","relevant":["s:a"]}`:   "file.jsonl:2: query is empty",
		`{"id":"2","query":"q","relevant":[]}`:        "file.jsonl:2: relevant is empty",
		`{"id":"2","query":"q","relevant":"s:a"}`:     "file.jsonl:2: relevant must not be a string",
		`{"id":"1st","query":"q","relevant":["s:a"]}`: `file.jsonl:2: the id "1st" is on line 1 already`,
	} {
		if _, err := ReadQueries(write(t, good, line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
	queries, err := ReadQueries(write(t, good, `{"query":"q","relevant":["s:c"]}`))
	if err != nil || len(queries) != 2 || queries[1].ID != "2" || !slices.Equal(queries[0].Relevant, []string{"s:a", "s:b"}) {
		t.Errorf("good lines: %+v, %v", queries, err)
	}
}

// small is a set in which words decide.
func small(t *testing.T) *Set {
	t.Helper()
	set := &Set{Name: "small", Queries: []Query{
		{ID: "1", Text: "read a file", Kind: "easy", Relevant: []string{"files:read"}, Place: "q:1"},
		{ID: "2", Text: "delete a file and send mail", Kind: "hard", Relevant: []string{"files:delete", "mail:send"}, Place: "q:2"},
		{ID: "3", Text: "weather", Kind: "hard", Relevant: []string{"sky:weather", "files:read"}, Place: "q:3"},
	}}
	for _, line := range []string{
		`{"server":"files","name":"read","description":"Read a file"}`,
		`{"server":"files","name":"delete","description":"Delete a file"}`,
		`{"server":"mail","name":"send","description":"Send a mail"}`,
	} {
		var head struct{ Server string }
		must.Do(t, json.Unmarshal([]byte(line), &head))
		def := must.Get(tool.ParseDef(head.Server, []byte(line)))(t)
		set.Defs = append(set.Defs, def)
	}
	return set
}

func TestRunAsksEveryQuery(t *testing.T) {
	set := small(t)
	if n, first := set.Unknown(); n != 1 || first != "q:3: sky:weather" {
		t.Errorf("unknown labels: %d, %q", n, first)
	}
	var misses bytes.Buffer
	report := must.Get(Run(context.Background(), []*Set{set}, Options{Limit: 10, Misses: &misses}))(t)
	got := report.Sets[0]
	want := map[string][]int{"1": {1}, "2": {1, 2}, "3": {}}
	for _, o := range got.Queries {
		if !slices.Equal(o.Ranks, want[o.ID]) {
			t.Errorf("query %s: ranks %v, want %v", o.ID, o.Ranks, want[o.ID])
		}
	}
	if got.N != 3 || got.Tools != 3 || got.Unknown != 1 || got.Embedder != "BM25" || math.Abs(*got.NDCG10-2./3) > 1e-12 {
		t.Errorf("report %+v", got)
	}
	if got.Kinds["easy"].N != 1 || *got.Kinds["hard"].Complete10 != .5 {
		t.Errorf("kinds %+v", got.Kinds)
	}
	if want := `{"set":"small","id":"3","query":"weather","kind":"hard","relevant":["sky:weather","files:read"],` +
		`"missing":[{"id":"sky:weather","rank":null},{"id":"files:read","rank":null}],"hits":[]}` + "\n"; misses.String() != want {
		t.Errorf("misses:\n%swant:\n%s", &misses, want)
	}
}

// A tool that the limit cut off is told with its rank.
func TestMissesSayHowDeep(t *testing.T) {
	set := small(t)
	set.Queries = set.Queries[1:2]
	var misses bytes.Buffer
	must.Get(Run(context.Background(), []*Set{set}, Options{Limit: 1, Misses: &misses}))(t)
	if !strings.Contains(misses.String(), `"rank":2`) {
		t.Errorf("misses: %s", &misses)
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, []*Set{small(t)}, Options{Limit: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
	for _, limit := range []int{0, 51} {
		if _, err := Run(context.Background(), []*Set{small(t)}, Options{Limit: limit}); err == nil {
			t.Errorf("limit %d was taken", limit)
		}
	}
}

// made is a report of outcomes, with costs that do not vary.
func made(sets ...*SetReport) *Report {
	r := &Report{Sets: sets}
	memory := 64.
	for _, s := range sets {
		s.Embedder, s.Limit, s.Tools, s.RSS = "BM25", 10, 42, &memory
		s.P50, s.P95, s.Build = .25, 1.5, 12
		s.summarize()
	}
	r.average()
	return r
}

// outcomes are n queries with two relevant tools, found at varied ranks.
func outcomes(n int, seed uint64, kinds ...string) []Outcome {
	random := rand.New(rand.NewPCG(seed, 0))
	var out []Outcome
	for i := range n {
		first := 1 + random.IntN(6)
		o := Outcome{ID: fmt.Sprint(i), Relevant: 2, Ranks: []int{first, first + 1 + random.IntN(4)}, Kind: kinds[i%len(kinds)]}
		v := ndcg(o, 10)
		o.NDCG10 = &v
		out = append(out, o)
	}
	return out
}

func two() *Report {
	return made(&SetReport{Name: "first", Queries: outcomes(40, 1, "easy", "hard")}, &SetReport{Name: "second", Queries: outcomes(20, 2, "")})
}

func TestReportAsJSON(t *testing.T) {
	keys := []string{"n", "recall@1", "recall@3", "recall@5", "recall@10", "ndcg@5", "ndcg@10", "mrr@10", "complete@10"}
	setKeys := append(slices.Clone(keys), "p50_ms", "p95_ms", "build_ms", "rss_mb")
	numbers := func(what string, object json.RawMessage, keys []string) {
		t.Helper()
		var members map[string]json.RawMessage
		if err := json.Unmarshal(object, &members); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, key := range keys {
			var number *float64
			if err := json.Unmarshal(members[key], &number); err != nil || number == nil {
				t.Errorf("%s: %s is %s, not a number", what, key, members[key])
			}
		}
	}
	one, err := json.Marshal(made(&SetReport{Name: "one", Queries: outcomes(9, 1, "k")}))
	if err != nil {
		t.Fatal(err)
	}
	numbers("one set", one, setKeys)

	many, err := json.Marshal(two())
	if err != nil {
		t.Fatal(err)
	}
	var parts struct {
		Macro json.RawMessage            `json:"macro"`
		Sets  map[string]json.RawMessage `json:"sets"`
	}
	must.Do(t, json.Unmarshal(many, &parts))
	numbers("macro", parts.Macro, keys)
	if names := slices.Sorted(maps.Keys(parts.Sets)); !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("sets %v", names)
	}
	numbers("a set of two", parts.Sets["second"], setKeys)
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n")); !bytes.Equal(got, want) {
		t.Errorf("%s (run with -update if it should be so):\n%s\nwant:\n%s", name, got, want)
	}
}

func TestTables(t *testing.T) {
	short := made(&SetReport{Name: "one", Queries: []Outcome{{ID: "1", Kind: "k", Relevant: 1, Ranks: []int{2}}}})
	short.Sets[0].Limit, short.Sets[0].RSS = 3, nil
	short.Sets[0].summarize()
	for name, m := range map[string]*Report{"report.txt": two(), "short.txt": short} {
		var out bytes.Buffer
		must.Do(t, m.WriteTable(&out))
		golden(t, name, out.Bytes())
	}
}

func TestMemoryIsKnown(t *testing.T) {
	if mb := residentMB(); mb == nil || *mb < 1 || *mb > 1e5 {
		t.Errorf("memory of this process: %v MB", mb)
	}
	if held := heldBytes(); held < 1e6 {
		t.Errorf("the runtime holds %d bytes", held)
	}
}

// The path through the catalog must not find less than the index by itself.
func TestRunAgreesWithTheIndex(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "retrieval", "mcpproxy45")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the annotated catalogues are not beside the repository (shared/retrieval)")
	}
	set, err := ReadSet("mcpproxy45", dir)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(context.Background(), []*Set{set}, Options{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}

	var docs []index.Document
	for _, def := range set.Defs {
		docs = append(docs, index.Document{Name: label(def), Def: def})
	}
	x := index.New()
	defer x.Close()
	snapshot, err := x.Replace(context.Background(), docs)
	if err != nil {
		t.Fatal(err)
	}
	var want float64
	for _, q := range set.Queries {
		found := must.Get(snapshot.Search(context.Background(), index.Query{Text: q.Text, Limit: 10}))(t)
		var gain, ideal float64
		for i, hit := range found.Hits {
			if float64(i) >= 10*max(0.4, found.Confidence*3/retrieve.Confident) {
				continue // an answer that is doubtful has fewer hits
			}
			if slices.Contains(q.Relevant, hit.Name) {
				gain += 1 / math.Log2(float64(i+2))
			}
		}
		for i := range min(10, len(q.Relevant)) {
			ideal += 1 / math.Log2(float64(i+2))
		}
		want += gain / ideal / float64(len(set.Queries))
	}
	if got := *report.Sets[0].NDCG10; math.Abs(got-want) > 1e-9 {
		t.Errorf("ndcg@10 %.6f, the index alone reaches %.6f", got, want)
	}
}

func BenchmarkBootstrap(b *testing.B) {
	rows := rowsOf(outcomes(1000, 1, ""), 10)
	for b.Loop() {
		bootstrap([][]row{rows})
	}
}

func TestResolve(t *testing.T) {
	def := func(server, name string) *tool.Def { return &tool.Def{ID: tool.ID{Server: server, Name: name}} }
	set := &Set{
		Defs:  []*tool.Def{def("a", "b_c"), def("a_b", "c"), def("a", "d")},
		Names: map[string]string{"dee": "a:d", "gone": "x:y", "a_b_c": "a_b:c"},
		Queries: []Query{
			{Relevant: []string{"a:d", "a.d", "dee", "a_d"}},    // all are one
			{Relevant: []string{"a_b.c", "a_b_c", "gone", "z"}}, // a_b_c is two tools by default, and one as clients see it
		},
	}
	if known := set.Resolve(); known != 6 {
		t.Errorf("%d are known, want 6", known)
	}
	if got, want := set.Queries[0].Relevant, []string{"a:d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := set.Queries[1].Relevant, []string{"a_b:c", "gone", "z"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	set.Names, set.Queries = nil, []Query{{Relevant: []string{"a_b_c"}}}
	if known := set.Resolve(); known != 0 {
		t.Errorf("a name of two tools is taken for %q", set.Queries[0].Relevant)
	}
}
