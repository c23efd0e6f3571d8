//go:build linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolfinch/index"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/store/catalogue"
)

// A start of the stripped program over a store with so many tools, whose servers are all away, and
// what it takes then: until the first right answer over HTTP, until all tools can be found, memory,
// and retrievals of varied queries. Once by words alone, and once with vectors that an endpoint makes
// at once. It judges nothing, and runs only with TOOLFINCH_SCALE set, to numbers of tools such as 1000,5000.
func TestCostOfScale(t *testing.T) {
	sizes := os.Getenv("TOOLFINCH_SCALE")
	if sizes == "" {
		t.Skip("TOOLFINCH_SCALE is not set")
	}
	embedder := httptest.NewServer(newNumbers())
	t.Cleanup(embedder.Close)
	for size := range strings.SplitSeq(sizes, ",") {
		tools := must.Get(strconv.Atoi(size))(t)
		s := newScale(t, tools)
		for _, kind := range []struct {
			name string
			env  []string
		}{
			{"words", []string{"MCPPROXY_EMBEDDER=BM25"}},
			{"hybrid", []string{"MCPPROXY_EMBEDDER=OPENAI", "OPENAI_BASE_URL=" + embedder.URL + "/v1", "OPENAI_API_KEY=none", "MCPPROXY_OPENAI_MODEL=numbers"}},
		} {
			t.Run(size+"/"+kind.name, func(t *testing.T) {
				with := *s
				with.house, with.vectors = s.with(kind.env...), kind.name == "hybrid"
				t.Run("first", with.fill)
				for range 2 {
					t.Run("start", func(t *testing.T) { with.start(t) })
				}
				t.Run("load", with.load)
			})
		}
	}
}

// scale is a house with so many tools in its store.
type scale struct {
	house
	tools, servers int
	vectors        bool
}

func newScale(t *testing.T, tools int) *scale {
	home := t.TempDir()
	s := &scale{house{home: home, config: filepath.Join(home, "toolfinch.json")}, tools, min(100, tools/50), false}
	s.env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home, "MCPPROXY_ROUTING_TYPE=CALL_TOOL"}
	servers := map[string]any{}
	for _, name := range catalogue.Fill(t, filepath.Join(home, "data"), tools, s.servers) {
		servers[name] = map[string]any{"url": "http://127.0.0.1:9/mcp", "changes": "allow"}
	}
	s.configure(t, servers)
	return s
}

