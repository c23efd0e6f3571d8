package proxy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

func golden(t *testing.T, name string) string {
	t.Helper()
	raw := must.Get(os.ReadFile("../testdata/golden/" + name))(t)
	return compact(t, raw)
}

func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return b.String()
}

// odd is JSON that a typed structure, or a number of 64 bits, would lose.
const odd = `{"big":123456789012345678901234567890,"float":1.0,"huge":1e400,"tiny":-1E-400,"twice":1,"twice":2,"text":"\u003c<\ud83d\ude00é\/\u2028","space": [ null ,{ } ],"":{}}`

// oddMember is odd without a number that makes official clients refuse a list.
var oddMember = strings.Replace(odd, `"huge":1e400,`, "", 1)

// The definitions of the table below: every field of the schemas of 2025-11-25
// and 2026-07-28, and others.
var oddDefinitions = map[string]string{
	"prompts":           `{"unknown":` + oddMember + `,"name":"p","title":"T","description":"\u003c","icons":[{"src":"data:,","mimeType":"image/png","sizes":["any"],"theme":"dark","x":1.0}],"arguments":[{"name":"a","title":"A","description":"d","required":true,"x":` + oddMember + `}],"_meta":` + oddMember + `}`,
	"resources":         `{"unknown":` + oddMember + `,"uri":"odd://\u0061","name":"r","title":"T","description":"d","icons":[],"mimeType":"text/plain","annotations":{"audience":["user"],"priority":0.50,"lastModified":"2026-01-01T00:00:00Z","x":` + oddMember + `},"size":9007199254740993,"_meta":` + oddMember + `}`,
	"resourceTemplates": `{"unknown":` + oddMember + `,"uriTemplate":"odd://{x}/\u007by}","name":"t","title":"T","description":"d","icons":[],"mimeType":"text/plain","annotations":{"priority":1e-400},"_meta":` + oddMember + `}`,
}

const oddContent = `{"type":"text","text":"\u003c","annotations":{"priority":0.50},"_meta":` + odd + `,"x":1.0},{"type":"image","data":"AA==","mimeType":"image/png","x":1.0},{"type":"audio","data":"AA==","mimeType":"audio/wav","x":1.0},{"type":"resource_link","uri":"file:///x","name":"x","size":9007199254740993,"x":1.0},{"type":"resource","resource":{"uri":"x://y","text":"t","x":1.0}},{"type":"resource","resource":{"uri":"x://z","blob":"AA==","x":1.0},"x":1.0},{"type":"hologram","depth":` + odd + `},7`

// oddAnswers are results and errors as a server sends them; the same bytes must
// reach the client.
var oddAnswers = []struct{ what, method, params, result, failure string }{
	{what: "a tool's result", method: "tools/call", params: `{"name":"odd_every_thing","arguments":{"a":"x"}}`,
		result: `{"unknown":` + odd + `,"resultType":"complete","content":[` + oddContent + `],"structuredContent":` + odd + `,"isError":true,"_meta":` + odd + `,"twice":1,"twice":2}`},
	{what: "structured content that is no object", method: "tools/call", params: `{"name":"odd_every_thing","arguments":{"a":"x"}}`,
		result: `{"content":[],"structuredContent":[1e400],"isError":false}`},
	{what: "a result that is hardly one", method: "tools/call", params: `{"name":"odd_every_thing","arguments":{"a":"x"}}`, result: `{}`},
	{what: "a prompt", method: "prompts/get", params: `{"name":"odd_p"}`,
		result: `{"unknown":` + odd + `,"description":"\u003c","messages":[{"role":"user","content":{"type":"hologram","x":` + odd + `},"x":1.0},{"role":"assistant","content":{"type":"resource","resource":{"uri":"x://y","blob":"AA=="}}}],"_meta":` + odd + `}`},
	{what: "a resource", method: "resources/read", params: `{"uri":"odd://a"}`,
		result: `{"unknown":` + odd + `,"contents":[{"uri":"odd://a","mimeType":"text/plain","text":"\u003c","_meta":` + odd + `,"x":1.0},{"uri":"odd://a","blob":"AA==","x":` + odd + `},{"uri":"odd://a"}],"_meta":` + odd + `}`},
	{what: "a resource that says how long it keeps", method: "resources/read", params: `{"uri":"odd://a"}`,
		result: `{"ttlMs":1.50,"cacheScope":"public","resultType":"complete","contents":[]}`},
	{what: "a completion", method: "completion/complete", params: `{"ref":{"type":"ref/prompt","name":"odd_p"},"argument":{"name":"a","value":""}}`,
		result: `{"unknown":` + odd + `,"completion":{"values":["\u003c"],"total":9007199254740993,"hasMore":false,"x":` + odd + `},"_meta":` + odd + `}`},
	{what: "a tool's error", method: "tools/call", params: `{"name":"odd_every_thing","arguments":{"a":"x"}}`,
		failure: `{"unknown":` + odd + `,"code":-31999,"message":"\u003c","data":` + odd + `,"twice":1,"twice":2}`},
	{what: "an error with a code of the protocol's", method: "prompts/get", params: `{"name":"odd_p"}`,
		failure: `{"code":-32602,"message":"no","data":` + odd + `}`},
	{what: "an error that is hardly one", method: "resources/read", params: `{"uri":"odd://a"}`, failure: `{"code":1.0}`},
	{what: "an error of a completion", method: "completion/complete", params: `{"ref":{"type":"ref/resource","uri":"odd://{x}/{y}"},"argument":{"name":"x","value":""}}`,
		failure: `{"code":-1,"message":"","data":null}`},
}

