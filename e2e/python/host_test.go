//go:build unix

// Package python_test shows what the owner's hooks and tools in Python do, with the interpreter of the
// machine: the host alone, and behind a view.
package python_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/leeway"
	"toolfinch/internal/must"
	"toolfinch/view/python"
)

// needPython skips the test, or fails it where everything must run, without Python.
func needPython(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(python.DefaultCommand()); err == nil {
		return
	}
	if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
		t.Fatal("there is no Python (TOOLFINCH_TEST_REQUIRE=all)")
	}
	t.Skip("there is no Python")
}

func write(t testing.TB, dir, name, source string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(source), 0o600))
}

func TestMain(m *testing.M) {
	leeway.More.Store(int64(await.Bound)) // Python starts slowly on a busy machine
	os.Exit(m.Run())
}

// host is a host of Python and what it logs.
type host struct {
	*python.Host
	settings python.Settings
	log      *await.Log
}

// hosted is a host of the files of a configuration: name and source in turn.
func hosted(t testing.TB, files ...string) host {
	t.Helper()
	return hostedBy(t, python.Settings{}, files...)
}

func hostedBy(t testing.TB, settings python.Settings, files ...string) host {
	t.Helper()
	needPython(t)
	log := &await.Log{}
	settings.Dir = t.TempDir()
	for i := 0; i < len(files); i += 2 {
		write(t, settings.Dir, files[i], files[i+1])
	}
	h := host{python.New(settings, slog.New(slog.NewTextHandler(log, nil))), settings, log}
	t.Cleanup(h.Close)
	return h
}

const anybody = `{"view":"v","tool":"t","upstream":"s","name":"s_t","session":"","client":"c 1","principal":null,"headers":{},"meta":{}}`

// call loads and calls a function; fields of r that are zero are filled in.
func call(t testing.TB, h host, r python.Request) (string, error) {
	t.Helper()
	if _, err := h.Load(r.Kind, r.Path); err != nil {
		return "", err
	}
	r.Context = json.RawMessage(anybody)
	r.Timeout = cmp.Or(r.Timeout, await.Bound)
	if r.Args == nil {
		r.Args = json.RawMessage(`{}`)
	}
	got, err := h.Call(t.Context(), r)
	return string(got), err
}

// before calls hooks.f.NAME as a hook before a call.
func before(t testing.TB, h host, name string) (string, error) {
	t.Helper()
	return call(t, h, python.Request{Kind: python.PreCall, Path: "hooks.f." + name, Args: json.RawMessage(`{"q":"a","n":9007199254740993}`)})
}

