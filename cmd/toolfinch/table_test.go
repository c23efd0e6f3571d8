package main

import (
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

func TestTablesAreAlignedAndCutOnTerminalsOnly(t *testing.T) {
	rows := &table{head: []string{"NAME", "ABOUT"}}
	rows.add("漢字", "wide characters take two columns each")
	rows.add("steering", "red \x1b[31mtext\nof two lines")
	rows.add("nothing", "")
	colours := &table{head: []string{"OK", "NAME"}, paint: func(_, column int) string { return []string{red, ""}[column] }}
	colours.add("✗", "x")
	for _, test := range []struct {
		name  string
		table *table
		on    screen
		want  string
	}{
		{"pipe", rows, screen{}, "" +
			"NAME      ABOUT\n" +
			"漢字      wide characters take two columns each\n" +
			"steering  red \\u001b[31mtext of two lines\n" +
			"nothing\n"},
		{"terminal", rows, screen{terminal: true, columns: 30}, "" +
			"NAME      ABOUT\n" +
			"漢字      wide characters tak…\n" +
			"steering  red \\u001b[31mtext …\n" +
			"nothing\n"},
		{"narrow terminal", rows, screen{terminal: true, columns: 12}, "" +
			"NAME      ABOUT\n" +
			"漢字      wide char…\n" +
			"steering  red \\u001…\n" +
			"nothing\n"},
		{"colour", colours, screen{terminal: true, colour: true}, "\x1b[1mOK\x1b[0m  \x1b[1mNAME\x1b[0m\n\x1b[31m✗\x1b[0m   x\n"},
		{"no colour", colours, screen{terminal: true}, "OK  NAME\n✗   x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			must.Do(t, test.table.printOn(&out, test.on))
			if out.String() != test.want {
				t.Errorf("got\n%q\nwant\n%q", out.String(), test.want)
			}
		})
	}
}

func TestALongLineIsWrappedAndKeepsItsText(t *testing.T) {
	for text, want := range map[string][]string{
		"":                               {""},
		"short":                          {"short"},
		"sh -c touch started":            {"sh -c", "touch", "started"},
		"aaaaaaaaaaaaaaaaaa":             {"aaaaaaaa", "aaaaaaaa", "aa"},
		"aaaaaaaa bbb":                   {"aaaaaaaa", "bbb"},
		"漢漢漢漢漢":                          {"漢漢漢漢", "漢"},
		"a \xff\xff\xff\xff\xff\xff\xff": {"a \xff\xff\xff\xff\xff\xff", "\xff"},
	} {
		if got := wrap(text, 8); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
