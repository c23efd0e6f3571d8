//go:build unix

package python

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
)

// A function that waits stalls nobody: async ones give way, plain ones have a thread.
// The deadline ends both, and Python goes on.
func TestADeadlineEndsAFunctionAlone(t *testing.T) {
	h, j := hosted(t, "hooks/f.py", `
import asyncio, time
async def waits(context, args):
    await asyncio.sleep(1000)
def sleeps(context, args):
    time.sleep(1000)
def loops(context, args):
    while True: pass
async def quick(context, args):
    pass
`)
	h.grace = await.Bound
	if _, err := before(t, h, "quick"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"waits", "sleeps", "loops"} {
		late := make(chan error, 1)
		go func() {
			_, err := call(t, h, Request{Kind: PreCall, Path: "hooks.f." + name, Timeout: 300 * time.Millisecond})
			late <- err
		}()
		if _, err := before(t, h, "quick"); err != nil {
			t.Errorf("beside %s: %v", name, err)
		}
		if err := await.Value(t, late); err == nil || err.Error() != "no answer within 300ms" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := before(t, h, "quick"); err != nil || strings.Contains(j.String(), "Python ended") {
		t.Errorf("%v\n%s", err, j)
	}
}

// An endless loop that gives nobody else a chance costs the process: the other calls
// in flight say why, and the next one finds a new process.
func TestABlockedPythonIsReplaced(t *testing.T) {
	h, j := hosted(t, "hooks/f.py", `
import asyncio
async def loops(context, args):
    while True: pass
async def waits(context, args):
    print("waiting")
    await asyncio.sleep(1000)
async def quick(context, args):
    pass
`)
	other := make(chan error, 1)
	go func() { _, err := before(t, h, "waits"); other <- err }()
	await.True(t, func() bool { return strings.Contains(j.String(), "waiting") })
	h.grace = time.Second
	h.mu.Lock()
	p := h.running
	h.mu.Unlock()
	for timeout := 100 * time.Millisecond; p.life.Err() == nil; timeout *= 2 { // on a busy machine it is over before it begins
		if _, err := call(t, h, Request{Kind: PreCall, Path: "hooks.f.loops", Timeout: timeout}); err == nil || err.Error() != fmt.Sprintf("no answer within %s", timeout) {
			t.Fatal(err)
		}
	}
	if err := await.Value(t, other); err == nil || !strings.HasPrefix(err.Error(), "Python was ended because a function blocked it (hooks.f.loops did not end") {
		t.Errorf("the other call: %v", err)
	}
	if _, err := before(t, h, "quick"); err != nil {
		t.Error(err)
	}
}

// A crash fails the calls in flight, the next call starts Python again, and from the
// second crash on that waits longer and longer.
func TestACrashIsFollowedByAStart(t *testing.T) {
	h, _ := hosted(t, "hooks/f.py", `
import os, sys
async def crashes(context, args):
    print("going down", file=sys.stderr)
    os._exit(7)
async def quick(context, args):
    pass
`)
	const want = "Python ended (exit status 7) (going down)"
	if _, err := before(t, h, "crashes"); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := before(t, h, "quick"); err != nil {
		t.Error(err)
	}
	begun := time.Now()
	if _, err := before(t, h, "crashes"); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	h.mu.Lock()
	if h.again.Sub(begun) < time.Second || time.Until(h.again) > time.Second {
		t.Errorf("it is started again in %s", time.Until(h.again))
	}
	h.again = time.Now().Add(time.Hour)
	h.mu.Unlock()
	if _, err := before(t, h, "quick"); err == nil || !strings.HasPrefix(err.Error(), "Python ended (exit status 7); it is started again in 1h0m0s") {
		t.Error(err)
	}
	h.mu.Lock()
	h.again = time.Time{}
	h.mu.Unlock()
	if _, err := before(t, h, "quick"); err != nil {
		t.Error(err)
	}
}

// Who writes to the pipe itself, or far too much, is found out.
func TestWhatIsNoMessageEndsPython(t *testing.T) {
	for line, want := range map[string]string{
		`b"hello\n"`:       "Python was ended because it sent what is no message",
		`b" " * 1_000_000`: "Python was ended because it sent more than 16 MB in one line",
	} {
		h, _ := hosted(t, "hooks/f.py", `
import os, stat
def floods(context, args):
    while True:
        for fd in range(3, 30):
            try:
                if stat.S_ISFIFO(os.fstat(fd).st_mode):
                    os.write(fd, `+line+`)
            except OSError:
                pass
`)
		if _, err := before(t, h, "floods"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// A call of a tool that cannot be made is an error where it was made, and nowhere else.
func TestACallThatCannotBeMadeFailsAlone(t *testing.T) {
	h, j := hosted(t, "tools.py", `
from mcp_proxy import ProxyContext, custom_tool

@custom_tool
async def waits(ctx: ProxyContext):
    return await ctx.call_tool("s.slow")

@custom_tool
async def tries(ctx: ProxyContext):
    said = []
    for name, arguments in ((5, None), (None, None), ("s.a", [1]), ("s.a", {"x": object()}), ("s.a", {"x": float("nan")}), ("s.a", {(1,): 2})):
        try:
            said.append(await ctx.call_tool(name, arguments))
        except TypeError as e:
            said.append(str(e))
    try:
        await ctx.call_tool("s.a", text="x" * (17 << 20))
    except ValueError as e:
        said.append(str(e))
    return said

@custom_tool
def plain(ctx: ProxyContext):
    ctx.call_tool("s.a", {"x": {1}})

@custom_tool
async def wrong(ctx: ProxyContext):
    await ctx.call_tool(5)
`, "named.py", "from mcp_proxy import custom_tool\n@custom_tool(name=5)\ndef f(): pass\n")
	begun, release := make(chan struct{}), make(chan struct{})
	tools := func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		close(begun)
		<-release
		return json.RawMessage(`"slow"`), nil
	}
	beside := make(chan string, 1)
	go func() {
		got, err := call(t, h, Request{Kind: Tool, Path: "tools", Name: "waits", CallTool: tools})
		beside <- fmt.Sprint(got, err)
	}()
	await.Value(t, begun)
	for _, test := range []struct{ name, want, err string }{
		{"tries", `["the name of a tool is text like server.tool, not int","the name of a tool is text like server.tool, not NoneType",` +
			`"the arguments of a tool are a dict, not list","the arguments for s.a are no JSON: Object of type object is not JSON serializable",` +
			`"the arguments for s.a are no JSON: Out of range float values are not JSON compliant`, ""},
		{"plain", "", "tools.py:24: TypeError: the arguments for s.a are no JSON: Object of type set"},
		{"wrong", "", "tools.py:28: TypeError: the name of a tool is text"},
	} {
		got, err := call(t, h, Request{Kind: Tool, Path: "tools", Name: test.name})
		if !strings.HasPrefix(got, test.want) || test.err == "" && err != nil || test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)) {
			t.Errorf("%s: %s, %v; want %s%s", test.name, got, err, test.want, test.err)
		}
	}
	if _, err := h.Load(Tool, "named"); err == nil || !strings.HasPrefix(err.Error(), "named.py:2: TypeError: the name and the description of a custom tool are text, not int") {
		t.Error(err)
	}
	close(release)
	if got := await.Value(t, beside); got != `"slow"<nil>` || strings.Contains(j.String(), "Python ended") {
		t.Errorf("the call beside it: %s\n%s", got, j)
	}
}

// A file in the folder of the configuration that is called like a module of Python
// breaks only itself.
func TestAFileCalledLikeAModuleOfPythonBreaksNothing(t *testing.T) {
	files := []string{"f.py", "import json\nfrom mcp_proxy import HookResult\ndef g(context, args): return HookResult(args=json.loads('{}'))\ndef fails(context, args): raise ValueError('x')"}
	for _, name := range []string{"json", "token", "logging", "inspect", "tokenize", "linecache", "unicodedata", "types", "asyncio"} {
		files = append(files, name+".py", "raise RuntimeError('it was imported')")
	}
	h, _ := hosted(t, files...)
	if got, err := call(t, h, Request{Kind: PreCall, Path: "f.g"}); err != nil || got != `{"args":{}}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := call(t, h, Request{Kind: PreCall, Path: "f.fails"}); err == nil || !strings.HasPrefix(err.Error(), "f.py:4: ValueError: x") {
		t.Error(err)
	}
	if _, err := call(t, h, Request{Kind: PreCall, Path: "token.g"}); err == nil || err.Error() != "token.py has the name of a module of Python: give it another one" {
		t.Error(err)
	}
}

func TestWithoutPythonThereIsAReason(t *testing.T) {
	for command, want := range map[string]string{
		"no-such-python":      "no-such-python is not there (install Python 3.9 or later, or name an interpreter under the key python)",
		"/nonexistent/python": "python is not there (install",
		os.TempDir():          filepath.Base(os.TempDir()) + " cannot be started (",
		"false":               "Python ended (exit status 1)",
	} {
		h := New(Settings{Command: command, Dir: t.TempDir()}, slog.New(slog.DiscardHandler))
		if _, err := h.Load(PreCall, "hooks.f.g"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
		h.Close()
	}
}
