package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// hog is a script that would take the process down, or keep it busy for hours, in
// an interpreter that counts steps alone.
var hogs = map[string]string{
	"doubling a text":                      "x = 'a'\nfor _ in range(100):\n  x = x + x",
	"doubling a text in place":             "x = 'a'\nfor _ in range(100):\n  x += x",
	"doubling a list":                      "x = [1]\nfor _ in range(100):\n  x = x + x",
	"doubling a list in place":             "x = [1]\nfor _ in range(100):\n  x += x",
	"doubling a list in a dict":            "x = {'a': [1]}\nfor _ in range(100):\n  x['a'] += x['a']",
	"doubling a tuple":                     "x = (1,)\nfor _ in range(100):\n  x = x + x",
	"repeating a text":                     "x = 'a' * 1000000000",
	"repeating a text from the right":      "x = 1000000000 * 'a'",
	"repeating in place":                   "x = 'a'\nx *= 1000000000",
	"repeating a list":                     "x = [0] * 900000000",
	"repeating bytes":                      "x = b'a' * 900000000",
	"repeating a huge number of times":     "x = 'a' * (1 << 200)",
	"growing by pieces":                    "x = []\nfor i in range(10000000):\n  x.append('a' * 1000)",
	"list of a range":                      "x = list(range(1000000000))",
	"tuple of a range":                     "x = tuple(range(1000000000))",
	"set of a range":                       "x = set(range(1000000000))",
	"sorted range":                         "x = sorted(range(1000000000))",
	"reversed range":                       "x = reversed(range(1000000000))",
	"enumerated range":                     "x = enumerate(range(1000000000))",
	"zipped ranges":                        "x = zip(range(1000000000), range(1000000000))",
	"extended by a range":                  "x = []\nx.extend(range(1000000000))",
	"max of a range":                       "x = max(range(1000000000))",
	"any of a range":                       "x = any(range(0, 1)) or all(range(1, 1000000000))",
	"not any of a range":                   "x = any([[] for _ in range(1)]) or any(enumerate(range(1000000000)))",
	"range as arguments":                   "print(*range(1000000000))",
	"range as arguments of a function":     "def f(*a):\n  return a\nx = f(*range(1000000000))",
	"dict of a range":                      "x = dict(zip(range(1000000000), range(1000000000)))",
	"comprehension":                        "x = [i for i in range(1000000000)]",
	"comprehension of lists":               "x = [[] for i in range(1000000000)]",
	"comprehension of dicts":               "x = [{} for i in range(1000000000)]",
	"comprehension of functions":           "x = [lambda: i for i in range(1000000000)]",
	"dict comprehension":                   "x = {i: i for i in range(1000000000)}",
	"nested comprehensions":                "x = [[j for j in range(100000)] for i in range(100000)]",
	"filling a dict":                       "x = {}\nfor i in range(1000000000):\n  x[i] = i",
	"setdefault":                           "x = {}\nfor i in range(1000000000):\n  x.setdefault(i, [])",
	"filling a set":                        "x = set()\nfor i in range(1000000000):\n  x.add(i)",
	"copies by slices":                     "b = list(range(100000))\nx = [b[:] for _ in range(100000)]",
	"slices with a step":                   "b = 'a' * 1000000\nx = [b[::-1] for _ in range(100000)]",
	"join":                                 "x = ('a' * 100000).join(['b'] * 100000)",
	"join of one text many times":          "b = 'a' * 1000000\nx = ','.join([b] * 1000000)",
	"join of a range":                      "x = ''.join(range(1000000000))",
	"replace":                              "x = ('a' * 1000000).replace('a', 'b' * 1000000)",
	"replace of nothing":                   "x = ('a' * 1000000).replace('', 'b' * 1000000)",
	"split":                                "x = ('a' * 30000000).split('a')",
	"split at spaces":                      "x = ('a ' * 15000000).split()",
	"splitlines":                           "x = ('\\n' * 30000000).splitlines()",
	"percent":                              "b = 'a' * 1000000\nx = ('%s' * 1000) % tuple([b] * 1000)",
	"percent with names":                   "b = 'a' * 1000000\nx = ('%(b)s' * 1000) % {'b': b}",
	"percent in place":                     "x = '%s' * 1000\nx %= tuple(['a' * 1000000] * 1000)",
	"format":                               "b = 'a' * 1000000\nx = ('{0}' * 1000).format(b)",
	"format with names":                    "b = 'a' * 1000000\nx = ('{b}' * 1000).format(b=b)",
	"upper":                                "b = 'a' * 1000000\nx = [b.upper() for _ in range(1000000)]",
	"items":                                "d = {i: i for i in range(10000)}\nx = [d.items() for _ in range(100000)]",
	"values in a text method":              "f = getattr('a', 'join')\nx = f(['b' * 1000000] * 100000)",
	"squaring":                             "x = 3\nfor _ in range(100):\n  x = x * x",
	"squaring in place":                    "x = 3\nfor _ in range(100):\n  x *= x",
	"shifting":                             "x = 1\nfor _ in range(1000000):\n  x = x << 500",
	"shifting in place":                    "x = 1\nfor _ in range(1000000):\n  x <<= 500",
	"digits":                               "x = int('9' * 1000000)",
	"union of dicts":                       "d = {i: i for i in range(10000)}\nx = [d | d for _ in range(100000)]",
	"union of sets":                        "d = set(range(10000))\nx = [d | d for _ in range(100000)]",
	"union method":                         "x = set([1]).union(range(1000000000))",
	"update of a dict":                     "x = {}\nx.update([(i, i) for i in range(1000)] * 100000)",
	"colliding keys":                       "x = set([i << 32 for i in range(50000)] * 100)",
	"shared tuples as a key":               "t = (1, 2)\nfor _ in range(60):\n  t = (t, t)\nx = {t: 1}",
	"shared tuples looked up":              "t = (1, 2)\nfor _ in range(60):\n  t = (t, t)\nd = {}\nx = d[t]",
	"shared tuples sought":                 "t = (1, 2)\nfor _ in range(60):\n  t = (t, t)\nx = t in {}",
	"shared tuples got":                    "t = (1, 2)\nfor _ in range(60):\n  t = (t, t)\nx = {}.get(t)",
	"shared lists compared":                "a = [1] * 1000\nb = [1] * 1000\nfor _ in range(8):\n  a = [a] * 1000\n  b = [b] * 1000\nx = a == b",
	"shared lists sought":                  "a = [1] * 1000\nb = [1] * 1000\nfor _ in range(8):\n  a = [a] * 1000\n  b = [b] * 1000\nx = a in [b]",
	"shared lists sorted":                  "a = [1] * 1000\nb = [1] * 1000\nfor _ in range(8):\n  a = [a] * 1000\n  b = [b] * 1000\nx = sorted([a, b])",
	"shared lists printed":                 "a = [1]\nfor _ in range(60):\n  a = [a, a]\nprint(a)",
	"shared lists as text":                 "a = [1]\nfor _ in range(60):\n  a = [a, a]\nx = str(a)",
	"shared lists in a format":             "a = [1]\nfor _ in range(60):\n  a = [a, a]\nx = '%s' % [a]",
	"shared lists in an error":             "a = [1]\nfor _ in range(60):\n  a = [a, a]\nfail(a)",
	"shared lists as JSON":                 "a = [1]\nfor _ in range(60):\n  a = [a, a]\nx = json.encode(a)",
	"shared structs as text":               "a = struct(a = 1)\nfor _ in range(60):\n  a = struct(a = a, b = a)\nx = str(a)",
	"shared lists as the result":           "result = [1]\nfor _ in range(60):\n  result = [result, result]",
	"deep lists as text":                   "a = []\nfor _ in range(100000):\n  a = [a]\nx = str(a)",
	"deep lists as JSON":                   "a = []\nfor _ in range(100000):\n  a = [a]\nx = json.encode(a)",
	"deep lists as the result":             "result = []\nfor _ in range(100000):\n  result = [result]",
	"deep tuples as a key":                 "a = ()\nfor _ in range(100000):\n  a = (a,)\nx = {a: 1}",
	"a list in itself":                     "a = []\na.append(a)\nresult = a",
	"deep JSON":                            "x = json.decode('[' * 1000000)",
	"wide JSON":                            "x = json.decode('[' + '{},' * 1000000 + '{}]')",
	"JSON with many digits":                "x = json.decode('9' * 1000000)",
	"indented JSON":                        "x = json.indent('[' * 900 + '1,' * 100000 + '1' + ']' * 900, indent = ' ' * 1000)",
	"findall":                              "x = re.findall('', 'a' * 10000000)",
	"findall with groups":                  "x = re.findall('(a)(a?)(a?)', 'a' * 5000000)",
	"sub":                                  "x = re.sub('a', 'b' * 10000, 'a' * 1000000)",
	"sub doubling":                         "x = re.sub('a+', r'\\g<0>' * 1000, 'a' * 1000000)",
	"re.split":                             "x = re.split('a', 'a' * 10000000)",
	"a large pattern":                      "x = re.search('(a{1000}){1000}' * 900, 'a')",
	"many repetitions":                     "x = re.search('a{1000}' * 1000, 'a')",
	"a slow pattern":                       "x = [re.search('(x+x+)+y' * 20, 'x' * 1000000) for _ in range(1000)]",
	"printing":                             "for _ in range(1000000):\n  print('a' * 10000)",
	"hashing":                              "b = 'a' * 10000000\nx = [hash.sha256(b) for _ in range(1000000)]",
	"comparing long texts":                 "a = 'a' * 10000000 + 'b'\nb = 'a' * 10000000 + 'b'\nx = [a == b for _ in range(1000000)]",
	"sorting long texts":                   "a = 'a' * 10000000\nb = ('a' * 10000000)\nx = sorted([a, b] * 100000)",
	"looking in a long list":               "b = list(range(1000000))\nx = [-1 in b for _ in range(100000)]",
	"loop":                                 "for i in range(1000000000):\n  pass",
	"nested loops":                         "for i in range(100000):\n  for j in range(100000):\n    pass",
	"arguments of a call":                  "call_tool('t', {'a': 'a' * 20000000})",
	"colliding names in JSON":              "x = call_tool('colliding')",
	"colliding numbers":                    "x = {}\nfor i in range(20000):\n  x[i << 32] = i",
	"colliding numbers in a comprehension": "x = {i << 32: i for i in range(20000)}",
	"colliding numbers in a target":        "x = {}\nfor i in range(20000):\n  x[i << 32], y = i, i",
	"colliding functions":                  "f = [lambda: i for i in range(20000)]\nx = set(f)",
	"colliding tuples":                     "x = set([(i << 32, 1) for i in range(20000)])",
	"colliding keys united":                "x = {i << 32: i for i in range(1500)}\nfor _ in range(100000):\n  y = x | x",
	"colliding keys of sets":               "x = set([i << 32 for i in range(1500)])\nfor _ in range(100000):\n  y = x.union(x)",
	"trees as keys of sorted":              trees + "x = sorted([0, 1], key = lambda i: [a, b][i])",
	"trees as keys of max":                 trees + "x = max([0, 1], key = lambda i: [a, b][i])",
	"trees as keys of min":                 trees + "x = min(0, 1, key = lambda i: [a, b][i])",
	"trees chosen from":                    trees + "x = max(a, b)",
	"structs compared":                     "a = struct(a = 1)\nb = struct(a = 1)\nfor _ in range(60):\n  a = struct(a = a, b = a)\n  b = struct(a = b, b = b)\nx = a == b",
	"sorted by name":                       "x = sorted(iterable = range(1000000000))",
	"sorted by a builtin":                  "x = [sorted(range(10000), key = str) for _ in range(10000)]",
	"separator of fail":                    "fail(sep = 'a' * 1000000, *([1] * 10000))",
	"separator of print":                   "print(sep = 'a' * 1000000, *([1] * 10000))",
	"findall looking far ahead":            "x = re.findall('(?:a*b)?', 'a' * 1000000)",
	"sub looking far ahead":                "x = re.sub('(?:a*b)?', '', 'a' * 1000000)",
	"split looking far ahead":              "x = re.split('(?:a*b)?', 'a' * 1000000)",
	"many groups":                          "x = re.search('(a?)' * 2400 + 'z', 'a' * 3000)",
	"many groups on a long text":           "x = re.search('(a?)' * 500 + 'z', 'a' * 60000)",
	"one slow match":                       "x = re.search('(?:x|xx|xxx|xxxx|xxxxx)*' * 40 + 'y', 'x' * 1200000)",
	"large classes":                        "x = re.search('x' + r'\\pL' * 980, 'a')",
	"a template of groups":                 "x = re.sub('(a)', r'\\1' * 20000000, 'b')",
	"a template of unclosed groups":        "x = re.sub('(a)', r'\\g<' * 10000000, 'b')",
	"a template for each match":            "x = re.sub('(x?)', r'\\1' * 1000, 'a' * 300000)",
	"escaped dots":                         "x = re.escape('.' * 20000000)",
	"many prefixes":                        "s = 'a' * 8000000 + 'b'\np = 'a' * 8000000 + 'c'\nx = s.startswith((p,) * 1000000)",
	"many suffixes":                        "s = 'b' + 'a' * 8000000\np = 'c' + 'a' * 8000000\nx = s.endswith((p,) * 1000000)",
	"strip of many characters":             "x = ('a' * 4000000).strip('\u00e9' * 2000000 + 'a')",
	"room for many parts":                  "x = [('a b' * 10).rsplit(None, 2000000000) for _ in range(1000000)]",
	"format with many names":               "d = {'k' + str(1000000 + i): 1 for i in range(20000)}\nx = ('{k1019999}' * 300000).format(**d)",
	"format quoted":                        "x = '{!r}'.format('\\x00' * 30000000)",
	"percent quoted":                       "x = '%r' % ('\\x00' * 30000000)",
	"bytes of a text":                      "s = '\u00e9'[:1] * 4000000\nx = [bytes(s) for _ in range(1000)]",
	"text of bytes":                        "x = str(b'\\xff' * 20000000)",
	"upper of malformed text":              "x = ('\u00e9'[:1] * 20000000).upper()",
	"dir":                                  "x = [dir('') for _ in range(900000)]",
	"dir of a struct":                      "s = struct(**{str(i): 1 for i in range(50000)})\nx = [dir(s) for _ in range(10000)]",
	"attributes that are not there":        "s = struct(**{'a' * 60 + str(i): 1 for i in range(20000)})\nfor _ in range(1000000):\n  getattr(s, 'a' * 70, 0)",
	"digits by name":                       "x = int(base = 36, *['9' * 5000000])",
	"large integers":                       "n = -1\nfor _ in range(190):\n  n = n << 500\nx = [abs(n) for _ in range(100000)]",
	"integers of floats":                   "x = [int(1e308) for _ in range(10000000)]",
	"floors":                               "x = [math.floor(1e308) for _ in range(10000000)]",
	"many fields":                          "d = {'a%d' % i: 1 for i in range(200)}\nx = [struct(**d) for _ in range(1000000)]",
	"many defaults":                        "def make():\n  out = []\n  for i in range(1000000):\n    def f(" + defaults + "):\n      pass\n    out.append(f)\n  return out\nx = make()",
	"arguments by name":                    "def f(**k):\n  pass\nd = {'a%d' % i: 1 for i in range(10000)}\nfor _ in range(100000):\n  f(**d)",
	"empty dict comprehensions":            "x = [{k: k for k in ()} for _ in range(900000)]",
	"escapes as JSON":                      "x = json.encode('\\x00' * 16000000)",
	"partitions":                           "x = ['a b'.partition(' ') for _ in range(10000000)]",
	"results in parallel":                  "x = parallel([{'tool': 'big'}] * 40)",
	"searches for tools":                   "for _ in range(1000000):\n  retrieve('q')",
}

