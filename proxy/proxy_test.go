package proxy_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/upstream"
)

func configFor(dataDir string, servers ...upstream.Settings) *configs.Config {
	return changing(&configs.Config{DataDir: dataDir, TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, Servers: servers})
}

func open(t testing.TB, dataDir string, servers ...upstream.Settings) *proxy.Proxy {
	t.Helper()
	return opened(t, configFor(dataDir, servers...))
}

// run serves p over HTTP until the test ends.
func run(t testing.TB, p *proxy.Proxy) (url string) {
	t.Helper()
	url, _ = runUntil(t, p)
	return url
}

// runUntil is run, with what ends it before the test does.
func runUntil(t testing.TB, p *proxy.Proxy) (url string, stop func()) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, listener) }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(stop)
	return "http://" + listener.Addr().String(), stop
}

func settings(name, url string) upstream.Settings {
	return upstream.Settings{Name: name, URL: url, ConnectTimeout: await.Bound, CallTimeout: await.Bound, Validate: true}
}

// hanging accepts connections and never answers.
func hanging(t testing.TB) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String() + "/mcp"
}

func TestWarmStartSearchesAndCallsBeforeAnythingIsDialled(t *testing.T) {
	dir := t.TempDir()
	up := newUpstream(t, 50)
	first := openWorkspace(t, configFor(dir, settings("shop", up.URL)))
	rows := first.Refresh(t.Context(), nil)
	if len(rows) != 1 || rows[0].Err != nil || len(rows[0].Diff.Added) != 50 {
		t.Fatalf("refresh = %+v", rows)
	}
	must.Do(t, first.Close())

	second := open(t, dir, settings("shop", up.URL), settings("slow", hanging(t)))
	if got := second.Tools(); got != 50 {
		t.Fatalf("%d tools are known from the store, want 50", got)
	}
	c := newClient(t, second, run(t, second), kind{}, `{}`, reply)
	for name, arguments := range map[string]string{"retrieve_tools": `{"query":"echo a text","limit":1}`, "shop_echo": `{"text":"shop_echo at once"}`} {
		if got := c.ask("tools/call", toolCall(name, arguments)); failed(got) || !strings.Contains(got.raw, "shop_echo") {
			t.Errorf("%s = %s", name, got.raw)
		}
	}
}

func TestAServerRemovedFromTheConfigurationIsForgotten(t *testing.T) {
	dir := t.TempDir()
	up := newUpstream(t, 10)
	learn(t, configFor(dir, settings("a", up.URL), settings("b", up.URL)))
	second := open(t, dir, settings("b", up.URL))
	defer second.Close()
	if got := second.Tools(); got != 10 {
		t.Errorf("%d tools are known, want those of b: 10", got)
	}
}

func TestOneBadUpstreamHurtsNobody(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(broken.Close)
	p := open(t, folder(t), settings("hangs", hanging(t)), settings("good", newUpstream(t, 5).URL), settings("broken", broken.URL))
	url := run(t, p)
	eventually(t, func() bool { return p.Tools() == 5 })
	c := newClient(t, p, url, kind{}, `{}`, reply)
	if got := c.ask("tools/call", toolCall("call_tool", `{"name":"good.echo","arguments":{"text":"fine"}}`)); failed(got) || !strings.Contains(got.raw, "fine") {
		t.Errorf("call = %s", got.raw)
	}
	eventually(t, func() bool {
		got := c.ask("tools/call", toolCall("retrieve_tools", `{"query":"echo","detail":"full"}`))
		return strings.Contains(got.raw, `\"servers_ready\":1,\"servers_pending\":1,\"servers_failed\":1`)
	})
}

func TestWebPagesAreKeptOut(t *testing.T) {
	url := run(t, open(t, folder(t), settings("up", newUpstream(t, 1).URL)))
	get := func(host, origin string) int {
		request, err := http.NewRequest(http.MethodGet, url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			request.Host = host
		}
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for _, test := range []struct {
		host, origin string
		want         int
	}{
		{"", "", 200},
		{"localhost:99", "", 200},
		{"[::1]", "", 200},
		{"evil.example", "", 403},
		{"127.0.0.1.evil.example", "", 403},
		{"", "http://localhost:3000", 200},
		{"", "https://127.0.0.1", 200},
		{"", "https://evil.example", 403},
		{"", "null", 403},
		{"", "file://", 403},
	} {
		if got := get(test.host, test.origin); got != test.want {
			t.Errorf("Host %q, Origin %q: status %d, want %d", test.host, test.origin, got, test.want)
		}
	}
}

func TestReadyWhenThereIsSomethingToFind(t *testing.T) {
	ready := func(url string) (status int, word string) {
		response := must.Get(http.Get(url + "/readyz"))(t)
		defer response.Body.Close()
		var body struct{ Status string }
		must.Do(t, json.NewDecoder(response.Body).Decode(&body))
		return response.StatusCode, body.Status
	}
	becomes := func(url string, status int, word string) {
		t.Helper()
		eventually(t, func() bool {
			gotStatus, gotWord := ready(url)
			return gotStatus == status && gotWord == word
		})
	}
	if status, word := ready(run(t, open(t, folder(t), settings("hangs", hanging(t))))); status != http.StatusServiceUnavailable || word != "starting" {
		t.Errorf("with nothing known and a server pending: %d %q, want 503 starting", status, word)
	}
	becomes(run(t, open(t, folder(t), settings("up", newUpstream(t, 1).URL), settings("hangs", hanging(t)))), http.StatusOK, "ready")
	becomes(run(t, open(t, folder(t), settings("gone", "http://127.0.0.1:1/mcp"))), http.StatusOK, "degraded")
}

func TestShutdownLeavesNothingRunning(t *testing.T) {
	up := newUpstream(t, 20)
	// Once outside of the count, for what starts with a package.
	cycle := func() {
		p := open(t, folder(t), settings("up", up.URL), settings("hangs", hanging(t)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		go func() { ended <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, listener) }) }()
		eventually(t, func() bool { return p.Tools() == 20 })
		s := newSession(t, "http://"+listener.Addr().String()+"/mcp")
		if _, err := s.call("up_echo", map[string]string{"text": "x"}); err != nil {
			t.Error(err)
		}
		s.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	cycle()
	await.NoLeak(t, func() {
		for range 3 {
			cycle()
		}
		up.CloseClientConnections()
	}, "mark3labs/mcp-go/")
}
