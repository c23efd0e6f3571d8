package index

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"toolfinch/tool"
)

const sets = "../../shared/retrieval"

type labelled struct {
	docs    []Document
	queries []struct {
		Query    string   `json:"query"`
		Relevant []string `json:"relevant"`
		Kind     string   `json:"kind"`
	}
}

func load(t testing.TB, set string) *labelled {
	t.Helper()
	out := &labelled{}
	lines(t, filepath.Join(sets, set, "tools.jsonl"), func(line []byte) {
		var head struct{ Server string }
		if err := json.Unmarshal(line, &head); err != nil {
			t.Fatal(err)
		}
		def, err := tool.ParseDef(head.Server, line)
		if err != nil {
			t.Fatal(err)
		}
		out.docs = append(out.docs, Document{Name: head.Server + ":" + def.ID.Name, Def: def})
	})
	lines(t, filepath.Join(sets, set, "queries.jsonl"), func(line []byte) {
		out.queries = append(out.queries, struct {
			Query    string   `json:"query"`
			Relevant []string `json:"relevant"`
			Kind     string   `json:"kind"`
		}{})
		if err := json.Unmarshal(line, &out.queries[len(out.queries)-1]); err != nil {
			t.Fatal(err)
		}
	})
	return out
}

func lines(t testing.TB, name string, do func([]byte)) {
	f, err := os.Open(name)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		do(s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

var allSets = []string{"livemcp", "mcpreal", "metatool", "bfcl", "toolbench", "sealtools", "mcpproxy45"}

var loaded = map[string]*labelled{}

func measure(t testing.TB, set string) (ndcg, recall float64) {
	data := loaded[set]
	if data == nil {
		data = load(t, set)
		loaded[set] = data
	}
	x, err := Build(context.Background(), data.docs)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := w; i < len(data.queries); i += 2 {
				q := data.queries[i]
				hits, err := x.Search(context.Background(), Query{Text: q.Query, Limit: 10})
				if err != nil {
					t.Error(err)
				}
				relevant := map[string]bool{}
				for _, r := range q.Relevant {
					relevant[r] = true
				}
				var dcg, ideal float64
				found := 0
				for i, h := range hits {
					if relevant[h.Name] {
						dcg += 1 / math.Log2(float64(i+2))
						if i < 5 {
							found++
						}
					}
				}
				for i := range min(10, len(relevant)) {
					ideal += 1 / math.Log2(float64(i+2))
				}
				mu.Lock()
				ndcg += dcg / ideal
				recall += float64(found) / float64(len(relevant))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	n := float64(len(data.queries))
	return ndcg / n, recall / n
}

func table(t testing.TB, label string) {
	start := time.Now()
	s := fmt.Sprintf("%-28s", label)
	var n6, r6 float64
	for i, set := range allSets {
		n, r := measure(t, set)
		if i < 6 {
			n6 += n / 6
			r6 += r / 6
		}
		s += fmt.Sprintf(" %.3f/%.3f", n, r)
	}
	fmt.Printf("%s | %.4f/%.4f  %v\n", s, n6, r6, time.Since(start).Round(time.Millisecond))
}

func TestQuality(t *testing.T) {
	table(t, "base")
}
