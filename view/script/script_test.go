package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/must"
)

// load loads a module named hook.star, with others beside it.
func load(t testing.TB, source string, others ...string) *Program {
	t.Helper()
	p := must.Get(Load(write(t, source, others...), nil, nil))(t)
	return p
}

// write writes hook.star, and the files named in others before their sources.
func write(t testing.TB, source string, others ...string) string {
	t.Helper()
	folder := t.TempDir()
	for file := range slices.Chunk(append([]string{"hook.star", source}, others...), 2) {
		to := filepath.Join(folder, file[0])
		must.Do(t, os.MkdirAll(filepath.Dir(to), 0o700))
		must.Do(t, os.WriteFile(to, []byte(file[1]), 0o600))
	}
	return filepath.Join(folder, "hook.star")
}

func function(t testing.TB, source, name string) *Function {
	t.Helper()
	f := must.Get(load(t, source).Function(name))(t)
	return f
}

var info = &Info{
	View: "v", Tool: "t", Name: "n", Upstream: "u", Session: "s", Client: "c 1", Headers: map[string]string{"X-User": "ann"},
	Meta: json.RawMessage(`{"progressToken":7}`),
}

func TestValuesPassThroughAScript(t *testing.T) {
	f := function(t, "def same(ctx, x):\n  return x", "same")
	for _, test := range []struct{ in, want string }{
		{`{"b":1,"a":{"d":[],"c":{}}}`, ""},
		{`[12345678901234567890123, -9007199254740993, 1.0, 0.5, -1.25, 1e300, 1e-9]`, `[12345678901234567890123,-9007199254740993,1.0,0.5,-1.25,1e+300,1e-09]`},
		{`" <b>&amp; é 漢 🦜 \u2028 \n\t\"\\\/\u0001"`, `" <b>&amp; é 漢 🦜 \u2028 \n\t\"\\/\u0001"`},
		{`"\ud83e\udd9c \ud800 x"`, "\"🦜 \uFFFD x\""},
		{"\"\xff\"", `"\ufffd"`},
		{`{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		{`{"a":null,"b":true,"c":false,"":""}`, ""},
		{" [ ] ", "[]"}, {`0`, ``}, {`-0.0`, ``}, {`100000000000000000000.0`, ``},
	} {
		got, err := f.Call(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(test.in))
		if test.want == "" {
			test.want = test.in
		}
		if err != nil || string(got) != test.want {
			t.Errorf("%s became %s, %v; want %s", test.in, got, err, test.want)
		}
	}
	for _, bad := range []string{``, `{`, `{"a"}`, `{"a":1,}`, `[1,]`, `[1 2]`, `01`, `1.`, `-`, `1e`, `nul`, `"`, `"\x"`, "\"\n\"", `1 2`, `{a:1}`, `1e999`} {
		if got, err := f.Call(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(bad)); err == nil {
			t.Errorf("%q became %s, want an error", bad, got)
		}
	}
	if got, err := f.Call(context.Background(), nil, nil, Limits{}, nil, nil); got != nil || err != nil {
		t.Errorf("None became %s, %v", got, err)
	}
}

func TestRunResults(t *testing.T) {
	for _, test := range []struct{ source, want string }{
		{"result = {'a': (1, 2), 'b': struct(x = 1.5), 'c': range(3), 'd': set([1])}", `{"a":[1,2],"b":{"x":1.5},"c":[0,1,2],"d":[1]}`},
		{"x = 1", ""},
		{"def main():\n  return 1", "1"},
		{"def main(ctx):\n  return ctx.view", `"v"`},
		{"x = [1]\nx += (2,)\nx += [3]\ny = x\ny += [4]\nresult = x", "[1,2,3,4]"},
		{"d = {'a': 1}\nd['a'] += 2\nd |= {'b': 1}\ne = d | {'c': 2}\nresult = [d, e]", `[{"a":3,"b":1},{"a":3,"b":1,"c":2}]`},
		{"n = {'i': 0}\ndef next():\n  n['i'] += 1\n  return n['i']\nx = [0] * 3\nx[next()] += 5\nresult = [x, n['i']]", "[[0,5,0],1]"},
		{"x = 7\nx %= 4\ny = 1\ny <<= 3\nz = '%s!'\nz %= 'a'\nx -= 5\ny //= 3\nresult = [x, y, z, -x, ~y, +x]", `[-2,2,"a!",2,-3,-2]`},
		{"a = [0, 1, 2, 3, 4]\nresult = [a[1:3], a[::-1], a[-2:], a[:-1:2], a[4:1:-2], a[9:], 'abc'[::2], 'abc'[-1], (1, 2)[:1], a[3:1]]", `[[1,2],[4,3,2,1,0],[3,4],[0,2],[4,2],[],"ac","c",[1],[]]`},
		{"result = [1 in [1], 2 not in (1,), 'b' in 'abc', 'k' in {'k': 1}, [1] == [1], (1, 2) < (1, 3), not 1]", "[true,true,true,true,true,true,false]"},
		{"result = {k: v for k, v in [('a', 1), ('b', 2)] if v > 1}", `{"b":2}`},
		{"def f(a, *b, c = 3, **d):\n  return [a, b, c, d]\nresult = f(*[1, 2], **{'e': 5})", `[1,[2],3,{"e":5}]`},
		{"result = sorted(['bb', 'a'], key = lambda x: -len(x), reverse = True) + sorted([3, 1, 2])", `["a","bb",1,2,3]`},
		{"result = [min(3, 1), max([1, 5]), list(zip([1, 2], 'a b'.split())), enumerate(['x'], 1), dict([('a', 1)], b = 2), tuple([1]), reversed([1, 2]), any([0, 1]), all([])]", `[1,5,[[1,"a"],[2,"b"]],[[1,"x"]],{"a":1,"b":2},[1],[2,1],true,true]`},
		{"result = ['a,b'.split(','), '-'.join(['a', 'b']), 'aXa'.replace('a', 'b', 1), '{} {x}'.format(1, x = 2), '%s %d %r' % ('a', 2, 'b'), ' a '.strip(), 'Ab'.upper()]", `[["a","b"],"a-b","bXa","1 2","a 2 \"b\"","a","AB"]`},
		{"result = [json.decode('{\"a\": 1.0}'), json.encode({'b': [None, True]}), json.decode('x', None), json.indent('[1,2]', indent = ' ')]", `[{"a":1.0},"{\"b\":[null,true]}",null,"[\n 1,\n 2\n]"]`},
		{"m = re.search(r'(?P<user>\\w+)@(\\w+)', 'to ann@home now')\nresult = [m.group(), m.group(1), m.group('user'), m.groups(), m.span(), m.groupdict()]", `["ann@home","ann","ann",["ann","home"],[3,11],{"user":"ann"}]`},
		{"result = [re.match('b', 'ab'), re.fullmatch('a', 'ab'), bool(re.match('a', 'ab')), re.findall('[0-9]+', 'a1b22'), re.findall('(.)(1)', 'a1b1'), re.split(', *', 'a,  b,c', 1), re.match(r'\\Q.', '.a').span(), bool(re.fullmatch(r'\\pL+ \\pL+ \\pL+ \\pL+', 'a b c d'))]", `[null,null,true,["1","22"],[["a","1"],["b","1"]],["a","b,c"],[0,1],true]`},
		{"result = [re.sub(r'(\\w)-(?P<n>\\w)', r'\\g<n>\\\\\\1', 'a-b c-d', 1), re.sub('x', '', 'axb')]", `["b\\a c-d","ab"]`},
		{"result = [time.parse('2024-02-29T12:00:00.5Z'), time.parse('1970-01-02'), time.format(86400, '%Y/%m/%d %H:%M:%S %% %f'), time.format(0), time.now() > 1700000000]", `[1709208000.5,86400.0,"1970/01/02 00:00:00 % 000000","1970-01-01T00:00:00Z",true]`},
		{"result = [hash.sha256('a')[:8], hash.md5('a'), hash.hmac_sha256('k', 'a')[:8], math.floor(1.5)]", `["ca978112","0cc175b9c0f1b6a831c399e269772661","78da9151",1]`},
		{"result = [sorted([3, 1, 2], reverse = True), sorted([(1, 'b'), (0, 'c'), (1, 'a')], key = lambda p: p[0]), sorted([(1, 'b'), (0, 'c'), (1, 'a')], key = lambda p: p[0], reverse = True), sorted(['b', 'A'], key = len)]", `[[3,2,1],[[0,"c"],[1,"b"],[1,"a"]],[[1,"b"],[1,"a"],[0,"c"]],["b","A"]]`},
		{"result = [min([3, 1, 2]), max('a', 'c', 'b'), min(['bb', 'a', 'c'], key = len), max(['bb', 'a', 'cc'], key = len), min([1])]", `[1,"c","a","bb",1]`},
		{"result = [hasattr('', 'join'), hasattr('', 'x'), getattr(struct(a = 1), 'b', 2), getattr(struct(a = 1), 'a', 2), hasattr(struct(a = 1), 'a'), dir(struct(b = 1, a = 2)), dir(1)]", `[true,false,2,1,true,["a","b"],[]]`},
		{"result = ['a b c'.rsplit(None, 1), 'a b c'.split(' ', 1), 'a b c'.split(' ', 100), 'xax'.strip('x'), '«a»'.strip('«»'), 'abc'.startswith(('x', 'ab')), 'abc'.endswith('bc')]", `[["a b","c"],["a","b c"],["a","b","c"],"a","a",true,true]`},
		{"result = [int('ff', base = 16), int('7'), int(1.5), abs(-2), float('1.5'), math.log(8, 2), '{a!r}'.format(a = 'x'), '{:}'.format(1)]", `[255,7,1,2,1.5,3.0,"\"x\"","1"]`},
		{"result = call_tool('echo', {'a': 1}, b = 2.0)", `{"a":1,"b":2.0}`},
		{"result = retrieve('files', limit = 2)", `[{"name":"files","limit":2}]`},
		{"result = parallel([{'tool': 'echo', 'args': {'n': 1}}, {'tool': 'fail'}, {'tool': 'bad'}, {'tool': 'panic'}])", `[{"result":{"n":1}},{"error":"the tool is out of order"},{"error":"invalid JSON: unexpected end of JSON input"},{"error":"panic: a bug"}]`},
	} {
		got, err := runHere(test.source, Limits{Calls: 10}, nil)
		if err != nil || string(got) != test.want {
			t.Errorf("%s\ngives %s, %v\nwant  %s", test.source, got, err, test.want)
		}
	}
}

func TestContextHasWhatIsKnownOfTheCall(t *testing.T) {
	f := function(t, "def pre_call(ctx, args):\n  return [ctx.view, ctx.tool, ctx.name, ctx.upstream, ctx.session, ctx.client, ctx.principal, ctx.headers, ctx.meta]", "pre_call")
	for _, test := range []struct {
		info *Info
		want string
	}{
		{info, `["v","t","n","u","s","c 1",null,{"X-User":"ann"},{"progressToken":7}]`},
		{nil, `["","","","","","",null,{},{}]`},
		{&Info{Principal: "ann"}, `["","","","","","","ann",{},{}]`},
	} {
		got, err := f.Call(context.Background(), test.info, nil, Limits{}, nil, json.RawMessage(`{}`))
		if err != nil || string(got) != test.want {
			t.Errorf("%s, %v; want %s", got, err, test.want)
		}
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	for _, test := range []struct{ source, want string }{
		{"x = 1\ny = x + 'a'", "script:2: unknown binary op: int + string"},
		{"def f(x):\n  return x.nme\n\nf('a')", "script:2: string has no .nme field or method"},
		{"x = 'a'.joyn([])", "script:1: string has no .joyn field or method (did you mean .join?)"},
		{"x = nothing", "script:1: undefined: nothing"},
		{"x = [1\n", "script:2: got end of file, want ']'"},
		{"\nx = {}['k']", `script:2: key "k" not in dict`},
		{"def f():\n  return f()\nf()", "script:2: function f called recursively"},
		{"import json", "script:1: got import, want primary expression (there is no import: json, re, time, hash and math are there already)"},
		{"x = 1\nwhile x:\n  pass", "script:2: this Starlark dialect does not support while loops (there is no while: use for ... in range(n) and break)"},
		{"x = f'{1}'", `script:1: got string literal, want newline (there are no f-strings: use "%s" % x or "{}".format(x))`},
		{"x = 1\ny = 2 if x is None else 3", `script:2: conditional expression without else clause (there is no "is": use == or !=)`},
		{"x = 2 ** 3", "script:1: got '**', want newline (there is no ** operator: use math.pow(x, y))"},
		{"def f(x: int):\n  return x", "script:1: got ':', want ')' (there are no type annotations: leave them out)"},
		{"x: int = 1", "script:1: got ':', want newline (there are no type annotations: leave them out)"},
		{"async def f():\n  pass", "script:1: got async, want primary expression (there is no async: use parallel([...]))"},
		{"x = sum([1])", "script:1: undefined: sum (there is no sum: add in a loop)"},
		{"fail('no luck')", "script:1: fail: no luck"},
		{"load('x.star', 'y')", "script:1: load not implemented by this application"},
		{"result = {1: 2}", "script: the result: a key of a JSON object must be a string, this one is int"},
		{"sorted([1, 'a'])", "script:1: string < int not implemented"},
		{"sorted([1], key = lambda x: x.nope)", "script:1: int has no .nope field or method"},
		{"max([])", "script:1: max: argument is an empty sequence"},
		{"json.dekode('1')", "script:1: module has no .dekode field or method (did you mean .decode?)"},
		{"def f():\n  return lenn(1)", "script:2: undefined: lenn (did you mean len?)"},
		{"total = 1\ndef f():\n  x = 1\nprint(totl, x)", "script:4: undefined: totl (did you mean total?)"},
		{"result = {'é'[:1]: 1}", "script: the result: a key of a JSON object must be whole characters"},
		{"result = float('nan')", "script: the result: NaN is no JSON"},
		{"result = len", "script: the result: a builtin_function_or_method is no JSON"},
		{"re.search('(?=a)', 'a')", "script:1: re.search: error parsing regexp: invalid or unsupported Perl syntax: `(?=` (there is no looking ahead or behind)"},
		{"call_tool('fail')", "script:1: call_tool fail: the tool is out of order"},
		{"parallel([{'tol': 'x'}])", `script:1: parallel: call 0: want {"tool": name, "args": {...}} and nothing else`},
		{"def f(x):\n  y = 1\n  return g(x)\ndef g(x):\n  return x[5]\nf([])", "script:5: index 5 out of range: empty list"},
	} {
		_, err := runHere(test.source, Limits{Calls: 5}, nil)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s\nerror %v\nwant  %s", test.source, err, test.want)
		}
	}
	_, err := runHere("call_tool('fail')", Limits{Calls: 5}, nil)
	if !errors.Is(err, errFake) {
		t.Errorf("%v does not wrap what the host returned", err)
	}
}

func TestHooksCannotCallTools(t *testing.T) {
	for _, call := range []string{"call_tool('t')", "parallel([])", "retrieve('q')"} {
		f := function(t, "def pre_call(ctx, args):\n  return ctx."+call, "pre_call")
		_, err := f.Call(context.Background(), nil, nil, Limits{}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "hook.star:2: "+call[:strings.Index(call, "(")]+": hooks cannot call tools") {
			t.Errorf("%s: error %v", call, err)
		}
	}
}

func TestAbortAndLog(t *testing.T) {
	f := function(t, "def pre_call(ctx, args):\n  print('called', args)\n  ctx.log({'n': 1})\n  abort('not for you')", "pre_call")
	var lines []string
	_, err := f.Call(context.Background(), nil, nil, Limits{}, func(line string) { lines = append(lines, line) }, json.RawMessage(`{"a":1}`))
	var abort *AbortError
	if !errors.As(err, &abort) || abort.Reason != "not for you" {
		t.Errorf("error %v", err)
	}
	if want := []string{`called {"a": 1}`, `{"n": 1}`}; !slices.Equal(lines, want) {
		t.Errorf("log %q, want %q", lines, want)
	}
}

func TestModulesAreFrozenAndCallsConcurrent(t *testing.T) {
	p := load(t, "seen = []\ndef bad(ctx):\n  seen.append(1)\ndef good(ctx, n):\n  mine = [n]\n  mine.append(counter('k', 60))\n  return mine[0] + len(seen)")
	bad, err := p.Function("bad")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bad.Call(context.Background(), nil, nil, Limits{}, nil); err == nil || !strings.Contains(err.Error(), "hook.star:3: append: cannot append to frozen list (what a module defines cannot change") {
		t.Errorf("error %v", err)
	}
	good, err := p.Function("good")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			got, err := good.Call(context.Background(), info, nil, Limits{}, nil, json.RawMessage(fmt.Sprint(n)))
			if err != nil || string(got) != fmt.Sprint(n) {
				t.Errorf("%d: %s, %v", n, got, err)
			}
		})
	}
	all.Wait()
	if got := p.count.count("k", time.Minute, time.Now()); got != 51 {
		t.Errorf("counted %d times, want 51", got)
	}
}

