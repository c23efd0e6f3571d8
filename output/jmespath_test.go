package output

import (
	"fmt"
	"strings"
	"testing"

	"toolfinch/rawjson"
)

func TestJMESPath(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, `{"content":[],"structuredContent":{"items":[
		{"id": 9007199254740993, "z": 1.0, "a": "x"},
		{"id": 12345678901234567890, "z": 2.50, "a": "<y>"},
		{"id": 7, "z": 1e2, "a": ""}], "when": 1767268800000000123, "text": "line 1\nline 2", "none": null, "yes": true, "huge": 1e999,
		"pad": "`+strings.Repeat("-", 500)+`"}}`)
	for _, test := range []struct{ expression, want string }{
		{"items[0]", `{"id":9007199254740993,"z":1.0,"a":"x"}`}, // digits and order
		{"items[].id", `[9007199254740993,12345678901234567890,7]`},
		{"items[].z", `[1.0,2.50,1e2]`},
		{"items[?id == `9007199254740993`].a", `["x"]`},
		{"items[?id > `8`] | [1]", `{"id":12345678901234567890,"z":2.50,"a":"<y>"}`},
		{"items[?z > `1`].a", `["<y>",""]`},
		{"items[?a == 'x'].{second: z, first: id}", `[{"first":9007199254740993,"second":1.0}]`},
		{"sort_by(items, &z)[*].a", `["x","<y>",""]`},
		{"[sort_by(items, &a)[0].id, items[?a == 'x'] | [0].id]", `[7,9007199254740993]`},
		{"when", `1767268800000000123`},
		{"when > `1767268799000000000`", `true`},
		{"huge", `1e999`},
		{"length(items)", `3`},
		{"text", "line 1\nline 2"}, // a text is read as it is
		{"none", `null`},
		{"nothing.at.all", `null`},
		{"yes", `true`},
		{"items[].missing", `[]`},
		{"avg(items[].missing)", `null`},
		{"join(', ', items[].a)", "x, <y>, "},
		{"max_by(items, &z).a", ""},
		{"sort(keys(items[0]))", `["a","id","z"]`},
		{"`1.5`", `1.5`},
		{"'it\\'s'", "it's"},
	} {
		if got, _ := f.piece(t, token, `"jmespath":`+string(rawjson.Quote(test.expression))); got != test.want {
			t.Errorf("%s: got %s, want %s", test.expression, got, test.want)
		}
	}
	if got, note := f.piece(t, token, `"jmespath":"text","lines":"2"`); got != "line 2" || !strings.Contains(note, "of the text that the expression found. It ends here.") {
		t.Errorf("lines of a text: %q, %s", got, note)
	}
	if got, note := f.piece(t, token, `"jmespath":"items[].id","offset":1,"limit":16`); got != "9007199254740993" || !strings.Contains(note, "read on with offset 17") {
		t.Errorf("offset of a value: %q, %s", got, note)
	}
	for _, test := range []struct{ expression, want string }{
		{"items[?a = 'x']", "at character 10:\nitems[?a = 'x']\n         ^"},
		{"items[", "at character 7"},
		{"'open", "Unclosed delimiter"},
		{"", "at character 1"},
		{"nosuch(@)", "unknown function: nosuch"},
		{"abs(text)", "takes number"},
		{"length(`1`)", "takes string, array, object"},
		{"merge(items)", "does not fit the types"},
		{"contains(items, items[0])", "does not fit the types"},
		{"&text", "no JSON"},
		{"join(text, items[].a)", "single quotes"},
		{"join('' || text, items[].a)", "single quotes"},
		{strings.Repeat("a", 1001), "1001 bytes"},
		{"items[].[" + strings.Repeat("[", 400) + "@" + strings.Repeat("]", 400) + "]", "too much time or memory"},
	} {
		texts, failed := f.read(t, alice, with(token, `"jmespath":`+string(rawjson.Quote(test.expression))))
		if !failed || !strings.Contains(texts[0], test.want) || len(texts[0]) > 2*len(test.expression)+500 {
			t.Errorf("%.50s: got %q, want %q", test.expression, texts, test.want)
		}
	}
}

