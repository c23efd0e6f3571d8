package retrieve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// annotatedSets is where the annotated catalogues are, beside the repository.
const annotatedSets = "../../shared/retrieval"

// simulation is people who ask for the tools of an annotated catalogue and call
// some of what they find.
type simulation struct {
	index *index.Snapshot
	ids   map[string]tool.ID // by exposed name, here the label "server:name"
	plain map[string][]string
}

type annotatedQuery struct {
	Query    string   `json:"query"`
	Relevant []string `json:"relevant"`
}

func newSimulation(t *testing.T, set string) (*simulation, []annotatedQuery) {
	t.Helper()
	if _, err := os.Stat(annotatedSets); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the annotated catalogues are not beside the repository (shared/retrieval)")
	}
	s := &simulation{ids: map[string]tool.ID{}, plain: map[string][]string{}}
	var docs []index.Document
	eachLine(t, filepath.Join(annotatedSets, set, "tools.jsonl"), func(line []byte) {
		var head struct {
			Server string `json:"server"`
		}
		must.Do(t, json.Unmarshal(line, &head))
		d := def(t, head.Server, string(line))
		name := d.ID.Server + ":" + d.ID.Name
		s.ids[name] = d.ID
		docs = append(docs, index.Document{Name: name, Def: d})
	})
	var queries []annotatedQuery
	eachLine(t, filepath.Join(annotatedSets, set, "queries.jsonl"), func(line []byte) {
		var q annotatedQuery
		must.Do(t, json.Unmarshal(line, &q))
		queries = append(queries, q)
	})
	x := index.New()
	t.Cleanup(func() { _ = x.Close() })
	snapshot := must.Get(x.Replace(t.Context(), docs))(t)
	s.index = snapshot
	return s, queries
}

func eachLine(t *testing.T, name string, do func([]byte)) {
	t.Helper()
	f := must.Get(os.Open(name))(t)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		do(lines.Bytes())
	}
	must.Do(t, lines.Err())
}

// search returns the first ten, with what m knows.
func (s *simulation) search(t *testing.T, m *Memory, query string) []string {
	t.Helper()
	q := index.Query{Text: query, Limit: 10}
	if prior := m.Prior("", query); prior != nil {
		q.Prior = map[string]float64{}
		for id, p := range prior {
			q.Prior[id.Server+":"+id.Name] = p
		}
	} else if known, ok := s.plain[query]; ok {
		return known
	}
	found := must.Get(s.index.Search(t.Context(), q))(t)
	var names []string
	for _, hit := range found.Hits {
		names = append(names, hit.Name)
	}
	if q.Prior == nil {
		s.plain[query] = names
	}
	return names
}

// ndcg is the mean nDCG@10 of queries, relevance being yes or no.
func (s *simulation) ndcg(t *testing.T, m *Memory, queries []annotatedQuery) float64 {
	t.Helper()
	var sum float64
	for _, q := range queries {
		var gain, ideal float64
		for rank, name := range s.search(t, m, q.Query) {
			if slices.Contains(q.Relevant, name) {
				gain += 1 / math.Log2(float64(rank+2))
			}
		}
		for rank := range min(10, len(q.Relevant)) {
			ideal += 1 / math.Log2(float64(rank+2))
		}
		sum += gain / ideal
	}
	return sum / float64(len(queries))
}

// A habit is what people call of the five tools that they are shown.
type habit func(q annotatedQuery, shown []string) []string

func callsRelevant(q annotatedQuery, shown []string) (out []string) {
	for _, name := range shown {
		if slices.Contains(q.Relevant, name) {
			out = append(out, name)
		}
	}
	return out
}

func callsLastIrrelevant(q annotatedQuery, shown []string) []string {
	for _, name := range slices.Backward(shown) {
		if !slices.Contains(q.Relevant, name) {
			return []string{name}
		}
	}
	return nil
}

func callsFirstIrrelevant(q annotatedQuery, shown []string) []string {
	for _, name := range shown {
		if !slices.Contains(q.Relevant, name) {
			return []string{name}
		}
	}
	return nil
}

func callsFirst(_ annotatedQuery, shown []string) []string { return shown[:min(1, len(shown))] }

