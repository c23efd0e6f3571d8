package toolfinch_test

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// climbs has the packages whose files use each other in circles. An arrow leads from a file to one that
// declares what it uses. Files are ordered so that few arrows climb; as many as stand here still do. The
// numbers only ever become smaller.
var climbs = map[string]int{
	"cmd/toolfinch":      19,
	"embed/kernel":       2,
	"index":              1,
	"internal/demo":      5,
	"internal/rawjson":   1,
	"internal/schema":    2,
	"internal/telemetry": 3,
	"proxy":              1,
	"proxy/replicas":     1,
	"proxy/savings":      1,
	"proxy/web":          10,
	"proxy/web/page":     16,
	"proxytool":          4,
	"proxytool/client":   3,
	"register/transport": 2,
	"retrieve/eval":      1,
	"store/storetest":    5,
	"trust/audit":        2,
	"trust/inbound":      4,
	"trust/leaks":        2,
	"trust/pins":         1,
	"trust/policy":       2,
	"upstream/conn":      8,
	"upstream/login":     8,
	"upstream/sandbox":   1,
	"view":               8,
	"view/output":        3,
	"view/python":        1,
	"view/script":        8,
}

func TestFilesOfAPackageStandAboveWhatTheyUse(t *testing.T) {
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		t.Skip("the numbers are of the files for linux/amd64")
	}
	var packages []string
	inFiles(t, parser.ImportsOnly, func(file string, _ *ast.File) {
		if dir := filepath.ToSlash(filepath.Dir(file)); !slices.Contains(packages, dir) {
			packages = append(packages, dir)
		}
	})
	exports := exportData(t)
	for _, dir := range packages {
		uses := usesBetweenFiles(t, dir, exports)
		order, n := ordered(uses)
		if most := climbs[dir]; n > most {
			t.Errorf("%s: %d arrows between its files climb, %d may: %s", dir, n, most, climbing(uses, order))
		} else if n < most {
			t.Errorf("%s: %d arrows between its files climb: write that in place of %d", dir, n, most)
		}
	}
}

// exportData finds what the compiler exports for each package that the program and its packages import.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	out := must.Get(exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "./...").Output())(t)
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return files
}

// usesBetweenFiles says for each file of a package which other files declare something that it uses.
func usesBetweenFiles(t *testing.T, dir string, exports map[string]string) map[string][]string {
	t.Helper()
	sources, err := build.Default.ImportDir(dir, 0) // of this machine, without tests
	if err != nil {
		t.Fatal(err)
	}
	files, parsed := token.NewFileSet(), []*ast.File{}
	for _, name := range sources.GoFiles {
		file := must.Get(parser.ParseFile(files, filepath.Join(dir, name), nil, parser.SkipObjectResolution))(t)
		parsed = append(parsed, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := config.Check(dir, files, parsed, &info)
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{}
	for ident, of := range info.Uses {
		if of.Pkg() != checked || of.Parent() != nil && of.Parent() != checked.Scope() { // of another package, or local
			continue
		}
		from, to := filepath.Base(files.Position(ident.Pos()).Filename), filepath.Base(files.Position(of.Pos()).Filename)
		if from != to && !slices.Contains(uses[from], to) {
			uses[from] = append(uses[from], to)
		}
	}
	return uses
}

// ordered puts the files in an order in which few arrows climb, and counts these. It moves one file at a time
// to where it is best, until no move helps.
func ordered(uses map[string][]string) ([]string, int) {
	var order []string
	for from, to := range uses {
		order = append(append(order, from), to...)
	}
	slices.Sort(order)
	order = slices.Compact(order)
	slices.SortStableFunc(order, func(a, b string) int { return len(uses[b]) - len(uses[a]) })
	for moved := true; moved; {
		moved = false
		for _, file := range slices.Clone(order) {
			at := slices.Index(order, file)
			rest := slices.Delete(slices.Clone(order), at, at+1)
			best, least, change := at, 0, 0
			for i := at - 1; i >= 0; i-- { // upwards: past rest[i]
				change += toAbove(uses, rest[i], file)
				if change < least {
					best, least = i, change
				}
			}
			change = 0
			for i := at; i < len(rest); i++ { // downwards
				change -= toAbove(uses, rest[i], file)
				if change < least {
					best, least = i+1, change
				}
			}
			if best != at {
				order, moved = slices.Insert(rest, best, file), true
			}
		}
	}
	return order, len(climbing(uses, order))
}

// toAbove is by how many more arrows climb once file stands above other instead of below.
func toAbove(uses map[string][]string, other, file string) (more int) {
	if slices.Contains(uses[other], file) {
		more++
	}
	if slices.Contains(uses[file], other) {
		more--
	}
	return more
}

// climbing lists the arrows from a file to one above it.
func climbing(uses map[string][]string, order []string) (all []string) {
	for at, from := range order {
		for _, to := range order[:at] {
			if slices.Contains(uses[from], to) {
				all = append(all, fmt.Sprintf("%s -> %s", from, to))
			}
		}
	}
	return all
}
