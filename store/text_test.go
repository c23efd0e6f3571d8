package store

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzTextsAreEscapedForPostgreSQL(f *testing.F) {
	for _, text := range []string{"", "plain", "a\x00b", "\xff", "\xe2\x82", escape, escape + "00", "a" + escape} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		stored := escaped(text)
		if !utf8.ValidString(stored) || strings.ContainsRune(stored, 0) {
			t.Errorf("%q is stored as %q", text, stored)
		}
		if back := unescaped(stored); back != text {
			t.Errorf("%q came back as %q", text, back)
		}
	})
}
