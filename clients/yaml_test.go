package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"toolfinch/internal/must"
)

func editable() []*Client {
	return slices.DeleteFunc(slices.Clone(All), func(c *Client) bool { return !c.CanEdit() })
}

func yamlAsJSON(data []byte) (json.RawMessage, error) {
	plain, err := yaml.YAMLToJSON(data)
	return plain, err
}

// Continue has files with servers in folders, too, also in the format of others.
func TestFoldersOfServers(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"b.yaml", "a.json", "notes.md"} {
		path := filepath.Join(home, ".continue", "mcpServers", name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(`{"mcpServers": {"a": {"command": "a"}}}`), 0o600))
	}
	sys := machine(runtime.GOOS, home)
	sys.YAML = yamlAsJSON
	var found []string
	for _, f := range Find("continue").Files(sys) {
		data := must.Get(f.Read())(t)
		servers, err := f.Servers(data)
		found = append(found, fmt.Sprint(filepath.Base(f.Path), " ", len(servers), " ", err))
	}
	if got := strings.Join(found, ", "); got != "config.yaml 0 <nil>, a.json 1 <nil>, b.yaml 1 <nil>" {
		t.Error(got)
	}
}

// A file in YAML is read and never written.
func TestYAMLIsNotEdited(t *testing.T) {
	for _, c := range All {
		f := File{Client: c, Path: "/p/x", block: c.block}
		if _, err := f.Set(nil, "x", Entry{Command: "x"}); errors.Is(err, ErrNoEdit) == c.CanEdit() {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
}
