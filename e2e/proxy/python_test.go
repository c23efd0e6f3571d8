package proxy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/view"
	"toolfinch/view/python"
)

// module writes a module of Python.
func module(t testing.TB, path, source string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(source), 0o600))
}

// An edit of what Python imported is taken by a reload; one that does not load is
// refused with its line, and what ran goes on.
func TestEditedPythonIsTaken(t *testing.T) {
	if _, err := exec.LookPath(python.DefaultCommand()); err != nil {
		missing(t, "there is no Python")
	}
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "hooks"), 0o700))
	hooks, words := filepath.Join(dir, "hooks", "f.py"), filepath.Join(dir, "hooks", "words.py")
	module(t, words, "word = 'one'\n")
	module(t, hooks, `
from hooks import words
from mcp_proxy import HookResult, custom_tool
async def pre(context, args):
    return HookResult(args={"word": words.word})
@custom_tool
def own(ctx):
    return ctx.call_tool("shop.hat")
`)
	x := everything("x", view.ExposureDirect)
	x.Hooks.PreCall = &view.Hook{Python: "hooks.f.pre", Timeout: await.Bound, At: view.Place{Line: 7, Column: 3}}
	x.Customs = []view.Custom{{Python: "hooks.f.own"}}
	config := configOf(t, []*shop{newShop(t, "shop", "hat")}, x)
	config.Python.Dir = dir
	p := open(t, config)
	c := p.connect("x", false, "", "")
	says := func(want string) {
		t.Helper()
		if got, _ := call(t.Context(), c, "shop_hat", map[string]any{"size": 9}); !strings.Contains(got, `"word":"`+want+`"`) {
			t.Errorf("shop_hat answers %s\nwant in it %s", got, want)
		}
	}
	reload := func() {
		t.Helper()
		must.Do(t, p.Reload(t.Context(), config))
	}
	says("one")
	if files := p.Modules(); !slices.Contains(files, words) || !slices.Contains(files, hooks) {
		t.Errorf("%q are watched", files)
	}
	reload()
	says("one")
	module(t, words, "word = 'another'\n")
	says("one")
	reload()
	says("another")
	module(t, words, "word = (\n")
	if err := p.Reload(t.Context(), config); err == nil || !strings.Contains(err.Error(), `:7:3: view "x": pre_call hook: words.py:1: SyntaxError`) {
		t.Errorf("a module that is broken: %v", err)
	}
	says("another")
	module(t, words, "word = 'third one'\n")
	reload()
	says("third one")
}
