// Package proxy_test shows what package proxy does with what tier one does not have: PostgreSQL, Python,
// Prometheus, and children that are killed. It uses the exported API alone, and mcp-go at both ends.
package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/identity"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
	"toolfinch/view"
)

var update = flag.Bool("update", false, "write the tables of the documentation")

// long has the tests run whole that CI runs in a short form.
var long = os.Getenv("TOOLFINCH_LONG") != ""

func TestMain(m *testing.M) {
	if os.Getenv(soakVar) != "" {
		soakUpstream()
		return
	}
	none, err := os.MkdirTemp("", "toolfinch-no-models-") // of the user's models none is found
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("MCPPROXY_MODELS_DIR", none)
	code := m.Run()
	os.RemoveAll(none)
	os.Exit(code)
}

// missing skips the test, or fails it where everything must run.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
		t.Fatal(what + " (TOOLFINCH_TEST_REQUIRE=all)")
	}
	t.Skip(what)
}

// shop is a server whose tools answer with what they were called with.
type shop struct {
	*server.MCPServer
	settings upstream.Settings
	lists    atomic.Int64 // how often its tools were listed
}

func newShop(t testing.TB, name string, goods ...string) *shop {
	t.Helper()
	s := &shop{}
	hooks := &server.Hooks{}
	hooks.AddBeforeListTools(func(context.Context, any, *mcp.ListToolsRequest) { s.lists.Add(1) })
	s.MCPServer = server.NewMCPServer(name, "1", server.WithToolCapabilities(true), server.WithPromptCapabilities(true), server.WithResourceCapabilities(true, true), server.WithHooks(hooks))
	s.sells(goods...)
	at := httptest.NewServer(server.NewStreamableHTTPServer(s.MCPServer, server.WithStateful(true)))
	t.Cleanup(at.CloseClientConnections)
	t.Cleanup(at.Close)
	s.settings = upstream.Settings{Name: name, URL: at.URL + "/mcp", ConnectTimeout: await.Bound, CallTimeout: await.Bound, AskTimeout: await.Bound, Validate: true}
	return s
}

// sells has the server offer these tools, and tell its clients.
func (s *shop) sells(goods ...string) {
	var tools []server.ServerTool
	for _, name := range goods {
		tools = append(tools, server.ServerTool{
			Tool: mcp.NewTool(name, mcp.WithDescription("Sells a "+name+" of any colour. Ask for "+name+" by size."), mcp.WithNumber("size", mcp.Required())),
			Handler: func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return mcp.NewToolResultStructured(map[string]any{"args": r.Params.Arguments}, name), nil
			},
		})
	}
	s.SetTools(tools...)
}

// everything is a view of all tools, gated one of all that are provisioned.
func everything(name string, exposure view.Exposure) view.Settings {
	return view.Settings{Name: name, Exposure: exposure, DirectBelow: 3000, IncludeAll: true}
}

func gated(name string) view.Settings {
	v := everything(name, view.ExposureRetrieve)
	v.Gating = &view.Gating{MaxTokens: 10_000, MaxTools: 20}
	return v
}

// configOf is a configuration of views over servers, with the REST API. Servers may change their definitions.
func configOf(t testing.TB, shops []*shop, views ...view.Settings) *configs.Config {
	config := &configs.Config{DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, Views: views, DefaultView: configs.RootAll, Changes: map[string]pins.Mode{}, REST: true}
	for _, s := range shops {
		config.Servers = append(config.Servers, s.settings)
		config.Changes[s.settings.Name] = pins.Allow
	}
	if slices.ContainsFunc(views, func(s view.Settings) bool { return s.Name == view.Default }) {
		config.DefaultView = ""
	}
	return config
}

// replica is a proxy that runs.
type replica struct {
	*proxy.Proxy
	t    testing.TB
	url  string
	key  string // of the requests of ask
	stop func()
}

// open runs a proxy until the test ends, and waits until it is ready.
func open(t testing.TB, config *configs.Config, options ...proxy.Option) *replica {
	t.Helper()
	p, err := proxy.Open(t.Context(), config, append(options, proxy.WithVersion("test"))...)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, listener) }) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, p.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	await.Value(t, p.Ready())
	return &replica{p, t, "http://" + listener.Addr().String(), "", stop}
}

// replicasOf runs proxies of one configuration over a database.
func replicasOf(t *testing.T, n int, config *configs.Config) (all []*replica) {
	t.Helper()
	if config.Store == "" {
		config.Store = postgres.Start(t)
	}
	for range n {
		all = append(all, open(t, replicated(config)))
	}
	return all
}

// replicated has a configuration serve clients over HTTP, and end soon.
func replicated(config *configs.Config) *configs.Config {
	one := *config
	one.Transport = configs.TransportHTTP
	one.HTTP.Drain = time.Second
	return &one
}