// trees makes a and b, which are equal and have 1000 to the 9th leaves.
const trees = "a = [1] * 1000\nb = [1] * 1000\nfor _ in range(8):\n  a = [a] * 1000\n  b = [b] * 1000\n"

var defaults = func() string {
	var params []string
	for i := range 200 {
		params = append(params, fmt.Sprintf("a%d=1", i))
	}
	return strings.Join(params, ", ")
}()

// However much a script asks for, its process ends soon after its time, for a limit
// or with a result, and this process does not grow.
func TestNoScriptTakesMoreThanItsLimits(t *testing.T) {
	const most = 20 * time.Millisecond
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i, name := range slices.Sorted(maps.Keys(hogs)) {
		if i%4 > 0 && os.Getenv("TOOLFINCH_LONG") == "" { // each is a process
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := shared.Run(context.Background(), hogs[name], nil, &fakeHost{}, Limits{Steps: 1 << 50, Calls: 40, Time: most}, nil)
			var failed *Error
			if err != nil && !errors.As(err, &failed) || strings.Contains(fmt.Sprint(err), "its process ended") {
				t.Errorf("error %v, want that of a limit", err)
			}
		})
	}
	t.Cleanup(func() {
		runtime.GC()
		runtime.ReadMemStats(&after)
		if after.HeapAlloc > before.HeapAlloc+16<<20 {
			t.Errorf("the heap of this process grew from %d to %d MB", before.HeapAlloc>>20, after.HeapAlloc>>20)
		}
	})
}

