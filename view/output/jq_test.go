package output

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view/script"
)

func jq(expression string) string { return `"jq":` + string(rawjson.Quote(expression)) }

func TestJQ(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, `{"content":[],"structuredContent":{"items":[
		{"id": 9007199254740993, "z": 1.0, "a": "x"},
		{"id": 12345678901234567890, "z": 2.50, "a": "<y>"},
		{"id": 7, "z": 1e2, "a": ""}], "when": 1767268800000000123, "text": "line 1\nline 2", "none": null, "yes": true, "huge": 1e999,
		"pad": "`+strings.Repeat("-", 500)+`"}}`)
	var expressions, values []string // of one process, because each takes a moment to start
	for _, test := range []struct{ expression, want string }{
		{".items[0]", `{"a":"x","id":9007199254740993,"z":1.0}`}, // digits stay
		{"[.items[].id]", `[9007199254740993,12345678901234567890,7]`},
		{".items[].id", "9007199254740993\n12345678901234567890\n7"},
		{"[.items[].z]", `[1.0,2.50,1e2]`},
		{"[.items[] | select(.id > 8)] | .[1]", `{"a":"<y>","id":12345678901234567890,"z":2.50}`},
		{`.items[] | select(.a == "x") | {second: .z, first: .id}`, `{"first":9007199254740993,"second":1.0}`},
		{"[.items | sort_by(.z)[].a]", `["x","<y>",""]`},
		{".items[1].id + 1", "12345678901234567891"}, // integers have no bound
		{".when", `1767268800000000123`},
		{".when > 1767268799000000000", `true`},
		{".huge", `1e999`},
		{".items | length", `3`},
		{".none", `null`},
		{".nothing.at.all", `null`},
		{".yes", `true`},
		{".items[].missing?", "null\nnull\nnull"},
		{".items | map(.a) | join(\", \")", `"x, <y>, "`},
		{"[.items[] | .a | test(\"y\")]", `[false,true,false]`},
		{"1.5", `1.5`},
		{"env, $ENV", "{}\n{}"},
		{"1, halt, 2", "1"},
	} {
		expressions, values = append(expressions, "("+test.expression+")"), append(values, test.want)
	}
	if got, _ := f.piece(t, token, jq(strings.Join(expressions, ","))); got != strings.Join(values, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(values, "\n"))
	}
	for _, test := range []struct{ arguments, want, note string }{
		{jq(".items[] | select(.id == 9007199254740993).a"), "x", "whole text that the expression found"}, // as it is
		{jq(".text") + `,"lines":"2"`, "line 2", "of the text that the expression found. It ends here."},
		{jq("[.items[].id]") + `,"offset":1,"limit":16`, "9007199254740993", "read on with offset 17"},
		{jq(".items[].id") + `,"lines":"2"`, "12345678901234567890\n", "of the 3 values of the expression, one a line"},
		{jq("empty"), "", "whole output of the expression, which found nothing: 0 bytes"},
	} {
		if got, note := f.piece(t, token, test.arguments); got != test.want || !strings.Contains(note, test.note) {
			t.Errorf("%s: %q, %s", test.arguments, got, note)
		}
	}
	for _, test := range []struct{ expression, want string }{
		{".items[] | select(.a = )", `unexpected token ")" after ".items[] | select(.a = "`},
		{"nosuch(.)", "function not defined: nosuch/1"},
		{".text.a", "expected an object but got: string"},
		{`error("own")`, "own"},
		{"input", "not allowed"},
		{`import "a" as a; .`, "cannot load module"},
		{strings.Repeat(" ", maxExpression) + ".", "10001 bytes"},
	} {
		texts, failed := f.read(t, alice, with(token, jq(test.expression)))
		if !failed || !strings.Contains(texts[0], test.want) || !strings.HasPrefix(texts[0], "jq: ") && !strings.HasPrefix(texts[0], "the jq") || len(texts[0]) > 500 {
			t.Errorf("%.50s: got %q, want %q", test.expression, texts, test.want)
		}
	}
}

