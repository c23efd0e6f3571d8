// Package must ends a test whose preparation fails. It checks nothing that a test is for; only tests
// import it.
package must

import (
	"os"
	"path/filepath"
	"testing"
)

// Do ends the test with the error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a successful call: must.Get(os.Getwd())(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Write writes a file, makes its folder and returns the file's path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Read returns the text of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	return string(Get(os.ReadFile(path))(t))
}
