package retrieve

import (
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestMissingWords(t *testing.T) {
	def := must.Get(tool.ParseDef("memory", []byte(`{"name":"add_observations","description":"Add new observations to existing entities."}`)))(t)
	add := &tool.Tool{Def: def}
	for _, test := range []struct {
		query string
		want  string
	}{
		{"jot something for later so that I recall it", "jot something later recall"},
		{"add an observation to the entity", ""},
		{"add facts; facts & FACT", "facts"},
		{"${HOME} {original} <b>", "home original"},
		{"später erinnern", "später erinnern"},
		{strings.Repeat("x", 100), ""},
		{"one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen", "at most 12"},
	} {
		got := MissingWords(test.query, add)
		if test.want == "at most 12" {
			if len(got) > 12 {
				t.Errorf("%q: %v", test.query, got)
			}
			continue
		}
		if !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%q: %v, want %s", test.query, got, test.want)
		}
	}
}