// fill is a start that stores what later ones find: the index, or vectors.
func (s *scale) fill(t *testing.T) {
	s.start(t)
	await.Nil(t, func() error {
		db, err := store.OpenReadOnly(t.Context(), filepath.Join(s.home, "data"), slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer db.Close()
		stored := 0
		err = db.Segments(t.Context(), index.StoredPrefix(), func(store.Segment) { stored++ })
		if err == nil && stored == 0 {
			err = fmt.Errorf("no part of the index is stored")
		}
		return err
	})
}

// start starts the program, which the end of the test stops, and logs how long it took.
func (s *scale) start(t *testing.T) (url string, pid int) {
	began := time.Now()
	url, pid = s.serveHTTP(t)
	c := &poller{t: t, url: url}
	c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"scale","version":"1"}}}`)
	until := func(is func() bool) time.Duration {
		for !is() {
			if time.Since(began) > 10*patience {
				t.Fatal("not all tools are found")
			}
			time.Sleep(time.Millisecond)
		}
		return time.Since(began).Round(time.Millisecond)
	}
	first := until(func() bool { return c.finds(0) })
	all := until(func() bool { return c.metric("toolfinch_index_documents") == s.tools && c.finds(s.servers-1) })
	line := fmt.Sprintf("the first right answer after %v, all tools found after %v", first, all)
	if s.vectors {
		line += fmt.Sprintf(", all vectors there after %v", until(func() bool { return c.metric("toolfinch_index_vectors") == s.tools }))
	}
	t.Logf("%s; processor time %v", line, processorTime(t, pid))
	return url, pid
}

// load logs the memory of the program once it has settled, and what its retrievals take.
func (s *scale) load(t *testing.T) {
	url, pid := s.start(t)
	settled, steady := 0, time.Now()
	for began := time.Now(); time.Since(steady) < 10*time.Second && time.Since(began) < time.Minute; time.Sleep(time.Second) {
		if now := statusMB(t, pid, "VmRSS"); now != settled {
			settled, steady = now, time.Now()
		}
	}
	t.Logf("memory settled %d MB, peak %d MB", settled, statusMB(t, pid, "VmHWM"))
	args := []string{"run", "./load", "-url", url, "-json"}
	for _, query := range varied(t) {
		args = append(args, "-query", query)
	}
	cmd := exec.Command("go", args...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var rows []struct {
		Callers, Errors     int
		P50, P99, PerSecond float64
	}
	must.Do(t, json.Unmarshal(out, &rows))
	for _, r := range rows {
		t.Logf("retrieve_tools, callers %d: p50 %.2f ms, p99 %.2f ms, %.0f a second, %d errors", r.Callers, r.P50, r.P99, r.PerSecond, r.Errors)
	}
	t.Logf("memory after that %d MB", statusMB(t, pid, "VmRSS"))
}

// varied are queries that people and agents wrote, where they are, else a few.
func varied(t *testing.T) (queries []string) {
	text, err := os.ReadFile(filepath.Join(catalogue.Annotated(t), "livemcp/queries.jsonl"))
	if err != nil {
		return []string{"create an issue in a repository", "send a message to a channel", "what is the weather tomorrow", "read a file"}
	}
	for line := range strings.Lines(string(text)) {
		var q struct{ Query string }
		must.Do(t, json.Unmarshal([]byte(line), &q))
		queries = append(queries, q.Query)
	}
	return queries
}

// processorTime is what a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	_, after, _ := strings.Cut(string(text), ") ") // the name may have spaces
	var user, system int64
	must.Get(fmt.Sscan(strings.Join(strings.Fields(after)[11:13], " "), &user, &system))(t)
	return time.Duration(user+system) * 10 * time.Millisecond // ticks
}

// statusMB is a line of a process's status, in MB.
func statusMB(t *testing.T, pid int, name string) int {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	_, after, _ := strings.Cut(string(text), name+":")
	var kB int
	must.Get(fmt.Sscan(after, &kB))(t)
	return kB / 1000
}

// poller is a client that asks again and again.
type poller struct {
	t            *testing.T
	url, session string
}

func (c *poller) post(body string) string {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		request.Header.Set("Mcp-Session-Id", c.session)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	if c.session == "" {
		c.session = response.Header.Get("Mcp-Session-Id")
	}
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s, %v", response.Status, text, err)
	}
	return string(text)
}

// finds reports whether the tool of a server is found that no other is like.
func (c *poller) finds(server int) bool {
	answer := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"retrieve_tools","arguments":{"query":"grow xylophones in %s"}}}`, catalogue.Word(server)))
	return strings.Contains(answer, fmt.Sprintf("server%d_grow_%d", server, server))
}

// metric is the value of a metric of the default view.
func (c *poller) metric(name string) int {
	c.t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, strings.TrimSuffix(c.url, "/mcp")+"/metrics", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n"+name+`{view="default"} `)
	value, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		c.t.Fatalf("%s of %s: %v", name, text, err)
	}
	return int(n)
}

// numbers is an endpoint that embeds at once: the vector of a text is a part of one long row of
// random numbers, which it has as JSON.
type numbers struct {
	text string
	at   []int // where each number begins
}

const numbersDim = 384

func newNumbers() *numbers {
	random, n := rand.New(rand.NewPCG(1, 2)), &numbers{}
	var b strings.Builder
	for range 1 << 18 {
		n.at = append(n.at, b.Len())
		fmt.Fprintf(&b, "%.4f,", random.NormFloat64())
	}
	n.text = b.String()
	return n
}

func (n *numbers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var b strings.Builder
	for i, text := range request.Input {
		h := fnv.New32()
		_, _ = h.Write([]byte(text))
		from := int(h.Sum32()) % (len(n.at) - numbersDim)
		fmt.Fprintf(&b, `,{"index":%d,"embedding":[%s]}`, i, strings.TrimSuffix(n.text[n.at[from]:n.at[from+numbersDim]], ","))
	}
	_, _ = io.WriteString(w, `{"data":[`+b.String()[1:]+`]}`)
}
