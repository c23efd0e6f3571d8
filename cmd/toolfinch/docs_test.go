package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolfinch/configs"
)

// The README's configuration loads, and every command that the documentation
// names exists with the flags it shows.
func TestDocumentation(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "<<'EOF'\n")
	block, _, ok := strings.Cut(block, "\n    EOF\n")
	if !ok {
		t.Fatal("README.md has no configuration")
	}
	path := filepath.Join(t.TempDir(), "toolfinch.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll("\n"+block, "\n    ", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := configs.Load(configs.Options{Path: path, Env: func(name string) (string, bool) {
		return "set", name == "GITHUB_TOKEN" || name == "HOME"
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(config.Servers) != 2 || len(config.Warnings) != 0 {
		t.Errorf("servers %v, warnings %v", config.Servers, config.Warnings)
	}

	root := newRoot("")
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?m)(?:^ {4}|`)(?:go run ./cmd/)?toolfinch ([a-z][a-z-]*)([^`#|\n]*)")
	found := 0
	for _, doc := range append(docs, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
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
