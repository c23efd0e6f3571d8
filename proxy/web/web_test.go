package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/web"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// big is a body of more than what MCP takes, full one of exactly that.
var (
	big  = `{"query":"` + strings.Repeat("x", transport.MaxMessage) + `"}`
	full = `{"query":"xyzzy","tags":["nosuchtag"]` + strings.Repeat(" ", transport.MaxMessage-len(`{"query":"xyzzy","tags":["nosuchtag"]}`)) + `}`
)

const text = "Content-Type: text/plain"

// requests are asked in their order, and so that between them each operation is
// answered with every status that it is documented with.
var requests = []struct {
	method, target, body string
	header               []string // each "Name: value"
	status               int
	want                 string // is in the answer
}{
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now","arguments":{"city":"Bern"}}`, nil, 200, `{"result":{"content":[{"type":"text","text":"noon"}]}}`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now","arguments":"{\"city\":\"Bern\"}"}`, nil, 200, `noon`},
	{"POST", "/api/proxy/execute?view=default", ` {"tool_id":"clock_strange","arguments":null} `, []string{"Content-Type: application/json; charset=utf-8"}, 200, `{"result":` + strange + `}`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_echo","arguments":{"z":9007199254740993,"a":1.0,"b":"<&>"}}`, nil, 200, `{"result":{"content":[],"structuredContent":{"z":9007199254740993,"a":1.0,"b":"<&>"}}}`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_fail"}`, nil, 200, `"isError":true`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now"}`, nil, 400, `missing property 'city'`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now","arguments":[]}`, nil, 400, `arguments must be an object`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_nwo"}`, nil, 400, `{"detail":"Unknown tool: clock_nwo. Nearest: clock_now`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock.now","arguments":{"city":"Bern"}}`, nil, 200, `noon`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock:now","arguments":{"city":"Bern"}}`, nil, 200, `noon`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock.nwo"}`, nil, 400, `Unknown tool: clock.nwo`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock now"}`, nil, 400, `Invalid tool ID format: clock now`},
	{"GET", "/api/tools/clock.now", ``, nil, 200, `"tool_id":"clock_now"`},
	{"GET", "/api/tools/clock:now", ``, nil, 200, `"tool_id":"clock_now"`},
	{"POST", "/api/proxy/execute", `{"tool_id":"retrieve_tools"}`, nil, 400, `Unknown tool: retrieve_tools`},
	{"POST", "/api/proxy/execute", `{"tool_id":""}`, nil, 400, `tool_id is missing`},
	{"POST", "/api/proxy/execute", `{"tool_id":null}`, nil, 400, `tool_id is missing`},
	{"POST", "/api/proxy/execute", `{"tool_id":7}`, nil, 400, `tool_id must be text`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now","tool_id":"clock_fail"}`, nil, 400, `tool_id is given twice`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now","argument":{}}`, nil, 400, `unknown field \"argument\"; did you mean \"arguments\"?`},
	{"POST", "/api/proxy/execute", `{"Tool_ID":"clock_now"}`, nil, 400, `unknown field \"Tool_ID\"; did you mean \"tool_id\"?`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now"} {}`, nil, 400, `one JSON object`},
	{"POST", "/api/proxy/execute", `[]`, nil, 400, `one JSON object`},
	{"POST", "/api/proxy/execute", `{"a":` + strings.Repeat("[", 513) + strings.Repeat("]", 513) + `}`, nil, 400, `the body nests deeper than 512`},
	{"POST", "/api/proxy/execute", ``, []string{"Content-Type: application/json"}, 400, `one JSON object`},
	{"POST", "/api/proxy/execute?veiw=default", `{"tool_id":"clock_now"}`, nil, 400, `unknown query parameter \"veiw\"; did you mean \"view\"?`},
	{"POST", "/api/proxy/execute?view=default&view=gated", `{"tool_id":"clock_now"}`, nil, 400, `is given twice`},
	{"POST", "/api/proxy/execute?view=%zz", `{"tool_id":"clock_now"}`, nil, 400, `cannot be read`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now"}`, []string{"Mcp-Session-Id: forged"}, 400, `unknown session`},
	{"POST", "/api/proxy/execute?view=gated", `{"tool_id":"clock_now"}`, nil, 400, `{"detail":"Tool clock_now not provisioned. Use provision_tools first."}`},
	{"POST", "/api/proxy/execute?view=none", `{"tool_id":"clock_now"}`, nil, 404, `no such view: \"none\"`},
	{"POST", "/api/proxy/execute", big, nil, 413, `16 MB`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now"}`, []string{text}, 415, `the header Content-Type is \"text/plain\"; send \"Content-Type: application/json\"`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_now"}`, []string{"Content-Type: "}, 415, `the header Content-Type is missing; send \"Content-Type: application/json\"`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_refuse"}`, nil, 500, `"Tool execution failed: server clock: not today`},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_empty"}`, nil, 500, `Tool execution failed: `},
	{"POST", "/api/proxy/execute", `{"tool_id":"clock_burn"}`, nil, 500, `internal error`},
	{"POST", "/api/proxy/execute", `{"tool_id":"dead_rise"}`, nil, 502, `"Server dead not connected: `},
	{"POST", "/api/proxy/execute", `{"tool_id":"hang_sleep"}`, nil, 504, `timed out`},

	{"GET", "/api/tools/why-not?tool=clock_now&query=current+time+in+a+city", "", nil, 200, `"rank":1,`},
	{"GET", "/api/tools/why-not?tool=clock.refuse&query=current+time+in+a+city&limit=1", "", nil, 200, `"change":{`},
	{"GET", "/api/tools/why-not?tool=clock_no&query=time&view=gated", "", nil, 200, `{"tool":"clock_no","query":"time","out":"unknown","reason":"nearest: clock_now`},
	{"GET", "/api/tools/why-not?tool=clock_now&query=+", "", nil, 400, `tool or query is missing`},
	{"GET", "/api/tools/why-not?tool=clock_now&query=time&limit=51", "", nil, 400, `limit must be a whole number from 1 to 50`},
	{"GET", "/api/tools/why-not?tool=clock_now&query=time&view=none", "", nil, 404, `no such view`},

	{"GET", "/api/tools", "", nil, 200, `"total":10}`},
	{"GET", "/api/tools?server=clock&limit=2&offset=1&view=gated", "", nil, 200, `"total":8}`},
	{"GET", "/api/tools?limit=1&offset=2147483647", "", nil, 200, `{"tools":[],"total":10}`},
	{"GET", "/api/tools?tags=read-only&tags=city,%20time,", "", nil, 200, `"total":1}`},
	{"GET", "/api/tools?server=clok", "", nil, 400, `unknown server \"clok\"; did you mean \"clock\"?`},
	{"GET", "/api/tools?limit=0", "", nil, 400, `limit must be a whole number from 1 to 1000`},
	{"GET", "/api/tools?offset=-1", "", nil, 400, `offset must be a whole number from 0`},
	{"GET", "/api/tools?view=none", "", nil, 404, `no such view`},

	{"GET", "/api/tools/discover?query=current+time+in+a+city&limit=1", "", nil, 200, `{"tools":[{"tool_id":"clock_now"`},
	{"GET", "/api/tools/discover?tags=hang", "", nil, 200, `"tool_id":"hang_sleep"`},
	{"GET", "/api/tools/discover?query=xyzzy&tags=nosuchtag", "", nil, 200, `{"tools":[],"tokens":0,"pending":["hang","mute"]}`},
	{"GET", "/api/tools/discover?limit=51", "", nil, 400, `limit must be a whole number from 1 to 50`},
	{"GET", "/api/tools/discover?limit=ten", "", nil, 400, `limit must be a whole number`},
	{"GET", "/api/tools/discover?q=x", "", nil, 400, `unknown query parameter \"q\"`},
	{"GET", "/api/tools/discover?view=none", "", nil, 404, `no such view`},
	{"GET", "/api/tools/discover?query=current+time+in+a+city&limit=1", "", nil, 200, `"confident":true`},
	{"GET", "/api/tools/discover?limit=1", "", nil, 200, `"more":9`},
	{"POST", "/api/tools/discover", `{"query":"current time in a city","limit":1,"tags":["read-only"]}`, nil, 200, `{"tools":[{"tool_id":"clock_now"`},
	{"POST", "/api/tools/discover?view=gated", `{}`, nil, 200, `"provisioned":false`},
	{"POST", "/api/tools/discover", `{"query":null,"limit":null,"tags":null}`, nil, 200, `"tool_id":"clock_burn"`},
	{"POST", "/api/tools/discover", `{"limit":1.5}`, nil, 400, `limit must be a whole number`},
	{"POST", "/api/tools/discover", `{"tags":"time","limit":"1"}`, nil, 200, `"tool_id":"clock_now"`},
	{"POST", "/api/tools/discover", `{"tags":7}`, nil, 400, `tags must be an array of texts`},
	{"POST", "/api/tools/discover", `{"tags":["time",null]}`, nil, 400, `tags must be an array of texts`},
	{"POST", "/api/tools/discover?query=x", `{}`, nil, 400, `unknown query parameter`},
	{"POST", "/api/tools/discover?view=none", `{}`, nil, 404, `no such view`},
	{"POST", "/api/tools/discover", full, nil, 200, `{"tools":[],"tokens":0`},
	{"POST", "/api/tools/discover", big, nil, 413, `16 MB`},
	{"POST", "/api/tools/discover", `{}`, []string{text}, 415, `application/json`},

	{"POST", "/api/tools/provision?view=gated", `{"tool_ids":["clock_now","clock_now"],"ttl_seconds":600}`, nil, 200, `"usage":{"tools":1,`},
	{"POST", "/api/proxy/execute?view=gated", `{"tool_id":"clock_now","arguments":{"city":"Bern"}}`, nil, 200, `noon`},
	{"GET", "/api/tools/clock_now?view=gated", "", nil, 200, `"provisioned":true`},
	{"POST", "/api/tools/provision?view=tight", `{"query":"answer with numbers or arguments","limit":3,"context_tokens":1000}`, nil, 200, `"did_not_fit":[{"tool_id":`},
	{"POST", "/api/tools/provision?view=gated", `{"query":"answer with numbers","context_tokens":1}`, nil, 200, `{"provisioned":[],"did_not_fit":[{`},
	{"POST", "/api/tools/provision?view=gated", `{"tool_ids":["clock_now"],"ttl_seconds":600}`, nil, 200, `"expires_at":"2`},
	{"POST", "/api/tools/provision?view=gated", `{"query":"answer with numbers","max_tokens":1}`, nil, 200, `{"provisioned":[],"did_not_fit":[{`},
	{"POST", "/api/tools/provision?view=gated", `{"query":"time","max_tokens":5,"context_tokens":5}`, nil, 400, `send one of them`},
	{"POST", "/api/tools/provision?view=gated", `{}`, nil, 400, `tool_ids`},
	{"POST", "/api/tools/provision?view=gated", `{"tool_ids":["clock_now"],"query":"time"}`, nil, 400, `not both`},
	{"POST", "/api/tools/provision?view=gated", `{"tool_ids":["clock_now"],"limit":3}`, nil, 400, `limit goes with a query`},
	{"POST", "/api/tools/provision?view=gated", `{"tool_ids":["clock_nwo"]}`, nil, 400, `Unknown tool: clock_nwo`},
	{"POST", "/api/tools/provision?view=gated", `{"tool_ids":["clock_now"],"ttl_seconds":0}`, nil, 400, `ttl_seconds must be a whole number`},
	{"POST", "/api/tools/provision?view=none", `{}`, nil, 404, `no such view`},
	{"POST", "/api/tools/provision?view=tight", `{"tool_ids":["clock_fail","clock_echo"]}`, []string{"X-User: ann"}, 409, `"needed":{"tools":2,`},
	{"POST", "/api/tools/provision", `{"tool_ids":["clock_now"]}`, nil, 409, `not gated`},
	{"POST", "/api/tools/provision", big, nil, 413, `16 MB`},
	{"POST", "/api/tools/provision", `{}`, []string{text}, 415, `application/json`},

	{"GET", "/api/tools/provision?view=gated", "", nil, 200, `{"provisioned":[{"tool_id":"clock_now","tokens":`},
	{"GET", "/api/tools/provision?view=gated", "", []string{"X-User: ann"}, 200, `{"provisioned":[],"usage":{"tools":0,"tokens":0},"budget":{`},
	{"GET", "/api/tools/provision?view=gated&limit=1", "", nil, 400, `unknown query parameter`},
	{"GET", "/api/tools/provision?view=none", "", nil, 404, `no such view`},
	{"GET", "/api/tools/provision", "", nil, 409, `not gated`},

	{"DELETE", "/api/tools/provision/clock_now?view=gated", "", nil, 200, `{"unprovisioned":[{"tool_id":"clock_now",`},
	{"DELETE", "/api/tools/provision/clock_now?view=gated", "", []string{"Mcp-Session-Id: forged"}, 400, `unknown session`},
	{"DELETE", "/api/tools/provision/clock_now?view=gated", "", nil, 404, `Tool clock_now is not provisioned.`},
	{"DELETE", "/api/tools/provision/clock_nwo?view=gated", "", nil, 404, `nearest: clock_now`},
	{"DELETE", "/api/tools/provision/clock_now?view=none", "", nil, 404, `no such view`},
	{"DELETE", "/api/tools/provision/clock_now", "", nil, 409, `not gated`},

	{"GET", "/api/tools/clock_now", "", nil, 200, `"definition":{"name":"clock_now","description":"Tell the current time in a city","inputSchema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"x":12345678901234567890},`},
	{"GET", "/api/tools/clock_echo", "", nil, 200, `<as> & where`},
	{"GET", "/api/tools/clock%5Fnow", "", nil, 200, `"tool_id":"clock_now"`},
	{"GET", "/api/tools/clock_now?limit=1", "", nil, 400, `unknown query parameter`},
	{"GET", "/api/tools/clock%2Fnow", "", nil, 404, `there is no tool \"clock/now\"`},
	{"GET", "/api/tools/clock_now?view=none", "", nil, 404, `no such view`},

	{"GET", "/api/status", "", nil, 200, `{"version":"1.2.3","store":"PostgreSQL has not answered","view":"default","started":"2026-11-01T12:00:00Z",`},
	{"GET", "/api/status", "", nil, 200, `"servers":[{"name":"clock","description":"Clocks of the world","state":"ready","tools":8,`}, // those of the view
	{"GET", "/api/status?limit=1", "", nil, 400, `unknown query parameter`},
	{"GET", "/api/status?view=none", "", nil, 404, `no such view`},

	{"GET", "/api/servers", "", nil, 200, `{"servers":[{"name":"clock","description":"Clocks of the world","state":"ready","tools":8,`}, // those of the view
	{"GET", "/api/servers", "", nil, 200, `"left_out":1,"mended":2}`},
	{"GET", "/api/servers?limit=1", "", nil, 400, `unknown query parameter`},
	{"GET", "/api/servers?view=none", "", nil, 404, `no such view`},
	{"POST", "/api/servers/hang/reconnect", "", nil, 200, `"tools":1,`},
	{"POST", "/api/servers/hang/reconnect", "{}", nil, 200, `{"server":{"name":"hang","state":"ready"`},
	{"POST", "/api/servers/hang/reconnect", `{"force":true}`, nil, 400, `unknown field \"force\"; POST /api/servers/hang/reconnect takes none`},
	{"POST", "/api/servers/hnag/reconnect", "", nil, 404, `there is no server \"hnag\"; nearest: hang`},
	{"POST", "/api/servers/elsewhere/reconnect", "", nil, 404, `there is no server`},
	{"POST", "/api/servers/hang/reconnect", big, nil, 413, `16 MB`},
	{"POST", "/api/servers/hang/reconnect", `{}`, []string{text}, 415, `application/json`},
	{"POST", "/api/servers/dead/reconnect", "", nil, 502, `upstream dead: `},
	{"POST", "/api/servers/mute/reconnect", "", nil, 504, `upstream mute: `},

	{"GET", "/api/pins", "", nil, 200, `{"held":[{"id":"clock.later","server":"clock","kind":"tool","name":"later","hash":"h-later",`},
	{"GET", "/api/pins", "", nil, 200, `"changes":[{"field":"name","after":"gone"}]}]}`}, // and nothing of a server that the view has not
	{"GET", "/api/pins?view=gated", "", nil, 200, `{"held":[]}`},                         // it has not the whole server
	{"GET", "/api/pins?view=none", "", nil, 404, `no such view`},
	{"GET", "/api/pins?limit=1", "", nil, 400, `unknown query parameter`},
	{"POST", "/api/pins", `{"approve":[{"id":"clock.later","hash":"h-later"}],"reject":[{"id":"clock.gone","hash":"h-gone"}]}`, nil, 200, `{"approved":1,"rejected":1}`},
	{"POST", "/api/pins", `{}`, nil, 400, `nothing is decided`},
	{"POST", "/api/pins", `{"approve":["clock.later"]}`, nil, 400, `it must be a list of`},
	{"POST", "/api/pins", `{"approve":[{"id":"elsewhere.secret","hash":"h-secret"}]}`, nil, 404, `nothing is held that is called \"elsewhere.secret\"`},
	{"POST", "/api/pins?view=gated", `{"approve":[{"id":"clock.later","hash":"h-later"}]}`, nil, 404, `nothing is held`},
	{"POST", "/api/pins", `{"approve":[{"id":"clock.later","hash":"h"}]}`, nil, 409, `it has changed again`},
	{"POST", "/api/pins", `{"approve":[{"id":"clock.gone","hash":"h-gone"}]}`, nil, 409, `it has changed again`},
	{"POST", "/api/pins", big, nil, 413, `16 MB`},
	{"POST", "/api/pins", `{}`, []string{text}, 415, `application/json`},

	{"POST", "/api/reindex", "", nil, 200, `{"servers":[{"server":"clock","tools":8,"added":1,"removed":0,"changed":0},{"server":"dead"`},
	{"POST", "/api/reindex?view=gated", "", nil, 200, `{"servers":[{"server":"clock","tools":8},{"server":"dead"`}, // it has not the whole server
	{"POST", "/api/reindex", "{}", nil, 200, `"error":"upstream dead: connect: no"}]}`},                            // and nothing of a server that the view has not
	{"POST", "/api/reindex", `{"server":"clock"}`, nil, 400, `unknown field`},
	{"POST", "/api/reindex?view=none", "", nil, 404, `no such view`},
	{"POST", "/api/reindex", big, nil, 413, `16 MB`},
	{"POST", "/api/reindex", `{}`, []string{text}, 415, `application/json`},

	{"GET", "/openapi.json", "", nil, 200, `"openapi": "3.1.0"`},
	{"GET", "/openapi.json?pretty=1", "", nil, 400, `there is none here`},
	{"GET", "/api/openapi.json", "", nil, 200, `"openapi": "3.1.0"`},
	{"GET", "/api/openapi.json?pretty=1", "", nil, 400, `there is none here`},
	{"GET", "/metrics", "", nil, 200, `toolfinch_tools 10`},
	{"GET", "/metrics?view=gated", "", nil, 400, `there is none here`},
}