func TestCounterCountsWithinAWindow(t *testing.T) {
	p := load(t, "def f(ctx, key, seconds):\n  return counter(key, seconds)")
	f := must.Get(p.Function("f"))(t)
	start := time.Unix(1_700_000_000, 0)
	for _, step := range []struct {
		after        time.Duration
		key, seconds string
		want         string
	}{
		{0, `"a"`, "60", "1"}, {time.Second, `"a"`, "60", "2"}, {time.Second, `"b"`, "60", "1"}, {2 * time.Second, `"a"`, "10", "1"},
		{59 * time.Second, `"a"`, "60", "3"}, {60 * time.Second, `"a"`, "60", "3"}, {61 * time.Second, `"a"`, "60", "3"}, {10 * time.Minute, `"a"`, "60", "1"},
		{10 * time.Minute, `"a"`, "0.5", "1"},
	} {
		p.now = func() time.Time { return start.Add(step.after) }
		got, err := f.Call(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(step.key), json.RawMessage(step.seconds))
		if err != nil || string(got) != step.want {
			t.Errorf("%s in %s s after %s: %s, %v; want %s", step.key, step.seconds, step.after, got, err, step.want)
		}
	}
	for _, bad := range []string{"0", "-1", `"x"`, "1e300"} {
		if _, err := f.Call(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(`"a"`), json.RawMessage(bad)); err == nil {
			t.Errorf("a window of %s seconds is no error", bad)
		}
	}
}

