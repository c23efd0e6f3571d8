//go:build linux

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"toolfinch/upstream/sandbox"
)

// Published servers that are told to leave their folder, or to connect somewhere, cannot.
func TestAServerCannotLeaveItsSandbox(t *testing.T) {
	t.Parallel()
	if err := (sandbox.Settings{Landlock: &sandbox.Rules{Ports: []int{}}}).Check(); err != nil {
		t.Skip(err)
	}
	var asked atomic.Int32
	gitlab := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"id":1,"iid":1,"title":"made"}`)
	}))
	defer gitlab.Close()
	inside, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{inside, outside} {
		if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("kept here"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	packages := modules(t)
	servers := map[string]server{}
	for name, rules := range map[string]any{"free": nil, "held": map[string]any{"read": []string{packages, inside}, "write": []string{inside}, "connect": []int{}}} {
		files := script(t, module(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), inside, outside)
		lab := script(t, module(t, "@modelcontextprotocol/server-gitlab/dist/index.js"))
		lab.Env = map[string]string{"GITLAB_PERSONAL_ACCESS_TOKEN": "none", "GITLAB_API_URL": gitlab.URL}
		files.Sandbox, lab.Sandbox = rules, rules
		servers["files-"+name], servers["lab-"+name] = files, lab
	}
	h := newHouse(t, servers)
	path := func(dir, name string) string {
		return fmt.Sprintf(`{"path":%q,"content":"changed"}`, filepath.Join(dir, name))
	}
	for _, test := range []struct{ tool, arguments, want string }{ // "" for an error
		{"files-free.read_text_file", path(outside, "note.txt"), "kept here"},
		{"files-held.read_text_file", path(inside, "note.txt"), "kept here"},
		{"files-held.read_text_file", path(outside, "note.txt"), ""},
		{"files-held.list_directory", path(outside, ""), ""},
		{"files-held.write_file", path(inside, "new.txt"), "Successfully wrote"},
		{"files-held.write_file", path(outside, "new.txt"), ""},
		{"lab-free.create_issue", `{"project_id":"1","title":"made"}`, ""}, // the answer is not GitLab's
	} {
		out, err := h.output(t, "call", test.tool, "--json", test.arguments)
		if (test.want == "") != (err != nil) || !strings.Contains(string(out), test.want) {
			t.Errorf("%s %s: %s, %v; want %q", test.tool, test.arguments, out, err, test.want)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "new.txt")); err == nil {
		t.Error("a file was written outside")
	}
	if asked.Load() == 0 {
		t.Error("the server without a sandbox does not ask GitLab: this test proves nothing")
	}
	asked.Store(0)
	if out, err := h.output(t, "call", "lab-held.create_issue", "--json", `{"project_id":"1","title":"made"}`); err == nil || asked.Load() > 0 {
		t.Errorf("a server without network has reached GitLab: %s, %v", out, err)
	}
	out, err := h.output(t, "validate")
	if want := "sandbox: reads programs, " + packages + ", " + inside + "; writes " + inside + "; connects to no port"; !strings.Contains(string(out), want) {
		t.Errorf("validate: %v, does not say %q:\n%s", err, want, out)
	}
}