// oddRequests are params as a client sends them; the same members must reach
// the server, byte for byte. own is what stands there for the name.
var oddRequests = []struct{ method, params, own string }{
	{"tools/call", `{"unknown":` + odd + `,"name":"odd_every_thing","arguments":` + odd + `,"_meta":{"a/b":` + odd + `,"traceparent":"\u003c"},"twice":1,"twice":2}`, "every.thing"},
	{"tools/call", `{"name":"odd_every_thing"}`, "every.thing"},
	{"prompts/get", `{"_meta":{"a/b":` + odd + `},"name":"odd_p","arguments":{"a":"\u003c","b":1.0},"unknown":` + odd + `}`, "p"},
	{"resources/read", `{"unknown":` + odd + `,"uri":"odd://\u0061","_meta":{"":` + odd + `}}`, "odd://a"},
	{"completion/complete", `{"unknown":` + odd + `,"argument":{"name":"a","value":"\u003c","x":` + odd + `},"context":{"arguments":{"b":"\u003c"},"x":` + odd + `},"_meta":{"a/b":` + odd + `},"ref":{"x":` + odd + `,"type":"ref/prompt","name":"odd_p"}}`, ""},
}

// What server and client say to each other is the same JSON on the other side,
// byte for byte, for all eras and transports. Beyond that, this is what changes:
// names; progress tokens and the protocol's own keys of _meta, which speak of
// one connection; requestState, which is sealed; and what the era of the client
// asks for besides, resultType, ttlMs and cacheScope, is added where it is
// missing. White space stays unless it breaks a line. Of a list the definitions
// stay and not what stands beside them, because it is one of several servers.
// Notifications, and what servers ask of clients, are in the test of the eras.
func TestBytesStayBytes(t *testing.T) {
	definition := golden(t, "definition.json")
	forEachMeeting(t, func(t *testing.T, client, server kind) {
		m := &meeting{up: newScript(t, "odd", server.modern, server.stdio)}
		m.up.page = 1
		m.up.hints = `"unknown":` + odd + `,`
		m.up.list("tools", definition, `{"name":"ask"}`)
		for list, def := range oddDefinitions {
			m.up.list(list, def)
		}
		p, url := openScripts(t, []string{"odd.every.thing"}, m.up)
		m.rawClient = newClient(t, p, url, client, can, func(string, json.RawMessage) string { return `"error":` + refusal })
		t.Run("definitions", func(t *testing.T) { testOddDefinitions(t, m, definition) })
		t.Run("answers", func(t *testing.T) { testOddAnswers(t, m) })
		t.Run("answers of several lines", func(t *testing.T) { testSpreadAnswer(t, m) })
		t.Run("requests", func(t *testing.T) { testOddRequests(t, m) })
		t.Run("refusals", func(t *testing.T) { testOddRefusal(t, m) })
	})
}

func testOddDefinitions(t *testing.T, m *meeting, definition string) {
	listed := strings.Replace(definition, `"name":"every.thing"`, `"name":"odd_every_thing"`, 1)
	if got := m.ask("tools/list", `{}`); !strings.HasSuffix(string(got.Result), `,`+listed+`]}`) {
		t.Errorf("tools/list = %s\nwant in it %s", got.raw, listed)
	}
	for list, method := range map[string]string{"prompts": "prompts/list", "resources": "resources/list", "resourceTemplates": "resources/templates/list"} {
		want := strings.Replace(oddDefinitions[list], `"name":"p"`, `"name":"odd_p"`, 1)
		if got := part(m.ask(method, `{}`).Result, list); string(got) != `[`+want+`]` {
			t.Errorf("%s = %s\nwant %s", method, got, want)
		}
	}
}