// burning are requests of a backend where nothing works.
var burning = []struct{ method, target, body string }{
	{"GET", "/api/tools", ""},
	{"GET", "/api/tools/discover", ""},
	{"GET", "/api/tools/why-not?tool=a&query=b", ""},
	{"POST", "/api/tools/discover", "{}"},
	{"POST", "/api/tools/provision", "{}"},
	{"GET", "/api/tools/provision", ""},
	{"DELETE", "/api/tools/provision/x", ""},
	{"GET", "/api/tools/x", ""},
	{"GET", "/api/servers", ""},
	{"GET", "/api/status", ""},
	{"POST", "/api/servers/x/reconnect", ""},
	{"POST", "/api/reindex", ""},
	{"GET", "/api/pins", ""},
	{"POST", "/api/pins", "{}"},
	{"GET", "/metrics", ""},
}

func TestEveryStatus(t *testing.T) {
	r := newRig(t)
	d := readDocument(t, r.handler)
	produced := map[string]bool{}
	check := func(t *testing.T, method, target string, answer *httptest.ResponseRecorder) {
		path, _, _ := strings.Cut(target, "?")
		template := d.template(path)
		op, ok := d.paths[template][strings.ToLower(method)]
		if !ok {
			t.Fatalf("%s %s is not documented", method, path)
		}
		key := fmt.Sprintf("%s %s %d", method, template, answer.Code)
		produced[key] = true
		documented, ok := op.Responses[fmt.Sprint(answer.Code)]
		if !ok {
			t.Fatalf("%s is not documented", key)
		}
		contentType, _, _ := strings.Cut(answer.Header().Get("Content-Type"), ";")
		content, ok := documented.Content[contentType]
		if !ok {
			t.Fatalf("%s: Content-Type %q is not documented", key, contentType)
		}
		if contentType == "application/json" {
			for _, violation := range violations(t, d.compile(t, content.Schema), answer.Body.Bytes()) {
				t.Errorf("%s: the answer is not as documented: %s\n%s", key, violation, answer.Body)
			}
		}
		for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": ""} {
			if got := answer.Header().Get(name); got != want {
				t.Errorf("%s: %s %q, want %q", key, name, got, want)
			}
		}
	}
	for _, request := range requests {
		t.Run(fmt.Sprintf("%s %s %.60s %d", request.method, request.target, request.body, request.status), func(t *testing.T) {
			answer := r.ask(request.method, request.target, request.body, request.header...)
			if answer.Code != request.status || !strings.Contains(answer.Body.String(), request.want) {
				t.Fatalf("%d %s\nwant %d with %s", answer.Code, answer.Body, request.status, request.want)
			}
			check(t, request.method, request.target, answer)
		})
	}
	afire := web.Handler(fire{}, "1", slogTo(r.log))
	for _, request := range burning {
		answer := ask(afire, request.method, request.target, request.body)
		if answer.Code != http.StatusInternalServerError || strings.Contains(answer.Body.String(), "secret") {
			t.Errorf("%s %s of a backend afire: %d %s", request.method, request.target, answer.Code, answer.Body)
		}
		check(t, request.method, request.target, answer)
	}
	for template, operations := range d.paths {
		for method, op := range operations {
			for status := range op.Responses {
				if key := strings.ToUpper(method) + " " + template + " " + status; !slices.Contains([]string{"403", "408", "503"}, status) && !produced[key] { // the caller's guard answers with these, or bounds the body
					t.Errorf("%s is documented, and no request is answered so", key)
				}
			}
		}
	}
}

