package inbound

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTimesOfTokens(t *testing.T) {
	for value, want := range map[any]int64{1.0: 1, 1e3: 1000, 1.9: 1, 0.0: 0, float64(1 << 40): 1 << 40} {
		if got, ok := timeOf(value); !ok || got.Unix() != want {
			t.Errorf("%v: %v, %v", value, got.Unix(), ok)
		}
	}
	for _, value := range []any{nil, "1", true, -1.0, math.NaN(), math.Inf(1), math.Inf(-1), float64(1<<40 + 1)} {
		if got, ok := timeOf(value); ok || got != (time.Time{}) {
			t.Errorf("%v: %v", value, got)
		}
	}
}

func TestClaimsAreFoundByNameElseByPath(t *testing.T) {
	claims := map[string]any{"a.b": "plain", "a": map[string]any{"b": "deep", "c": map[string]any{"d": []any{"y", 1.0, "", "x", "y"}}}, "text": "b a b"}
	for name, want := range map[string]any{"a.b": "plain", "a.c.d": claims["a"].(map[string]any)["c"].(map[string]any)["d"], "a.x": nil, "text.b": nil, "x": nil, "text": "b a b"} {
		if got := claim(claims, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	many := make([]any, maxNames+1)
	for i := range many {
		many[i] = fmt.Sprintf("%04d", i)
	}
	for _, test := range []struct {
		value any
		words bool
		want  string
	}{
		{claim(claims, "a.c.d"), false, "x y"}, {claims["text"], true, "a b"}, {claims["text"], false, "b a b"}, {7.0, true, ""}, {nil, false, ""},
	} {
		if got := strings.Join(namesIn(test.value, test.words), " "); got != test.want {
			t.Errorf("%v: %q, want %q", test.value, got, test.want)
		}
	}
	if got := namesIn(many, false); len(got) != maxNames || got[0] != "0000" {
		t.Errorf("%d names", len(got))
	}
}