// What upstreams and clients send, hooks read.
func TestCollidingArgumentsAreRefused(t *testing.T) {
	f := function(t, "def pre_call(ctx, args):\n  return None", "pre_call")
	if _, err := f.Call(context.Background(), nil, nil, Limits{}, nil, colliding()); !errors.Is(err, ErrLimit) {
		t.Errorf("error %v, want ErrLimit", err)
	}
}

func TestTheLogIsBounded(t *testing.T) {
	for _, source := range []string{"for i in range(5000):\n  print(i)", "for i in range(20):\n  print('a' * 300000)", "for i in range(500):\n  log('a' * 3000)"} {
		var lines []string
		must.Get(runScript(source, Limits{}, func(line string) { lines = append(lines, line) }))(t)
		size := 0
		for _, line := range lines {
			size += len(line)
		}
		if size > maxLogged+maxLine || len(lines) > maxLines+1 {
			t.Errorf("%s: %d lines, %d bytes", source, len(lines), size)
		}
		if last := lines[len(lines)-1]; len(lines) > 20 && last != "... (and more)" {
			t.Errorf("%s: the last line is %.50q", source, last)
		}
	}
}

func TestReasonsOfAbortAreShort(t *testing.T) {
	_, err := runScript("abort('a' * 1000000)", Limits{}, nil)
	if abort := (*AbortError)(nil); !errors.As(err, &abort) || len(abort.Reason) > maxMessage+10 {
		t.Errorf("error %.100v", err)
	}
}

