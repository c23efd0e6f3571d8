package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func golden(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
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

// newRaw is an upstream of plain JSON, which says what no library would.
func newRaw(t *testing.T, definitions string) *httptest.Server {
	t.Helper()
	result, failure := golden(t, "result.json"), golden(t, "error.json")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		body, _ := io.ReadAll(r.Body)
		if json.Unmarshal(body, &m) != nil || m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case m.Method == "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}}`, m.ID)
		case m.Method == "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":%s}}`, m.ID, definitions)
		case m.Method == "tools/call" && bytes.Contains(m.Params, []byte(`"fail"`)):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, failure)
		case m.Method == "tools/call" && bytes.Contains(m.Params, []byte(`"params"`)):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"params":%s}}`, m.ID, m.Params)
		case m.Method == "tools/call":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// request sends one message and returns the answer, which comes last.
func (s *session) request(t *testing.T, message string) string {
	t.Helper()
	response, err := s.send([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(body))
	if i := strings.LastIndex(text, "\ndata: "); i >= 0 {
		text = text[i+len("\ndata: "):]
	}
	return text
}

func TestNothingIsLostInBetween(t *testing.T) {
	definition := golden(t, "definition.json")
	result, failure := golden(t, "result.json"), golden(t, "error.json")
	up := newRaw(t, "["+definition+`,{"name":"fail"},{"name":"params"}]`)
	p := open(t, t.TempDir(), settings("raw", up.URL))
	s := newSession(t, run(t, p)+"/mcp")
	eventually(t, func() bool { return p.Tools() == 3 })

	answer := s.request(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"retrieve_tools","arguments":{"query":"every.thing","limit":1}}}`)
	var schema struct{ InputSchema json.RawMessage }
	if err := json.Unmarshal([]byte(definition), &schema); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(answer, `"inputSchema":`+string(schema.InputSchema)) {
		t.Errorf("the answer of retrieve_tools has another schema:\n%s\nwant in it\n%s", answer, schema.InputSchema)
	}
	listed := strings.Replace(definition, `"name":"every.thing"`, `"name":"raw_every_thing"`, 1)
	for name, test := range map[string]struct{ request, want string }{
		"definition":       {`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, listed + `]}}`},
		"result":           {`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"raw_every_thing"}}`, `{"jsonrpc":"2.0","id":3,"result":` + result + `}`},
		"result by name":   {`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"call_tool","arguments":{"name":"raw.every.thing","arguments":{"a":"x"}}}}`, `{"jsonrpc":"2.0","id":3,"result":` + result + `}`},
		"error":            {`{"jsonrpc":"2.0","id":"4","method":"tools/call","params":{"name":"raw_fail","arguments":{}}}`, `{"jsonrpc":"2.0","id":"4","error":` + failure + `}`},
		"arguments, _meta": {`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"_meta":{"a/b":1.0,"traceparent":"00-x"},"name":"raw_params","arguments":{"<":12345678901234567890,"e":1e400},"future":[ null ]}}`, `{"jsonrpc":"2.0","id":5,"result":{"content":[],"params":{"name":"params","arguments":{"<":12345678901234567890,"e":1e400},"_meta":{"a/b":1.0,"traceparent":"00-x"},"future":[ null ]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.request(t, test.request); !strings.HasSuffix(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// Definitions that break libraries and clients must not break the proxy.
func TestBadDefinitionsHarmNobody(t *testing.T) {
	up := newRaw(t, `[
		{"name":"no_schema","inputSchema":"a string"},
		{"name":"bad_header","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"not a header\n"},"b":{"type":"string","x-mcp-header":7}}}},
		{"name":"bad_types","description":7,"title":[],"annotations":"none","inputSchema":{"type":12,"properties":[]},"_meta":1},
		{"name":7}, "no object", {"name":""}, {"name":"no_schema"},
		{"name":"`+strings.Repeat("long", 50)+`"},
		{"name":"good","description":"A good tool"}]`)
	p := open(t, t.TempDir(), settings("raw", up.URL))
	s := newSession(t, run(t, p)+"/mcp")
	eventually(t, func() bool { return p.Tools() == 5 })
	for _, query := range []string{"no schema", "bad header", "bad types", "long", "a good tool"} {
		answer, err := s.call("retrieve_tools", map[string]any{"query": query})
		if err != nil || !strings.Contains(answer, `"raw_`) {
			t.Errorf("query %q: %s, %v", query, answer, err)
		}
	}
	for _, name := range []string{"raw_no_schema", "raw_bad_header", "raw_bad_types", "raw_good"} {
		for _, call := range []func() (string, error){
			func() (string, error) { return s.call(name, map[string]any{"a": 1}) },
			func() (string, error) {
				return s.call("call_tool", map[string]any{"name": name, "arguments": map[string]any{"a": 1}})
			},
		} {
			if answer, err := call(); err != nil || !strings.Contains(answer, "hologram") {
				t.Errorf("%s: %s, %v", name, answer, err)
			}
		}
	}
	if list := s.request(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); !json.Valid([]byte(list)) || !strings.Contains(list, "raw_bad_header") {
		t.Errorf("list = %s", list)
	}
}
