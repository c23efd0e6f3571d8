package embed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"toolfinch/embed/models"
	"toolfinch/internal/must"
)

// tiny is a model of a few kilobytes. It has prompts for queries.
const tiny = "hf/testdata/tiny-f32"

// keep makes a folder of models with the tiny one under each of the names.
func keep(t *testing.T, names ...string) {
	t.Helper()
	t.Setenv("MCPPROXY_MODELS_DIR", t.TempDir())
	for _, name := range names {
		must.Do(t, models.Pull(t.Context(), name, tiny, func(string) {}))
	}
}

// damage changes the size of a model's weights.
func damage(t *testing.T, name string) {
	t.Helper()
	dir := must.Get(models.Locate(name))(t)
	must.Do(t, os.Truncate(filepath.Join(dir, "model.safetensors"), 100))
}

func TestOpen(t *testing.T) {
	const name = models.DefaultModel
	tests := []struct {
		name     string
		settings Settings
		kept     bool
		damaged  bool
		id       string // how it begins; "" for no embedder
		missing  bool   // the error wraps ErrNoModel
		err      string
		log      string
	}{
		{name: "BM25", settings: Settings{Kind: KindBM25}, kept: true},
		{name: "HF", settings: Settings{Kind: KindHF}, kept: true, id: "hf:all-MiniLM-L6-v2:"},
		{name: "HF by its full name", settings: Settings{Kind: KindHF, HFModel: "sentence-transformers/" + name}, kept: true, id: "hf:all-MiniLM-L6-v2:"},
		{name: "HF, missing", settings: Settings{Kind: KindHF}, missing: true, err: "toolfinch model pull"},
		{name: "HF, another missing", settings: Settings{Kind: KindHF, HFModel: "org/other"}, kept: true, missing: true, err: "toolfinch model pull org/other"},
		{name: "HF, damaged", settings: Settings{Kind: KindHF}, kept: true, damaged: true, missing: true, err: "damaged"},
		{name: "HF, an adapter that is missing", settings: Settings{Kind: KindHF, HFAdapter: "no/file"}, kept: true, err: "hf_adapter no/file"},
		{name: "HF, an adapter of another model", settings: Settings{Kind: KindHF, HFAdapter: "hf/adapter.safetensors"}, kept: true, err: "made for another model"},
		{name: "HF, no name", settings: Settings{Kind: KindHF, HFModel: "../x"}, missing: true, err: "../x"},
		{name: "AUTO", settings: Settings{}, kept: true, id: "hf:all-MiniLM-L6-v2:"},
		{name: "AUTO, missing", settings: Settings{Kind: KindAuto}, log: "toolfinch model pull"},
		{name: "AUTO, damaged", settings: Settings{Kind: KindAuto}, kept: true, damaged: true, missing: true, err: "damaged"},
		{name: "OPENAI", settings: Settings{Kind: KindOpenAI, OpenAI: OpenAI{APIKey: "k"}}, id: "openai:text-embedding-3-small:https://api.openai.com/v1"},
		{name: "OPENAI, a server", settings: Settings{Kind: KindOpenAI, OpenAI: OpenAI{BaseURL: "http://me:secret@h:1/v1/", Model: "m", Dimensions: 8}}, id: "openai:m:http://h:1/v1:8"},
		{name: "OPENAI, neither", settings: Settings{Kind: KindOpenAI}, err: "OPENAI_BASE_URL"},
		{name: "OPENAI, no URL", settings: Settings{Kind: KindOpenAI, OpenAI: OpenAI{BaseURL: "secret:1"}}, err: "is not an http or https URL"},
		{name: "no kind", settings: Settings{Kind: "BM52"}, err: `embedder "BM52" must be`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keep(t)
			if tt.kept {
				keep(t, name)
			}
			if tt.damaged {
				damage(t, name)
			}
			var log bytes.Buffer
			got, err := Open(t.Context(), tt.settings, slog.New(slog.NewTextHandler(&log, nil)))
			if got != nil {
				defer got.Close()
			}
			if (got != nil) != (tt.id != "") || got != nil && !strings.HasPrefix(got.ID(), tt.id) {
				t.Errorf("got %v, want ID %s", got, tt.id)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrNoModel) != tt.missing {
				t.Errorf("got error %v, want it to say %q", err, tt.err)
			}
			if strings.Contains(fmt.Sprint(err, got), "secret") {
				t.Errorf("a secret is out: %v", err)
			}
			if lines := strings.Count(log.String(), "\n"); !strings.Contains(log.String(), tt.log) || (lines == 1) != (tt.log != "") || lines > 1 {
				t.Errorf("log:\n%s", log.String())
			}
		})
	}
}

