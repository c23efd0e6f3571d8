// Package hf owns sentence-transformers models of the BERT family on the CPU: text
// in, unit vectors out. It reads the files of a model's folder and never uses the
// network.
package hf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Model is an open model. Its methods are safe for concurrent use.
type Model struct {
	tokens  *tokenizer
	encoder *encoder
	weights *weights
	prompts map[string]string
	hash    string

	mu     sync.RWMutex // read-held while embedding, so that Close waits for it; guards closed
	closed bool
}

// Open reads a model from its folder: config.json, model.safetensors,
// tokenizer.json or vocab.txt and, where they are, modules.json,
// 1_Pooling/config.json, sentence_bert_config.json and
// config_sentence_transformers.json. Anything but a BERT encoder with mean or
// CLS pooling is an error that says so. The caller closes the model.
func Open(dir string) (*Model, error) {
	m, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", filepath.Base(dir), err)
	}
	return m, nil
}

func open(dir string) (_ *Model, err error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	pool, err := readPooling(dir)
	if err != nil {
		return nil, err
	}
	limit, err := readLimit(dir, c.Positions)
	if err != nil {
		return nil, err
	}
	m := &Model{}
	var sentences struct{ Prompts map[string]string }
	if err := readOptional(filepath.Join(dir, "config_sentence_transformers.json"), &sentences); err != nil {
		return nil, err
	}
	m.prompts = sentences.Prompts
	m.weights, err = openWeights(filepath.Join(dir, "model.safetensors"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; weights in several files or another format cannot be read", err)
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.weights.file.Close())
		}
	}()

	var work errgroup.Group
	work.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	work.Go(func() (err error) {
		m.hash, err = m.sum(dir, fmt.Sprint(pool, limit))
		return err
	})
	work.Go(func() (err error) {
		m.tokens, err = openTokenizer(filepath.Join(dir, "tokenizer.json"))
		return err
	})
	m.encoder, err = newEncoder(c, pool, limit, m.weights, &work)
	if err := errors.Join(err, work.Wait()); err != nil {
		return nil, err
	}
	for text, id := range m.tokens.vocabulary {
		if id < 0 || int(id) >= c.Vocabulary {
			return nil, fmt.Errorf("tokenizer: %q has number %d, and the weights have %d words", text, id, c.Vocabulary)
		}
	}
	return m, nil
}

// sum hashes everything that vectors depend on.
func (m *Model) sum(dir, settings string) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(m.weights.file, 0, 1<<62)); err != nil {
		return "", fmt.Errorf("weights: %w", err)
	}
	for _, name := range []string{"config.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json", "config_sentence_transformers.json"} {
		if err := addFile(h, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	fmt.Fprint(h, settings)
	return hex.EncodeToString(h.Sum(nil)), nil
}

func addFile(h hash.Hash, name string) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintf(h, "%d:", len(text))
	h.Write(text)
	return nil
}

// Dim is the length of a vector.
func (m *Model) Dim() int { return m.encoder.hidden }

// Hash is the SHA-256, in hex, of the files that vectors depend on.
func (m *Model) Hash() string { return m.hash }

// Prompt returns the text that the model wants before a text of the kind "query" or
// "document"; "" for most models.
func (m *Model) Prompt(kind string) string { return m.prompts[kind] }

// Tokens are the numbers of the tokens that the model reads of the text.
func (m *Model) Tokens(text string) []int32 { return m.tokens.encode(text, m.encoder.limit) }

// ErrClosed is returned by Embed of a closed Model.
var ErrClosed = errors.New("model is closed")

// Close waits for running calls of Embed and frees the model. Closing twice is
// fine.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.encoder.members.Wait()
	return m.weights.file.Close()
}

// unitTokens is how many tokens are taken through the model together: enough
// for a kernel to be at its best, few enough for the second-level cache.
const unitTokens = 128

// Embed returns the vector of each text, of length 1, in order. Many texts
// share all processors, a text alone has them for itself. The error is the
// context's, ErrClosed, or that the weights could not be read.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return m.embed(ctx, m.encoder.layers, texts)
}

// EmbedQueries is Embed with the adapter, if there is one.
func (m *Model) EmbedQueries(ctx context.Context, texts []string) ([][]float32, error) {
	return m.embed(ctx, m.encoder.queries, texts)
}

func (m *Model) embed(ctx context.Context, layers []layer, texts []string) ([][]float32, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, ErrClosed
	}
	out := make([][]float32, len(texts))
	all := make([]sequence, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all[i] = sequence{index: i, tokens: m.tokens.encode(text, m.encoder.limit)}
	}
	processors := runtime.GOMAXPROCS(0)
	units := share(all)
	goroutines := max(1, processors/max(1, len(units)))
	var work errgroup.Group
	work.SetLimit(processors)
	for _, unit := range units {
		work.Go(func() error { return m.encoder.run(ctx, layers, unit, goroutines, out) })
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// share puts sequences into units of at most unitTokens, unless one alone is
// longer.
func share(all []sequence) [][]sequence {
	var units [][]sequence
	size := 0
	for _, s := range all {
		if len(units) == 0 || size+len(s.tokens) > unitTokens {
			units, size = append(units, nil), 0
		}
		units[len(units)-1] = append(units[len(units)-1], s)
		size += len(s.tokens)
	}
	return units
}
