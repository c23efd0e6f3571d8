package store

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"toolfinch/tool"
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

// The longest names that tool.TakeIn lets in, of bytes that do not compress, cost nobody anything.
func TestLongNames(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		random := make([]byte, 1000)
		rand.Read(random)
		long := hex.EncodeToString(random)
		want := defs(t, "a", `{"name":"`+long+`"}`, `{"name":"x"}`)
		putReviewed(t, s, Upstream{Name: "a"}, strict, want...)
		if got := ids(tools(t, s)); !slices.Equal(got, ids(want)) {
			t.Errorf("got %v", got)
		}
		owner := long + long[:maxProvisionOwner-len(long)]
		set := []tool.Provisioned{never(owner, "a", long), never(owner, "a", "x")}
		provision(t, s, "v", owner, set...)
		wantProvisions(t, s, "v", set...)
	})
}