func testOddAnswers(t *testing.T, m *meeting) {
	for _, test := range oddAnswers {
		m.up.on(test.method, func(r *request) {
			if test.failure != "" {
				r.fail(test.failure)
			} else {
				r.result(test.result)
			}
		})
		got := m.ask(test.method, test.params)
		if test.failure != "" {
			if want := `{"jsonrpc":"2.0","id":` + string(got.ID) + `,"error":` + test.failure + `}`; got.raw != want {
				t.Errorf("%s: got\n%s\nwant\n%s", test.what, got.raw, want)
			}
			continue
		}
		want, added := test.result, []member(nil)
		if m.modern {
			for _, hint := range []member{{"resultType", `"complete"`}, {"ttlMs", "0"}, {"cacheScope", `"private"`}} {
				if part([]byte(want), hint.key) == nil && (hint.key == "resultType" || test.method == "resources/read") {
					added = append(added, hint)
				}
			}
		}
		// What is added comes first, and all after it is as it was.
		before, whole := strings.CutSuffix(string(got.Result), want[1:])
		if want == `{}` {
			before, whole = strings.CutSuffix(string(got.Result), `}`)
		}
		if !whole || !slices.Equal(byKey(members([]byte(strings.TrimSuffix(before, ",")+`}`))), byKey(added)) {
			t.Errorf("%s: got\n%s\nwant\n%s and %v", test.what, got.Result, want, added)
		}
	}
}

func byKey(all []member) []member {
	slices.SortStableFunc(all, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return all
}

func testSpreadAnswer(t *testing.T, m *meeting) {
	if m.up.settings.URL == "" {
		return // a line of stdio has no line breaks
	}
	spread := must.Get(os.ReadFile("../testdata/golden/result.json"))(t)
	m.up.on("tools/call", func(r *request) { r.result(string(spread)) })
	if got := m.ask("tools/call", `{"name":"odd_every_thing"}`); string(got.Result) != compact(t, spread) {
		t.Errorf("got %s", got.raw)
	}
}

func testOddRequests(t *testing.T, m *meeting) {
	for _, test := range oddRequests {
		m.up.on(test.method, func(r *request) { r.result(`{}`) })
		m.ask(test.method, test.params)
		all := m.up.got(test.method)
		got := all[len(all)-1].Params
		key := "name"
		if test.method == "resources/read" {
			key = "uri"
		}
		if own := partText(got, key); own != test.own {
			t.Errorf("%s is about %q, want %q", test.method, own, test.own)
		}
		want := []byte(strings.Replace(test.params, `"odd_p"`, `"p"`, 1))
		if got, want := byKey(without(members(got), key, "_meta")), byKey(without(members(want), key, "_meta")); !slices.Equal(got, want) {
			t.Errorf("%s: the server got\n%v\nwant\n%v", test.method, got, want)
		}
		if got, want := foreign(got), members(part(want, "_meta")); !slices.Equal(got, want) {
			t.Errorf("%s: the server got _meta\n%v\nwant\n%v", test.method, got, want)
		}
		if told := string(part(part(got, "_meta"), "io.modelcontextprotocol/clientCapabilities")); m.up.modern && told != can {
			t.Errorf("the server was told the capabilities %s, want %s", told, can)
		}
	}
}

// foreign are the members of the _meta of params that are not the protocol's own.
func foreign(params []byte) []member {
	return without(members(part(params, "_meta")), "progressToken", "io.modelcontextprotocol/protocolVersion",
		"io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities", "io.modelcontextprotocol/logLevel")
}

// refusal is what a client answers a server's request with.
const refusal = `{"unknown":` + odd + `,"code":-7,"message":"\u003c","data":` + odd + `}`

// It is the server's answer, or the call's where the server is none that gets
// answers.
func testOddRefusal(t *testing.T, m *meeting) {
	if m.modern {
		return // a 2026-07-28 client does not answer with errors
	}
	m.up.on("tools/call ask", func(r *request) {
		if answers, ok := r.need(1, form); ok {
			r.fail(string(answers[0]))
		}
	})
	if got := m.ask("tools/call", `{"name":"odd_ask"}`); string(got.Error) != refusal {
		t.Errorf("got\n%s\nwant\n%s", got.raw, refusal)
	}
}