func TestJMESPathSaysWhenDigitsAreLost(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, `{"content":[],"structuredContent":{"a":[{"id":9007199254740992},{"id":9007199254740993}],"b":[1,1.0],"pad":"`+strings.Repeat("-", 500)+`"}}`)
	for _, test := range []struct {
		expression, want string
		rounded          bool
	}{
		{"a[].id", `[9007199254740992,9007199254740992]`, true},
		{"a", `[{"id":9007199254740992},{"id":9007199254740993}]`, false},
		{"b", `[1,1]`, false},
	} {
		got, note := f.piece(t, token, `"jmespath":"`+test.expression+`"`)
		if got != test.want || strings.Contains(note, "rounded") != test.rounded {
			t.Errorf("%s: %s, %s", test.expression, got, note)
		}
	}
}

func TestJMESPathReadsTextThatIsJSON(t *testing.T) {
	f := newFixture(t)
	pad := strings.Repeat("-", 500)
	if got, _ := f.piece(t, f.token(t, text(`[{"a":1.0,"pad":"`+pad+`"}]`)), `"jmespath":"[0].a"`); got != "1.0" {
		t.Errorf("got %s", got)
	}
	for want, result := range map[string]string{
		"needs JSON":            text("no json" + pad),
		"at most 5242880":       text(`["` + strings.Repeat("x", maxData) + `"]`),
		"this has more":         text(strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2)),
		"at most 500000 values": text("[" + strings.Repeat("0,", maxNodes) + "0]"),
	} {
		if texts, failed := f.read(t, alice, with(f.token(t, result), `"jmespath":"@"`)); !failed || !strings.Contains(texts[0], want) {
			t.Errorf("want %q: %.200q", want, texts)
		}
	}
}

// Each of these would take all memory there is, or years.
func TestExpressionsThatMultiplyAreRefused(t *testing.T) {
	f := newFixture(t)
	token := f.token(t, text(`["`+strings.Repeat(`\"`, 5000)+`"]`))
	twice := func(part string, n int) string { return strings.TrimSuffix(strings.Repeat(part+"|", n), "|") }
	for _, expression := range []string{
		twice("[@,@][]", 60),
		twice("{a:@,b:@}.[a,b][]", 40),
		twice("join('',[@,@])", 60),
		strings.Repeat("to_string([", 50) + "@" + strings.Repeat("])", 50),
		twice("map(&`["+strings.Repeat("0,", 40)+"0]`,@)[]", 8),
		twice("join('"+strings.Repeat("x", 90)+"',[@,@])", 8),
		`'\\'x'|` + twice("[@,@][]", 60), // a quote that only looks like the end
		twice("sort_by(@, &length(@))", 20),
	} {
		texts, failed := f.read(t, alice, with(token, `"jmespath":`+string(rawjson.Quote(expression))))
		if !failed || texts[0] != errTooMuch.Error() {
			t.Errorf("%.60s: %.200q", expression, texts)
		}
	}
	token = f.token(t, text("["+strings.Repeat("0,", 400_000)+"0]"))
	for _, expression := range []string{twice("[*]", 200), "[?" + strings.Repeat("@==`1`||", 100) + "@]"} {
		if texts, failed := f.read(t, alice, with(token, `"jmespath":`+string(rawjson.Quote(expression)))); !failed || texts[0] != errTooMuch.Error() {
			t.Errorf("%.60s: %.200q", expression, texts)
		}
	}
	// What shares its parts needs little memory, but would be long to write.
	token = f.token(t, text(`["`+strings.Repeat("x", 500_000)+`"]`))
	if texts, failed := f.read(t, alice, with(token, `"jmespath":"[@,@,@,@]|[@,@,@,@]"`)); !failed || !strings.Contains(texts[0], "more than 5242880 bytes") {
		t.Errorf("%.100q", texts)
	}
}

func TestUsualExpressionsAreNotRefused(t *testing.T) {
	f := newFixture(t)
	var data strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&data, `{"id":%d,"title":"the title of number %d","state":"open","user":{"login":"somebody","id":%d},"labels":[{"name":"bug"}]},`, i, i, i)
	}
	token := f.token(t, text("["+strings.TrimSuffix(data.String(), ",")+"]"))
	for _, expression := range []string{
		"[?state=='open' && contains(title, 'number 9') && user.login != 'somebody else'].{id: id, title: title, login: user.login, labels: labels[].name}",
		"[?contains(to_string(@), 'number 999')].title",
		"{count: length(@), first: [0].title, last: [-1].title}",
		"sort_by(@, &title)[:10].[id, title]",
	} {
		f.piece(t, token, `"limit":100,"jmespath":`+string(rawjson.Quote(expression)))
	}
}
