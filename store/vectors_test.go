package store

import (
	"reflect"
	"testing"
)

func TestVectors(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		many, keys := map[Key][]float32{}, []Key{}
		for i := range keysAtOnce + 10 { // more than one statement reads
			key := Key{byte(i), byte(i >> 8), 1}
			many[key], keys = []float32{float32(i), -0.5}, append(keys, key)
		}
		put := func(space string, vectors map[Key][]float32) {
			t.Helper()
			if err := s.PutVectors(t.Context(), space, vectors); err != nil {
				t.Fatal(err)
			}
		}
		read := func(space string, want map[Key][]float32, keys ...Key) {
			t.Helper()
			if got, err := s.Vectors(t.Context(), space, keys); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("in %s: %d vectors, %v, want %d", space, len(got), err, len(want))
			}
		}
		put("many", many)
		read("many", many, append(keys, Key{9, 9, 9})...)
		put("few", map[Key][]float32{{1}: {1}, {2}: {}})
		put("few", map[Key][]float32{{1}: {2}})
		read("few", map[Key][]float32{{1}: {2}, {2}: {}}, Key{1}, Key{2}, Key{3})
		read("none", map[Key][]float32{}, Key{1})

		// What nobody has asked for in 30 days is forgotten when it is said that all was asked for.
		if _, err := s.db.Exec(`UPDATE vectors SET seen_on = seen_on - 31 WHERE length(vector) = 0`); err != nil {
			t.Fatal(err)
		}
		if _, err := s.db.Exec(`UPDATE vectors SET seen_on = seen_on - 1 WHERE length(vector) = 4`); err != nil {
			t.Fatal(err)
		}
		read("few", map[Key][]float32{{1}: {2}}, Key{1})
		if err := s.ForgetVectors(t.Context()); err != nil {
			t.Fatal(err)
		}
		read("few", map[Key][]float32{{1}: {2}}, Key{1}, Key{2})
		read("many", many, keys...)
	})
}
