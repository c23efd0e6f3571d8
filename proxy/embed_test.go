package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/embed/models"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/proxy"
	"toolfinch/retrieve"
	"toolfinch/upstream"
	"toolfinch/view"
)

// userModels is where the user keeps models; none of the tests here finds them
// there by itself.
var userModels string

func TestMain(m *testing.M) {
	pipes.Install()
	none, err := os.MkdirTemp("", "toolfinch-no-models-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	userModels, _ = models.Dir() // "": there is none
	os.Setenv("MCPPROXY_MODELS_DIR", none)
	code := m.Run()
	os.RemoveAll(none)
	if dir, err := emptyStore(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// embedding is a configuration with an embedder.
func embedding(dataDir string, settings embed.Settings, servers ...upstream.Settings) *configs.Config {
	return changing(&configs.Config{DataDir: dataDir, TopK: 5, Routing: configs.RoutingCallTool, MaxRegistered: 40,
		Embed: settings, QueryEmbedTimeout: await.Bound, Servers: servers})
}

// openWith opens a proxy with an embedder.
func openWith(t *testing.T, dataDir string, settings embed.Settings, servers ...upstream.Settings) *proxy.Proxy {
	t.Helper()
	return opened(t, embedding(dataDir, settings, servers...))
}

// endpoint stands for a server with OpenAI's embeddings API whose vectors mean
// nothing.
type endpoint struct {
	embed.Settings

	mu    sync.Mutex     // guards all below; not held while a request is answered
	asked map[string]int // how often it was asked for a text
	dim   int
	stuck chan struct{} // requests wait until it is closed, or their sender leaves
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{asked: map[string]int{}, dim: 8}
	server := httptest.NewUnstartedServer(e)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	e.Settings = embed.Settings{Kind: embed.KindOpenAI, OpenAI: embed.OpenAI{BaseURL: server.URL}}
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct{ Input []string }
	_ = json.NewDecoder(r.Body).Decode(&request)
	e.mu.Lock()
	dim, stuck := e.dim, e.stuck
	for _, text := range request.Input {
		e.asked[text]++
	}
	e.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-r.Context().Done():
			return
		}
	}
	var rows []string
	for i, text := range request.Input {
		v := make([]float32, dim)
		for j, b := range []byte(text) {
			v[j%dim] += float32(b)
		}
		vector, _ := json.Marshal(v)
		rows = append(rows, fmt.Sprintf(`{"index":%d,"embedding":%s}`, i, vector))
	}
	fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(rows, ","))
}

// hold makes all requests wait until release is called.
func (e *endpoint) hold() (release func()) {
	stuck := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stuck = stuck
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.stuck == stuck {
			e.stuck = nil
			close(stuck)
		}
	}
}

// documents is for how many texts of tools it was asked, and how often the one
// that was asked for most.
func (e *endpoint) documents() (texts, most int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for text, n := range e.asked {
		if strings.Contains(text, ":") { // no query of these tests does
			texts, most = texts+1, max(most, n)
		}
	}
	return texts, most
}

// searcher is a proxy or a workspace.
type searcher interface{ Retriever() *retrieve.Retriever }

// index is what an answer says of the index.
func index(t *testing.T, p searcher, query string) (state struct {
	Tools    int
	Search   string
	Embedded *int
	Reason   string
}) {
	t.Helper()
	q := retrieve.Query{Text: query, Limit: 5, Detail: retrieve.DetailName}
	found := must.Get(p.Retriever().Search(t.Context(), q))(t)
	answer := struct{ Index any }{&state}
	must.Do(t, json.Unmarshal(p.Retriever().Answer(q, found), &answer))
	return state
}

func hybrid(t *testing.T, p searcher, tools int) bool {
	t.Helper()
	state := index(t, p, "a query")
	return state.Search == "hybrid" && state.Embedded == nil && state.Tools == tools
}

