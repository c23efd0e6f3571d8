//go:build unix

package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/collector"
	"toolfinch/internal/must"
)

// notRunHere are the commands of the pages below that a test cannot run, by how they begin, and
// why. Each stands in a page.
var notRunHere = map[string]string{
	"go install ":      "installs programs",
	"goreleaser ":      "is not part of a checkout",
	"go run ./packag":  "packs what goreleaser leaves; the tests of packaging do that",
	"systemctl ":       "needs systemd as the first process",
	"journalctl ":      "likewise",
	"docker ":          "needs a container engine",
	"toolfinch model ": "downloads the model",
	"toolfinch ui":     "opens a browser",
	"toolfinch stop":   "needs a toolfinch in the background; the tests of sharing run it",
	"toolfinch logs":   "likewise",
	"toolfinch pins N": "needs a server that has changed; the tests of pins run it",
	"toolfinch health": "needs the address; the tests of the packages run it",
	"toolfinch pins a": "needs a server that has changed; the tests of pins run it",
}

// completed are commands that the pages name by their beginning.
var completed = map[string]string{
	`toolfinch search "..."`:          `toolfinch search "echo a message"`,
	"toolfinch key create":            "toolfinch key create another",
	"toolfinch connect":               "toolfinch connect cursor --yes",
	"toolfinch tool show NAME --json": "toolfinch tool show memory.create_entities --json",
	"toolfinch server logs":           "toolfinch server logs memory",
	"toolfinch init":                  "toolfinch init --config another.yaml", // there is one already
}

// Every command of the pages for who runs toolfinch does what it says beside a toolfinch that
// serves, but for notRunHere. getting-started.md and rest.md have tests of their own.
func TestCommandsOfPagesRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t, upstreams(t, "everything", "memory"), map[string]any{"auth": "keys"})
	key := must.Get(h.output(t, "key", "create", "pages"))(t)
	url, _ := h.serveHTTP(t)
	must.Do(t, os.Mkdir(filepath.Join(h.home, ".cursor"), 0o700))
	traces := collector.New(t)
	env := append(h.env, "MCPPROXY_CONFIG="+h.config, "TOOLFINCH_KEY="+strings.TrimSpace(string(key)))
	elsewhere := strings.NewReplacer("https://tools.example.com", strings.TrimSuffix(url, "/mcp"), "http://localhost:4318", traces.URL)
	inside := regexp.MustCompile("(?m)^ {4,6}((?:[A-Z_]+=\\S+ )?(?:toolfinch|curl) [^#\n]*)|^[$#] ([a-z][^#\n]+)|`(toolfinch [a-z][^`\n]*)`")
	unused := map[string]bool{}
	for beginning := range notRunHere {
		unused[beginning] = true
	}
	done := map[string]bool{}
	for _, page := range []string{"upgrading.md", "troubleshooting.md", "observability.md", "deployment.md"} {
		text := must.Get(os.ReadFile("../docs/" + page))(t)
	commands:
		for _, match := range inside.FindAllStringSubmatch(string(text), -1) {
			line := strings.TrimSpace(match[1] + match[2] + match[3])
			for beginning := range notRunHere {
				if strings.HasPrefix(line, beginning) {
					delete(unused, beginning)
					continue commands
				}
			}
			if whole, ok := completed[line]; ok {
				line = whole
			}
			if done[line] {
				continue
			}
			done[line] = true
			out := runLine(t, h.home, env, elsewhere.Replace(line))
			if want := filepath.Join(h.home, "data"); line == "toolfinch store" && !strings.HasPrefix(out, want+", SQLite\n") {
				t.Errorf("%s: it does not name the folder to copy, %s:\n%s", page, want, out)
			}
		}
	}
	if len(done) < 15 || len(unused) > 0 {
		t.Errorf("%d commands have run, and nothing begins with %v: the test reads past them", len(done), unused)
	}
}

// runLine runs a line of a page in a shell, and returns what it printed. One that goes on until
// it is interrupted is, once it has printed something.
func runLine(t *testing.T, dir string, env []string, line string) string {
	t.Helper()
	cmd := exec.CommandContext(await.Program(t), "sh", "-c", "exec env "+line)
	cmd.Dir, cmd.Env = dir, env
	out := &printed{}
	if strings.Contains(line, "--watch") {
		out.first = func() { _ = cmd.Process.Signal(syscall.SIGINT) }
	}
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Run(); err != nil && (out.first == nil || cmd.ProcessState.ExitCode() != 130) {
		t.Errorf("%s: %v\n%s%s", line, err, &out.text, &errs)
	}
	return out.text.String()
}

// printed keeps what a process prints.
type printed struct {
	text  bytes.Buffer
	once  sync.Once
	first func() // called at the first of it; nil for nobody
}

func (p *printed) Write(b []byte) (int, error) {
	if p.first != nil {
		p.once.Do(p.first)
	}
	return p.text.Write(b)
}