// has waits until a view has these tools of servers.
func (r *replica) has(name string, tools ...string) {
	r.t.Helper()
	slices.Sort(tools)
	await.Nil(r.t, func() error {
		v, err := r.View(name)
		if err != nil {
			return err
		}
		var got []string
		for _, one := range v.Tools() {
			got = append(got, one.Name)
		}
		if slices.Sort(got); !slices.Equal(got, tools) {
			return fmt.Errorf("the view has %v, want %v", got, tools)
		}
		return nil
	})
}

// rest sends a request of the REST API.
func (r *replica) rest(method, path, body string) fetch.Answer {
	r.t.Helper()
	var header []string
	if r.key != "" {
		header = append(header, "Authorization: Bearer "+r.key)
	}
	return fetch.Send(r.t, method, r.url+path, body, header...)
}

// wants fails the test unless an answer has the status and all the texts.
func wants(t testing.TB, what string, got fetch.Answer, status int, texts ...string) {
	t.Helper()
	if got.Status != status {
		t.Errorf("%s: status %d, want %d: %s", what, got.Status, status, got.Body)
	}
	for _, text := range texts {
		if !strings.Contains(got.Body, text) {
			t.Errorf("%s answers %s\nwant in it %s", what, got.Body, text)
		}
	}
}

// approve approves what is held of a tool.
func (r *replica) approve(id string) fetch.Answer {
	r.t.Helper()
	var all struct {
		Held []struct{ ID, Hash string }
	}
	held := r.rest("GET", "/api/pins", "").Body
	_ = json.Unmarshal([]byte(held), &all)
	for _, one := range all.Held {
		if one.ID == id {
			return r.rest("POST", "/api/pins", fmt.Sprintf(`{"approve":[{"id":%q,"hash":%q}]}`, one.ID, one.Hash))
		}
	}
	r.t.Fatalf("%s is not held: %s", id, held)
	panic("unreachable")
}

// keep does something with the store of a configuration.
func keep(t testing.TB, config *configs.Config, do func(*store.Store) error) {
	t.Helper()
	db, err := store.Open(t.Context(), config.Places().Store, slog.New(slog.DiscardHandler))
	if err == nil {
		err = errors.Join(do(db), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// stored waits until so many tools of servers are in the store.
func stored(t testing.TB, config *configs.Config, want int) {
	t.Helper()
	keep(t, config, func(db *store.Store) error {
		await.Nil(t, func() error {
			if defs, err := db.Tools(t.Context()); err != nil || len(defs) != want {
				return fmt.Errorf("%d tools are stored, want %d: %v", len(defs), want, err)
			}
			return nil
		})
		return nil
	})
}

// keysOf makes API keys.
func keysOf(t testing.TB, config *configs.Config, names ...string) map[string]string {
	t.Helper()
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	keys := map[string]string{}
	keep(t, config, func(db *store.Store) (err error) {
		for _, name := range names {
			text, hash := inbound.NewKey()
			keys[name] = text
			err = errors.Join(err, db.Keys().Add(t.Context(), identity.Key{Name: name, ID: identity.NewKeyID(name), Hash: hash, Created: time.Now()}))
		}
		return err
	})
	return keys
}

// whom answers the questions of servers with a name.
type whom string

func (w whom) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"who": string(w)}}}, nil
}

// connect opens a client of a view, "" for the root: of 2026-07-28, or an older one. It answers questions with name.
func (r *replica) connect(of string, modern bool, key, name string) *client.Client {
	r.t.Helper()
	var options []transport.StreamableHTTPCOption
	if key != "" {
		options = append(options, transport.WithHTTPHeaders(map[string]string{"Authorization": "Bearer " + key}))
	}
	options = append(options, transport.WithHTTPBasicClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}))
	over, err := transport.NewStreamableHTTP(strings.TrimSuffix(r.url+"/mcp/"+of, "/"), options...)
	if err != nil {
		r.t.Fatal(err)
	}
	as := []client.ClientOption{client.WithElicitationHandler(whom(name)), client.WithDiscoverTimeout(await.Bound)}
	if !modern {
		//lint:ignore SA1019 clients of the older era hear of changes so
		//lint:ignore SA1019 clients of the older protocol keep this stream
		transport.WithContinuousListening()(over)
		as = append(as, client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION))
	}
	c := client.NewClient(over, as...)
	c.OnNotification(func(n mcp.JSONRPCNotification) { // as agents do
		if n.Method == mcp.MethodNotificationToolsListChanged {
			go func() { _, _ = c.ListTools(context.Background(), mcp.ListToolsRequest{}) }()
		}
	})
	if err := c.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Initialize(r.t.Context(), mcp.InitializeRequest{Params: mcp.InitializeParams{ClientInfo: mcp.Implementation{Name: "shopper", Version: "1"}}}); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// call calls a tool and returns the answer as JSON; failed says that the tool or the protocol refused.
func call(ctx context.Context, c *client.Client, name string, arguments any) (answer string, failed bool) {
	result, err := c.CallTool(ctx, mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: arguments}})
	if err != nil {
		return err.Error(), true
	}
	text, _ := json.Marshal(result)
	return string(text), result.IsError
}
