package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

func TestTheEraIsChosenByTheVersionsThatAServerNames(t *testing.T) {
	for name, c := range map[string]struct {
		discovered string // the members of the answer after its ID
		era        Era
	}{
		"only older ones":        {`"result":{"supportedVersions":["2025-11-25","2025-06-18"],"capabilities":{}}`, EraLegacy},
		"only newer ones":        {`"result":{"supportedVersions":["2030-01-01"],"capabilities":{}}`, EraLegacy},
		"the new one":            {`"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`, EraModern},
		"both":                   {`"result":{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{}}}`, EraModern},
		"none":                   {`"result":{"supportedVersions":[],"capabilities":{}}`, EraLegacy},
		"no list":                {`"result":{"supportedVersions":"2026-07-28"}`, EraLegacy},
		"an empty result":        {`"result":{}`, EraLegacy},
		"an unsupported version": {`"error":{"code":-32022,"message":"unsupported","data":{"supported":["2025-11-25"]}}`, EraLegacy},
		"no such method":         {`"error":{"code":-32601,"message":"method not found"}`, EraLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			var discovered, initialized atomic.Int64
			r := newRestartable(t, func() http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					said := `"result":{"tools":[{"name":"a"}]}`
					switch rawjson.Text(rawjson.Member(body, "method")) {
					case "server/discover":
						discovered.Add(1)
						said = c.discovered
					case "initialize":
						initialized.Add(1)
						said = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
					case "tools/list":
						if got, want := r.Header.Get("Mcp-Protocol-Version"), map[Era]string{EraLegacy: "2025-11-25", EraModern: "2026-07-28"}[c.era]; got != want {
							t.Errorf("the list was asked for in version %q, want %q", got, want)
						}
					default:
						w.WriteHeader(map[string]int{http.MethodGet: http.StatusMethodNotAllowed, http.MethodPost: http.StatusAccepted}[r.Method])
						return
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, rawjson.Member(body, "id"), said)
				})
			})
			change := newPool(t, r.settings("s", "/mcp")).Refresh(t.Context(), "s")
			if change.Err != nil || change.Era != c.era || len(change.Defs) != 1 {
				t.Errorf("change = %+v, want era %s", change, c.era)
			}
			want := map[Era]int64{EraLegacy: 1}[c.era]
			if d, i := discovered.Load(), initialized.Load(); d != 1 || i != want {
				t.Errorf("%d probes and %d handshakes, want 1 and %d", d, i, want)
			}
		})
	}
}

// eliciting are servers of both eras, by how they are reached.
func eliciting(t *testing.T) map[string]Settings {
	serve := func(option mcpserver.StreamableHTTPOption) Settings {
		handler := mcpserver.NewStreamableHTTPServer(newEliciting(), option)
		return newRestartable(t, func() http.Handler { return handler }).settings("s", "/mcp")
	}
	return map[string]Settings{
		"HTTP":        serve(mcpserver.WithStateful(true)),
		"stdio":       child(t, "s", "eliciting"),
		"sessionless": serve(mcpserver.WithStateLess(true)),
	}
}

