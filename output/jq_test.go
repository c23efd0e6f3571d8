package output

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/rawjson"
	"toolfinch/script"
)

func jq(expression string) string { return `"jq":` + string(rawjson.Quote(expression)) }

func TestJQ(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, `{"content":[],"structuredContent":{"items":[
		{"id": 9007199254740993, "z": 1.0, "a": "x"},
		{"id": 12345678901234567890, "z": 2.50, "a": "<y>"},
		{"id": 7, "z": 1e2, "a": ""}], "when": 1767268800000000123, "text": "line 1\nline 2", "none": null, "yes": true, "huge": 1e999,
		"pad": "`+strings.Repeat("-", 500)+`"}}`)
	for _, test := range []struct{ expression, want string }{
		{".items[0]", `{"a":"x","id":9007199254740993,"z":1.0}`}, // digits stay
		{"[.items[].id]", `[9007199254740993,12345678901234567890,7]`},
		{".items[].id", "9007199254740993\n12345678901234567890\n7"},
		{"[.items[].z]", `[1.0,2.50,1e2]`},
		{".items[] | select(.id == 9007199254740993).a", "x"},
		{"[.items[] | select(.id > 8)] | .[1]", `{"a":"<y>","id":12345678901234567890,"z":2.50}`},
		{`.items[] | select(.a == "x") | {second: .z, first: .id}`, `{"first":9007199254740993,"second":1.0}`},
		{"[.items | sort_by(.z)[].a]", `["x","<y>",""]`},
		{".items[1].id + 1", "12345678901234567891"}, // integers have no bound
		{".when", `1767268800000000123`},
		{".when > 1767268799000000000", `true`},
		{".huge", `1e999`},
		{".items | length", `3`},
		{".text", "line 1\nline 2"}, // a text is read as it is
		{".none", `null`},
		{".nothing.at.all", `null`},
		{".yes", `true`},
		{".items[].missing?", "null\nnull\nnull"},
		{".items[] | select(.id < 0)", ""},
		{".items | map(.a) | join(\", \")", "x, <y>, "},
		{"[.items[] | .a | test(\"y\")]", `[false,true,false]`},
		{"1.5", `1.5`},
		{"env, $ENV", "{}\n{}"},
		{"1, halt, 2", "1"},
	} {
		if got, _ := f.piece(t, token, jq(test.expression)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.expression, got, test.want)
		}
	}
	for _, test := range []struct{ arguments, want, note string }{
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
		{".items[", "unexpected EOF"},
		{`"open`, "unterminated string literal"},
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
	for want, result := range map[string]string{
		"needs JSON":      text("no json" + pad),
		"at most 5242880": text(`["` + strings.Repeat("x", maxData) + `"]`),
	} {
		if texts, failed := f.read(t, alice, with(f.token(t, result), jq("."))); !failed || !strings.Contains(texts[0], want) {
			t.Errorf("want %q: %.200q", want, texts)
		}
	}
}

// Each of these would take all memory there is, or years.
func TestExpressionsThatMultiplyAreEnded(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, text(`["`+strings.Repeat(`x`, 5000)+`"]`))
	f.evaluator = sandbox
	// A busy machine may reach the limit of time before that of memory.
	const either = " of "
	for expression, want := range map[string]string{
		`reduce range(60) as $i (.; [., .]) | tojson`: either,
		`reduce range(60) as $i (.; . + .)`:           either,
		`[range(1e12)]`:                               either,
		`def f: [f]; f`:                               either,
		`.[0] * 400000`:                               either,
		`[.[536870911] = 1]`:                          either,
		`repeat(.)`:                                   either,
		`last(range(1e15))`:                           "5s",
		// One operation without an end: the process is ended from outside.
		`reduce range(60) as $i (.; [., .]) | . == map(.)`: "5s",
	} {
		t.Run(expression, func(t *testing.T) {
			if testing.Short() && want == "5s" {
				t.Skip("takes its time")
			}
			texts, failed := f.read(t, alice, with(token, jq(expression)))
			if !failed || !strings.HasPrefix(texts[0], "jq: limit reached: ") || !strings.Contains(texts[0], want) {
				t.Errorf("%.200q", texts)
			}
		})
	}
	f.evaluator = patient{sandbox}
	if got, _ := f.piece(t, token, jq("length")); got != "1" {
		t.Errorf("afterwards: %s", got)
	}
}

// counting is an evaluator that says how many expressions it evaluates at once.
type counting struct{ now, most atomic.Int32 }

func (c *counting) Query(context.Context, string, []byte, script.Limits) (json.RawMessage, error) {
	defer c.now.Add(-1)
	if n := c.now.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	time.Sleep(time.Millisecond)
	return json.RawMessage(`[1]`), nil
}

func TestExpressionsAreEvaluatedOneAtATime(t *testing.T) {
	f := newFixture(t)
	c := &counting{}
	f.evaluator = c
	token := f.token(t, text(`{"a":1,"pad":"`+strings.Repeat("-", 500)+`"}`))
	var reading sync.WaitGroup
	for range 8 {
		reading.Go(func() { f.read(t, alice, with(token, jq("."))) })
	}
	reading.Wait()
	if n := c.most.Load(); n != 1 {
		t.Errorf("%d at a time", n)
	}
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
		`[.[] | select(tostring | contains("number 999")).title]`,
		"{count: length, first: .[0].title, last: .[-1].title}",
		"sort_by(.title)[:10] | map([.id, .title])",
		"group_by(.user.id % 10) | map(length)",
	} {
		f.piece(t, token, `"limit":100,`+jq(expression))
	}
}