func TestJQReadsTextThatIsJSON(t *testing.T) {
	f := newFixture(t)
	pad := strings.Repeat("-", 500)
	if got, _ := f.piece(t, f.token(t, text(`[{"a":1.0,"pad":"`+pad+`"}]`)), jq(".[0].a")); got != "1.0" {
		t.Errorf("got %s", got)
	}
	for want, content := range map[string]string{
		"needs JSON":      "no json",
		"at most 5242880": `["` + strings.Repeat("x", maxData) + `"]`,
	} {
		if _, err := f.evaluate(t.Context(), "alice", ".", tool.TextResult(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// bounded evaluates within limits that are smaller than the cache's own.
type bounded struct{ limits script.Limits }

func (b bounded) Query(ctx context.Context, expression string, data []byte, _ script.Limits) (json.RawMessage, error) {
	return sandbox.Query(ctx, expression, data, b.limits)
}

// Each of these would take all memory there is, or years.
func TestExpressionsThatMultiplyAreEnded(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, text(`["`+strings.Repeat(`x`, 5000)+`"]`))
	const memory, values, duration = "16777216 bytes of memory", "100000 bytes of values", "50ms of time"
	for expression, want := range map[string]string{
		`reduce range(60) as $i (.; [., .]) | tojson`: memory,
		`reduce range(60) as $i (.; . + .)`:           memory,
		`[range(1e12)]`:                               memory,
		`def f: [f]; f`:                               memory,
		`.[0] * 400000`:                               memory,
		`[.[536870911] = 1]`:                          memory,
		`repeat(.)`:                                   values,
		`last(range(1e15))`:                           duration,
		// One operation without an end: the process is ended from outside.
		`reduce range(60) as $i (.; [., .]) | . == map(.)`: duration,
	} {
		limits := script.Limits{Memory: 16 << 20, Time: await.Bound, Output: 100_000}
		if want == duration {
			limits.Time, limits.Memory = 50*time.Millisecond, 1<<30
		}
		f.evaluator = bounded{limits}
		texts, failed := f.read(t, alice, with(token, jq(expression)))
		if !failed || !strings.HasPrefix(texts[0], "jq: limit reached: "+want) {
			t.Errorf("%s: %.200q", expression, texts)
		}
	}
	f.evaluator = patient{sandbox}
	if got, _ := f.piece(t, token, jq("length")); got != "1" {
		t.Errorf("afterwards: %s", got)
	}
}

// waiting is an evaluator that counts the expressions it evaluates until it is closed.
type waiting struct {
	now  atomic.Int32
	ends chan struct{}
}

func (w *waiting) Query(context.Context, string, []byte, script.Limits) (json.RawMessage, error) {
	w.now.Add(1)
	<-w.ends
	return json.RawMessage(`[1]`), nil
}

func TestEachOwnerHasATurnOfExpressions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{ends: make(chan struct{})}
		c := New(nil, w, store.Level, slog.New(slog.DiscardHandler))
		var refused atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if _, err := c.evaluate(t.Context(), []string{"alice", "bob"}[i/7], ".", tool.TextResult("{}")); err != nil {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := w.now.Load(); n != 2 {
			t.Errorf("%d at a time of two owners", n)
		}
		time.Sleep(c.patience + time.Second)
		close(w.ends)
		all.Wait()
		if n := refused.Load(); n != 6 {
			t.Errorf("%d of 6 are refused that waited too long", n)
		}
	})
}

func TestUsualExpressionsHaveTimeAndMemory(t *testing.T) {
	f := newFixture(t)
	var data strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&data, `{"id":%d,"title":"the title of number %d","state":"open","user":{"login":"somebody","id":%d},"labels":[{"name":"bug"}]},`, i, i, i)
	}
	token := f.token(t, text("["+strings.TrimSuffix(data.String(), ",")+"]"))
	for _, expression := range []string{
		`.[] | select(.state == "open" and (.title | contains("number 9")) and .user.login != "somebody else") | {id, title, login: .user.login, labels: [.labels[].name]}`,
		"group_by(.user.id % 10) | map(length)",
	} {
		f.piece(t, token, `"limit":100,`+jq(expression))
	}
}