// A model that is pulled, or repaired, while the proxy runs is found by the next
// attempt; until then words answer, and the answer says what to do.
func TestEmbedTakesAModelThatComesLater(t *testing.T) {
	from := filepath.Join(userModels, models.DefaultModel)
	if _, err := os.Stat(from); userModels == "" || err != nil {
		const message = "the model is not on this machine: toolfinch model pull"
		if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	dir := t.TempDir()
	t.Setenv("MCPPROXY_MODELS_DIR", dir)
	p := openWorkspace(t, embedding(folder(t), embed.Settings{Kind: embed.KindHF}, settings("shop", newUpstream(t, 20).URL)))
	defer p.Close()
	p.Refresh(t.Context(), nil)
	refused := func(what string) {
		t.Helper()
		err := p.Embed(t.Context(), nil)
		if !errors.Is(err, embed.ErrNoModel) {
			t.Errorf("%s: Embed = %v, want ErrNoModel", what, err)
		}
		state := index(t, p, "delete an issue")
		if state.Search != "words" || !strings.Contains(state.Reason, "toolfinch model pull") || strings.Contains(state.Reason, dir) {
			t.Errorf("%s: the answer says %+v", what, state)
		}
	}
	refused("without a model")

	to := filepath.Join(dir, models.DefaultModel)
	must.Do(t, os.CopyFS(to, withoutWeights{os.DirFS(from)}))
	const weights = "model.safetensors"
	must.Do(t, os.WriteFile(filepath.Join(to, weights), make([]byte, 100), 0o600))
	refused("with half of the weights")

	must.Do(t, os.Remove(filepath.Join(to, weights)))
	if err := os.Link(filepath.Join(from, weights), filepath.Join(to, weights)); err != nil {
		content, err := os.ReadFile(filepath.Join(from, weights)) // another disk
		if err == nil {
			err = os.WriteFile(filepath.Join(to, weights), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var last int
	must.Do(t, p.Embed(t.Context(), func(done, total int) { last = done }))
	if !hybrid(t, p, 20) || last != 20 {
		t.Errorf("with a model the answer says %+v; progress came to %d of 20", index(t, p, "a query"), last)
	}
}

// withoutWeights is a model's folder but for what is large.
type withoutWeights struct{ fs.FS }

func (w withoutWeights) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(w.FS, name)
	var kept []fs.DirEntry
	for _, item := range all {
		if !strings.HasSuffix(item.Name(), ".safetensors") {
			kept = append(kept, item)
		}
	}
	return kept, err
}

// Metrics say whether the embedder works, and how often it did not.
func TestMetricsOfTheEmbedder(t *testing.T) {
	up := newUpstream(t, 5)
	refusing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refusing.Close)
	refused := embed.Settings{Kind: embed.KindOpenAI, OpenAI: embed.OpenAI{BaseURL: refusing.URL}}
	for name, test := range map[string]struct {
		settings embed.Settings
		want     []string
	}{
		"words alone": {embed.Settings{Kind: embed.KindBM25}, []string{"toolfinch_embedder_up 0", `toolfinch_embedder_errors_total{of="definitions"} 0`}},
		"it answers":  {newEndpoint(t).Settings, []string{"toolfinch_embedder_up 1", `toolfinch_embedder_errors_total{of="definitions"} 0`, `toolfinch_embedder_errors_total{of="queries"} 0`}},
		"it refuses":  {refused, []string{"toolfinch_embedder_up 0", `toolfinch_embedder_errors_total{of="definitions"} 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			config := embedding(folder(t), test.settings, settings("shop", up.URL))
			config.REST = true
			_, url := ready(t, config)
			await.True(t, func() bool {
				text := curl(t, url, "GET", "/metrics", "").body
				return !slices.ContainsFunc(test.want, func(line string) bool { return !strings.Contains(text, line+"\n") })
			})
		})
	}
}

// What changes, comes and goes while tools are embedded is embedded in the end,
// and nothing else again.
func TestToolsChangeWhileTheyAreEmbedded(t *testing.T) {
	e := newEndpoint(t)
	up := server.NewMCPServer("changing", "1", server.WithToolCapabilities(true))
	add := func(name, description string) {
		up.AddTool(mcp.NewTool(name, mcp.WithDescription(description)), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ok"), nil
		})
	}
	for i := range 10 {
		add(fmt.Sprintf("stays_%d", i), "It stays")
	}
	add("goes", "It goes")
	add("changes", "It is old")
	front := httptest.NewServer(server.NewStreamableHTTPServer(up, server.WithStateful(true)))
	t.Cleanup(front.Close)

	release := e.hold()
	defer release()
	p := openWith(t, folder(t), e.Settings, settings("up", front.URL))
	run(t, p)
	eventually(t, func() bool { texts, _ := e.documents(); return texts == 12 })
	up.DeleteTools("goes")
	add("changes", "It is new")
	add("comes", "It comes")
	changed := func() bool {
		v, err := p.View("")
		if err != nil {
			t.Fatal(err)
		}
		one, err := v.Find("up_changes")
		return err == nil && one.Def.Description == "It is new"
	}
	// Not by searching: an embedder that has failed a few queries is left alone.
	eventually(t, func() bool {
		names := strings.Join(toolsOf(t, p, view.Default), " ")
		return strings.Contains(names, "up_comes") && !strings.Contains(names, "up_goes") && changed()
	})
	found, err := p.Retriever().Search(t.Context(), retrieve.Query{Text: "new comes goes", Limit: 5})
	var names []string
	for _, hit := range found.Hits {
		names = append(names, hit.Name)
	}
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"up_changes", "up_comes"}) {
		t.Errorf("found %v, %v", names, err)
	}
	release()
	eventually(t, func() bool { return hybrid(t, p, 12) })
	if texts, most := e.documents(); texts != 14 || most != 1 {
		t.Errorf("%d texts were embedded, one of them %d times; want 14, each once", texts, most)
	}
}

// An endpoint that never answers keeps nobody waiting: neither a query, nor a
// call, nor the end. Nothing of it is left.
func TestAnEndpointThatHangs(t *testing.T) {
	e := newEndpoint(t)
	up := newUpstream(t, 5)
	cycle := func() {
		release := e.hold()
		defer release()
		p := openWith(t, folder(t), e.Settings, settings("up", up.URL))
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, listener) }) }()
		eventually(t, func() bool { texts, _ := e.documents(); return texts == 5 && p.Tools() == 5 })
		s := newSession(t, "http://"+listener.Addr().String()+"/mcp")
		answer, err := s.call("retrieve_tools", map[string]any{"query": "echo a text", "detail": "full"})
		if err != nil || !strings.Contains(answer, `\"search\":\"words\",\"reason\":\"`) || !strings.Contains(answer, "up_echo") {
			t.Errorf("retrieve_tools = %s, %v", answer, err)
		}
		if answer, err := s.call("up_echo", map[string]string{"text": "still here"}); err != nil || !strings.Contains(answer, "still here") {
			t.Errorf("call = %s, %v", answer, err)
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
		cycle()
		up.CloseClientConnections()
	}, "mark3labs/mcp-go/")
}