// live lets a new session ask each query and follow the habit, so many times.
// What is shown has been ranked with what was learned until then.
func (s *simulation) live(t *testing.T, m *Memory, queries []annotatedQuery, rounds int, habit habit) {
	t.Helper()
	for round := range rounds {
		for i, q := range queries {
			names := s.search(t, m, q.Query)
			names = names[:min(DefaultLimit, len(names))]
			s.use(m, fmt.Sprint(round, i), q.Query, names, habit(q, names))
		}
	}
}

// flood makes 10,000 calls of the same habit, spread over the queries, each
// answered as if nothing had been learned.
func (s *simulation) flood(t *testing.T, m *Memory, queries []annotatedQuery, habit habit) {
	t.Helper()
	const calls = 10_000
	for i, q := range queries {
		names := s.search(t, NewMemory(nil, nil), q.Query)
		names = names[:min(DefaultLimit, len(names))]
		for n := range (calls + len(queries) - 1) / len(queries) {
			s.use(m, fmt.Sprint("flood", i, n), q.Query, names, habit(q, names))
		}
	}
}

func (s *simulation) use(m *Memory, session, query string, shown, called []string) {
	var found []tool.ID
	for _, name := range shown {
		found = append(found, s.ids[name])
	}
	m.Asked("", session, query, found)
	for _, name := range called {
		m.Called(session, s.ids[name])
	}
}

// withoutAWord is a query as somebody else would put it.
func withoutAWord(queries []annotatedQuery) []annotatedQuery {
	out := slices.Clone(queries)
	for i, q := range out {
		if words := strings.Fields(q.Query); len(words) > 1 {
			at := (7*i + 3) % len(words)
			out[i].Query = strings.Join(slices.Delete(words, at, at+1), " ")
		}
	}
	return out
}

// Learning from one half of the queries of a set helps those who ask about the
// same again, and does no harm to the other half, whatever was called.
func TestLearningQuality(t *testing.T) {
	t.Log("nDCG@10          other queries         similar queries       uses")
	sets := []string{"livemcp", "metatool", "toolbench"}
	for _, set := range sets {
		s, queries := newSimulation(t, set)
		var asked, other []annotatedQuery
		for i, q := range queries {
			if i%2 == 0 {
				asked = append(asked, q)
			} else {
				other = append(other, q)
			}
		}
		similar := withoutAWord(asked)
		nothing := NewMemory(nil, nil)
		otherBefore, similarBefore := s.ndcg(t, nothing, other), s.ndcg(t, nothing, similar)

		for _, test := range []struct {
			name  string
			learn func(*Memory)
			// How much the means may change, at least.
			other, similar float64
		}{
			{"the relevant tools are called, once", func(m *Memory) { s.live(t, m, asked, 1, callsRelevant) }, -0.002, 0.01},
			{"the same, three times", func(m *Memory) { s.live(t, m, asked, 3, callsRelevant) }, -0.002, 0.02},
			{"whatever stands first is called, three times", func(m *Memory) { s.live(t, m, asked, 3, callsFirst) }, -0.005, -0.01},
			{"10,000 calls of the first irrelevant tool", func(m *Memory) { s.flood(t, m, asked, callsFirstIrrelevant) }, -0.005, -1},
			{"10,000 calls of one tool after any query", func(m *Memory) {
				one := callsLastIrrelevant(asked[0], s.search(t, nothing, asked[0].Query))
				for i := range 10_000 {
					shown := []string{"", "", "", "", one[0]}
					s.use(m, fmt.Sprint(i), asked[i%len(asked)].Query, shown, one)
				}
			}, -0.005, -1},
			{"10,000 calls of the last irrelevant tool, then of the relevant ones, three times", func(m *Memory) {
				s.flood(t, m, asked, callsLastIrrelevant)
				s.live(t, m, asked, 3, callsRelevant)
			}, -0.005, -0.01},
		} {
			m := NewMemory(nil, nil)
			test.learn(m)
			otherAfter, similarAfter := s.ndcg(t, m, other), s.ndcg(t, m, similar)
			t.Logf("%-10s %.3f %+.4f  %.3f %+.4f  %5d  %s", set,
				otherBefore, otherAfter-otherBefore, similarBefore, similarAfter-similarBefore, m.size, test.name)
			if otherAfter-otherBefore < test.other || similarAfter-similarBefore < test.similar {
				t.Errorf("%s: %s: want at least %+.4f on other queries and %+.4f on similar ones", set, test.name, test.other, test.similar)
			}
		}
	}
}