func TestCounterIsBounded(t *testing.T) {
	var c counter
	now := time.Unix(1_700_000_000, 0)
	for i := range 3 * maxKeys {
		c.count(fmt.Sprint("key ", i), time.Hour, now.Add(time.Duration(i)))
	}
	if len(c.windows) > maxKeys || c.total > maxKeys {
		t.Errorf("%d windows, %d times", len(c.windows), c.total)
	}
	if got := c.count(fmt.Sprint("key ", 3*maxKeys-1), time.Hour, now.Add(time.Second)); got != 2 {
		t.Errorf("the last key was forgotten: %d", got)
	}
}

func TestLoadOfOtherModules(t *testing.T) {
	p := load(t, "load('lib/a.star', 'twice', half = 'halve')\ndef f(ctx, n):\n  return [twice(n), half(n)]",
		"lib/a.star", "load('b.star', 'two')\ndef twice(n):\n  return n * two\ndef halve(n):\n  return n // two", "lib/b.star", "two = 2")
	f := must.Get(p.Function("f"))(t)
	if got, err := f.Call(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(`8`)); err != nil || string(got) != "[16,4]" {
		t.Errorf("%s, %v", got, err)
	}
	var names []string
	for _, file := range p.Files() {
		if !filepath.IsAbs(file) {
			t.Errorf("%s is not absolute", file)
		}
		names = append(names, filepath.Base(file))
	}
	if want := []string{"hook.star", "a.star", "b.star"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, test := range []struct {
		name, source string
		others       []string
		want         string
	}{
		{"a file above", "load('../a.star', 'x')", nil, `hook.star:1: cannot load ../a.star: "../a.star" does not stay within the module's folder: name a file beside it or below`},
		{"up and down", "load('lib/../../a.star', 'x')", nil, "does not stay within"},
		{"up within", "load('lib/../a.star', 'x')", nil, "does not stay within"},
		{"an absolute path", "load('/etc/passwd', 'x')", nil, "does not stay within"},
		{"a link that leads out", "load('link.star', 'x')", nil, "link.star: cannot be read: "},
		{"what is not there", "load('none.star', 'x')", nil, "none.star: cannot be read: no such file or directory"},
		{"a circle", "load('a.star', 'x')", []string{"a.star", "load('hook.star', 'y')"}, "a.star:1: cannot load hook.star: the modules load each other in a circle"},
		{"a name that is not there", "load('a.star', 'x')", []string{"a.star", "y = 1"}, "hook.star:1: load: name x not found in module a.star"},
		{"an error in a module", "load('a.star', 'x')", []string{"a.star", "\nx = 1 + ''"}, "a.star:2: unknown binary op: int + string"},
		{"a syntax error in a module", "load('a.star', 'x')", []string{"a.star", "x = = 1"}, "a.star:1: got '=', want primary expression"},
		{"an endless top level", "for i in range(1000000000):\n  pass", nil, "hook.star:1: limit reached: 1000000 steps: loop less, or raise the limit of steps"},
		{"globals that are too large to share", "t = ()\nfor _ in range(60):\n  t = (t, t)", nil, "hook.star: t: limit reached: "},
		{"a function in itself", "def outer():\n  def f():\n    return f\n  return f\nx = outer()", nil, "hook.star: x: limit reached: values nested deeper"},
		{"a call", "call_tool('t')", nil, "hook.star:1: undefined: call_tool"},
		{"async", "async def f(ctx):\n  pass", nil, "(there is no async: calls are made one after another; a custom tool can use ctx.parallel([...]))"},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := write(t, test.source, test.others...)
			outside := filepath.Join(t.TempDir(), "outside.star")
			must.Do(t, os.WriteFile(outside, []byte("x = 1"), 0o600))
			if err := os.Symlink(outside, filepath.Join(filepath.Dir(file), "link.star")); err != nil {
				t.Skip("this system makes no links: ", err)
			}
			_, err := Load(file, nil, nil)
			var failed *Error
			if !errors.As(err, &failed) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), filepath.Dir(file)) {
				t.Errorf("error %v\nwant  %s", err, test.want)
			}
		})
	}
}

