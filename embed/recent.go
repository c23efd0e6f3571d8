package embed

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"
)

// recentSize is how many queries are cached: 3 MB at 1,536 dimensions.
const recentSize = 512

// Recent embeds queries and caches the vectors of the last 512 different ones. It is safe for concurrent use.
type Recent struct {
	embedder Embedder
	vectors  *lru.Cache[string, []float32] // by text
}

// NewRecent returns a Recent with an empty cache.
func NewRecent(embedder Embedder) *Recent {
	vectors, _ := lru.New[string, []float32](recentSize) // it fails only for sizes below 1
	return &Recent{embedder, vectors}
}

// Embed returns the vectors of the texts of a query, in order; they must not be changed. Uncached texts are
// embedded together. Only the context bounds the time. Failures are not cached.
func (r *Recent) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	var missing []string
	for i, text := range texts {
		if vector, ok := r.vectors.Get(text); ok {
			out[i] = vector
		} else {
			missing = append(missing, text)
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	vectors, err := r.embedder.Embed(ctx, Query, missing)
	if err != nil {
		return nil, err
	}
	next := 0
	for i, text := range texts {
		if out[i] == nil {
			out[i] = vectors[next]
			r.vectors.Add(text, vectors[next])
			next++
		}
	}
	return out, nil
}
