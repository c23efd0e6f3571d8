package embed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/must"
)

// counter is an embedder that notes what it was asked. Its vectors have dim
// numbers and tell texts apart.
type counter struct {
	dim  int
	fail func(batch int) error // asked before each batch, from 1; nil never fails

	mu      sync.Mutex // guards the two below
	batches [][]string
	roles   []Role
}

func (c *counter) ID() string   { return "counter:1" }
func (c *counter) Close() error { return nil }

func (c *counter) Embed(ctx context.Context, role Role, texts []string) ([][]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.batches = append(c.batches, slices.Clone(texts))
	c.roles = append(c.roles, role)
	if c.fail != nil {
		if err := c.fail(len(c.batches)); err != nil {
			return nil, err
		}
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = sample(text, c.dim)
	}
	return out, nil
}

func (c *counter) texts() []string { return slices.Concat(c.batches...) }

// sample is the vector of a text: one of a million directions.
func sample(text string, dim int) []float32 {
	sum := sha256.Sum256([]byte(text))
	v := make([]float32, dim)
	for i := range v {
		v[i] = float32(sum[i]) + 1
	}
	normalize(v)
	return v
}

// memory is a store without a disk.
type memory struct {
	mu     sync.Mutex // guards the rest
	spaces map[string]map[Key][]float32
	puts   int
	getErr error
	putErr error
}

func (m *memory) Vectors(_ context.Context, space string, keys []Key) (map[Key][]float32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[Key][]float32)
	for _, key := range keys {
		if v, ok := m.spaces[space][key]; ok {
			found[key] = v
		}
	}
	return found, m.getErr
}

func (m *memory) PutVectors(ctx context.Context, space string, vectors map[Key][]float32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.putErr != nil {
		return m.putErr
	}
	if m.spaces == nil {
		m.spaces = make(map[string]map[Key][]float32)
	}
	if m.spaces[space] == nil {
		m.spaces[space] = make(map[Key][]float32)
	}
	maps.Copy(m.spaces[space], vectors)
	m.puts++
	return nil
}

// put stores a vector of a test's making.
func (m *memory) put(t *testing.T, space, text string, v []float32) {
	t.Helper()
	must.Do(t, m.PutVectors(t.Context(), space, map[Key][]float32{sha256.Sum256([]byte(text)): v}))
}

func numbered(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("text %d", i)
	}
	return texts
}