func TestHooksAnswerWithAHookResult(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
from mcp_proxy import HookResult, ToolCallContext, custom_tool, ProxyContext
from mcp_proxy.hooks import HookResult as Same
assert Same is HookResult

async def changes(context: ToolCallContext, args: dict) -> HookResult:
    return HookResult(args={**args, "of": [context.view_name, context.tool_name, context.upstream_server, context.principal]})

def plain(context, args):
    return HookResult(args=dict(args, plain=True))

async def leaves(context, args):
    return HookResult()

async def none(context, args):
    pass

async def empties(context, args):
    return HookResult(args={})

async def refuses(context, args):
    return HookResult(abort=True, abort_reason="ask the owner")

class Counting:
    async def __call__(self, context, args):
        return HookResult(args={"object": True})
counting = Counting()

def prints(context, args):
    print("said on stdout")
    import sys, os
    os.write(1, b"written to 1\n")
    return HookResult(args={"read": sys.stdin.read()})

async def surrogate(context, args):
    return HookResult(args={"half": "\ud800", "whole": "\u017elu\u0165"})

async def whole(context, args):
    return HookResult(args={"whole": "\u017elu\u0165"})
`)
	for name, want := range map[string]string{
		"changes":   `{"args":{"q":"a","n":9007199254740993,"of":["v","t","s",null]}}`,
		"plain":     `{"args":{"q":"a","n":9007199254740993,"plain":true}}`,
		"leaves":    `{}`,
		"none":      `{}`,
		"empties":   `{"args":{}}`,
		"refuses":   `{"abort":"ask the owner"}`,
		"counting":  `{"args":{"object":true}}`,
		"prints":    `{"args":{"read":""}}`,
		"surrogate": `{"args":{"half":"\ud800","whole":"\u017elu\u0165"}}`,
		"whole":     `{"args":{"whole":"žluť"}}`,
	} {
		if got, err := before(t, h, name); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	await.True(t, func() bool {
		return strings.Contains(h.log.String(), "said on stdout") && strings.Contains(h.log.String(), "written to 1")
	})
}

// What goes wrong is told to the owner with its place, and to clients without paths.
func TestWhatGoesWrongIsTold(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
from mcp_proxy import HookResult
import os, sys

def few(context): pass
value = 5

async def raises(context, args):
    inner()

def inner():
    raise ValueError("bad: /srv/secret/list is none, see https://example.com/a/b")

def opens(context, args):
    open("/srv/secret/list")

async def exits(context, args):
    sys.exit("bye")

async def other(context, args):
    return {"abort": "no"}

async def early(context, args):
    return HookResult(result="x")

async def unwritable(context, args):
    return HookResult(args={"at": object()})

async def misspelt(context, args):
    h = HookResult()
    h.agrs = {"q": "safe"}
    return h

async def aborted(context, args):
    h = HookResult()
    h.aborted = True
    return h

async def foreign(context, args):
    raise ValueError("\x1b[2J one\n\u202e two")

from time import sleep
from textwrap import indent

async def infinite(context, args):
    return HookResult(args={"at": float("inf")})

async def large(context, args):
    return HookResult(args={"x": "x" * 20_000_000})
`, "hooks/broken.py", "x = 1\ndef f(:\n", "hooks/fails.py", "x = 1\nraise KeyError('k')\n", "hooks/lacks.py", "import no_such_package\n")
	for _, test := range []struct{ path, reason, detail string }{
		{"hooks.f.absent", "hooks.f has no absent; it has few, raises, inner", ""},
		{"hooks.f.few", "hooks.f.few does not take (context, args), which pre_call is called with", ""},
		{"hooks.f.value", "hooks.f.value is not a function", ""},
		{"hooks.f", "hooks.f is a module: name a function in it, like hooks.f.function", ""},
		{"hooks.f.HookResult", "hooks.f.HookResult is a class: name a function", ""},
		{"builtins.print", "builtins.print is a part of Python: name a function of yours", ""},
		{"hooks.f.sleep", "hooks.f.sleep is a part of Python: name a function of yours", ""},
		{"hooks.f.indent", "hooks.f.indent is a part of Python: name a function of yours", ""},
		{"hooks.f.misspelt", "f.py:31: AttributeError: 'HookResult' object has no attribute 'agrs'", "hooks/f.py:31"},
		{"hooks.f.aborted", "f.py:36: AttributeError: 'HookResult' object has no attribute 'aborted'", "hooks/f.py:36"},
		{"hooks.f.foreign", "f.py:40: ValueError: [2J one\ntwo", "hooks/f.py:40"},
		{"hooks.none.f", "there is no module hooks.none in the folder of the configuration, or that python", ""},
		{"hooks.broken.f", "broken.py:2: SyntaxError: invalid syntax", "hooks/broken.py:2"},
		{"hooks.fails.f", "fails.py:2: KeyError: 'k'", "hooks/fails.py:2"},
		{"hooks.lacks.f", "lacks.py:1: there is no module no_such_package", "hooks/lacks.py:1"},
		{"hooks.f.raises", "f.py:12: ValueError: bad: list is none, see https://example.com/a/b", "hooks/f.py:12"},
		{"hooks.f.opens", "f.py:15: FileNotFoundError: No such file or directory", "/srv/secret/list"},
		{"hooks.f.exits", "f.py:18: SystemExit: bye", "hooks/f.py:18"},
		{"hooks.f.other", "it returned dict: return a HookResult, or None", ""},
		{"hooks.f.early", "it returned a result: before a call there is none", ""},
		{"hooks.f.unwritable", "what it returned is no JSON: Object of type object is not JSON serializable", ""},
		{"hooks.f.infinite", "what it returned is no JSON: Out of range float values", ""},
		{"hooks.f.large", "it returned 20000017 bytes of JSON, more than", ""},
	} {
		_, err := call(t, h, python.Request{Kind: python.PreCall, Path: test.path})
		var failed *python.Error
		if !errors.As(err, &failed) || !strings.HasPrefix(failed.Reason, test.reason) || !strings.Contains(failed.Detail, filepath.FromSlash(test.detail)) {
			t.Errorf("%s: %v; want %q and %q", test.path, err, test.reason, test.detail)
			continue
		}
		if strings.ContainsAny(err.Error(), "\x1b\u202e") {
			t.Errorf("%s: not printable: %q", test.path, err)
		}
		if strings.Contains(failed.Reason, "/srv") || strings.Contains(failed.Reason, h.settings.Dir) {
			t.Errorf("%s: clients are told a path: %s", test.path, failed.Reason)
		}
		if answered := strings.Contains(test.reason, "it returned "); failed.Misanswered != answered {
			t.Errorf("%s: misanswered %t", test.path, failed.Misanswered)
		}
	}
}

