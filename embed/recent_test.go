package embed

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"toolfinch/internal/must"
)

func TestRecent(t *testing.T) {
	embedder := &counter{dim: 4}
	recent := NewRecent(embedder)
	ask := func(text string) {
		t.Helper()
		got := must.Get(recent.Embed(t.Context(), []string{text}))(t)
		matches(t, got, []string{text}, 4)
	}
	texts := numbered(recentSize)
	for _, text := range texts {
		ask(text)
	}
	for _, text := range texts {
		ask(text)
	}
	if !slices.Equal(embedder.texts(), texts) || slices.Contains(embedder.roles, Document) {
		t.Fatalf("embedded %d texts for %d queries", len(embedder.texts()), len(texts))
	}

	// One more, and the one that was not asked for the longest is forgotten.
	ask(texts[0])
	ask("one more")
	ask(texts[0])
	ask(texts[1])
	if want := []string{"one more", texts[1]}; !slices.Equal(embedder.texts()[recentSize:], want) {
		t.Errorf("embedded %v, want %v", embedder.texts()[recentSize:], want)
	}
	if n := recent.vectors.Len(); n != recentSize {
		t.Errorf("%d are remembered", n)
	}
}

// The clauses of a query are embedded in one step, those that are new alone.
func TestRecentEmbedsTogether(t *testing.T) {
	embedder := &counter{dim: 4}
	recent := NewRecent(embedder)
	for _, texts := range [][]string{{"b"}, {"a", "b", "c"}} {
		got := must.Get(recent.Embed(t.Context(), texts))(t)
		matches(t, got, texts, 4)
	}
	if want := []string{"b", "a", "c"}; !slices.Equal(embedder.texts(), want) || len(embedder.roles) != 2 {
		t.Errorf("embedded %v in %d steps, want %v in 2", embedder.texts(), len(embedder.roles), want)
	}
}

func TestRecentForgetsFailures(t *testing.T) {
	broken := errors.New("broken")
	embedder := &counter{dim: 4, fail: func(batch int) error {
		if batch == 1 {
			return broken
		}
		return nil
	}}
	recent := NewRecent(embedder)
	if _, err := recent.Embed(t.Context(), []string{"a"}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := recent.Embed(t.Context(), []string{"a"}); err != nil {
		t.Errorf("the failure is remembered: %v", err)
	}
}

func TestRecentConcurrently(t *testing.T) {
	recent, texts := NewRecent(&counter{dim: 4}), numbered(recentSize+50)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, text := range texts {
				if _, err := recent.Embed(t.Context(), []string{text}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if recent.vectors.Len() != recentSize {
		t.Errorf("%d are remembered", recent.vectors.Len())
	}
}
