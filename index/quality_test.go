package index

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"toolfinch/internal/must"
)

// annotatedSets is where the annotated catalogues are, beside the repository.
const annotatedSets = "../../shared/retrieval"

// annotated is a catalogue with queries and what should be found. Its exposed
// names are the labels, "server:name".
type annotated struct {
	docs    []Document
	queries []labelledQuery
}

type labelledQuery struct {
	Query    string   `json:"query"`
	Relevant []string `json:"relevant"`
}

func load(t testing.TB, set string) *annotated {
	t.Helper()
	if _, err := os.Stat(annotatedSets); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the annotated catalogues are not beside the repository (shared/retrieval)")
	}
	out := &annotated{}
	eachLine(t, filepath.Join(annotatedSets, set, "tools.jsonl"), func(line []byte) {
		var head struct{ Server, Name string }
		must.Do(t, json.Unmarshal(line, &head))
		d := docOf(t, head.Server, string(line), "")
		d.Name = head.Server + ":" + head.Name
		out.docs = append(out.docs, d)
	})
	eachLine(t, filepath.Join(annotatedSets, set, "queries.jsonl"), func(line []byte) {
		var q labelledQuery
		must.Do(t, json.Unmarshal(line, &q))
		out.queries = append(out.queries, q)
	})
	return out
}

func eachLine(t testing.TB, name string, do func([]byte)) {
	t.Helper()
	f := must.Get(os.Open(name))(t)
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		do(s.Bytes())
	}
	must.Do(t, s.Err())
}

// floors are a little under what was reached: nDCG@10 and recall@5.
var floors = []struct {
	set          string
	ndcg, recall float64
}{
	{"livemcp", .69, .68},
	{"mcpreal", .65, .64},
	{"metatool", .62, .69},
	{"bfcl", .68, .75},
	{"toolbench", .74, .73},
	{"sealtools", .90, .87},
	{"mcpproxy45", .70, .78},
}

// macroFloor is for the mean over the first macroSets of them: the last is too
// small to count as much as the others.
const (
	macroSets  = 6
	macroFloor = .72
)

func TestQuality(t *testing.T) {
	var macroNDCG, macroRecall float64
	t.Log("set          tools queries nDCG@10 recall@5")
	for i, floor := range floors {
		data := load(t, floor.set)
		ndcg, recall := measure(t, data)
		t.Logf("%-12s %5d %7d %7.3f %8.3f", floor.set, len(data.docs), len(data.queries), ndcg, recall)
		if ndcg < floor.ndcg || recall < floor.recall {
			t.Errorf("%s: nDCG@10 %.3f and recall@5 %.3f, want %.2f and %.2f", floor.set, ndcg, recall, floor.ndcg, floor.recall)
		}
		if i < macroSets {
			macroNDCG += ndcg / macroSets
			macroRecall += recall / macroSets
		}
	}
	t.Logf("%-26s %7.3f %8.3f", "mean of the first six", macroNDCG, macroRecall)
	if macroNDCG < macroFloor {
		t.Errorf("mean nDCG@10 %.3f, want %.2f", macroNDCG, macroFloor)
	}
}

// measure returns the means of nDCG@10 and recall@5, relevance being yes or no.
func measure(t *testing.T, data *annotated) (ndcg, recall float64) {
	x := build(t, data.docs...)
	for _, q := range data.queries {
		found := 0
		var gain, ideal float64
		for rank, name := range names(search(t, x, Query{Text: q.Query, Limit: 10})) {
			if !slices.Contains(q.Relevant, name) {
				continue
			}
			gain += 1 / math.Log2(float64(rank+2))
			if rank < 5 {
				found++
			}
		}
		for rank := range min(10, len(q.Relevant)) {
			ideal += 1 / math.Log2(float64(rank+2))
		}
		ndcg += gain / ideal
		recall += float64(found) / float64(len(q.Relevant))
	}
	n := float64(len(data.queries))
	return ndcg / n, recall / n
}
