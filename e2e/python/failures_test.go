//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/view/python"
)

// A function that waits stalls nobody: async ones give way, plain ones have a thread.
// The deadline ends both, and Python goes on.
func TestADeadlineEndsAFunctionAlone(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
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
	must.Get(before(t, h, "quick"))(t)
	for _, name := range []string{"waits", "sleeps", "loops"} {
		late := make(chan error, 1)
		go func() {
			_, err := call(t, h, python.Request{Kind: python.PreCall, Path: "hooks.f." + name, Timeout: 100 * time.Millisecond})
			late <- err
		}()
		if _, err := before(t, h, "quick"); err != nil {
			t.Errorf("beside %s: %v", name, err)
		}
		if err := await.Value(t, late); err == nil || err.Error() != "no answer within 100ms" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := before(t, h, "quick"); err != nil || strings.Contains(h.log.String(), "Python ended") {
		t.Errorf("%v\n%s", err, h.log)
	}
}

// An endless loop that gives nobody else a chance costs the process: the other calls
// in flight say why, and the next one finds a new process.
func TestABlockedPythonIsReplaced(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
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
	await.Contains(t, h.log.String, "waiting")
	await.Expiry(t)
	for timeout := 100 * time.Millisecond; !strings.Contains(h.log.String(), "Python ended"); timeout *= 2 { // on a busy machine it is over before it begins
		if _, err := call(t, h, python.Request{Kind: python.PreCall, Path: "hooks.f.loops", Timeout: timeout}); err == nil || err.Error() != fmt.Sprintf("no answer within %s", timeout) {
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

// A crash fails the calls in flight, the next call starts Python again, and after more crashes that waits.
func TestACrashIsFollowedByAStart(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
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
	await.True(t, func() bool { // once two calls come sooner one after the other than Python may start
		_, err := before(t, h, "crashes")
		return err != nil && strings.HasPrefix(err.Error(), "Python ended (exit status 7); it is started again in ")
	})
	await.Nil(t, func() error { _, err := before(t, h, "quick"); return err })
}

// Who writes to the pipe itself, or far too much, is found out.
func TestWhatIsNoMessageEndsPython(t *testing.T) {
	for line, want := range map[string]string{
		`b"hello\n"`:       "Python was ended because it sent an invalid message",
		`b" " * 1_000_000`: "Python was ended because it sent more than 16 MB in one line",
	} {
		h := hosted(t, "hooks/f.py", `
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
	h := hosted(t, "tools.py", `
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
		got, err := call(t, h, python.Request{Kind: python.Tool, Path: "tools", Name: "waits", CallTool: tools})
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
		got, err := call(t, h, python.Request{Kind: python.Tool, Path: "tools", Name: test.name})
		if !strings.HasPrefix(got, test.want) || test.err == "" && err != nil || test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)) {
			t.Errorf("%s: %s, %v; want %s%s", test.name, got, err, test.want, test.err)
		}
	}
	if _, err := h.Load(python.Tool, "named"); err == nil || !strings.HasPrefix(err.Error(), "named.py:2: TypeError: the name and the description of a custom tool are text, not int") {
		t.Error(err)
	}
	close(release)
	if got := await.Value(t, beside); got != `"slow"<nil>` || strings.Contains(h.log.String(), "Python ended") {
		t.Errorf("the call beside it: %s\n%s", got, h.log)
	}
}

// A file in the folder of the configuration that is called like a module of Python
// breaks only itself.
func TestAFileCalledLikeAModuleOfPythonBreaksNothing(t *testing.T) {
	files := []string{"f.py", "import json\nfrom mcp_proxy import HookResult\ndef g(context, args): return HookResult(args=json.loads('{}'))\ndef fails(context, args): raise ValueError('x')"}
	for _, name := range []string{"json", "token", "logging", "inspect", "tokenize", "linecache", "unicodedata", "types", "asyncio"} {
		files = append(files, name+".py", "raise RuntimeError('it was imported')")
	}
	h := hosted(t, files...)
	if got, err := call(t, h, python.Request{Kind: python.PreCall, Path: "f.g"}); err != nil || got != `{"args":{}}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := call(t, h, python.Request{Kind: python.PreCall, Path: "f.fails"}); err == nil || !strings.HasPrefix(err.Error(), "f.py:4: ValueError: x") {
		t.Error(err)
	}
	if _, err := call(t, h, python.Request{Kind: python.PreCall, Path: "token.g"}); err == nil || err.Error() != "token.py has the name of a module of Python: give it another one" {
		t.Error(err)
	}
}
