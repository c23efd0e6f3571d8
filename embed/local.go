package embed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"toolfinch/embed/hf"
	"toolfinch/embed/models"
)

// local is a model that runs in this process.
type local struct {
	model *hf.Model
	id    string
}

// openLocal returns the local model that s names. Errors say what to do, and wrap ErrNoModel unless the adapter is
// unusable.
func openLocal(ctx context.Context, s Settings) (Embedder, error) {
	name := s.HFModel
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
	l := &local{model: model, id: localID(name, model.Hash())}
	if err := l.adapt(s); err != nil {
		return nil, errors.Join(fmt.Errorf("hf_adapter %s: %w", s.HFAdapter, err), model.Close())
	}
	return l, nil
}

// adapt adds the adapter that s names, if any, to the model.
func (l *local) adapt(s Settings) error {
	switch strings.ToLower(s.HFAdapter) {
	case AdapterOff:
		return nil
	case AdapterAuto, "":
		if localName(s.HFModel) != models.DefaultModel {
			return nil
		}
		err := l.model.Adapt(hf.Shipped)
		if errors.Is(err, hf.ErrOtherModel) { // the user has put
			return nil
		}
		return err
	}
	info, err := os.Stat(s.HFAdapter)
	if err != nil {
		return err
	}
	if info.Size() > maxAdapter {
		return fmt.Errorf("the file has %d bytes; an adapter has at most %d", info.Size(), maxAdapter)
	}
	data, err := os.ReadFile(s.HFAdapter)
	if err != nil {
		return err
	}
	return l.model.Adapt(data)
}

// maxAdapter bounds the file of an adapter, in bytes. toolfinch's own adapter has 0.3 MB.
const maxAdapter = 64 << 20

// localName is the name of a model without the most frequent owner.
func localName(name string) string { return strings.TrimPrefix(name, "sentence-transformers/") }

// localID names a space by the model and 64 bits of its weights' hash, which suffice to distinguish the models of
// one machine.
func localID(name, hash string) string {
	return "hf:" + localName(name) + ":" + hash[:min(16, len(hash))]
}

func (l *local) ID() string { return l.id }

func (l *local) Embed(ctx context.Context, role Role, texts []string) ([][]float32, error) {
	prompt, embed := l.model.Prompt("document"), l.model.Embed
	if role == Query {
		prompt, embed = l.model.Prompt("query"), l.model.EmbedQueries
	}
	vectors, err := embed(ctx, prompted(prompt, texts))
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
