package hf

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"toolfinch/internal/must"
)

// The similarities that the model's card prints.
func TestModelCard(t *testing.T) {
	m := openReal(t)
	v := must.Get(m.Embed(context.Background(), []string{
		"The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.",
	}))(t)
	for _, pair := range []struct {
		a, b int
		want float64
	}{{0, 1, 0.6660}, {0, 2, 0.1046}, {1, 2, 0.1411}} {
		var cosine float64
		for i := range v[pair.a] {
			cosine += float64(v[pair.a][i]) * float64(v[pair.b][i])
		}
		if math.Abs(cosine-pair.want) > 1e-3 {
			t.Errorf("sentences %d and %d: %.4f, want %.4f", pair.a, pair.b, cosine, pair.want)
		}
	}
}

// Close waits for who still embeds; afterwards there is an error, not a crash.
func TestCloseBesideEmbed(t *testing.T) {
	m := must.Get(Open(realModel(t)))(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				switch _, err := m.Embed(context.Background(), []string{"find a file"}); {
				case errors.Is(err, ErrClosed):
					return
				case err != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	if _, err := m.Embed(context.Background(), []string{"find a file"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
