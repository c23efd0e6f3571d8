package embed

import (
	"context"
	"fmt"
	"strings"

	"toolfinch/embed/hf"
	"toolfinch/embed/models"
)

// local is a model that runs in this process.
type local struct {
	model *hf.Model
	id    string
}

// openLocal returns the named model. Errors wrap ErrNoModel, and say what to do.
func openLocal(ctx context.Context, name string) (Embedder, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open embedding model %s: %w", name, err)
	}
	dir, err := models.Locate(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoModel, err)
	}
	model, err := hf.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoModel, err)
	}
	return &local{model: model, id: localID(name, model.Hash())}, nil
}

// localID names a space by the model and its weights: 64 bits of their hash tell
// any two apart that one machine ever has.
func localID(name, hash string) string {
	return "hf:" + strings.TrimPrefix(name, "sentence-transformers/") + ":" + hash[:min(16, len(hash))]
}

func (l *local) ID() string { return l.id }

func (l *local) Embed(ctx context.Context, role Role, texts []string) ([][]float32, error) {
	prompt := l.model.Prompt("document")
	if role == Query {
		prompt = l.model.Prompt("query")
	}
	vectors, err := l.model.Embed(ctx, prompted(prompt, texts))
	if err != nil {
		return nil, fmt.Errorf("embed with %s: %w", l.id, err)
	}
	return vectors, nil
}

// prompted puts the prompt before each text.
func prompted(prompt string, texts []string) []string {
	if prompt == "" {
		return texts
	}
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = prompt + text
	}
	return out
}

func (l *local) Close() error { return l.model.Close() }