// The local model finds what is meant, with its prompts before the texts.
func TestLocal(t *testing.T) {
	keep(t, "org/tiny")
	e := must.Get(Open(t.Context(), Settings{Kind: KindHF, HFModel: "org/tiny"}, slog.New(slog.DiscardHandler)))(t)
	defer e.Close()
	texts := numbered(2*batchSize + 1)
	documents, err := e.Embed(t.Context(), Document, texts)
	if err != nil || len(documents) != len(texts) {
		t.Fatalf("%d vectors: %v", len(documents), err)
	}
	for i, v := range documents {
		if !isUnit(v) || len(v) != len(documents[0]) {
			t.Fatalf("vector %d is %v", i, v)
		}
	}
	l := e.(*local)
	prompt := l.model.Prompt("query")
	if prompt == "" {
		t.Fatal("the tiny model has no prompt: this test tests nothing")
	}
	query := must.Get(e.Embed(t.Context(), Query, texts[:1]))(t)
	if want, err := l.model.Embed(t.Context(), []string{prompt + texts[0]}); err != nil || !reflect.DeepEqual(query, want) {
		t.Errorf("the query's vector is not that of prompt and query: %v", err)
	}
	if got, err := e.Embed(t.Context(), Query, nil); err != nil || len(got) != 0 {
		t.Errorf("nothing: %v, %v", got, err)
	}
}

// With real weights, what means the same is near though it shares no word.
func TestDefaultModel(t *testing.T) {
	e, err := Open(t.Context(), Settings{Kind: KindHF}, slog.New(slog.DiscardHandler))
	if errors.Is(err, ErrNoModel) && os.Getenv("TOOLFINCH_TEST_REQUIRE") != "all" {
		t.Skipf("needs the default model: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	tools := must.Get(NewCache(e, "", &memory{}).Embed(t.Context(), []string{"Create an issue in a repository", "Read the current weather of a city"}, nil))(t)
	queries := must.Get(NewRecent(e).Embed(t.Context(), []string{"report a bug"}))(t)
	if bug, rain := dot(queries[0], tools[0]), dot(queries[0], tools[1]); bug < rain+0.1 {
		t.Errorf("a bug is %.3f near an issue and %.3f near the weather", bug, rain)
	}
}

// An adapter changes queries and nothing else: stored vectors of tools stay good.
func TestAdapter(t *testing.T) {
	own := filepath.Join("hf", "testdata", "tiny-f16", "adapter.safetensors")
	for _, c := range []struct {
		name, model, adapter string
		changes              bool
	}{
		{"the default model has one", models.DefaultModel, "", true},
		{"by its full name, too", "sentence-transformers/" + models.DefaultModel, AdapterAuto, true},
		{"off", models.DefaultModel, AdapterOff, false},
		{"other models have none", "org/tiny", AdapterAuto, false},
		{"but may have their owner's", "org/tiny", own, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.model, models.DefaultModel) {
				if _, err := models.Locate(c.model); errors.Is(err, models.ErrMissing) && os.Getenv("TOOLFINCH_TEST_REQUIRE") != "all" {
					t.Skip(err)
				}
			} else {
				keep(t)
				must.Do(t, models.Pull(t.Context(), c.model, filepath.Dir(own), func(string) {}))
			}
			open := func(adapter string) Embedder {
				e := must.Get(Open(t.Context(), Settings{Kind: KindHF, HFModel: c.model, HFAdapter: adapter}, slog.New(slog.DiscardHandler)))(t)
				t.Cleanup(func() { e.Close() })
				return e
			}
			embed := func(e Embedder, role Role) []float32 {
				vectors := must.Get(e.Embed(t.Context(), role, []string{"create a tool"}))(t)
				return vectors[0]
			}
			plain, adapted := open(AdapterOff), open(c.adapter)
			if plain.ID() != adapted.ID() {
				t.Errorf("the space is %s, and was %s: all tools would be embedded again", adapted.ID(), plain.ID())
			}
			if similar := dot(embed(plain, Document), embed(adapted, Document)); similar < 1-1e-6 {
				t.Errorf("a document has moved: cosine %f", similar)
			}
			if similar := dot(embed(plain, Query), embed(adapted, Query)); (similar < 1-1e-4) != c.changes {
				t.Errorf("the cosine of a query with and without adapter is %f", similar)
			}
		})
	}
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

func TestNormalize(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, tt := range []struct {
		v  []float32
		ok bool
	}{
		{[]float32{3, 4}, true},
		{[]float32{1e-45, 0}, true},
		{[]float32{math.MaxFloat32, -math.MaxFloat32}, true},
		{nil, false},
		{[]float32{0, 0}, false},
		{[]float32{1, inf}, false},
		{[]float32{1, float32(math.NaN())}, false},
	} {
		text := fmt.Sprint(tt.v)
		if ok := normalize(tt.v); ok != tt.ok || ok && !isUnit(tt.v) {
			t.Errorf("%s: %v, %v", text, ok, tt.v)
		}
	}
}

// Whoever prints settings prints no key.
func TestSettingsHideTheKey(t *testing.T) {
	s := Settings{Kind: KindOpenAI, OpenAI: OpenAI{APIKey: "hunter2", Model: "m"}}
	asJSON := must.Get(json.Marshal(s))(t)
	e := must.Get(Open(t.Context(), s, slog.New(slog.NewTextHandler(io.Discard, nil))))(t)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", s, &s, s, s.OpenAI.APIKey), string(asJSON), fmt.Sprintf("%v %+v %#v", e, e, e)} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("the key is out: %s", text)
		}
	}
}