func TestLimitsSayWhich(t *testing.T) {
	for _, test := range []struct {
		name, source, want string
		limits             Limits
	}{
		{"steps", "for i in range(10000):\n  pass", "script:1: limit reached: 1000 steps: loop less", Limits{Steps: 1000}},
		{"memory, in one operation", "x = 'a' * 900000000", "script: limit reached: 67108864 bytes of memory: make smaller values, or fewer", Limits{}},
		{"memory, by and by", "x = []\nfor i in range(1000000000):\n  x.append('a%d' % i * 1000)", "script: limit reached: 67108864 bytes of memory: make smaller values, or fewer", Limits{Steps: 1 << 50, Time: await.Bound}},
		{"stack", "a = ()\nfor _ in range(400000):\n\ta = (a,)\nx = {a: 1}", "script: limit reached: 33554432 bytes of stack: nest less", Limits{Steps: 1 << 50, Memory: 1 << 30, Time: await.Bound}},
		{"answers of tools", "for _ in range(10):\n  call_tool('big')", "script:2: limit reached: 33554432 bytes of answers of tools in all: ask for less, or call fewer", Limits{Memory: 32 << 20, Calls: 40, Time: await.Bound}},
		{"answers in parallel", "x = parallel([{'tool': 'big'}] * 40)", "script:1: limit reached: 33554432 bytes of answers of tools in all: ask for less, or call fewer", Limits{Memory: 32 << 20, Calls: 40, Time: await.Bound}},
		{"arguments", "call_tool('t', {'a': 'a' * 20000000})", "script:1: call_tool t: limit reached: 16777216 bytes of arguments: send less", Limits{Calls: 1}},
		{"time", "for i in range(1000000000):\n  pass", "limit reached: 10ms of time: do less", Limits{Time: 10 * time.Millisecond, Steps: 1 << 60}},
		{"time of a call", "call_tool('wait')", "script:1: limit reached: 10ms of time: do less", Limits{Time: 10 * time.Millisecond, Calls: 1}},
		{"calls", "call_tool('t')\ncall_tool('t')\ncall_tool('t')", "script:3: limit reached: 2 calls of tools: make fewer", Limits{Calls: 2}},
		{"calls in parallel", "call_tool('t')\nparallel([{'tool': 't'}, {'tool': 't'}])", "script:2: limit reached: 2 calls of tools: make fewer", Limits{Calls: 2}},
		{"calls, none", "call_tool('t')", "script:1: limit reached: 0 calls of tools: make fewer", Limits{}},
		{"output", "result = 'a' * 100", "script: the result: limit reached: 100 bytes of output: return less", Limits{Output: 100}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := runScript(test.source, test.limits, nil)
			if !errors.Is(err, ErrLimit) || !strings.HasSuffix(err.Error(), strings.TrimPrefix(test.want, "script:1: ")) {
				t.Errorf("error %v\nwant  %s", err, test.want)
			}
		})
	}
}