func TestAToolIsDescribedByItsFunction(t *testing.T) {
	h := hosted(t, "hooks/tools.py", `
from __future__ import annotations
from typing import Any, Dict, List, Literal, Optional, Union
from mcp_proxy.custom_tools import custom_tool, ProxyContext

@custom_tool(name="all_types", description="Has them all.")
async def f(ctx: ProxyContext, s: str, i: int, x: float, b: bool, names: List[str], any: Any, untyped, of: Dict[str, int],
            how: Literal["a", "b"] = "a", limit: Optional[int] = None, either: Union[int, str] = 3, plain: dict = {}, at: object = object):
    """Not this."""

@custom_tool
def documented(word: str, most: int = 5) -> str:
    """Finds a word.

    Args:
        word: what to look for
        most (int): how many at most
    """
    return word * most
`)
	got, err := h.Load(python.Tool, "hooks.tools")
	want := `[{"name":"all_types","description":"Has them all.","parameters":[` +
		`{"name":"s","required":true,"schema":{"type":"string"}},{"name":"i","required":true,"schema":{"type":"integer"}},` +
		`{"name":"x","required":true,"schema":{"type":"number"}},{"name":"b","required":true,"schema":{"type":"boolean"}},` +
		`{"name":"names","required":true,"schema":{"type":"array","items":{"type":"string"}}},{"name":"any","required":true,"schema":{}},` +
		`{"name":"untyped","required":true,"schema":{}},{"name":"of","required":true,"schema":{"type":"object","additionalProperties":{"type":"integer"}}},` +
		`{"name":"how","required":false,"schema":{"enum":["a","b"],"default":"a"}},` +
		`{"name":"limit","required":false,"schema":{"anyOf":[{"type":"integer"},{"type":"null"}]}},` +
		`{"name":"either","required":false,"schema":{"anyOf":[{"type":"integer"},{"type":"string"}],"default":3}},` +
		`{"name":"plain","required":false,"schema":{"type":"object","default":{}}},{"name":"at","required":false,"schema":{}}]},` +
		`{"name":"documented","description":"Finds a word.\n\nArgs:\n    word: what to look for\n    most (int): how many at most","parameters":[` +
		`{"name":"word","required":true,"schema":{"type":"string","description":"what to look for"}},` +
		`{"name":"most","required":false,"schema":{"type":"integer","description":"how many at most","default":5}}]}]`
	if text, _ := json.Marshal(got); err != nil || string(text) != want {
		t.Errorf("%v\n got %s\nwant %s", err, text, want)
	}
}

// Tools call tools by way of toolfinch, several at once, also from plain functions.
func TestToolsCallTools(t *testing.T) {
	h := hosted(t, "tools.py", `
import asyncio
from mcp_proxy import ProxyContext, custom_tool

@custom_tool()
async def both(ctx: ProxyContext, word: str):
    a, b = await asyncio.gather(ctx.call_tool("s.a", q=word), ctx.call_tool("s.b", {"q": word}, name="x"))
    return {"a": a, "b": b}

@custom_tool()
def plain(ctx, word):
    return ctx.call_tool("s.a", q=word)["says"]

@custom_tool()
async def fails(ctx, word):
    await ctx.call_tool("s.broken", q=word)
`)
	var met sync.WaitGroup
	met.Add(2)
	tools := func(_ context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
		switch {
		case name == "s.broken":
			return nil, errors.New("the disk is full")
		case strings.Contains(string(arguments), "both"):
			met.Done()
			met.Wait() // both are called before one answers
		}
		return fmt.Appendf(nil, `{"says":%q}`, name+" "+string(arguments)), nil
	}
	for _, test := range []struct{ name, want, err string }{
		{"both", `{"a":{"says":"s.a {\"q\":\"both\"}"},"b":{"says":"s.b {\"q\":\"both\",\"name\":\"x\"}"}}`, ""},
		{"plain", `"s.a {\"q\":\"plain\"}"`, ""},
		{"fails", ``, "the disk is full"},
	} {
		got, err := call(t, h, python.Request{Kind: python.Tool, Path: "tools", Name: test.name, Args: fmt.Appendf(nil, `{"word":%q}`, test.name), CallTool: tools})
		if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
	}
}

