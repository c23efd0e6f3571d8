// Command mutate shows whether tests can fail: it changes one thing of a package at a time and runs the
// tests of that package. It changes no file of the tree.
//
//	cd e2e && go run ./mutate -n 20 index trust/pins
//	cd e2e && go run ./mutate -only index/fuse.go
//
// It prints whether a test killed each change or whether it survived. A seed always makes the same changes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

type options struct {
	root     string
	n        int
	seed     uint64
	only     string
	parallel int
}

func main() {
	var o options
	flag.StringVar(&o.root, "C", "..", "folder of the module")
	flag.IntVar(&o.n, "n", 20, "changes of each package; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "which changes")
	flag.StringVar(&o.only, "only", "", "all changes of one file, as package/file.go")
	flag.IntVar(&o.parallel, "p", 1, "changes at a time")
	flag.Parse()
	packages := flag.Args()
	if o.only != "" {
		packages, o.n = []string{filepath.Dir(o.only)}, 0
	}
	var summary strings.Builder
	for _, name := range packages {
		killed, tried, err := o.mutate(os.Stdout, name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutate %s: %v\n", name, err)
			os.Exit(1)
		}
		fmt.Fprintf(&summary, "%-16s %3d of %3d killed, %3.0f %%\n", name, killed, tried, 100*float64(killed)/float64(max(1, tried)))
	}
	fmt.Print("\n", summary.String())
}

// mutate tries the changes of a package.
func (o options) mutate(out io.Writer, name string) (killed, tried int, err error) {
	p, err := load(o.root, name)
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(p.tmp)
	if err := p.baseline(); err != nil {
		return 0, 0, err
	}
	var all, inOne, alone []mutant // those in one test binary, and those with a binary each
	for i, path := range p.paths {
		if o.only == "" || filepath.Base(o.only) == filepath.Base(path) {
			all = append(all, mutantsOf(p.fset, path, p.files[i], p.src[path])...)
		}
	}
	for _, m := range order(all, o.seed) {
		src := p.src[m.file]
		switch {
		case o.n > 0 && len(inOne)+len(alone) >= o.n, !p.compiles(m.file, m.apply(src)):
		case m.function != "" && p.compiles(m.file, together(src, m.file, []mutant{m})):
			inOne = append(inOne, m)
		default:
			alone = append(alone, m)
		}
	}
	changed := map[string][]byte{}
	for _, m := range inOne {
		changed[m.file] = together(p.src[m.file], m.file, inOne)
	}
	binary, err := p.build("all", changed)
	if err != nil {
		return 0, 0, err
	}
	chosen := slices.Concat(inOne, alone)
	var wait sync.WaitGroup
	var mu sync.Mutex
	work := make(chan int)
	for range o.parallel {
		wait.Go(func() {
			for id := range work {
				m, binary, failed := chosen[id], binary, error(nil)
				if id >= len(inOne) {
					binary, failed = p.build(fmt.Sprint("alone", id), map[string][]byte{m.file: m.apply(p.src[m.file])})
				}
				says := "not tried: " + fmt.Sprint(failed)
				if failed == nil {
					says = p.run(m, binary, id)
				}
				mu.Lock()
				if failed == nil {
					tried++
				}
				if strings.HasPrefix(says, "killed") {
					killed++
				}
				fmt.Fprintf(out, "%s/%s:%d %s | %s | %s\n", name, filepath.Base(m.file), m.line, m.String(p.src[m.file]), says, m.function)
				mu.Unlock()
			}
		})
	}
	for id := range chosen {
		work <- id
	}
	close(work)
	wait.Wait()
	return killed, tried, nil
}

// pkg is a package under test.
type pkg struct {
	name, dir, root, tmp string
	fset                 *token.FileSet
	paths                []string // of files
	files                []*ast.File
	src                  map[string][]byte
	importer             types.Importer
	reached              map[string][][2]int // lines that its tests reach, by the file's base name
	slow                 string              // pattern of the tests that run last; "" without
	took                 time.Duration       // by all tests
}

func load(root, name string) (*pkg, error) {
	p := &pkg{name: name, root: root, src: map[string][]byte{}, fset: token.NewFileSet(), reached: map[string][][2]int{}}
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,DepOnly", "./"+name, "os") // chooser imports os
	list.Dir, list.Stderr = root, os.Stderr
	listed, err := list.Output()
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(listed)); d.More(); {
		var l struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		if exports[l.ImportPath] = l.Export; l.DepOnly || l.ImportPath == "os" {
			continue
		}
		p.dir = l.Dir
		for _, file := range l.GoFiles {
			path := filepath.Join(l.Dir, file)
			src, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			parsed, err := parser.ParseFile(p.fset, path, src, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.paths, p.files, p.src[path] = append(p.paths, path), append(p.files, parsed), src
		}
	}
	p.importer = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	p.tmp, err = os.MkdirTemp("", "mutate")
	return p, err
}

// chooser is the file that is added to the package.
func (p *pkg) chooser() string {
	return "package " + p.files[0].Name.Name + "\n\nimport \"os\"\n\nvar mutantTried = os.Getenv(\"MUTANT_TRIED\")\n"
}

// compiles checks the package with a changed file by its types, in a few milliseconds.
func (p *pkg) compiles(path string, text []byte) bool {
	changed, err := parser.ParseFile(p.fset, path, text, parser.SkipObjectResolution)
	added, _ := parser.ParseFile(p.fset, "chooser.go", p.chooser(), 0)
	if err != nil {
		return false
	}
	files := append(slices.Clone(p.files), added)
	files[slices.Index(p.paths, path)] = changed
	_, err = (&types.Config{Importer: p.importer, Sizes: types.SizesFor("gc", runtime.GOARCH)}).Check(p.name, p.fset, files, nil)
	return err == nil
}

// baseline runs the tests without a change.
func (p *pkg) baseline() error {
	profile := filepath.Join(p.tmp, "profile")
	binary, err := p.build("baseline", nil, "-cover")
	if err != nil {
		return err
	}
	start := time.Now()
	out, err := p.test(binary, "", 20*time.Minute, "-test.v", "-test.coverprofile="+profile)
	if err != nil {
		return fmt.Errorf("the tests fail without a change: %w\n%s", err, out)
	}
	p.took = time.Since(start)
	var slow []string
	for _, m := range regexp.MustCompile(`(?m)^--- PASS: (\S+) \(([\d.]+)s\)`).FindAllStringSubmatch(string(out), -1) {
		if seconds, _ := strconv.ParseFloat(m[2], 64); seconds > 1 {
			slow = append(slow, m[1])
		}
	}
	if slow != nil {
		p.slow = "^(" + strings.Join(slow, "|") + ")$"
	}
	lines, err := os.ReadFile(profile)
	for _, m := range regexp.MustCompile(`(?m)/([^/\s]+):(\d+)\.\d+,(\d+)\.\d+ \d+ [1-9]\d*$`).FindAllStringSubmatch(string(lines), -1) {
		from, _ := strconv.Atoi(m[2])
		to, _ := strconv.Atoi(m[3])
		p.reached[m[1]] = append(p.reached[m[1]], [2]int{from, to})
	}
	return err
}

// run returns what the tests say to a change: the slow ones are run last, and none if none reaches it.
func (p *pkg) run(m mutant, binary string, id int) string {
	if m.function != "" && !slices.ContainsFunc(p.reached[filepath.Base(m.file)], func(lines [2]int) bool { return lines[0] <= m.line && m.line <= lines[1] }) {
		return "survived, not reached"
	}
	rounds := [][]string{{"-test.run=."}}
	if p.slow != "" {
		rounds = [][]string{{"-test.skip=" + p.slow}, {"-test.run=" + p.slow}}
	}
	for _, args := range rounds {
		if out, err := p.test(binary, strconv.Itoa(id), 30*time.Second+5*p.took, append(args, "-test.failfast")...); err != nil {
			by := "killed"
			if failed := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindSubmatch(out); failed != nil {
				by += " by " + string(failed[1])
			}
			return by
		}
	}
	return "survived"
}

// build makes a test binary of the package with changed files.
func (p *pkg) build(as string, changed map[string][]byte, args ...string) (string, error) {
	replace, failed := map[string]string{}, error(nil)
	write := func(path string, text []byte) {
		replace[path] = filepath.Join(p.tmp, as+strconv.Itoa(len(replace))+".go")
		failed = errors.Join(failed, os.WriteFile(replace[path], text, 0o600))
	}
	for path, text := range changed {
		write(path, text)
	}
	if changed != nil { // -cover takes no added files
		write(filepath.Join(p.dir, "mutant_chooser.go"), []byte(p.chooser()))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	overlayPath, binary := filepath.Join(p.tmp, as+".json"), filepath.Join(p.tmp, as+".test")
	if err := errors.Join(failed, err, os.WriteFile(overlayPath, overlay, 0o600)); err != nil {
		return "", err
	}
	cmd := exec.Command("go", slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, "-overlay", overlayPath}, args, []string{"./" + p.name})...)
	cmd.Dir = p.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, bytes.TrimSpace(out))
	}
	return binary, nil
}

// test runs a test binary in the package's folder. A change may make a loop endless: time and memory are
// bounded, and what the tests started ends with them.
func (p *pkg) test(binary, mutant string, timeout time.Duration, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+30*time.Second)
	defer cancel()
	tmp := filepath.Join(p.tmp, "t"+mutant)
	defer os.RemoveAll(tmp)
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 8000000; exec "$0" "$@"`, binary, "-test.timeout=" + timeout.String()}, args...)...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "TMPDIR="+tmp, "MUTANT_TRIED="+mutant)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, 10*time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = end()
	}
	return out, err
}
