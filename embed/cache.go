package embed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Key is the SHA-256 of a text.
type Key = [sha256.Size]byte

// ErrVectors is wrapped by errors of Vectors, which are not the embedder's.
var ErrVectors = errors.New("vectors")

// Vectors is a durable store of vectors. A space names the vectors of one embedder and one text template.
type Vectors interface {
	// Vectors returns the stored vectors of keys. The caller owns the map.
	Vectors(ctx context.Context, space string, keys []Key) (map[Key][]float32, error)
	// PutVectors stores all vectors or none; it replaces stored vectors.
	PutVectors(ctx context.Context, space string, vectors map[Key][]float32) error
}

const (
	// batchSize is how many texts are embedded between two writes: an interruption loses at most so many.
	batchSize = 64
	// putTimeout bounds one write, of up to maxPut vectors.
	putTimeout = 30 * time.Second
	maxPut     = 1000
)

// Cache embeds documents and stores their vectors, so that no text is embedded twice. It is safe for concurrent
// use.
type Cache struct {
	embedder Embedder
	space    string
	vectors  Vectors

	// Dim, if not 0, is the current dimension of the embedder; stored vectors of another dimension are embedded
	// again. Set it before the first Embed.
	Dim int

	fresh atomic.Int64

	mu       sync.Mutex // guards unstored; also held while unstored is stored
	unstored map[Key][]float32
}

// maxUnstored bounds the vectors that wait to be stored.
const maxUnstored = 20_000

// Fresh counts the texts that this Cache has embedded, because no vector of them was stored.
func (c *Cache) Fresh() int { return int(c.fresh.Load()) }

// NewCache joins an embedder and a store. The template is the version of the text template; vectors of different
// templates are separate.
func NewCache(embedder Embedder, template string, vectors Vectors) *Cache {
	return &Cache{embedder: embedder, space: embedder.ID() + " " + template, vectors: vectors}
}

// Embed returns one vector per text, in order, all of one dimension; equal texts share one, which must not be
// changed. A refused text gets nil. It embeds only texts without a stored, undamaged vector of the right dimension.
// It stores every batch at once: after an error or an interruption the next call continues from there. If vectors
// cannot be stored, it returns them together with that error, and Store retries. Progress, unless nil, is told how
// many of the different texts have a vector: after the look-up, then after each batch.
func (c *Cache) Embed(ctx context.Context, texts []string, progress func(done, total int)) ([][]float32, error) {
	keys := make([]Key, len(texts))
	distinct := make(map[Key]string, len(texts))
	order := make([]Key, 0, len(texts))
	for i, text := range texts {
		keys[i] = sha256.Sum256([]byte(text))
		if _, seen := distinct[keys[i]]; !seen {
			distinct[keys[i]] = text
			order = append(order, keys[i])
		}
	}
	have, dim, err := c.stored(ctx, order)
	if err != nil {
		return nil, err
	}
	dim = cmp.Or(c.Dim, dim)
	fresh := 0 // dimension of new vectors; 0: none yet
	var unstored error
	for refused := map[Key]bool{}; ; {
		missing := slices.DeleteFunc(without(order, have, dim), func(key Key) bool { return refused[key] })
		done := len(order) - len(missing)
		if progress != nil {
			progress(done, len(order))
		}
		if len(missing) == 0 {
			break
		}
		for batch := range slices.Chunk(missing, batchSize) {
			vectors, err := c.embed(ctx, batch, distinct, fresh)
			if err != nil {
				return nil, err
			}
			c.keep(vectors)
			if unstored == nil { // else each batch would wait for an unreachable store
				unstored = c.Store(ctx)
			}
			for _, key := range batch {
				vector := vectors[key]
				if refused[key] = vector == nil; vector == nil {
					continue
				}
				// Now the dimension is known: stored vectors of another dimension are missing too, and the next
				// round embeds them.
				fresh, dim, have[key] = len(vector), len(vector), vector
			}
			done += len(batch)
			if progress != nil && done < len(order) {
				progress(done, len(order))
			}
		}
	}
	out := make([][]float32, len(keys))
	for i, key := range keys {
		if vector := have[key]; len(vector) == dim {
			out[i] = vector
		}
	}
	return out, unstored
}

