package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The parser of JSON nests calls, so that what it is given has a bound that texts and comments do not hide.
func TestDeepJSON(t *testing.T) {
	for name, text := range map[string]string{
		"lists":             strings.Repeat("[", 20_000),
		"texts between":     strings.Repeat(`["]", `, 20_000),
		"an escaped quote":  strings.Repeat(`["\"]", `, 20_000),
		"comments between":  strings.Repeat("[ /*]*/ ", 20_000),
		"a line of comment": strings.Repeat("[ // ]\n", 20_000),
		"/*/ ends nothing":  strings.Repeat("[ /*/]*/ ", 20_000),
	} {
		if _, _, problems := Parse("a.json", []byte(text)); len(problems) != 1 || !strings.Contains(problems[0].Message, "nested deeper") {
			t.Errorf("%s: %v", name, problems)
		}
	}
	if _, _, problems := Parse("a.json", []byte(`{"a": "`+strings.Repeat("[", 20_000)+`", /* `+strings.Repeat("{", 20_000)+" */ \"b\": 1}")); len(problems) > 0 {
		t.Errorf("brackets of a text and of a comment: %v", problems)
	}
}

// Aliases of aliases are edited by hand: as values they have no end.
func TestEndlessAliasesAreNotEdited(t *testing.T) {
	var text strings.Builder
	text.WriteString("a0: &a0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&text, "a%[2]d: &a%[2]d [*a%[1]d, *a%[1]d]\n", i, i+1)
	}
	if _, err := NewEdit("a.yaml", []byte(text.String())); !errors.Is(err, ErrByHand) {
		t.Errorf("got %v", err)
	}
}
