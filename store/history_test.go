package store

import (
	"fmt"
	"slices"
	"testing"

	"toolfinch/tool"
)

// What becomes of a definition is kept, the latest first, with what was listed until then.
func TestHistory(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		put := func(raws ...string) { putReviewed(t, s, Upstream{Name: "s"}, strict, defs(t, "s", raws...)...) }
		decide := func(do func() error) {
			t.Helper()
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		version := func(n int) string { return fmt.Sprintf(`{"name":"a","description":"%d"}`, n) }
		past := func(name string) (all []string) {
			t.Helper()
			events, err := s.Pins().History(t.Context(), tool.ID{Server: "s", Name: name})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.At.IsZero() {
					t.Errorf("%s at no time", e.What)
				}
				all = append(all, e.What+" "+e.By+" "+string(e.Was))
			}
			return all
		}
		const other = `{"name":"b"}`
		put(version(1), other)
		put(version(2), other)
		unpinned, err := s.Pins().Unpinned(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		decide(func() error { return s.Pins().Reject(t.Context(), unpinned, "key|ci") })
		decide(func() error { return s.Pins().Approve(t.Context(), unpinned, "") })
		put(other)
		put(version(3), other)
		want := []string{"removed  " + version(2), "approved  ", "rejected key|ci ", "changed  " + version(1)}
		if got := past("a"); !slices.Equal(got, want) {
			t.Errorf("the history has\n%q, want\n%q", got, want)
		}
		if got := past("b"); len(got) > 0 {
			t.Errorf("what was never changed has the history %q", got)
		}
		for n := range 2 * maxPastOfOne {
			put(version(4+n), other)
		}
		if got := past("a"); len(got) != maxPastOfOne || got[0] != "changed  "+version(2*maxPastOfOne+2) {
			t.Errorf("a server that changes its mind has %d events, the last is %q", len(got), got[0])
		}
	})
}