// Stored returns the stored vectors of texts, in order; nil for a text without a vector of the embedder's
// dimension. It embeds nothing.
func (c *Cache) Stored(ctx context.Context, texts []string) ([][]float32, error) {
	keys := make([]Key, len(texts))
	for i, text := range texts {
		keys[i] = sha256.Sum256([]byte(text))
	}
	have, dim, err := c.stored(ctx, keys)
	if err != nil {
		return nil, err
	}
	dim = cmp.Or(c.Dim, dim)
	out := make([][]float32, len(keys))
	for i, key := range keys {
		if vector := have[key]; len(vector) == dim {
			out[i] = vector
		}
	}
	return out, nil
}

// stored returns the undamaged stored vectors, and the dimension of most of them, 0 if there are none.
func (c *Cache) stored(ctx context.Context, keys []Key) (have map[Key][]float32, dim int, err error) {
	if len(keys) == 0 {
		return nil, 0, nil
	}
	have, err = c.vectors.Vectors(ctx, c.space, keys)
	if err != nil {
		return nil, 0, fmt.Errorf("read %w of %s: %w", ErrVectors, c.space, err)
	}
	if have == nil {
		have = make(map[Key][]float32, len(keys))
	}
	c.mu.Lock()
	for _, key := range keys {
		if vector, ok := c.unstored[key]; ok {
			have[key] = vector
		}
	}
	c.mu.Unlock()
	count := make(map[int]int)
	for key, vector := range have {
		if !isUnit(vector) {
			delete(have, key)
			continue
		}
		count[len(vector)]++
	}
	for n := range count {
		if count[n] > count[dim] || count[n] == count[dim] && n > dim {
			dim = n
		}
	}
	return have, dim, nil
}

// embed returns the vectors of one batch. They must have dim numbers, unless dim is 0.
func (c *Cache) embed(ctx context.Context, batch []Key, distinct map[Key]string, dim int) (map[Key][]float32, error) {
	texts := make([]string, len(batch))
	for i, key := range batch {
		texts[i] = distinct[key]
	}
	vectors, err := c.embedder.Embed(ctx, Document, texts)
	if err != nil {
		return nil, err
	}
	if len(vectors) != len(batch) {
		return nil, fmt.Errorf("embedder %s: %d vectors for %d texts", c.embedder.ID(), len(vectors), len(batch))
	}
	byKey := make(map[Key][]float32, len(batch))
	for i, vector := range vectors {
		if vector == nil {
			continue
		}
		dim = cmp.Or(dim, len(vector))
		if len(vector) != dim || !isUnit(vector) {
			return nil, fmt.Errorf("embedder %s: a vector of %d numbers that is not of length 1 and of dimension %d", c.embedder.ID(), len(vector), dim)
		}
		byKey[batch[i]] = vector
	}
	c.fresh.Add(int64(len(byKey)))
	return byKey, nil
}

// keep queues vectors for storing; beyond the bound they are dropped, and embedded again later.
func (c *Cache) keep(vectors map[Key][]float32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unstored == nil {
		c.unstored = make(map[Key][]float32, len(vectors))
	}
	for key, vector := range vectors {
		if _, there := c.unstored[key]; there || len(c.unstored) < maxUnstored {
			c.unstored[key] = vector
		}
	}
}

// Store stores the queued vectors, even if the caller's context has just ended.
func (c *Cache) Store(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unstored) > 0 {
		some := make(map[Key][]float32, min(len(c.unstored), maxPut))
		for key, vector := range c.unstored {
			if some[key] = vector; len(some) == maxPut {
				break
			}
		}
		if err := c.put(ctx, some); err != nil {
			return fmt.Errorf("store %w of %s: %w", ErrVectors, c.space, err)
		}
		for key := range some {
			delete(c.unstored, key)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *Cache) put(ctx context.Context, some map[Key][]float32) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putTimeout)
	defer cancel()
	return c.vectors.PutVectors(ctx, c.space, some)
}

// without returns the keys without a vector of the dimension, in order.
func without(order []Key, have map[Key][]float32, dim int) []Key {
	var missing []Key
	for _, key := range order {
		if vector, ok := have[key]; !ok || len(vector) != dim {
			missing = append(missing, key)
		}
	}
	return missing
}
