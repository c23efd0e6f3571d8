package hf

import (
	"context"
	"math"
	"testing"
)

// The similarities that the model's card prints.
func TestModelCard(t *testing.T) {
	m := openReal(t)
	v, err := m.Embed(context.Background(), []string{
		"The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.",
	})
	if err != nil {
		t.Fatal(err)
	}
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
