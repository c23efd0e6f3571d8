package page

import (
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

// orders is a schema with everything that a form has.
const orders = `{"type":"object","required":["who","count","items"],"properties":{
	"who":{"type":"string","description":"Whose order it is"},
	"note":{"type":"string"},
	"count":{"type":"integer","minimum":1,"default":1},
	"price":{"type":["number","null"]},
	"gift":{"type":"boolean"},
	"size":{"enum":["S","M",3,null]},
	"sizes":{"type":"array","items":{"enum":["S","M"]}},
	"when":{"type":"string","format":"date-time"},
	"mail":{"anyOf":[{"type":"string","format":"email"},{"type":"null"}],"default":null},
	"items":{"type":"array","items":{"$ref":"#/$defs/item"}},
	"to":{"type":"object","required":["street"],"properties":{"street":{"type":"string"},"a/b~c":{"type":"string"}}},
	"any":{"oneOf":[{"type":"string"},{"type":"object"}]},
	"free":{"type":"object"}},
	"$defs":{"item":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}}}}}`

func TestFormToArguments(t *testing.T) {
	whole := `"who":"Ada","count":1,"items":[]`
	for _, test := range []struct {
		name, sent, want string
		fault            string // what the form says, at which field
	}{
		{name: "what is empty is absent", sent: "aa/who=&a/who=Ada&a/count=1&a/note=&a/gift=&a/size=&n/items=0", want: `{` + whole + `}`},
		{name: "what is required is missed", sent: "a/count=1", want: `{"count":1,"items":[]}`, fault: "/who: it is required"},
		{name: "lines of text", sent: "a/who=Ada&a/count=1&a/note=one%0D%0Atwo", want: `{"who":"Ada","note":"one\ntwo","count":1,"items":[]}`},
		{name: "numbers keep their digits", sent: "a/who=Ada&a/count=1&a/price=12345678901234567890.10", want: `{"who":"Ada","count":1,"price":12345678901234567890.10,"items":[]}`},
		{name: "a whole number, however written", sent: "a/who=Ada&a/count=1e1", want: `{"who":"Ada","count":10,"items":[]}`},
		{name: "no number", sent: "a/who=Ada&a/count=true", want: `{"who":"Ada","items":[]}`, fault: "/count: it is no number"},
		{name: "options are values, not texts", sent: "a/who=Ada&a/count=1&a/gift=false&a/size=2", want: `{"who":"Ada","count":1,"gift":false,"size":3,"items":[]}`},
		{name: "an option that is not there", sent: "a/who=Ada&a/count=1&a/size=9", want: `{` + whole + `}`},
		{name: "several options", sent: "a/who=Ada&a/count=1&a/sizes=1&a/sizes=0", want: `{"who":"Ada","count":1,"sizes":["S","M"],"items":[]}`},
		{name: "a time is UTC", sent: "a/who=Ada&a/count=1&a/when=2026-01-31T12:30", want: `{"who":"Ada","count":1,"when":"2026-01-31T12:30:00Z","items":[]}`},
		{name: "what may be null is its type", sent: "a/who=Ada&a/count=1&a/mail=ada@example.org", want: `{"who":"Ada","count":1,"mail":"ada@example.org","items":[]}`},
		{name: "no address", sent: "a/who=Ada&a/count=1&a/mail=ada", want: `{` + whole + `}`, fault: "/mail: it is no email address"},
		{name: "lists of objects with lists", sent: "a/who=Ada&a/count=1&n/items=2&a/items/0/name=pen&n/items/0/tags=2&a/items/0/tags/0=blue&a/items/1/name=ink", want: `{"who":"Ada","count":1,"items":[{"name":"pen","tags":["blue",""]},{"name":"ink"}]}`},
		{name: "more items than may be", sent: "a/who=Ada&a/count=1&n/items=-7&n/items/0/tags=1", want: `{` + whole + `}`},
		{name: "an object of which nothing was filled in", sent: "a/who=Ada&a/count=1&a/to/street=", want: `{` + whole + `}`},
		{name: "an object of which something was", sent: "a/who=Ada&a/count=1&a/to/a~1b~0c=x", want: `{"who":"Ada","count":1,"items":[],"to":{"a/b~c":"x"}}`, fault: "/to/street: it is required"},
		{name: "what the form has no fields for is JSON", sent: `a/who=Ada&a/count=1&a/any={"x":1}&a/free={"y": [2]}`, want: `{"who":"Ada","count":1,"items":[],"any":{"x":1},"free":{"y": [2]}}`},
		{name: "what HTML has no way to write", sent: "a/who=Ada%C2%85&a/count=1", want: `{"count":1,"items":[]}`, fault: "/who: it has a control character"},
		{name: "no JSON", sent: "a/who=Ada&a/count=1&a/any={", want: `{` + whole + `}`, fault: "/any: it is no JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sent := must.Get(url.ParseQuery(strings.ReplaceAll(test.sent, "+", "%2B")))(t)
			f := readSchema(json.RawMessage(orders))
			if got := f.take(sent); !equal(got, json.RawMessage(test.want)) || len(compact(got)) != len(compact(json.RawMessage(test.want))) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if faults := strings.Join(faultsOf(f), "; "); (test.fault == "") != (faults == "") || !strings.HasPrefix(faults, test.fault) {
				t.Errorf("faults: %q, want %q", faults, test.fault)
			}
		})
	}
}

