package proxy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"toolfinch/internal/collector"
)

// What a server asks a client during a call hangs under the call: the request of the server,
// and under it the one to the client, which gets its context. What is a result on both sides is
// none of ours.
func TestSpansOfAsks(t *testing.T) {
	forEachMeeting(t, func(t *testing.T, client, server kind) {
		tr := openTraced(t, client, server, sdktrace.AlwaysSample(), false)
		for _, q := range []struct {
			name    string
			asks    question
			outcome string
		}{{"form", form, "accept"}, {"sample", sample, ""}, {"roots", roots, ""}} {
			t.Run(q.name, func(t *testing.T) {
				tr.Clear()
				tr.clear()
				if got := tr.call("tools/call", `{"name":"one_`+q.name+`","_meta":{`+caller+`}}`); got.Error != nil || strings.Contains(string(got.Result), `"isError":true`) {
					t.Fatalf("%s", got.raw)
				}
				served, asks := tr.of("SERVER", "tools/call one_"+q.name), tr.of("CLIENT", q.asks.method)
				if client.modern && server.modern {
					if got := append(asks, tr.of("SERVER", q.asks.method)...); len(got) > 0 {
						t.Errorf("spans of what was not asked here: %v", got)
					}
					for kind, rounds := range map[string][]collector.Span{"from the client": served, "to the server": tr.of("CLIENT", "tools/call "+q.name)} {
						if len(rounds) != 2 || rounds[0].Attributes["toolfinch.outcome"] != "input_required" || rounds[1].Attributes["toolfinch.outcome"] == "input_required" {
							t.Errorf("the requests %s: %v", kind, rounds)
						}
					}
					return
				}
				if len(asks) != 1 {
					t.Fatalf("there are %d requests to the client", len(asks))
				}
				asked, parent := asks[0], served[0].ID
				if !server.modern {
					from := tr.only(t, "SERVER", q.asks.method)
					wantAttributes(t, from, map[string]string{"toolfinch.upstream": "one", "mcp.method.name": q.asks.method, "toolfinch.outcome": q.outcome})
					if from.Trace != callerTrace || from.Parent != parent || from.Attributes["jsonrpc.request.id"] == "" {
						t.Errorf("the server's request hangs under %s of %s, want %s: %v", from.Parent, from.Trace, parent, from.Attributes)
					}
					// Spans come in the order of their ends. Their times may not: a thread that is held up
					// between readings of Go's two clocks moves the end of its span.
					spans := tr.Spans()
					place := func(id string) int {
						return slices.IndexFunc(spans, func(s collector.Span) bool { return s.ID == id })
					}
					if from.Start.After(asked.Start) || place(from.ID) < place(asked.ID) {
						t.Error("the server had its answer before the client gave it")
					}
					parent = from.ID
				}
				transport := map[bool]string{false: "tcp", true: "pipe"}[client.stdio]
				wantAttributes(t, asked, map[string]string{"mcp.method.name": q.asks.method, "network.transport": transport, "toolfinch.outcome": q.outcome})
				if asked.Trace != callerTrace || asked.Parent != parent || asked.Failed {
					t.Errorf("the request to the client hangs under %s of %s, want %s: failed %t", asked.Parent, asked.Trace, parent, asked.Failed)
				}
				heard := tr.got(q.asks.method)
				if want := []member{{"traceparent", `"` + parentOf(asked) + `"`}, {"tracestate", `"vendor=a"`}}; len(heard) != 1 || !slices.Equal(foreign(heard[0].Params), want) {
					t.Errorf("the client heard %v\nwant in it %v", heard, want)
				}
			})
		}
	})
}

// A server that takes part in the trace says itself where its request belongs; no other trace
// takes the request from its call.
func TestTheParentOfAnAsk(t *testing.T) {
	tr := openTraced(t, kind{}, kind{}, sdktrace.AlwaysSample(), false)
	const span = "00f067aa0ba902b7"
	for trace, under := range map[string]bool{callerTrace: true, "4bf92f3577b34da6a3ce929d0e0e4736": false} {
		tr.Clear()
		tr.up.on("tools/call hang", func(r *request) {
			r.ask(form.method, `{"message":"?","_meta":{"traceparent":"00-`+trace+`-`+span+`-01"}}`)
			r.result(`{"content":[]}`)
		})
		tr.call("tools/call", `{"name":"one_hang","_meta":{`+caller+`}}`)
		want := tr.only(t, "SERVER", "tools/call one_hang").ID
		if under {
			want = span
		}
		if got := tr.only(t, "SERVER", form.method); got.Trace != callerTrace || got.Parent != want {
			t.Errorf("it hangs under %s of %s, want %s", got.Parent, got.Trace, want)
		}
	}
}

// What came of an ask is told apart.
func TestSpansOfAsksThatFail(t *testing.T) {
	tr := openTraced(t, kind{}, kind{}, sdktrace.AlwaysSample(), false)
	for _, test := range []struct{ name, reply, outcome, kind string }{
		{"declined", `"result":{"action":"decline"}`, "decline", ""},
		{"an answer that is none", `"result":{"action":"hunter2"}`, "", ""},
		{"refused", `"error":{"code":-7,"message":"hunter2"}`, "", "-7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr.Clear()
			tr.mu.Lock()
			tr.answer = func(string, json.RawMessage) string { return test.reply }
			tr.mu.Unlock()
			tr.call("tools/call", `{"name":"one_form"}`)
			for _, kind := range []string{"SERVER", "CLIENT"} {
				span := tr.only(t, kind, form.method)
				wantAttributes(t, span, map[string]string{"toolfinch.outcome": test.outcome, "error.type": test.kind, "rpc.response.status_code": test.kind})
				if span.Failed != (test.kind != "") {
					t.Errorf("%s: failed %t", kind, span.Failed)
				}
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		tr.Clear()
		tr.clear()
		tr.mu.Lock()
		tr.answer = func(string, json.RawMessage) string { return "" } // which is no answer
		tr.mu.Unlock()
		hanging := tr.begin("tools/call", `{"name":"one_form"}`)
		eventually(t, func() bool { return len(tr.got(form.method)) > 0 })
		hanging.cancel()
		for _, kind := range []string{"SERVER", "CLIENT"} {
			eventually(t, func() bool { return len(tr.of(kind, form.method)) > 0 })
			wantAttributes(t, tr.only(t, kind, form.method), map[string]string{"error.type": "cancelled"})
		}
	})
}
