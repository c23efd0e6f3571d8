package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

const sample = `package sample

import "errors"

var limit = 7

func Sum(all []int, most int) (sum int, err error) {
	for i, n := range all {
		if n < 0 || i > limit {
			continue
		}
		sum += n
		log.Info("added", n)
	}
	defer done(sum, most)
	if sum == most {
		return sum, errors.New("full")
	}
	return 0, nil
}
`

func TestMutantsAreSmallChanges(t *testing.T) {
	fset := token.NewFileSet()
	file := must.Get(parser.ParseFile(fset, "sample.go", sample, 0))(t)
	var got []string
	for _, m := range mutantsOf(fset, "sample.go", file, []byte(sample)) {
		got = append(got, m.kind+" "+strings.Join(strings.Fields(sample[m.from:m.to]), " ")+" -> "+m.text)
		if text := string(m.apply([]byte(sample))); len(text) != len(sample)-(m.to-m.from)+len(m.text) || m.function != "Sum" && m.line != 5 {
			t.Errorf("%+v: %s", m, text)
		}
	}
	want := []string{
		"constant 7 -> 8", "if-body { continue } -> {}", "negate n < 0 || i > limit -> !(n < 0 || i > limit)", "and-or || -> &&", "boundary < -> <=", "constant 0 -> 1",
		"boundary > -> >=", "break-continue continue -> break", "drop-assignment sum += n -> ", "drop-defer defer done(sum, most) -> ", "swap-arguments sum, most -> most, sum",
		`if-body { return sum, errors.New("full") } -> {}`, "negate == -> !=", `return-zero return sum, errors.New("full") -> return *new(int), *new(error)`, "constant 0 -> 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestASeedMakesTheSameChangesInManyFunctions(t *testing.T) {
	all := []mutant{{function: "a", line: 1}, {function: "a", line: 2}, {function: "a", line: 3}, {function: "b", line: 4}, {function: "c", line: 5}}
	one, same := order(slices.Clone(all), 3), order(slices.Clone(all), 3)
	if !slices.Equal(one, same) {
		t.Error("a seed makes different changes")
	}
	if first := []string{one[0].function, one[1].function, one[2].function}; !slices.Equal(slices.Sorted(slices.Values(first)), []string{"a", "b", "c"}) {
		t.Errorf("the first three are of %v", first)
	}
}

// A module of one package, with a test that notices little.
func TestMutateSaysWhatTestsNotice(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module sample\n\ngo 1.25\n",
		"p/p.go":      "package p\n\nfunc More(a, b int) bool { return a > b }\n\nfunc Never(a, b int) bool { return a > b }\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestMore(t *testing.T) {\n\tif !More(2, 1) {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	var out strings.Builder
	killed, tried, err := options{root: dir, seed: 1, parallel: 1}.mutate(&out, "p")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(lines)
	want := []string{
		"p/p.go:3 boundary `>` -> `>=` in `func More(a, b int) bool { return a > b }` | survived | More",
		"p/p.go:3 return-zero `return a > b` -> `return *new(bool)` in `func More(a, b int) bool { return a > b }` | killed by TestMore | More",
		"p/p.go:5 boundary `>` -> `>=` in `func Never(a, b int) bool { return a > b }` | survived, not reached | Never",
		"p/p.go:5 return-zero `return a > b` -> `return *new(bool)` in `func Never(a, b int) bool { return a > b }` | survived, not reached | Never",
	}
	if err != nil || killed != 1 || tried != 4 || !slices.Equal(lines, want) {
		t.Errorf("%d of %d, %v:\n%s", killed, tried, err, out.String())
	}
}