func faultsOf(f *param) (all []string) {
	if f.Error != "" {
		all = append(all, f.Where+": "+f.Error)
	}
	for _, one := range append(append([]*param{}, f.Fields...), f.Items...) {
		all = append(all, faultsOf(one)...)
	}
	return all
}

// What the form can have comes back as it was, and of the rest it says so.
func TestArgumentsToForm(t *testing.T) {
	for _, test := range []struct {
		arguments string
		fits      bool
	}{
		{`{"who":"Ada","count":1,"items":[]}`, true},
		{`{"who":"Ada\nand more","note":"one\ntwo","count":12345678901234567890,"items":[{"name":"a","tags":["","x"]},{"name":"b"}]}`, true},
		{`{"who":"Ada","count":1,"items":[],"when":"2026-01-31T12:30:00Z","size":3,"sizes":["S"],"gift":true,"to":{"street":"x","a/b~c":"y"},"any":[1],"free":{}}`, true},
		{`{"who":"Ada","count":1,"items":[],"when":"2026-01-31T12:30:00+02:00"}`, true},
		{`{"who":"Ada\u200c","count":1,"items":[]}`, true},
		{`{"who":"Ada\u0085","count":1,"items":[]}`, false},
		{`{"who":"Ada","count":1,"items":[],"more":1}`, false},
		{`{"who":"Ada","count":1,"items":[],"note":""}`, false},
		{`{"who":"Ada","count":"1","items":[]}`, false},
		{`{"who":5,"count":1,"items":[]}`, false},
		{`{"who":"Ada","count":1,"items":[],"size":"L"}`, false},
		{`{"who":"Ada","count":1,"items":[],"sizes":["M","S"]}`, false},
		{`{"who":"Ada","count":1,"items":[],"price":null}`, false},
		{`{"who":"Ada","count":1,"items":{}}`, false},
		{`{"who":"Ada","count":1,"items":[],"to":{}}`, false},
		{`[]`, false},
	} {
		f := readSchema(json.RawMessage(orders))
		if fits := f.fill(json.RawMessage(test.arguments)); fits != test.fits {
			t.Errorf("%s fits: %t", test.arguments, fits)
		} else if !fits {
			continue
		}
		sent := url.Values{}
		send(f, sent)
		if got := readSchema(json.RawMessage(orders)); !equal(got.take(sent), json.RawMessage(test.arguments)) {
			t.Errorf("%s came back as %s", test.arguments, got.take(sent))
		}
	}
}

// send is what a browser sends of a form.
func send(f *param, to url.Values) {
	switch f.Kind {
	case kindList:
		to.Set(f.CountName(), string(rune('0'+len(f.Items))))
	case kindChecks:
		for i, one := range f.Options {
			if one.On {
				to.Add(f.ID(), string(rune('0'+i)))
			}
		}
	default:
		to.Set(f.ID(), strings.ReplaceAll(f.Value, "\n", "\r\n"))
	}
	for _, one := range append(append([]*param{}, f.Fields...), f.Items...) {
		send(one, to)
	}
}

