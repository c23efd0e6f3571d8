package printable

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// smuggled are ways to begin a line, steer a terminal or hide text that were seen to pass.
var smuggled = []string{"\n", "\r", "\v", "\f", "\t", "\u0085", "\u2028", "\u2029", "\x1b[31m", "\a", "\x7f", "\u202e", "\u2066",
	"\u200b", "\u2060", "\ufeff", "\u00ad", "\u3164", "\U000e0041", "\U000e0101"}

func TestNothingHiddenPasses(t *testing.T) {
	for _, s := range smuggled {
		text := "read" + s + "write"
		line := Line(text)
		if strings.ContainsFunc(line, Hidden) || !strings.HasPrefix(line, "read") || !strings.HasSuffix(line, "write") {
			t.Errorf("Line(%q) = %q", text, line)
		}
		if lines := Lines("  a\n" + text); strings.ContainsFunc(strings.ReplaceAll(lines, "\n", ""), Hidden) || !strings.HasPrefix(lines, "  a\n") {
			t.Errorf("Lines(%q) = %q", text, lines)
		}
		value := must.Get(json.MarshalIndent(map[string]string{text: text}, "", "\t"))(t)
		value = []byte(strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(value)))
		var same, as map[string]string
		if err := json.Unmarshal(JSON(value), &same); err != nil || json.Unmarshal(value, &as) != nil || !reflect.DeepEqual(same, as) {
			t.Errorf("JSON(%s) = %s: %v", value, JSON(value), err)
		}
		if strings.ContainsFunc(string(JSON(value)), Hidden) {
			t.Errorf("JSON(%q) = %q", value, JSON(value))
		}
	}
}

func TestWhatIsSeenStays(t *testing.T) {
	for text, want := range map[string]string{
		"  two  words\n": "two words",
		"déjà vu 日本 ❤️":  "déjà vu 日本 ❤️",
		"a\xffb":         "ab",
	} {
		if line := Line(text); line != want {
			t.Errorf("Line(%q) = %q, want %q", text, line, want)
		}
	}
	if value := JSON([]byte(`{"a": "ü"}`)); string(value) != `{"a": "ü"}` {
		t.Errorf("JSON = %s", value)
	}
}
