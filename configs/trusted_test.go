package configs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// A configuration that somebody put into a folder is not read before the user trusts these very bytes at this very
// place. What the user names, and the user's own file, need no trust.
func TestAFoundConfigurationNeedsTrust(t *testing.T) {
	list := Trusted{filepath.Join(t.TempDir(), "data", "trusted.json")}
	dir, user := write(t, "toolfinch.yaml", minimal), t.TempDir()
	path := filepath.Join(dir, "toolfinch.yaml")
	opts := Options{Dir: dir, UserDir: user, Trusts: list.Has, Env: environ()}
	tries := map[string]func(Options) error{
		"Load":       func(o Options) error { _, err := Load(o); return err },
		"Find":       func(o Options) error { _, err := Find(o); return err },
		"FindPlaces": func(o Options) error { _, err := FindPlaces(o); return err },
	}
	refused := func(why string, o Options, known bool) {
		t.Helper()
		for name, try := range tries {
			err := try(o)
			untrusted, ok := errors.AsType[*UntrustedError](err)
			if !ok || untrusted.Known != known || untrusted.Path != path || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "toolfinch trust "+path) {
				t.Errorf("%s: %s: %v", why, name, err)
			}
		}
	}
	read := func(why string, o Options) {
		t.Helper()
		for name, try := range tries {
			if err := try(o); err != nil {
				t.Errorf("%s: %s: %v", why, name, err)
			}
		}
	}
	refused("at first", opts, false)
	named := opts
	named.Path = path
	read("named by --config", named)
	named.Found = true
	refused("named, but found before", named, false)
	byEnv := opts
	byEnv.Env = environ("MCPPROXY_CONFIG=toolfinch.yaml")
	read("named by MCPPROXY_CONFIG", byEnv)
	only := opts
	only.Untrusted = true
	read("only read", only)

	must.Do(t, list.Add(path, []byte(minimal)))
	read("trusted", opts)
	must.Write(t, path, minimal+"# edited\n")
	refused("edited by somebody", opts, true)
	must.Write(t, path, minimal)
	read("as it was", opts)

	// The same bytes elsewhere, also by a link, have other commands: relative paths start at their folder.
	elsewhere := opts
	elsewhere.Dir = t.TempDir()
	must.Do(t, os.Symlink(path, filepath.Join(elsewhere.Dir, "toolfinch.yaml")))
	if _, err := Load(elsewhere); err == nil {
		t.Error("a link to a trusted file is trusted")
	}
	// The folder by another name is the same folder.
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(dir, link))
	elsewhere.Dir = link
	if _, err := Load(elsewhere); err != nil {
		t.Errorf("the folder by another name: %v", err)
	}

	must.Do(t, list.Remove(path))
	refused("not trusted any more", opts, false)
	must.Write(t, list.Path, "{")
	refused("with a list that cannot be read", opts, false)

	must.Do(t, os.MkdirAll(filepath.Join(user, "toolfinch"), 0o700))
	must.Write(t, filepath.Join(user, "toolfinch", "toolfinch.yaml"), minimal)
	own := opts
	own.Dir = t.TempDir()
	read("the user's own, from any folder", own)
	own.Dir = filepath.Join(user, "toolfinch")
	read("the user's own, from its folder", own)
}

func TestTheListOfTrustedFiles(t *testing.T) {
	list := Trusted{filepath.Join(t.TempDir(), "a", "b", "trusted.json")}
	path := filepath.Join(t.TempDir(), "toolfinch.yaml")
	for n := range maxTrustedContent + 1 {
		must.Do(t, list.Add(path, fmt.Append(nil, n)))
	}
	must.Do(t, list.Add(path, fmt.Append(nil, maxTrustedContent))) // twice is once
	for n := range maxTrustedContent + 1 {
		if has, known := list.Has(path, fmt.Append(nil, n)); has != (n > 0) || !known {
			t.Errorf("content %d: %v, %v", n, has, known)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	for path, want := range map[string]os.FileMode{list.Path: 0o600, filepath.Dir(list.Path): 0o700 | os.ModeDir} {
		if info := must.Get(os.Stat(path))(t); info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}

// Edits through toolfinch keep trust. They give none.
func TestOwnEditsKeepTrust(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "LOCALAPPDATA"} {
		t.Setenv(name, home)
	}
	list := must.Get(UserTrusted())(t)
	for _, trusted := range []bool{true, false} {
		dir := write(t, "toolfinch.yaml", minimal)
		path := filepath.Join(dir, "toolfinch.yaml")
		if trusted {
			must.Do(t, list.Add(path, []byte(minimal)))
		}
		must.Get(SetEnabled(path, "a", false))(t)
		if has, known := list.Has(path, must.Get(os.ReadFile(path))(t)); has != trusted || known != trusted {
			t.Errorf("trusted before: %v, after: %v", trusted, has)
		}
	}
}