func TestItemsAreAddedAndRemoved(t *testing.T) {
	f := readSchema(json.RawMessage(orders))
	f.fill(json.RawMessage(`{"items":[{"name":"a"},{"name":"b","tags":["x","y"]},{"name":"c"}]}`))
	for _, test := range []struct{ what, focus string }{
		{"remove:/items/0", "a/items/0/name"}, {"add:/items/0/tags", "a/items/0/tags/2"}, {"remove:/items/0/tags/0", "a/items/0/tags/0"}, {"add:/items", "a/items/2/name"},
		{"add:/items/1/tags", "a/items/1/tags/0"}, {"remove:/items/1/tags/0", "a/items/1/tags"},
	} {
		if !f.edit(test.what) {
			t.Errorf("%s does nothing", test.what)
		}
		if at := focusOf(f); at != test.focus {
			t.Errorf("after %s the keys go to %q, want %q", test.what, at, test.focus)
		}
	}
	for _, what := range []string{"", "add:", "add:/who", "remove:/items/9", "remove:items", "remove:/items/x", "add:/items/7/tags", "blow:/items"} {
		if f.edit(what) {
			t.Errorf("%q does something", what)
		}
	}
	sent := url.Values{}
	send(f, sent)
	if got := readSchema(json.RawMessage(orders)).take(sent); !strings.Contains(string(got), `"items":[{"name":"b","tags":["y",""]},{"name":"c"},{}]`) {
		t.Errorf("got %s", got)
	}
}

// focusOf returns where the keys go, and forgets it.
func focusOf(f *param) (at string) {
	if f.Focus {
		at = f.ID()
	}
	f.Focus = false
	for _, one := range slices.Concat(f.Fields, f.Items) {
		at += focusOf(one)
	}
	return at
}

// What the check finds is shown at the fields.
func TestFaultsAreAtTheirFields(t *testing.T) {
	f := readSchema(json.RawMessage(orders))
	sent, _ := url.ParseQuery("a/who=Ada&a/count=0&n/items=1&a/items/0/name=&a/free=[1]")
	arguments := f.take(sent)
	compiled := must.Get(schema.Compile(json.RawMessage(orders)))(t)
	misfits := must.Get(compiled.Check(t.Context(), arguments))(t)
	rest := f.blame(misfits)
	got := strings.Join(append(faultsOf(f), rest...), "\n")
	for _, want := range []string{"/count: minimum: got 0, want 1", "/items/0/name: it is required", "/free: got array, want object"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if len(rest) > 0 {
		t.Errorf("about no field: %q", rest)
	}
}

// Schemas are anybody's: whatever they are, a form comes of them, and soon.
func TestHostileSchemas(t *testing.T) {
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 500) + `{}` + strings.Repeat(`}}`, 500)
	wide := `{"type":"object","properties":{` + strings.TrimSuffix(strings.Repeat(`"x":{"$ref":"#"},`, 5000), ",") + `}}`
	fan := `{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"type":"array","items":{"$ref":"#"}},"d":{"$ref":"#"}}}`
	for name, text := range map[string]string{
		"nothing": ``, "null": `null`, "true": `true`, "an array": `[1,2]`, "text": `"x"`, "deep": deep, "wide": wide, "fan": fan,
		"a circle": `{"type":"object","properties":{"a":{"$ref":"#/properties/b"},"b":{"$ref":"#/properties/a"}}}`,
		"odd":      `{"type":["object",5,null],"properties":{"a":5,"b":{"type":{"x":1}},"c":{"enum":5},"d":{"enum":[]},"e":{"items":[1],"type":"array"},"f":{"oneOf":{"const":1}},"g":{"$ref":"https://example.org"},"h":{"$ref":"#/nowhere/~2"}},"required":"a"}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := readSchema(json.RawMessage(text))
			f.fill(json.RawMessage(`{"a":{"a":1},"c":[{"c":[]}]}`))
			if value := f.take(url.Values{"n/c": {"50"}}); value != nil && !json.Valid(value) {
				t.Errorf("it makes %s", value)
			}
		})
	}
}

// The form, as HTML.
func TestFormHTML(t *testing.T) {
	f := readSchema(json.RawMessage(`{"type":"object","required":["who","<i>"],"properties":{
		"who":{"type":"string","description":"<script>alert(1)</script>","maxLength":20},
		"<i>":{"enum":["<b>\u202e","\"' onfocus=alert(1)"]},
		"items":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}},
		"deep":{"type":"object","properties":{"json":{}}}}}`))
	sent, _ := url.ParseQuery(`n/items=1&a/items/0/n=x&a/who=%22><script>alert(2)</script>&a/deep/json={`)
	f.take(sent)
	f.open()
	f.focusFault()
	var b strings.Builder
	must.Do(t, parsed()[catalogueScreen.file].ExecuteTemplate(&b, "input", f))
	golden(t, "form.html", b.String())
}

// golden compares a text with what is in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.MkdirAll("testdata", 0o755))
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s differs (go test -update): %v\n%s", path, err, got)
	}
}
