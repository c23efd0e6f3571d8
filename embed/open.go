package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"toolfinch/embed/models"
)

// Open returns the embedder that s selects; nil for searching by words alone: with BM25, and with AUTO if there is
// no local model, which is logged. The error wraps ErrNoModel if the selected local model cannot be used. It makes
// no connection before the first text.
func Open(ctx context.Context, s Settings, log *slog.Logger) (Embedder, error) {
	s.HFModel = cmp.Or(s.HFModel, models.DefaultModel)
	switch s.Kind {
	case KindBM25:
		return nil, nil
	case KindHF:
		return openLocal(ctx, s)
	case KindOpenAI:
		endpoint, err := openRemote(s.OpenAI, log)
		if err != nil {
			return nil, fmt.Errorf("embedder %s: %w", KindOpenAI, err)
		}
		return endpoint, nil
	case KindAuto, "":
		model, err := openLocal(ctx, s)
		if errors.Is(err, models.ErrMissing) {
			log.Info("tools are searched by words alone", "reason", err) // the error says how to get the model
			return nil, nil
		}
		return model, err
	default:
		return nil, fmt.Errorf("embedder %q must be %s, %s, %s or %s", s.Kind, KindAuto, KindBM25, KindHF, KindOpenAI)
	}
}
