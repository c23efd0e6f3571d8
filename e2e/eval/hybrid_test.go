// Package eval_test measures retrieval with the real model.
package eval_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"toolfinch/embed"
	"toolfinch/embed/models"
	"toolfinch/internal/must"
	"toolfinch/retrieve/eval"
)

// vectorsInMemory are kept for one run.
type vectorsInMemory struct {
	mu     sync.Mutex // guards spaces
	spaces map[string]map[embed.Key][]float32
}

func (v *vectorsInMemory) Vectors(_ context.Context, space string, keys []embed.Key) (map[embed.Key][]float32, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := map[embed.Key][]float32{}
	for _, key := range keys {
		if vector, ok := v.spaces[space][key]; ok {
			found[key] = vector
		}
	}
	return found, nil
}

func (v *vectorsInMemory) PutVectors(_ context.Context, space string, vectors map[embed.Key][]float32) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.spaces == nil {
		v.spaces = map[string]map[embed.Key][]float32{}
	}
	if v.spaces[space] == nil {
		v.spaces[space] = map[embed.Key][]float32{}
	}
	maps.Copy(v.spaces[space], vectors)
	return nil
}

// TestHybridQuality measures the whole of it: the real model, its vectors and
// the words. Each set reaches its floor, a little under what was reached, and no
// less than words alone.
func TestHybridQuality(t *testing.T) {
	annotated := filepath.Join("..", "..", "..", "shared", "retrieval")
	if _, err := os.Stat(annotated); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the annotated catalogues are not beside the repository (shared/retrieval)")
	}
	// The adapter was trained on these queries: with it the measure would mean little.
	model, err := embed.Open(t.Context(), embed.Settings{Kind: embed.KindHF, HFAdapter: embed.AdapterOff}, slog.New(slog.DiscardHandler))
	if errors.Is(err, models.ErrMissing) {
		const message = "the model is not on this machine: toolfinch model pull"
		if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
			t.Fatal(message)
		}
		t.Skip(message)
	} else if err != nil {
		t.Fatal(err)
	}
	defer model.Close()

	floors := map[string]float64{"livemcp": .745, "metatool": .71, "bfcl": .71} // nDCG@10
	var sets []*eval.Set
	for name := range floors {
		set := must.Get(eval.ReadSet(name, filepath.Join(annotated, name)))(t)
		sets = append(sets, set)
	}
	words, err := eval.Run(t.Context(), sets, eval.Options{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := eval.Run(t.Context(), sets, eval.Options{Limit: 10, Embedder: model, Vectors: &vectorsInMemory{}})
	if err != nil {
		t.Fatal(err)
	}
	for i, set := range hybrid.Sets {
		reached, alone, floor := *set.NDCG10, *words.Sets[i].NDCG10, floors[set.Name]
		t.Logf("%-9s nDCG@10 %.3f hybrid, %.3f by words alone", set.Name, reached, alone)
		if reached < floor || reached < alone {
			t.Errorf("%s: nDCG@10 %.3f, want %.3f, and no less than %.3f by words alone", set.Name, reached, floor, alone)
		}
	}
}