func TestWhatFitsItsLimitsPasses(t *testing.T) {
	for _, source := range []string{
		"result = len('a' * 1000000)",
		"result = len([i for i in range(20000)])",
		"result = len(sorted([str(i) for i in range(10000)]))",
		"x = {}\nfor i in range(10000):\n  x[str(i % 100)] = x.get(str(i % 100), 0) + 1\nresult = x",
		"result = json.decode(json.encode([{'id': i, 'name': 'name %d' % i} for i in range(2000)]))",
		"result = len(zip(range(1000000000), ['a', 'b']))",
		"result = len(re.findall(r'\\d+', 'order 12 of 345; ' * 1000))",
		"result = len('\\n'.join(['line %d' % i for i in range(5000)]).split('\\n'))",
		"result = (1 << 500) * (1 << 500)",
		"x = {'a': 0, 'b': 0}\nfor i in range(20000):\n  x['a' if i % 2 else 'b'] += 1",
		"x = {1700000000000 + i * 60000: i for i in range(10000)}",
		"result = len(set(['key %d' % i for i in range(30000)]))",
		"result = sorted([{'n': i % 7, 'name': 'name %d' % i} for i in range(2000)], key = lambda d: (d['n'], d['name']))[0]",
		"result = len(re.sub(r'\\bsk-[A-Za-z0-9]{20,}', '***', 'sk-abcdefghijklmnop0123456789, ann@example.org; ' * 2000))",
		"result = ', '.join(['«%s»' % i for i in range(1000)]).strip('«»')",
	} {
		if _, err := runHere(source, Limits{Time: await.Bound}, nil); err != nil {
			t.Errorf("%s\n%v", source, err)
		}
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	for name, source := range map[string]string{
		"in a loop":           "log('on')\nfor i in range(1000000000):\n  pass",
		"in a call":           "log('on')\ncall_tool('wait')",
		"in calls":            "log('on')\nparallel([{'tool': 'wait'}] * 20)",
		"in a builtin":        "x = range(1, 1000000000000)\nlog('on')\nfor _ in range(1000):\n  all(x)",
		"before it has begun": "",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if source == "" {
				cancel()
			}
			host := &fakeHost{}
			_, err := shared.Run(ctx, source, nil, host, Limits{Steps: 1 << 60, Memory: 1 << 30, Calls: 20, Time: time.Hour}, func(string) { cancel() })
			var failed *Error
			if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLimit) || !errors.As(err, &failed) {
				t.Errorf("error %v, want context.Canceled", err)
			}
			if host.running.Load() != 0 {
				t.Errorf("%d calls still run", host.running.Load())
			}
		})
	}
}