// Calls of all kinds run side by side: each waits until all have begun.
func TestCallsRunSideBySide(t *testing.T) {
	const each = 20
	h := hosted(t, "hooks/f.py", fmt.Sprintf(`
import asyncio, threading
from mcp_proxy import HookResult
begun, all_begun, lock = [], asyncio.Event(), threading.Lock()
def begin():
    with lock:
        begun.append(1)
        return len(begun) == %d
async def waits(context, args):
    if begin(): all_begun.set()
    await all_begun.wait()
    return HookResult(args=args)
def plain(context, args):
    if begin(): context_loop.call_soon_threadsafe(all_begun.set)
    asyncio.run_coroutine_threadsafe(all_begun.wait(), context_loop).result()
    return HookResult(args=args)
context_loop = asyncio.get_running_loop()
`, 2*each))
	for _, name := range []string{"waits", "plain"} {
		must.Get(h.Load(python.PreCall, "hooks.f."+name))(t)
	}
	var calls sync.WaitGroup
	for i := range each {
		for _, name := range []string{"waits", "plain"} {
			calls.Go(func() {
				args := fmt.Sprintf(`{"n":%d}`, i)
				got, err := h.Call(t.Context(), python.Request{Kind: python.PreCall, Path: "hooks.f." + name, Context: json.RawMessage(anybody), Args: json.RawMessage(args), Timeout: await.Bound})
				if err != nil || string(got) != `{"args":`+args+`}` {
					t.Errorf("%s %d: %s, %v", name, i, got, err)
				}
			})
		}
	}
	calls.Wait()
}