// confirming is a client that answers every question with its key.
func confirming(key string) *tool.Client {
	c := asked(key)
	c.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"action":"accept","content":{"by":"` + key + `"}}`), nil
	}
	return c
}

func TestALegacyClientIsAskedByAServerOfBothEras(t *testing.T) {
	for name, s := range eliciting(t) {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, s)
			if change := p.Refresh(t.Context(), "s"); change.Err != nil || change.Era != EraModern {
				t.Fatalf("change = %+v, want one of the new era", change)
			}
			connections := func() int { return len(p.now.Load().byName["s"].sharing.connectors()) }
			modern := confirming("m")
			modern.Modern = true
			for _, client := range []*tool.Client{nil, {Key: "mute"}, modern} {
				mustCallAs(t, p, client, "hello", `{}`)
			}
			if n := connections(); n != 1 {
				t.Errorf("clients that cannot be asked in the legacy era have %d connections, want 1", n)
			}
			for _, key := range []string{"a", "b", "a"} {
				got, err := callAs(t, p, confirming(key), "elicit", `{"who":"x"}`)
				switch {
				case name == "sessionless": // nobody can be asked, in either era
					if err == nil && !strings.Contains(got, "isError") {
						t.Errorf("%s: %s", key, got)
					}
					mustCallAs(t, p, confirming(key), "hello", `{}`)
				case err != nil || !strings.Contains(got, `"by":"`+key+`"`):
					t.Errorf("%s: %s, %v", key, got, err)
				}
			}
			want := 3 // the main one and one for each client
			if name == "sessionless" {
				want = 1
			}
			if n := connections(); n != want {
				t.Errorf("%d connections, want %d", n, want)
			}
		})
	}
}

// Over stdio the connection of legacy clients is another process.
func TestChangesInTheProcessOfLegacyClientsAreHeard(t *testing.T) {
	updated := make(chan string, 10)
	p := newPoolWith(t, nil, Events{Updated: func(_, uri string, _ json.RawMessage) { updated <- uri }}, child(t, "s", "eliciting"))
	for _, uri := range []string{"memo://a", "memo://b"} { // before that process begins, and after
		must.Do(t, p.Subscribe(t.Context(), "s", uri))
		await.True(t, func() bool {
			return strings.Contains(mustCallAs(t, p, confirming("a"), "touch", `{}`), "told of "+uri)
		})
		if got := await.Value(t, updated); got != uri {
			t.Errorf("what was heard of is %s, want %s", got, uri)
		}
	}
}

// A tool that a call adds over the connection of legacy clients is listed as long as that connection lasts.
func TestToolsThatLegacyClientsHaveAddedAreListed(t *testing.T) {
	for name, s := range eliciting(t) {
		if name == "sessionless" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := newPool(t, s)
			changes, _ := watched(t, p)
			lists := func(grown bool) {
				await.True(t, func() bool {
					change := await.Value(t, changes)
					change.Served()
					return grown == slices.ContainsFunc(change.Defs, func(def *tool.Def) bool { return def.ID.Name == "grown" })
				})
			}
			lists(false)
			mustCallAs(t, p, confirming("a"), "grow", `{}`)
			lists(true)
			if got := mustCallAs(t, p, confirming("a"), "grown", `{}`); !strings.Contains(got, "it is new") {
				t.Error(got)
			}
			if name == "stdio" { // over HTTP the sessions share their tools
				p.now.Load().byName["s"].sharing.drop(func(*slot) bool { return true })
				lists(false)
			}
		})
	}
}

func TestProtocolLegacyIsOneConnectionForBothEras(t *testing.T) {
	s := eliciting(t)["HTTP"]
	s.Protocol = ProtocolLegacy
	p := newPool(t, s)
	if got := mustCallAs(t, p, confirming("a"), "elicit", `{"who":"x"}`); !strings.Contains(got, `"by":"a"`) {
		t.Errorf("the server heard %s", got)
	}
	if n := len(p.now.Load().byName["s"].sharing.connectors()); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// A server that knows no handshake serves legacy clients as before.
func TestAServerOfTheNewEraOnlyServesLegacyClients(t *testing.T) {
	p := newPool(t, newModernHTTP(t).settings())
	for range 2 {
		mustCallAs(t, p, asked("a"), "any", `{}`)
	}
	if n := len(p.now.Load().byName["s"].sharing.connectors()); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestAForeignEndpointIsToldAsWhatItIs(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: endpoint\ndata: https://other.example/post?key=secret\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	for _, transport := range []Transport{TransportAuto, TransportSSE} {
		s := newRestartable(t, func() http.Handler { return handler }).settings("s", "/sse")
		s.Transport, s.ConnectTimeout = transport, time.Minute
		_, err := ask(t, newPool(t, s), "s", "any")
		wantError(t, err, "s", conn.ErrForeign)
		if text := fmt.Sprint(err); !strings.Contains(text, "https://other.example") || strings.Contains(text, "secret") {
			t.Errorf("%s: %s", transport, text)
		}
	}
}

func TestErrorsOfTheOtherEra(t *testing.T) {
	p := newPool(t, newAsker(t, "asker"))
	none := ofKind(tool.KindResource, "memo://none")
	for _, test := range []struct {
		client *tool.Client
		want   string
	}{
		{asked("a"), `{"code":-32002,"message":"no such memo","data":{"uri":"memo://none"},"x":1.0}`},
		{modern("b"), `{"code":-32602,"message":"no such memo","data":{"uri":"memo://none"},"x":1.0}`},
	} {
		_, err := p.Call(t.Context(), none, &tool.Call{Client: test.client})
		var rpc *tool.RPCError
		if !errors.As(err, &rpc) || string(rpc.JSON()) != test.want || fmt.Sprint(rpc.Code) != string(jsonMember(rpc.Raw, "code")) {
			t.Errorf("error = %v, want %s", err, test.want)
		}
	}
	// A server of the new era that still has the code of the other.
	m := newModernHTTP(t)
	m.answers(func(string, json.RawMessage) string { return `!{"code":-32002,"message":"no such memo"}` })
	for _, test := range []struct {
		client *tool.Client
		want   string
	}{
		{asked("a"), `{"code":-32002,"message":"no such memo"}`},
		{modern("b"), `{"data":{"uri":"memo://none"},"code":-32602,"message":"no such memo"}`},
	} {
		_, err := newPool(t, m.settings()).Call(t.Context(), none, &tool.Call{Name: "memo://none", Client: test.client})
		var rpc *tool.RPCError
		if !errors.As(err, &rpc) || string(rpc.JSON()) != test.want {
			t.Errorf("error = %s, want %s", rpc.JSON(), test.want)
		}
	}
	// A URL that is to be opened first.
	got, err := callAs(t, p, modern("c"), "url", `{}`)
	want := `"inputRequests":{"url1":{"method":"elicitation/create","params":{"mode":"url","elicitationId":"e1","url":"https://example.com/x","message":"go"}}}`
	if err != nil || !strings.Contains(got, want) || !strings.Contains(got, `"resultType":"input_required"`) {
		t.Fatalf("result = %s, %v", got, err)
	}
	formOnly := modern("d")
	formOnly.Capabilities = json.RawMessage(`{"elicitation":{"form":{}}}`)
	var rpc *tool.RPCError
	if _, err := callAs(t, p, formOnly, "url", `{}`); !errors.As(err, &rpc) || rpc.Code != tool.CodeMissingCapability ||
		string(rpc.Data) != `{"requiredCapabilities":{"elicitation":{"url":{}}}}` {
		t.Errorf("a client that opens no URLs: %v", err)
	}
	// Called again, the server gets a call as if it were the first.
	params := fmt.Sprintf(`{"name":"x","requestState":%s,"inputResponses":{"url1":{"action":"accept"}}}`, jsonMember(json.RawMessage(got), "requestState"))
	_, err = p.Call(t.Context(), def("s", "url"), &tool.Call{Client: modern("e"), Params: json.RawMessage(params)})
	if err != nil { // it refuses again: there was no state to know it by
		t.Errorf("the second call: %v", err)
	}
	if _, err := p.Call(t.Context(), def("s", "echo"), &tool.Call{Client: modern("f"), Params: json.RawMessage(params)}); !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams {
		t.Errorf("the state of another tool: %v", err)
	}
}

func TestMembersOfTheNewEraPassBetweenLegacySides(t *testing.T) {
	const params = `{"name":"x","requestState":"the client's own","inputResponses":{"n":1.0}}`
	p, m := newPool(t, lines(t, "s", "raw")), newModernHTTP(t)
	m.answers(func(_ string, params json.RawMessage) string { return `{"params":` + string(params) + `}` })
	for name, test := range map[string]struct {
		pool   *Pool
		client *tool.Client
		passes bool
	}{
		"legacy to legacy": {p, asked("a"), true},
		"legacy to modern": {newPool(t, m.settings()), asked("a"), false},
	} {
		result, err := test.pool.Call(t.Context(), def("s", "params"), &tool.Call{Client: test.client, Params: json.RawMessage(params)})
		got := string(result)
		if err != nil || strings.Contains(got, `"requestState":"the client's own","inputResponses":{"n":1.0}`) != test.passes || strings.Contains(got, "requestState") != test.passes {
			t.Errorf("%s: the server got %s, %v", name, got, err)
		}
	}
	_, err := p.Call(t.Context(), def("s", "params"), &tool.Call{Client: modern("b"), Params: json.RawMessage(params)})
	if rpc := new(tool.RPCError); !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams {
		t.Errorf("a state that a 2026-07-28 client made up: %v", err)
	}
}