func TestSourcesNestedDeepEndWell(t *testing.T) {
	const n = 15_000
	for name, source := range map[string]string{
		"brackets":               "x = " + strings.Repeat("[", n) + strings.Repeat("]", n),
		"parentheses":            "x = " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n),
		"minus":                  "x = " + strings.Repeat("-", n) + "1",
		"not":                    "x = " + strings.Repeat("not ", n) + "1",
		"lambda":                 "x = " + strings.Repeat("lambda: ", n) + "1",
		"else":                   "x = " + strings.Repeat("1 if 2 else ", n) + "1",
		"sum":                    "x = 1" + strings.Repeat("+1", n),
		"and":                    "x = 1" + strings.Repeat(" and 1", n),
		"calls":                  "x = f" + strings.Repeat("()", n),
		"fields":                 "x = f" + strings.Repeat(".a", n),
		"indexes":                "x = f" + strings.Repeat("[0]", n),
		"elif":                   "if 1:\n  pass\n" + strings.Repeat("elif 1:\n  pass\n", n/2),
		"length":                 strings.Repeat("x = 1\n", n*2),
		"undefined":              "def f():\n" + numbered("  v%05d = 1\n", 10_000) + numbered("w%05d\n", 17_000),
		"undefined locals":       "def f():\n" + numbered("  v%05d = 1\n", 10_000) + numbered("v%05d\n", 17_000),
		"parameters":             "def f(" + numbered("p%05d, ", 20_000) + "):\n  pass",
		"parameters of a lambda": "f = lambda " + numbered("p%05d, ", 20_000) + "z: 1",
		"digits":                 "x = json.decode('1')\n" + "y = " + strings.Repeat("(", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runScript(source, Limits{}, nil)
			var failed *Error
			if err != nil && (!errors.As(err, &failed) || len(err.Error()) > 3000) {
				t.Errorf("error %.300v", err)
			}
		})
	}
}