func TestLoadReadsThroughItsCaller(t *testing.T) {
	files := map[string]string{"hook.star": "load('a.star', 'x')\nprint('loaded', x)\nn = 1\ndef f(ctx):\n  return x", "a.star": "x = 7"}
	var printed []string
	p, err := Load("hook.star", func(path string) ([]byte, error) { return []byte(files[filepath.Base(path)]), nil }, func(line string) { printed = append(printed, line) })
	if err != nil || !slices.Equal(printed, []string{"loaded 7"}) {
		t.Fatal(err, printed)
	}
	_, err = p.Function("g")
	if err == nil || err.Error() != "hook.star: it has no function g (did you mean f?)" {
		t.Errorf("error %v", err)
	}
	for name, want := range map[string]string{"n": "hook.star: n is no function but int"} {
		if _, err := p.Function(name); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestDeclarations(t *testing.T) {
	f := function(t, `
def _search(ctx, query, limit = 5, flag = None):
    """Searches.

    All of it:
      - here
    """
    return [query, limit, flag]
search = tool(
    _search,
    description = "Search",
    title = "S",
    parameters = {"query": "string", "limit": {"type": "integer", "minimum": 1, "default": 5}, "flag": {"type": "boolean", "required": True}},
    annotations = {"readOnlyHint": True},
    output_schema = {"type": "object"},
    calls = ["a.b"],
)`, "search")
	got, err := json.Marshal(f)
	want := `{"Name":"search","Doc":"Searches.\n\nAll of it:\n  - here","Params":[{"Name":"query","Optional":false,"Default":null},{"Name":"limit","Optional":true,"Default":5},{"Name":"flag","Optional":true,"Default":null}],` +
		`"Tool":{"Title":"S","Description":"Search","Parameters":[{"Name":"query","Required":true,"Schema":{"type":"string"}},{"Name":"limit","Required":false,"Schema":{"type":"integer","minimum":1,"default":5}},{"Name":"flag","Required":true,"Schema":{"type":"boolean"}}],` +
		`"Annotations":{"readOnlyHint":true},"OutputSchema":{"type":"object"},"Calls":["a.b"]}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
	out, err := f.CallNamed(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(`{"limit":1,"query":"q"}`))
	if err != nil || string(out) != `["q",1,null]` {
		t.Errorf("%s, %v", out, err)
	}
	for kwargs, want := range map[string]string{
		`{"qery":"q"}`: "hook.star: function _search got an unexpected keyword argument \"qery\"",
		`[]`:           "hook.star: arguments: not a JSON object",
	} {
		if _, err := f.CallNamed(context.Background(), nil, nil, Limits{}, nil, json.RawMessage(kwargs)); err == nil || !strings.HasSuffix(err.Error(), strings.TrimPrefix(want, "hook.star: ")) {
			t.Errorf("%s: error %v, want %s", kwargs, err, want)
		}
	}
}

func TestDeclarationsMustFitTheirFunctions(t *testing.T) {
	for declared, want := range map[string]string{
		`{"qury": "string"}`:         "function f has no parameter qury (did you mean query?)",
		`{}`:                         "query is missing: function f needs it",
		`{"query": 1}`:               "query: want a type or a JSON Schema, got int",
		`{"query": {"required": 1}}`: "query: required must be True or False",
		`{"query": {"enum": [len]}}`: "query: a builtin_function_or_method is no JSON",
	} {
		_, err := Load(write(t, "def f(ctx, query):\n  pass\nt = tool(f, parameters = "+declared+")"), nil, nil)
		if err == nil || err.Error() != "hook.star:3: tool: parameters: "+want {
			t.Errorf("%s: error %v, want %s", declared, err, want)
		}
	}
}

func TestParallelIsBoundedAndOrdered(t *testing.T) {
	host := &fakeHost{}
	running := make(chan struct{}, 40)
	release := make(chan struct{})
	host.barrier = func() { running <- struct{}{}; <-release }
	go func() { // lets go once as many run as may
		for range maxParallel {
			<-running
		}
		close(release)
	}()
	got, err := shared.Run(context.Background(), "result = [x['result']['n'] for x in parallel([{'tool': 'echo', 'args': {'n': i}} for i in range(40)])] == list(range(40))", nil, host, Limits{Calls: 40}, nil)
	if err != nil || string(got) != "true" {
		t.Errorf("%s, %v", got, err)
	}
	if most := host.most.Load(); most > maxParallel || host.calls.Load() != 40 {
		t.Errorf("%d calls, %d at a time", host.calls.Load(), most)
	}
}

func BenchmarkMatches(b *testing.B) {
	text := strings.Repeat(`{"name":"ann","mail":"ann@example.org","key":"sk-abcdefghijklmnop0123456789"},`, 13)
	for _, size := range []int{1, 10, 100} {
		s := strings.Repeat(text, size)
		b.Run(fmt.Sprintf("%dkB", size), func(b *testing.B) {
			f := function(b, "def sub(ctx, s):\n  return len(re.sub(r'\\bsk-[A-Za-z0-9]{20,}', '***', s))", "sub")
			arguments := must.Get(json.Marshal(s))(b)
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				must.Get(f.Call(context.Background(), info, nil, Limits{}, nil, arguments))(b)
			}
		})
	}
}

func BenchmarkHookCall(b *testing.B) {
	f := function(b, "def pre_call(ctx, args):\n  args['user'] = ctx.principal or 'nobody'\n  if len(args['query']) > 500:\n    abort('too long')\n  return args", "pre_call")
	arguments := json.RawMessage(`{"query":"` + strings.Repeat("where is it ", 20) + `","limit":10,"filter":{"tags":["a","b","c"],"since":"2024-01-01T00:00:00Z","score":0.75},"text":"` + strings.Repeat("lorem ipsum ", 50) + `"}`)
	b.SetBytes(int64(len(arguments)))
	b.ReportAllocs()
	for b.Loop() {
		must.Get(f.Call(context.Background(), info, nil, Limits{}, nil, arguments))(b)
	}
}