// Plain functions cannot be stopped while they sleep. When too many run on although
// nobody waits for them, Python is replaced.
func TestFunctionsThatDoNotEndAreBounded(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
import time
def sleeps(context, args):
    time.sleep(1000)
`)
	sleep := func() {
		if _, err := call(t, h, python.Request{Kind: python.PreCall, Path: "hooks.f.sleeps", Timeout: 200 * time.Millisecond}); err == nil {
			t.Error("it slept for a thousand seconds")
		}
	}
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(sleep)
	}
	calls.Wait()
	await.True(t, func() bool {
		sleep() // on a busy machine some were over before they began
		return strings.Contains(h.log.String(), "32 plain functions did not end when their time was over")
	})
}

// An edit of any file that was imported from the folder, or the appearance of one that
// was missing, asks for another host; calls in flight end on the one that they are on.
func TestAnEditAsksForAnotherHost(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	h := hosted(t, "hooks/f.py", `
import asyncio, os
from hooks import part
async def g(context, args):
    print("running", os.getpid())
    while not os.path.exists(args["until"]):
        await asyncio.sleep(0.005)
    return part.made()
`, "hooks/part.py", `
from mcp_proxy import HookResult
def made(): return HookResult(args={"from": 1})
`)
	slow := make(chan string, 1)
	request := python.Request{Kind: python.PreCall, Path: "hooks.f.g", Args: fmt.Appendf(nil, `{"until":%q}`, started)}
	go func() {
		got, err := call(t, h, request)
		slow <- fmt.Sprint(got, err)
	}()
	await.Contains(t, h.log.String, "running")
	settings := h.settings
	if h.Current(settings) != h.Host {
		t.Error("another host without an edit")
	}
	write(t, settings.Dir, "hooks/part.py", "from mcp_proxy import HookResult\ndef made(): return HookResult(args={\"from\": 22})\n")
	next := h.Current(settings)
	if next == h.Host {
		t.Fatal("the edit was not seen")
	}
	t.Cleanup(next.Close)
	h.Retire()
	write(t, filepath.Dir(started), "started", "")
	if got := await.Value(t, slow); got != `{"args":{"from":1}}<nil>` {
		t.Errorf("the call in flight: %s", got)
	}
	if got, err := call(t, host{next, settings, h.log}, request); err != nil || got != `{"args":{"from":22}}` {
		t.Errorf("a call after it: %s, %v", got, err)
	}
	if got, err := call(t, h, request); err != nil || got != `{"args":{"from":22}}` { // of what was served before
		t.Errorf("a late call: %s, %v", got, err)
	}

	if _, err := next.Load(python.PreCall, "hooks.later.g"); err == nil {
		t.Error("what is not there was loaded")
	}
	if want := filepath.Join(settings.Dir, "hooks", "later.py"); !slices.Contains(next.Files(), want) {
		t.Errorf("%q lacks %s", next.Files(), want)
	}
}

func TestACallThatWasGivenUpEndsInPython(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
import asyncio
async def waits(context, args):
    print("waiting")
    try:
        await asyncio.sleep(1000)
    finally:
        print("given up")
`)
	must.Get(h.Load(python.PreCall, "hooks.f.waits"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := h.Call(ctx, python.Request{Kind: python.PreCall, Path: "hooks.f.waits", Context: json.RawMessage(anybody), Args: json.RawMessage(`{}`), Timeout: await.Bound})
		ended <- err
	}()
	await.Contains(t, h.log.String, "waiting")
	cancel()
	if err := await.Value(t, ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	await.Contains(t, h.log.String, "given up")
}

func TestCloseLeavesNothing(t *testing.T) {
	await.NoLeak(t, func() {
		h := hosted(t, "hooks/f.py", "async def g(context, args): pass")
		must.Get(before(t, h, "g"))(t)
		h.Close()
		if _, err := before(t, h, "g"); err == nil || err.Error() != "Python was closed" {
			t.Error(err)
		}
	})
}

func TestPythonGetsTheMinimalEnvironment(t *testing.T) {
	t.Setenv("MY_SECRET", "x")
	t.Setenv("INHERITED", "i")
	h := hostedBy(t, python.Settings{Env: map[string]string{"GIVEN": "g"}, InheritEnv: []string{"INHER*"}}, "hooks/f.py", `
import os
from mcp_proxy import HookResult
def g(context, args): return HookResult(args={k: os.environ.get(k) for k in ("MY_SECRET", "INHERITED", "GIVEN")})
`)
	if got, err := before(t, h, "g"); got != `{"args":{"MY_SECRET":null,"INHERITED":"i","GIVEN":"g"}}` {
		t.Errorf("%s, %v", got, err)
	}
}

func BenchmarkHook(b *testing.B) {
	h := hosted(b, "hooks/f.py", `
from mcp_proxy import HookResult
async def changes(context, args):
    return HookResult(args={**args, "user": context.principal})
def plain(context, args):
    return HookResult(args={**args, "user": context.principal})
`)
	for _, name := range []string{"changes", "plain"} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				must.Get(before(b, h, name))(b)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// A call whose time is over before the loop, which another function blocks, can begin it, is answered as
// any other, and costs the calls beside it nothing.
func TestACallThatIsOverBeforeItBegins(t *testing.T) {
	h := hosted(t, "hooks/f.py", `
import asyncio, os, time
from mcp_proxy import HookResult
async def lasts(context, args):
    print("lasting", flush=True)
    while not os.path.exists("unblocked"):
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.1) # so that it goes on beside what is cancelled
    return HookResult(args=args)
async def blocks(context, args):
    print("blocking", flush=True)
    while not os.path.exists("unblocked"):
        time.sleep(0.005)
    time.sleep(0.1) # until the time of the others is over
    return HookResult(args=args)
async def waits(context, args):
    return HookResult(args=args)
`)
	for _, name := range []string{"lasts", "blocks", "waits"} {
		must.Get(h.Load(python.PreCall, "hooks.f."+name))(t)
	}
	beside := make(chan error, 2)
	for _, name := range []string{"lasts", "blocks"} {
		go func() {
			_, err := before(t, h, name)
			beside <- err
		}()
		await.True(t, func() bool { return strings.Contains(h.log.String(), name[:len(name)-1]+"ing") })
	}
	var over sync.WaitGroup
	for range 20 {
		over.Go(func() {
			_, _ = call(t, h, python.Request{Kind: python.PreCall, Path: "hooks.f.waits", Timeout: time.Millisecond})
		})
	}
	write(t, h.settings.Dir, "unblocked", "")
	over.Wait()
	if strings.Contains(h.log.String(), "Python was ended") {
		t.Errorf("it was waited for in vain:\n%s", h.log)
	}
	for range 2 {
		if err := await.Value(t, beside); err != nil {
			t.Errorf("a call beside it: %v", err)
		}
	}
}
