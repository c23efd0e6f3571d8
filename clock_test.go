package toolfinch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ofClock are the calls by which a test would wait for time or measure it. A test waits for a signal, with
// internal/await; where time is the subject, it runs in testing/synctest.
var ofClock = map[string][]string{
	"time":    {"Sleep", "After", "AfterFunc", "Since", "NewTimer", "NewTicker", "Tick"},
	"context": {"WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause"},
	"":        {"SetDeadline", "SetReadDeadline", "SetWriteDeadline"}, // of any value
}

// onClock are the files that still ask the clock outside of benchmarks and synctest, how often, and why.
// A number may only fall.
var onClock = map[string]struct {
	calls int
	why   string
}{
	"e2e/scale_measure_test.go": {6, "measures starts and settled memory, with TOOLFINCH_SCALE alone"},
}

func TestNoTestAsksTheClock(t *testing.T) {
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && file != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, call := range clockCalls(parsed) {
			file := filepath.ToSlash(file)
			found[file] = append(found[file], set.Position(call.Pos()).String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if allowed := onClock[file]; len(found[file]) > allowed.calls {
			t.Errorf("%d calls ask the clock, %d may: %s\nwait for a signal (internal/await), or use testing/synctest", len(found[file]), allowed.calls, strings.Join(found[file], ", "))
		}
	}
	for file, allowed := range onClock {
		if now := len(found[file]); now < allowed.calls {
			t.Errorf("%s: %d calls ask the clock, and no longer %d: lower the number", file, now, allowed.calls)
		}
		if allowed.why == "" {
			t.Errorf("%s asks the clock without a reason", file)
		}
	}
}

// clockCalls returns the calls of ofClock outside of benchmarks and of functions that run in a synctest bubble.
func clockCalls(file *ast.File) (calls []*ast.CallExpr) {
	ast.Inspect(file, func(n ast.Node) bool {
		if f, is := n.(*ast.FuncDecl); is && strings.HasPrefix(f.Name.Name, "Benchmark") {
			return false
		}
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		selector, is := call.Fun.(*ast.SelectorExpr)
		if !is {
			return true
		}
		of, _ := selector.X.(*ast.Ident)
		if of != nil && of.Name == "synctest" {
			return false
		}
		if of != nil && slices.Contains(ofClock[of.Name], selector.Sel.Name) || slices.Contains(ofClock[""], selector.Sel.Name) {
			calls = append(calls, call)
		}
		return true
	})
	return calls
}