// matches reports an answer that is not the vector of each text, in order.
func matches(t *testing.T, got [][]float32, texts []string, dim int) {
	t.Helper()
	want := make([][]float32, len(texts))
	for i, text := range texts {
		want[i] = sample(text, dim)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCacheEmbedsNothingTwice(t *testing.T) {
	store, embedder := &memory{}, &counter{dim: 4}
	texts := numbered(2*batchSize + 10)
	doubled := slices.Concat(texts, texts[:5], texts[:1])
	var heard []string
	progress := func(done, total int) { heard = append(heard, fmt.Sprintf("%d/%d", done, total)) }

	got := must.Get(NewCache(embedder, "v1", store).Embed(t.Context(), doubled, progress))(t)
	matches(t, got, doubled, 4)
	if !reflect.DeepEqual(embedder.texts(), texts) || len(embedder.batches) != 3 || store.puts != 3 {
		t.Errorf("%d texts in %d batches, stored in %d", len(embedder.texts()), len(embedder.batches), store.puts)
	}
	if slices.Contains(embedder.roles, Query) {
		t.Error("a tool was embedded as a query")
	}
	if want := []string{"0/138", "64/138", "128/138", "138/138"}; !slices.Equal(heard, want) {
		t.Errorf("progress %v, want %v", heard, want)
	}

	// After a restart nothing is embedded, and a changed text only itself.
	heard, embedder = nil, &counter{dim: 4}
	cache := NewCache(embedder, "v1", store)
	got, err := cache.Embed(t.Context(), texts, progress)
	if err != nil || len(embedder.batches) != 0 {
		t.Errorf("restart: %d batches, %v", len(embedder.batches), err)
	}
	if n := cache.Fresh(); n != 0 {
		t.Errorf("restart: %d texts count as embedded", n)
	}
	matches(t, got, texts, 4)
	if want := []string{"138/138"}; !slices.Equal(heard, want) {
		t.Errorf("progress of a restart: %v", heard)
	}
	texts[7] = "changed"
	if got, err = cache.Embed(t.Context(), texts, nil); err != nil || !slices.Equal(embedder.texts(), []string{"changed"}) {
		t.Errorf("a change: embedded %v, %v", embedder.texts(), err)
	}
	if n := cache.Fresh(); n != 1 {
		t.Errorf("a change: %d texts count as embedded", n)
	}
	matches(t, got, texts, 4)

	// Another template shares nothing with this one, and takes nothing from it.
	if _, err := NewCache(embedder, "v2", store).Embed(t.Context(), texts[:1], nil); err != nil || len(embedder.batches) != 2 {
		t.Errorf("another template: %d batches, %v", len(embedder.batches), err)
	}
	if want := []string{"counter:1 v1", "counter:1 v2"}; !slices.Equal(slices.Sorted(maps.Keys(store.spaces)), want) {
		t.Errorf("spaces %v", slices.Collect(maps.Keys(store.spaces)))
	}
	if got, err := cache.Embed(t.Context(), nil, nil); err != nil || len(got) != 0 {
		t.Errorf("no texts: %v, %v", got, err)
	}
}

// Whatever ends the work, the batches before it stay.
func TestCacheLosesOneBatchAtMost(t *testing.T) {
	texts := numbered(3 * batchSize)
	t.Run("the embedder fails", func(t *testing.T) {
		store, broken := &memory{}, errors.New("broken")
		embedder := &counter{dim: 4, fail: func(batch int) error {
			if batch == 2 {
				return broken
			}
			return nil
		}}
		cache := NewCache(embedder, "", store)
		if _, err := cache.Embed(t.Context(), texts, nil); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		embedder.batches = [][]string{nil, nil} // past the failure
		if _, err := cache.Embed(t.Context(), texts, nil); err != nil || !slices.Equal(embedder.texts(), texts[batchSize:]) {
			t.Errorf("embedded %d texts, %v", len(embedder.texts()), err)
		}
	})
	t.Run("the caller gives up", func(t *testing.T) {
		store := &memory{}
		ctx, cancel := context.WithCancel(t.Context())
		embedder := &counter{dim: 4, fail: func(batch int) error {
			if batch == 2 {
				cancel() // while the second batch is worked on: it is paid for
			}
			return nil
		}}
		cache := NewCache(embedder, "", store)
		if _, err := cache.Embed(ctx, texts, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		embedder.batches = nil
		if _, err := cache.Embed(t.Context(), texts, nil); err != nil || !slices.Equal(embedder.texts(), texts[2*batchSize:]) {
			t.Errorf("embedded %d texts, %v", len(embedder.texts()), err)
		}
	})
	t.Run("the store fails", func(t *testing.T) {
		full := errors.New("disk full")
		store := &memory{putErr: full}
		cache := NewCache(&counter{dim: 4}, "", store)
		got, err := cache.Embed(t.Context(), texts, nil)
		if !errors.Is(err, full) || len(got) != len(texts) || slices.ContainsFunc(got, func(v []float32) bool { return v == nil }) {
			t.Errorf("writing: %d vectors, %v", len(got), err)
		}
		if err := cache.Store(t.Context()); !errors.Is(err, full) {
			t.Errorf("writing again: %v", err)
		}
		if store.putErr = nil; cache.Store(t.Context()) != nil {
			t.Error("what waited is not stored")
		}
		again := &counter{dim: 4}
		if _, err := NewCache(again, "", store).Embed(t.Context(), texts, nil); err != nil || len(again.batches) > 0 {
			t.Errorf("after the store came back %d batches are embedded, %v", len(again.batches), err)
		}
		if _, err := NewCache(&counter{dim: 4}, "", &memory{getErr: full}).Embed(t.Context(), texts, nil); !errors.Is(err, full) {
			t.Errorf("reading: %v", err)
		}
	})
}

// What is stored and unsound is embedded anew, and replaced.
func TestCacheRepairs(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, bad := range map[string][]float32{
		"shorter":         {1, 0, 0},
		"longer":          {1, 0, 0, 0, 0},
		"empty":           {},
		"not a number":    {nan, 0, 0, 1},
		"infinite":        {inf, 0, 0, 0},
		"zero":            {0, 0, 0, 0},
		"not normalized":  {3, 4, 0, 0},
		"too short a one": {0.5, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store, embedder := &memory{}, &counter{dim: 4}
			cache, texts := NewCache(embedder, "v", store), numbered(3)
			for i, text := range texts {
				store.put(t, cache.space, text, sample(text, 4))
				if i == 1 {
					store.put(t, cache.space, text, bad)
				}
			}
			for range 2 { // the second time it is sound
				got := must.Get(cache.Embed(t.Context(), texts, nil))(t)
				matches(t, got, texts, 4)
			}
			if want := []string{texts[1]}; !slices.Equal(embedder.texts(), want) {
				t.Errorf("embedded %v, want %v", embedder.texts(), want)
			}
		})
	}
}

// The embedder's word about its dimension counts more than that of the store.
func TestCacheFollowsTheEmbedder(t *testing.T) {
	store, embedder := &memory{}, &counter{dim: 4}
	cache, texts := NewCache(embedder, "v", store), numbered(4)
	for _, text := range texts[:3] {
		store.put(t, cache.space, text, sample(text, 2))
	}
	got := must.Get(cache.Embed(t.Context(), texts, nil))(t)
	matches(t, got, texts, 4)
	if want := []string{texts[3], texts[0], texts[1], texts[2]}; !slices.Equal(embedder.texts(), want) {
		t.Errorf("embedded %v, want %v", embedder.texts(), want)
	}
}

// odd answers in a way that no embedder may.
type odd struct {
	counter
	answer func(call int, texts []string) [][]float32
	calls  int
}

func (o *odd) Embed(_ context.Context, _ Role, texts []string) ([][]float32, error) {
	o.calls++
	return o.answer(o.calls, texts), nil
}

func TestCacheStoresNothingUnsound(t *testing.T) {
	same := func(texts []string, v ...float32) [][]float32 { return slices.Repeat([][]float32{v}, len(texts)) }
	for name, test := range map[string]struct {
		answer func(call int, texts []string) [][]float32
		want   string
	}{
		"too few":     {func(_ int, texts []string) [][]float32 { return same(texts[1:], 1, 0) }, "63 vectors for 64 texts"},
		"none":        {func(int, []string) [][]float32 { return nil }, "0 vectors for 64 texts"},
		"empty":       {func(_ int, texts []string) [][]float32 { return same(texts, []float32{}...) }, "0 numbers"},
		"not finite":  {func(_ int, texts []string) [][]float32 { return same(texts, float32(math.NaN())) }, "1 numbers"},
		"two at once": {func(_ int, texts []string) [][]float32 { return append(same(texts[1:], 1, 0), []float32{1}) }, "1 numbers"},
		"two in a row": {func(call int, texts []string) [][]float32 {
			return same(texts, append([]float32{1}, make([]float32, call)...)...)
		}, "3 numbers"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &memory{}
			_, err := NewCache(&odd{answer: test.answer}, "", store).Embed(t.Context(), numbered(2*batchSize), nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want it to say %q", err, test.want)
			}
			for _, vectors := range store.spaces {
				for _, v := range vectors {
					if !isUnit(v) || len(v) != 2 {
						t.Fatalf("stored %v", v)
					}
				}
			}
		})
	}
}

func TestCacheConcurrently(t *testing.T) {
	cache, texts := NewCache(&counter{dim: 4}, "", &memory{}), numbered(100)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			mine := texts[10*i:]
			got, err := cache.Embed(t.Context(), mine, nil)
			if err != nil {
				t.Error(err)
				return
			}
			matches(t, got, mine, 4)
		})
	}
	all.Wait()
}

func BenchmarkCacheStored(b *testing.B) {
	store, texts := &memory{}, numbered(5000)
	cache := NewCache(&counter{dim: 32}, "", store)
	must.Get(cache.Embed(b.Context(), texts, nil))(b)
	for b.Loop() {
		must.Get(cache.Embed(b.Context(), texts, nil))(b)
	}
}
