package web_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/upstream"
	"toolfinch/view"
)

// serveProxy runs a proxy with a gated default view over one real MCP server.
func serveProxy(t testing.TB) (url string) {
	t.Helper()
	bed := httptest.NewServer(mcpServer{})
	t.Cleanup(bed.Close)
	p := must.Get(proxy.Open(t.Context(), &configs.Config{
		DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, REST: true, PrincipalHeader: "X-User",
		Gating: &view.Gating{MaxTokens: 1000, MaxTools: 5},
		Servers: []upstream.Settings{{
			Name: "bed", URL: bed.URL, Transport: upstream.TransportHTTP, Protocol: upstream.ProtocolLegacy,
			ConnectTimeout: await.Bound, CallTimeout: await.Bound,
		}},
	}, proxy.WithVersion("test")))(t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, listener) }) }()
	t.Cleanup(func() {
		stop()
		http.DefaultClient.CloseIdleConnections()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

func TestBehindTheProxy(t *testing.T) {
	url := serveProxy(t)
	send := func(method, target, body string, header ...string) (int, string) {
		t.Helper()
		got := fetch.Send(t, method, url+target, body, header...)
		return got.Status, got.Body
	}
	const execute = `{"tool_id":"bed_sleep","arguments":{}}`
	for _, step := range []struct {
		method, target, body string
		header               []string
		status               int
		want                 string
	}{
		{"POST", "/api/reindex", "", nil, 200, `{"servers":[{"server":"bed","tools":1,`}, // lists it, whatever Run has done by now
		{"GET", "/api/servers", "", nil, 200, `"state":"ready"`},
		{"GET", "/api/tools/discover?query=sleep", "", nil, 200, `"tool_id":"bed_sleep"`},
		{"POST", "/api/proxy/execute", execute, nil, 400, `{"detail":"Tool bed_sleep not provisioned. Use provision_tools first."}`},
		{"POST", "/api/tools/provision", `{"query":"sleep for a while"}`, []string{"X-User: ann"}, 200, `"tool_id":"bed_sleep"`},
		{"POST", "/api/proxy/execute", execute, nil, 400, `not provisioned`},
		{"POST", "/api/proxy/execute", execute, []string{"X-User: ann"}, 200, `{"result":` + strange + `}`},
		{"POST", "/api/servers/bed/reconnect", "", nil, 200, `{"server":{"name":"bed",`},
		{"POST", "/api/proxy/execute", execute, []string{"X-User: ann"}, 200, `{"result":` + strange + `}`},
		{"DELETE", "/api/tools/provision/bed_sleep", "", []string{"X-User: ann"}, 200, `"usage":{"tools":0,"tokens":0}`},
		{"POST", "/api/proxy/execute", execute, []string{"X-User: ann"}, 400, `not provisioned`},
		{"GET", "/api/tools?view=none", "", nil, 404, `no such view`},
		{"GET", "/openapi.json", "", nil, 200, `"version": "test"`},
		{"GET", "/api/openapi.json", "", nil, 200, `"version": "test"`},
		{"GET", "/metrics", "", nil, 200, `toolfinch_tools{view="default"} 1`},

		// The guard is that of the MCP endpoint.
		{"GET", "/api/tools", "", []string{"Origin: https://evil.example"}, 403, ""},
		{"POST", "/api/reindex", "", []string{"Origin: https://evil.example"}, 403, ""},
		{"GET", "/metrics", "", []string{"Host: evil.example"}, 403, ""},
		{"POST", "/api/proxy/execute", execute, []string{"Host: evil.example"}, 403, ""},
		{"GET", "/openapi.json", "", []string{"Host: evil.example"}, 403, ""},
		{"GET", "/api/tools", "", []string{"Origin: http://localhost:3000"}, 200, ""},
	} {
		if status, got := send(step.method, step.target, step.body, step.header...); status != step.status || !strings.Contains(got, step.want) {
			t.Errorf("%s %s %s %v: %d %s\nwant %d with %s", step.method, step.target, step.body, step.header, status, got, step.status, step.want)
		}
	}
}