func numbered(format string, n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// Programs made of random pieces of the language end, one way or the other.
func TestRandomScriptsEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var expression func(depth int) string
	expression = func(depth int) string {
		if depth == 0 {
			return pick("a", "b", "c", "1", "7", "'x'", "[1]", "{'k': 2}", "(3, 4)", "range(100000)", "None", "True", "1.5", "set([1])")
		}
		x, y := expression(depth-1), expression(depth-1)
		switch random.IntN(8) {
		case 0, 1, 2:
			return "(" + x + " " + pick("+", "*", "-", "%", "|", "&", "^", "<<", ">>", "//", "/", "==", "<", "in", "and", "or") + " " + y + ")"
		case 3:
			return pick("list", "tuple", "sorted", "str", "repr", "len", "dict", "set", "max", "min", "enumerate", "reversed", "any", "all", "json.encode", "type") + "(" + x + ")"
		case 4:
			return x + pick(".append", ".extend", ".join", ".replace", ".split", ".format", ".update", ".get", ".items", ".union", ".pop") + "(" + pick("", x, x+", "+y) + ")"
		case 5:
			return x + "[" + pick(":", y, y+":", "::"+y) + "]"
		case 6:
			return "[" + x + " for " + pick("a", "b") + " in " + y + "]"
		}
		return pick("[", "(") + x + ", " + y + pick("]", ")")
	}
	for i := range 150 {
		source := "a, b, c = 'text', [1, 2], {'a': (1,)}\nfor _ in range(30):\n"
		for range 1 + random.IntN(4) {
			source += "  " + pick("a", "b", "c") + " " + pick("=", "=", "+=", "*=", "|=", "%=") + " " + expression(random.IntN(4)) + "\n"
		}
		out, err := runHere(source+"result = [a, b, c]", Limits{Steps: 100_000, Time: 200 * time.Millisecond}, nil)
		var failed *Error
		if err == nil && !json.Valid(out) || err != nil && !errors.As(err, &failed) {
			t.Fatalf("script %d:\n%s\n%s, %v", i, source, out, err)
		}
		if failed != nil && strings.Contains(failed.Message, "internal error") {
			t.Fatalf("script %d:\n%s\n%v", i, source, err)
		}
	}
}
