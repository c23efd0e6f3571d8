package embed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"toolfinch/embed/models"
)

// Open returns the embedder that s asks for, nil for searching by words alone:
// with BM25, and with AUTO when there is no local model, which is logged. The
// error wraps ErrNoModel when a local model is wanted and cannot be used. No
// connection is made before the first text.
func Open(ctx context.Context, s Settings, log *slog.Logger) (Embedder, error) {
	if s.HFModel == "" {
		s.HFModel = models.DefaultModel
	}
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
			log.Info("tools are searched by words alone", "reason", err) // which says how to get the model
			return nil, nil
		}
		return model, err
	default:
		return nil, fmt.Errorf("embedder %q must be %s, %s, %s or %s", s.Kind, KindAuto, KindBM25, KindHF, KindOpenAI)
	}
}
