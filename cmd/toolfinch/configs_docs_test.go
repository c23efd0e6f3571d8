package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/must"
)

// Every configuration of views that docs/views.md, docs/hooks.md,
// docs/gating.md, docs/deployment.md and the examples show loads, without a warning. One without servers is a part of a
// file, and gets those of the examples.
func TestDocumentedConfigurations(t *testing.T) {
	const servers = `mcp_servers:
  files: {command: x}
  filesystem: {command: x}
  github: {command: x}
  issues: {command: x}
  memory: {command: x}
  notes-server: {command: x}
  web: {command: x}
  wiki: {command: x}
`
	shown := map[string][]string{} // by where they stand
	fenced := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	for _, doc := range []string{"views.md", "hooks.md", "gating.md", "deployment.md"} {
		for _, match := range fenced.FindAllStringSubmatch(lines(t, "../../docs/"+doc), -1) {
			shown[doc] = append(shown[doc], match[1])
		}
	}
	const examples = "../../view/testdata/examples"
	files := must.Get(os.ReadDir(examples))(t)
	dir := t.TempDir()
	commented := regexp.MustCompile(`(?m)(?:^#   .*\n)+`)
	for _, file := range files {
		text := lines(t, filepath.Join(examples, file.Name()))
		if block := commented.FindString(text); block != "" {
			shown[file.Name()] = append(shown[file.Name()], strings.ReplaceAll("\n"+block, "\n#   ", "\n"))
		}
		for _, name := range []string{file.Name(), filepath.Join("hooks", file.Name())} { // named either way
			must.Do(t, os.MkdirAll(filepath.Join(dir, "hooks"), 0o700))
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
		}
	}
	if len(shown) < 10 || len(shown["views.md"]) < 5 || len(shown["hooks.md"]) < 2 || len(shown["gating.md"]) < 2 {
		t.Errorf("only %d places have configurations: the test reads past them", len(shown))
	}
	for where, blocks := range shown {
		for _, block := range blocks {
			if !strings.Contains(block, "mcp_servers:") {
				block = servers + block
			}
			path := filepath.Join(dir, "toolfinch.yaml")
			must.Do(t, os.WriteFile(path, []byte(block), 0o600))
			config, err := configs.Load(configs.Options{Path: path, Env: func(name string) (string, bool) {
				return "set", name == "GITHUB_TOKEN" || name == "HOME"
			}})
			if err != nil {
				t.Errorf("%s: %v\n%s", where, err, block)
				continue
			}
			for _, warning := range config.Warnings {
				t.Errorf("%s: %v\n%s", where, warning, block)
			}
		}
	}
}

// lines is a text file with the line ends of this program.
func lines(t *testing.T, path string) string {
	t.Helper()
	text := must.Get(os.ReadFile(path))(t)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}
