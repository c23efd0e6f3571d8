package store

import (
	"slices"
	"testing"
)

func TestSegments(t *testing.T) { everywhere(t, testSegments) }

func testSegments(t *testing.T, s *Store) {
	keysOf := func() (keys []byte) {
		t.Helper()
		all, err := s.Segments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if string(one.Data) != "data of "+string(one.Key[0]) {
				t.Errorf("segment %c has %q", one.Key[0], one.Data)
			}
			keys = append(keys, one.Key[0])
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
	if err := s.KeepSegments(t.Context(), [][32]byte{{'b'}, {'x'}}); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(); !slices.Equal(got, []byte("b")) {
		t.Errorf("kept are %q, not b", got)
	}
}
