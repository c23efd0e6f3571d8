package store

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A database that was closed in order is read whole at its next opening only if its file
// was changed since.
func TestADatabaseIsCheckedWhereItMayHaveChanged(t *testing.T) {
	for name, test := range map[string]struct {
		touched bool // by whoever damaged it
		aside   int  // databases that are set aside
	}{"as it was closed": {false, 0}, "changed since": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			s := open(t, dir)
			if err := s.PutSegment(t.Context(), Segment{Key: [32]byte{1}, Docs: 1, Data: bytes.Repeat([]byte("x"), 1<<20)}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(data, []byte("xxxx")) &^ 4095 // the first page with nothing but the row's data
			copy(data[at+3*4096:], "\xff\xff\xff\xff")      // the number of the page that follows it
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if !test.touched {
				if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
					t.Fatal(err)
				}
			}
			if err := open(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			aside, err := filepath.Glob(path + ".corrupt-*")
			if err != nil || len(aside) != test.aside {
				t.Errorf("set aside are %d, not %d; %v", len(aside), test.aside, err)
			}
		})
	}
}
