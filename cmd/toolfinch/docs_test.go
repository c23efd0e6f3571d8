package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"toolfinch/configs"
	"toolfinch/internal/must"
)

// The README's configuration loads, and every command that the documentation
// names exists with the flags it shows.
func TestDocumentation(t *testing.T) {
	readme := must.Get(os.ReadFile("../../README.md"))(t)
	_, block, _ := strings.Cut(string(readme), "<<'EOF'\n")
	block, _, ok := strings.Cut(block, "\n    EOF\n")
	if !ok {
		t.Fatal("README.md has no configuration")
	}
	path := filepath.Join(t.TempDir(), "toolfinch.yaml")
	must.Do(t, os.WriteFile(path, []byte(strings.ReplaceAll("\n"+block, "\n    ", "\n")), 0o600))
	config := must.Get(configs.Load(configs.Options{Path: path, Env: func(name string) (string, bool) {
		return "set", name == "GITHUB_TOKEN" || name == "HOME"
	}}))(t)
	if len(config.Servers) != 2 || len(config.Warnings) != 0 {
		t.Errorf("servers %v, warnings %v", config.Servers, config.Warnings)
	}

	root := newRoot("")
	docs := pages(t)
	command := regexp.MustCompile("(?m)(?:^ {4}|^[$#] |`)(?:go run ./cmd/)?toolfinch ([a-z][a-z-]*)([^`#|\n]*)")
	found := 0
	for _, doc := range append(docs, "../../README.md", "../../CONTRIBUTING.md") {
		text := must.Get(os.ReadFile(doc))(t)
		for _, match := range command.FindAllStringSubmatch(string(text), -1) {
			found++
			cmd, _, err := root.Find(append([]string{match[1]}, strings.Fields(match[2])...)) // or a command below it
			if err != nil || cmd == root {
				t.Errorf("%s: there is no command %q", doc, match[1])
				continue
			}
			if cmd.DisableFlagParsing {
				continue // its flags are those of a tool
			}
			for _, word := range strings.Fields(match[2]) {
				name, isFlag := strings.CutPrefix(word, "--")
				name, _, _ = strings.Cut(name, "=")
				if isFlag && name != "" && name != "help" && cmd.Flags().Lookup(name) == nil && root.PersistentFlags().Lookup(name) == nil {
					t.Errorf("%s: %s has no flag --%s", doc, match[1], name)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands were found: the test reads past them", found)
	}
}

// pages are the files of all pages, those of research, too.
func pages(t *testing.T) []string {
	t.Helper()
	research := must.Get(filepath.Glob("../../docs/research/*.md"))(t)
	if len(research) == 0 {
		t.Fatal("docs/research has no pages")
	}
	return append(must.Get(filepath.Glob("../../docs/*.md"))(t), research...)
}

// Every page is in the index, once, and every link of a page leads to a file and a heading
// that are there.
func TestDocumentationIsLinked(t *testing.T) {
	const index = "../../docs/README.md"
	docs := pages(t)
	text := lines(t, index)
	for _, doc := range docs {
		path := must.Get(filepath.Rel("../../docs", doc))(t)
		if n := strings.Count(text, "]("+filepath.ToSlash(path)+")"); doc != index && n != 1 {
			t.Errorf("%s is %d times in docs/README.md", doc, n)
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	for _, doc := range append(docs, "../../README.md", "../../CONTRIBUTING.md") {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(lines(t, doc), ""), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(match[1], "#")
			target := doc
			if file != "" {
				target = filepath.Join(filepath.Dir(doc), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", doc, match[1])
			} else if heading != "" && !slices.Contains(headings(lines(t, target)), heading) {
				t.Errorf("%s: %s: there is no such heading", doc, match[1])
			}
		}
	}
}

// headings are the anchors of a page, as GitHub makes them.
func headings(text string) (anchors []string) {
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, match[1]))
	}
	return anchors
}

// Each message that docs/troubleshooting.md explains is one of the program: what is
// quoted first in a line of a table or of a list stands in its texts. "..." and single
// capitals stand for what differs.
func TestTroubleshootingQuotesTheProgram(t *testing.T) {
	var said []string
	must.Do(t, filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, _ := strconv.Unquote(literal.Value)
				said = append(said, text)
			}
			return true
		})
		return nil
	}))
	quoted := regexp.MustCompile("(?m)^(?:\\| |\\* )`([^`]+)`(?: \\||: |,)")
	differs := regexp.MustCompile(`\.\.\.|\b[A-Z]\b|"[a-z]+"|\d+|[()]`)
	found := 0
	for _, match := range quoted.FindAllStringSubmatch(lines(t, "../../docs/troubleshooting.md"), -1) {
		for _, part := range differs.Split(match[1], -1) {
			if part = strings.Trim(part, " ;:"); len(part) < 3 {
				continue
			}
			found++
			if !slices.ContainsFunc(said, func(text string) bool { return strings.Contains(text, part) }) {
				t.Errorf("docs/troubleshooting.md explains %q; nothing in the program says %q", match[1], part)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d quotations were found: the test reads past them", found)
	}
}

// Every test that the documentation names exists.
func TestDocumentedTestsExist(t *testing.T) {
	tests := map[string]bool{}
	must.Do(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, is := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			tests[string(is[1])] = true
		}
		return err
	}))
	for _, page := range pages(t) {
		for _, named := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(must.Get(os.ReadFile(page))(t)), -1) {
			if !tests[named[1]] {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), named[1])
			}
		}
	}
}
