package embed

import (
	"container/list"
	"context"
	"sync"
)

// recentSize is how many queries are remembered: 3 MB at 1,536 dimensions.
const recentSize = 512

// Recent embeds queries and remembers the vectors of the last 512 different
// ones. It is safe for concurrent use.
type Recent struct {
	embedder Embedder

	mu     sync.Mutex // guards the two below; never held while a query is embedded
	byText map[string]*list.Element
	order  *list.List // of recentQuery, the last used first
}

type recentQuery struct {
	text   string
	vector []float32
}

// NewRecent returns a Recent that remembers nothing yet.
func NewRecent(embedder Embedder) *Recent {
	return &Recent{embedder: embedder, byText: make(map[string]*list.Element), order: list.New()}
}

// Embed returns the vectors of the texts of a query, in order; they must not be
// changed. Those not remembered are embedded together. Only the context bounds
// the time it takes. A failure is not remembered.
func (r *Recent) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	var missing []string
	for i, text := range texts {
		if out[i] = r.find(text); out[i] == nil {
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
			r.remember(text, vectors[next])
			next++
		}
	}
	return out, nil
}

func (r *Recent) find(text string) []float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	element := r.byText[text]
	if element == nil {
		return nil
	}
	r.order.MoveToFront(element)
	return element.Value.(recentQuery).vector
}

func (r *Recent) remember(text string, vector []float32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byText[text] != nil { // another caller was faster
		return
	}
	r.byText[text] = r.order.PushFront(recentQuery{text, vector})
	if r.order.Len() > recentSize {
		oldest := r.order.Remove(r.order.Back()).(recentQuery)
		delete(r.byText, oldest.text)
	}
}
