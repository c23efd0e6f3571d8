package main

import (
	"encoding/json"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/printable"
)

// unseen are characters that steer terminals, turn text around, or are not seen.
const unseen = "\x00\a\b\r\x1b[31m\x7f\u0085\u009b\u061c\u00ad\u200b\u200c\u200d\u200e\u200f\u2028\u202a\u202e\u2060\u2066\u2069\ufeff\U000e0041\U000e0100"

func TestCharactersThatNobodySeesAreShown(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"a plain\n\ttext":        "a plain\n\ttext",
		"lines\r\nof Windows":    "lines\r\nof Windows",
		"over\rwritten":          `over\u000dwritten`,
		"red \x1b[31m":           `red \u001b[31m`,
		"C1 \u009b31m":           `C1 \u009b31m`,
		"abc\u202efdp.exe":       `abc\u202efdp.exe`,
		"a\u200bb\ufeff":         `a\u200bb\ufeff`,
		"tag \U000e0041":         `tag \udb40\udc41`,
		"Größe, 漢字, ❤️, שלום, é": "Größe, 漢字, ❤️, שלום, é",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := visible(unseen); strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(got), printable.Hidden) {
		t.Errorf("%q is shown as %q", unseen, got)
	}
}

func TestTheConsoleKeepsJSONTheSameValue(t *testing.T) {
	var out strings.Builder
	c := &console{w: &out}
	must.Do(t, printJSON(c, map[string]string{unseen: "a < b " + unseen}))
	var got map[string]string
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got[unseen] != "a < b "+unseen || strings.ContainsFunc(strings.ReplaceAll(out.String(), "\n", ""), printable.Hidden) {
		t.Errorf("%s, %v", out.String(), err)
	}
}

func TestTheConsoleMayBeWrittenToInPieces(t *testing.T) {
	const text = "漢\u202e\r\nx\r"
	var out strings.Builder
	c := &console{w: &out}
	for i := range len(text) {
		if n, err := c.Write([]byte{text[i]}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	c.flush()
	if got, want := out.String(), "漢\\u202e\r\nx\\u000d"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestALongNameMakesNoWideTable(t *testing.T) {
	long := &table{head: []string{"NAME", "SERVER", "ABOUT"}}
	long.add(strings.Repeat("x", 10_000), "s", "something")
	long.add("y", strings.Repeat("z", 10_000), "nothing")
	for _, columns := range []int{0, 100, 20} {
		var out strings.Builder
		must.Do(t, long.printOn(&out, screen{terminal: columns > 0, columns: columns}))
		most := max(columns, 2*minCell+2*gap+minLast)
		if columns == 0 {
			most = 3 * maxCell
		}
		for line := range strings.Lines(out.String()) {
			if got := columnsOf(strings.TrimSuffix(line, "\n")); got > most {
				t.Errorf("on %d columns a line has %d", columns, got)
			}
		}
		if !strings.Contains(out.String(), "nothing") {
			t.Errorf("on %d columns the last column is lost", columns)
		}
	}
}