func TestTheDocumentedParametersAreTaken(t *testing.T) {
	r := newRig(t)
	d := readDocument(t, r.handler)
	values := map[string]string{"view": "default", "limit": "1", "offset": "0", "server": "clock", "tags": "time", "query": "time"}
	fill := strings.NewReplacer("{id}", "clock_now", "{name}", "hang")
	for template, operations := range d.paths {
		for method, op := range operations {
			query := url.Values{}
			for _, p := range op.Parameters {
				if p.In == "query" {
					query.Set(p.Name, values[p.Name])
				}
			}
			body := ""
			if op.RequestBody != nil && op.RequestBody.Required {
				body = "{}"
			}
			answer := r.ask(strings.ToUpper(method), fill.Replace(template)+"?"+query.Encode(), body)
			if answer.Code == http.StatusBadRequest && strings.Contains(answer.Body.String(), "unknown query parameter") {
				t.Errorf("%s %s refuses a documented parameter: %s", method, template, answer.Body)
			}
			if op.RequestBody == nil {
				continue
			}
			for name := range rawjson.Members(rawjson.Member(d.at(rawjson.Text(rawjson.Member(op.RequestBody.Content["application/json"].Schema, "$ref"))), "properties")) {
				answer := r.ask(strings.ToUpper(method), fill.Replace(template), `{"`+name+`":null}`)
				if strings.Contains(answer.Body.String(), "unknown field") {
					t.Errorf("%s %s refuses a documented field: %s", method, template, answer.Body)
				}
			}
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		method, target string
		status         int
		allow          string
	}{
		{"GET", "/", 404, ""},
		{"GET", "/api", 404, ""},
		{"GET", "/api/", 404, ""},
		{"GET", "/api/tools/", 404, ""},
		{"GET", "/api//tools", 404, ""},
		{"GET", "/api/x/../tools", 404, ""},
		{"GET", "/api/tools/clock_now/more", 404, ""},
		{"GET", "/metrics/", 404, ""},
		{"POST", "/api/nothing", 404, ""},
		{"GET", "/api/proxy/execute", 405, "POST"},
		{"OPTIONS", "/api/proxy/execute", 405, "POST"},
		{"DELETE", "/api/tools", 405, "GET, HEAD"},
		{"PUT", "/api/tools/discover", 405, "GET, HEAD, POST"},
		{"PUT", "/api/tools/provision", 405, "GET, HEAD, POST"},
		{"GET", "/api/tools/provision/clock_now", 405, "DELETE"},
		{"GET", "/api/reindex", 405, "POST"},
		{"POST", "/metrics", 405, "GET, HEAD"},
	} {
		answer := r.ask(test.method, test.target, "")
		if answer.Code != test.status || answer.Header().Get("Allow") != test.allow || rawjson.Text(rawjson.Member(answer.Body.Bytes(), "detail")) == "" {
			t.Errorf("%s %s: %d, Allow %q, %s", test.method, test.target, answer.Code, answer.Header().Get("Allow"), answer.Body)
		}
	}
	if answer := r.ask(http.MethodHead, "/api/tools", ""); answer.Code != http.StatusOK {
		t.Errorf("HEAD: %d", answer.Code)
	}
}

func TestWhoCalls(t *testing.T) {
	await.Expiry(t)
	r := newRig(t)
	session := r.session("gated")
	const execute, provision = "/api/proxy/execute?view=gated", "/api/tools/provision?view=gated"
	mine := []string{"Mcp-Session-Id: " + session}
	if answer := r.ask("POST", provision, `{"tool_ids":["clock_echo"]}`, mine...); answer.Code != 200 {
		t.Fatalf("provision for a session: %d %s", answer.Code, answer.Body)
	}
	if answer := r.ask("POST", provision, `{"tool_ids":["clock_echo"]}`, "X-User: ann"); answer.Code != 200 {
		t.Fatalf("provision for a principal: %d %s", answer.Code, answer.Body)
	}
	for _, test := range []struct {
		name   string
		header []string
		status int
		owner  string
	}{
		{"nobody", nil, 400, ""},
		{"another principal", []string{"X-User: bob"}, 400, ""},
		{"another principal in the session of one who may", append(slices.Clone(mine), "X-User: bob"), 400, ""},
		{"the session", mine, 200, "session " + session},
		{"the principal", []string{"X-User: ann"}, 200, "principal ann"},
		{"the principal, whatever the session", []string{"X-User: ann", "Mcp-Session-Id: forged"}, 200, "principal ann"},
	} {
		answer := r.ask("POST", execute, `{"tool_id":"clock_echo","arguments":{}}`, test.header...)
		if answer.Code != test.status {
			t.Errorf("%s: %d %s", test.name, answer.Code, answer.Body)
		}
		if answer.Code == http.StatusOK {
			call := <-r.calls
			if call.Owner() != test.owner || call.Client != nil || call.Local || call.Header == nil {
				t.Errorf("%s: the call is %+v", test.name, call)
			}
		}
	}
	if answer := r.ask("POST", "/api/proxy/execute?view=tight", `{"tool_id":"clock_echo"}`, mine...); answer.Code != 400 || !strings.Contains(answer.Body.String(), "unknown session") {
		t.Errorf("a session of another view: %d %s", answer.Code, answer.Body)
	}
}

// What changes servers is logged; calls of tools are where they are made.
func TestChangesAreLogged(t *testing.T) {
	r := newRig(t)
	r.ask("POST", "/api/proxy/execute", `{"tool_id":"clock_now","arguments":{"city":"hush"}}`, "X-User: ann")
	r.ask("POST", "/api/servers/dead/reconnect", "", "X-User: ann")
	r.ask("POST", "/api/reindex", "")
	var lines []map[string]any
	for line := range strings.Lines(r.log.String()) {
		var one map[string]any
		must.Do(t, json.Unmarshal([]byte(line), &one))
		if one["msg"] == "rest" {
			lines = append(lines, one)
		}
	}
	if len(lines) != 2 {
		t.Fatalf("logged: %v", lines)
	}
	for i, want := range []map[string]any{
		{"level": "INFO", "operation": "reconnect", "target": "dead", "view": "default", "principal": "ann", "status": 502.0},
		{"operation": "reindex", "target": "", "view": "default", "principal": "", "status": 200.0},
	} {
		for key, value := range want {
			if lines[i][key] != value || lines[i]["took"] == nil {
				t.Errorf("line %d: %s = %v, want %v", i, key, lines[i][key], value)
			}
		}
	}
}

func TestTokensAreThoseOfTheListedDefinition(t *testing.T) {
	r := newRig(t)
	var got struct {
		Tokens     int
		Definition json.RawMessage
	}
	must.Do(t, json.Unmarshal(r.ask("GET", "/api/tools/clock_now", "").Body.Bytes(), &got))
	if want := tool.CountTokens(got.Definition); got.Tokens != want {
		t.Errorf("%d tokens, want %d", got.Tokens, want)
	}
}

// A tool is told of in the same words whether it was searched for, listed or
// named.
func TestToolsAreToldOfAlike(t *testing.T) {
	r := newRig(t)
	for view, provisioned := range map[string]bool{"default": false, "gated": true} {
		var found, listed struct{ Tools []retrieve.Discovered }
		must.Do(t, json.Unmarshal(r.ask("GET", "/api/tools/discover?limit=50&view="+view, "").Body.Bytes(), &found))
		must.Do(t, json.Unmarshal(r.ask("GET", "/api/tools?view="+view, "").Body.Bytes(), &listed))
		one, _ := json.Marshal(found.Tools)
		two, _ := json.Marshal(listed.Tools)
		if len(found.Tools) != 10 || string(one) != string(two) || strings.Contains(string(one), `"provisioned"`) != provisioned {
			t.Errorf("%s: discovered:\n%s\nlisted:\n%s", view, one, two)
		}
	}
}

func TestPagesCoverEverythingOnce(t *testing.T) {
	r := newRig(t)
	var names []string
	for offset := 0; ; offset += 3 {
		var page struct {
			Tools []retrieve.Discovered
			Total int
		}
		must.Do(t, json.Unmarshal(r.ask("GET", fmt.Sprintf("/api/tools?limit=3&offset=%d", offset), "").Body.Bytes(), &page))
		for _, tool := range page.Tools {
			names = append(names, tool.ToolID)
		}
		if offset >= page.Total {
			break
		}
	}
	if len(names) != 10 || !slices.IsSorted(names) || len(slices.Compact(names)) != 10 {
		t.Errorf("pages have %v", names)
	}
}

func TestServersAreThoseOfTheView(t *testing.T) {
	r := newRig(t)
	var got struct{ Servers []web.Upstream }
	must.Do(t, json.Unmarshal(r.ask("GET", "/api/servers", "").Body.Bytes(), &got))
	var names []string
	for _, s := range got.Servers {
		names = append(names, s.Name)
	}
	if want := []string{"clock", "hang", "dead", "mute"}; !slices.Equal(names, want) {
		t.Errorf("servers %v, want %v", names, want)
	}
}

func TestPatternsLeadToEveryPath(t *testing.T) {
	r := newRig(t)
	mux := http.NewServeMux()
	for _, pattern := range web.Patterns {
		mux.Handle(pattern, r.handler)
	}
	for path := range readDocument(t, r.handler).paths {
		if _, pattern := mux.Handler(httptest.NewRequest(http.MethodGet, path, nil)); pattern == "" {
			t.Errorf("%s is under none of %v", path, web.Patterns)
		}
	}
}
