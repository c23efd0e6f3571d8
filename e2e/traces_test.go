//go:build unix

package e2e_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/collector"
)

// calls makes calls with a client of the TypeScript SDK, and returns the text of each result.
func (h house) calls(t *testing.T, target map[string]any, calls ...map[string]any) (texts []string) {
	t.Helper()
	target["calls"] = calls
	argument, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs("../testdata/node/calls.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node(t), client, string(argument))
	cmd.Env = h.env
	cmd.Stderr = newLog(t, "the client")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the client ended with %v", err)
	}
	var results []struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, result := range results {
		texts = append(texts, result.Content[0].Text)
	}
	return texts
}

// Clients and servers of others, of both eras and over both transports: what a server gets
// has its span hang under ours, and that hangs under the client's.
func TestTracesBetweenClientsAndServersOfOthers(t *testing.T) {
	t.Parallel()
	c := collector.New(t)
	file := module(t, "../confserver.mjs")
	module(t, "typescript-server/package.json")
	others := &conformance{house: newHouse(t, nil)}
	servers := map[string]any{}
	for _, version := range []string{"v1", "v2"} {
		servers[version+"_stdio"] = script(t, file, version, "stdio")
		servers[version+"_http"] = map[string]any{"url": others.serveEverything(t, node(t), file, version)}
	}
	h := newHouse(t, nil, map[string]any{"mcp_servers": servers})
	h.env = append(append(h.env, c.Environment()...), "OTEL_EXPORTER_OTLP_HEADERS=authorization=hunter2")
	life := h.start(t)
	url, log := life.url, life.log

	for n, client := range []struct {
		name   string
		target map[string]any
	}{
		{"TypeScript SDK 1, HTTP", map[string]any{"sdk": 1, "url": url}},
		{"TypeScript SDK 2, stdio, 2026-07-28", h.stdioTarget(t, map[string]any{"sdk": 2, "modern": true})},
	} {
		t.Run(client.name, func(t *testing.T) {
			trace := "0af7651916cd43dd8448eb211c80319" + strconv.Itoa(n)
			var calls []map[string]any
			for name := range servers {
				calls = append(calls, map[string]any{
					"name": name + "_test_request_meta", "arguments": map[string]any{},
					"_meta": map[string]any{"traceparent": "00-" + trace + "-b7ad6b7169203331-01", "tracestate": "vendor=a", "com.example/x": 1},
				})
			}
			texts := h.calls(t, client.target, calls...)
			for i, text := range texts {
				var got struct {
					Meta        map[string]any
					Environment []string
				}
				if err := json.Unmarshal([]byte(text), &got); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				name := calls[i]["name"].(string)
				if got.Meta["tracestate"] != "vendor=a" || got.Meta["com.example/x"] != 1.0 {
					t.Errorf("%s got %v", name, got.Meta)
				}
				if slices.ContainsFunc(got.Environment, func(v string) bool { return strings.HasPrefix(v, "OTEL_") }) {
					t.Errorf("%s has %q in its environment", name, got.Environment)
				}
				parent, _ := got.Meta["traceparent"].(string)
				asked := awaitSpan(t, c, func(s collector.Span) bool { return "00-"+s.Trace+"-"+s.ID+"-01" == parent })
				served := awaitSpan(t, c, func(s collector.Span) bool { return s.Trace == trace && s.ID == asked.Parent })
				if asked.Kind != "CLIENT" || asked.Name != "tools/call test_request_meta" || asked.Attributes["toolfinch.upstream"]+"_test_request_meta" != name {
					t.Errorf("%s hangs under %+v", name, asked)
				}
				if served.Kind != "SERVER" || served.Name != "tools/call "+name || served.Parent != "b7ad6b7169203331" || served.Resource["service.name"] != "toolfinch" {
					t.Errorf("%s hangs under %+v", name, served)
				}
			}
		})
	}
	if _, header := c.Asked(); header.Get("Authorization") != "hunter2" {
		t.Errorf("the headers for the collector are %v", header)
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has a secret: %s", log)
	}
}

// stdioTarget is a client that starts toolfinch.
func (h house) stdioTarget(t *testing.T, target map[string]any) map[string]any {
	for key, value := range h.stdio(t) {
		target[key] = value
	}
	return target
}

// awaitSpan waits for a span.
func awaitSpan(t *testing.T, c *collector.Collector, is func(collector.Span) bool) (found collector.Span) {
	t.Helper()
	await.True(t, func() bool {
		spans := c.Spans()
		i := slices.IndexFunc(spans, is)
		if i >= 0 {
			found = spans[i]
		}
		return i >= 0
	})
	return found
}
