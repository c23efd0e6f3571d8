package store

import (
	"slices"
	"testing"
)

func TestSegments(t *testing.T) { everywhere(t, testSegments) }

func testSegments(t *testing.T, s *Store) {
	keysOf := func() (keys []byte) {
		t.Helper()
		for begin, has := range map[string]bool{"data": true, "other": false} {
			keys = nil
			err := s.Segments(t.Context(), []byte(begin), func(one Segment) {
				if want := "data of " + string(one.Key[0]); has && string(one.Data) != want || !has && one.Data != nil {
					t.Errorf("segment %c has %q", one.Key[0], one.Data)
				}
				keys = append(keys, one.Key[0])
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return keys
	}
	for _, data := range []string{"damage of ", "data of ", "data of "} { // what is stored again is replaced
		for i, key := range "abc" {
			if err := s.PutSegment(t.Context(), Segment{Key: [32]byte{byte(key)}, Docs: i, Data: []byte(data + string(key))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := keysOf(); !slices.Equal(got, []byte("cba")) {
		t.Errorf("stored are %q, not the largest first", got)
	}
	if err := s.KeepSegments(t.Context(), [][32]byte{{'b'}, {'x'}}, [][32]byte{{'a'}, {'y'}}); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(); !slices.Equal(got, []byte("cb")) {
		t.Errorf("kept are %q, not c and b", got)
	}
	// Others may have used c until a week ago.
	for _, step := range []struct {
		ago  int64
		want string
	}{{segmentDays, "cb"}, {segmentDays + 1, "b"}} {
		if _, err := s.db.ExecContext(t.Context(), `UPDATE segments SET seen_on = $1`, day()-step.ago); err != nil {
			t.Fatal(err)
		}
		if err := s.KeepSegments(t.Context(), [][32]byte{{'b'}}, nil); err != nil {
			t.Fatal(err)
		}
		if s.remote == nil {
			step.want = "cb" // nobody else has them
		}
		if got := keysOf(); string(got) != step.want {
			t.Errorf("after %d days kept are %q, not %q", step.ago, got, step.want)
		}
	}
}
