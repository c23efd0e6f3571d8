package store

import (
	"reflect"
	"testing"
)

func TestWhatWasWrittenOfToolsIsKept(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		one := Enriched{Hash: "h", When: "To report.", Tags: []string{"bug", "ticket"}, State: Proposed}
		other := Enriched{Hash: "i", State: Rejected}
		for _, e := range []Enriched{one, other} {
			if err := s.PutEnriched(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		one.State, one.When = Accepted, "To report bugs."
		if err := s.PutEnriched(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		got, err := s.Enriched(t.Context())
		if want := map[string]Enriched{"h": one, "i": other}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		if err := s.ForgetEnriched(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Enriched(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("after it was forgotten: %+v, %v", got, err)
		}
	})
}
