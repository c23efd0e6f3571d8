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

// Query returns the vector of a query, which must not be changed. Only the
// context bounds the time it takes. A failure is not remembered.
func (r *Recent) Query(ctx context.Context, text string) ([]float32, error) {
	if vector := r.find(text); vector != nil {
		return vector, nil
	}
	vectors, err := r.embedder.Embed(ctx, Query, []string{text})
	if err != nil {
		return nil, err
	}
	r.remember(text, vectors[0])
	return vectors[0], nil
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
