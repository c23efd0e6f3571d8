package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/proxy"
	"toolfinch/upstream"
)

const (
	soakVar     = "TOOLFINCH_TEST_SOAK" // makes the test binary an upstream; the value marks its processes
	soakFor     = 10 * time.Second      // of TestSoak, unless TOOLFINCH_SOAK says otherwise
	soakClients = 16
	soakCan     = `{"elicitation":{"form":{}}}`
	killEach    = time.Second
	memoryLeft  = 16 << 20 // bytes that may be in use afterwards and were not before
)

// soakUpstream is a child process over stdio. Its tools answer with the ID that
// they are called with: at once, after progress, or after asking the client who it
// is.
func soakUpstream() {
	var writing sync.Mutex // held while one line is written
	say := func(format string, args ...any) {
		writing.Lock()
		defer writing.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var asked sync.Map // channels for the answers to questions, by ID
	var count atomic.Int64
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		m := parse(line)
		switch m.Method {
		case "":
			if answer, ok := asked.LoadAndDelete(string(m.ID)); ok {
				answer.(chan message) <- m
			}
		case "initialize":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"soak","version":"1"}}}`, m.ID)
		case "tools/list":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"progress","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}}`, m.ID)
		case "tools/call":
			go func() {
				id, who := part(part(m.Params, "arguments"), "id"), "nobody"
				switch partText(m.Params, "name") {
				case "progress":
					for i := range 20 {
						say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, part(part(m.Params, "_meta"), "progressToken"), i)
					}
				case "ask":
					answer, key := make(chan message, 1), strconv.FormatInt(count.Add(1), 10)
					asked.Store(key, answer)
					say(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{"who":{"type":"string"}}}}}`, key)
					if who = partText(part((<-answer).Result, "content"), "who"); who == "" {
						say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"nobody answered"}}`, m.ID)
						return
					}
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s of %s"}]}}`, m.ID, strings.Trim(string(id), `"`), who)
			}()
		default:
			if m.ID != nil {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
			}
		}
	}
}

// soakProcesses are the IDs of the processes of soakUpstream with a mark.
func soakProcesses(mark string) (found []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err == nil && bytes.Contains(environ, []byte(soakVar+"="+mark)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			found = append(found, pid)
		}
	}
	return found
}

// mortal is an HTTP server on one port that is killed, and comes back with none of
// its connections and sessions.
type mortal struct {
	listener port
	handler  func() http.Handler
	server   *http.Server
	ended    chan struct{}
}

// port is a listener that stays when a server closes it: another program could
// take the number otherwise.
type port struct{ *net.TCPListener }

func (p port) Close() error { return p.SetDeadline(time.Now()) }

func newMortal(t testing.TB, options ...mcpserver.StreamableHTTPOption) *mortal {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{listener: port{listener.(*net.TCPListener)}, handler: func() http.Handler {
		s := mcpserver.NewMCPServer("soak", "1", mcpserver.WithToolCapabilities(true))
		s.AddTool(mcp.NewTool("echo"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(r.GetString("id", "")), nil
		})
		return mcpserver.NewStreamableHTTPServer(s, options...)
	}}
	m.start()
	return m
}

func (m *mortal) start() {
	_ = m.listener.SetDeadline(time.Time{})
	server, ended := &http.Server{Handler: m.handler()}, make(chan struct{})
	m.server, m.ended = server, ended
	go func() {
		defer close(ended)
		_ = server.Serve(m.listener)
	}()
}

func (m *mortal) stop() {
	_ = m.server.Close()
	<-m.ended
}

func (m *mortal) kill() {
	m.stop()
	m.start()
}

func (m *mortal) close() {
	m.stop()
	_ = m.listener.TCPListener.Close()
}

// soakClient calls tools, one after the other, until over is closed.
type soakClient struct {
	*rawClient
	name string
	n    int
}

var soakIDs = regexp.MustCompile(`c\d+-\d+`)

// call calls a tool and reports whether it succeeded. An answer that is another
// caller's, or none, is a fault.
func (c *soakClient) call(t *testing.T, tool string) bool {
	c.n++
	id := fmt.Sprintf("%s-%d", c.name, c.n)
	params := fmt.Sprintf(`{"name":%q,"arguments":{"id":%q},"_meta":{"progressToken":%q}}`, tool, id, id)
	defer c.clear()
	again := params
	for range 5 {
		var got message
		select {
		case got = <-c.begin("tools/call", again).answer:
		case <-time.After(await.Bound):
			t.Errorf("%s of %s was not answered within %s", tool, id, await.Bound)
			return false
		}
		if partText(got.Result, "resultType") == "input_required" {
			again = c.again(params, got)
			continue
		}
		if got.Result == nil && got.Error == nil {
			t.Errorf("%s of %s ended without an answer or an error", tool, id)
			return false
		}
		for _, found := range soakIDs.FindAllString(got.raw, -1) {
			if found != id {
				t.Errorf("%s of %s was answered with what is %s's: %s", tool, id, found, got.raw)
			}
		}
		if got.Error != nil || string(part(got.Result, "isError")) == "true" {
			return false
		}
		if strings.HasSuffix(tool, "_ask") && !strings.Contains(got.raw, " of "+c.name+`"`) || !strings.Contains(got.raw, id) {
			t.Errorf("%s of %s was answered with %s", tool, id, got.raw)
		}
		return true
	}
	t.Logf("%s of %s was asked again and again", tool, id)
	return false
}

// soak is clients in front of upstreams that are killed, for a time.
func soak(t *testing.T, mark string, lasting time.Duration) {
	over := []*mortal{newMortal(t, mcpserver.WithStateful(true), mcpserver.WithStreamableHTTPProtocolVersions("2025-11-25")), newMortal(t)}
	config := &configs.Config{DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, REST: true}
	for i, name := range []string{"one", "two"} {
		config.Servers = append(config.Servers,
			upstream.Settings{Name: name, Command: os.Args[0], Env: map[string]string{soakVar: mark}},
			upstream.Settings{Name: name + "web", URL: "http://" + over[i].listener.Addr().String() + "/mcp"})
	}
	p, err := proxy.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	tools := []string{"one_echo", "one_progress", "one_ask", "oneweb_echo", "two_echo", "two_progress", "two_ask", "twoweb_echo"}
	t.Run("clients", func(t *testing.T) { // their ends and that of the proxy are cleanups of it
		url := run(t, p)
		await.True(t, func() bool { return p.Tools() == len(tools) })
		var clients []*soakClient
		for i := range soakClients {
			name := fmt.Sprintf("c%d", i)
			as := kind{modern: i%2 == 1, stdio: i == 0} // a process has one client over stdio
			clients = append(clients, &soakClient{name: name, rawClient: newClient(t, p, url, as, soakCan, func(string, json.RawMessage) string {
				return `"result":{"action":"accept","content":{"who":"` + name + `"}}`
			})})
		}
		var work, killing sync.WaitGroup
		succeeded, failed, ended := make([]atomic.Int64, len(tools)), make([]atomic.Int64, len(tools)), make(chan struct{})
		for _, c := range clients {
			work.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
					}
					i := rand.IntN(len(tools))
					if c.call(t, tools[i]) {
						succeeded[i].Add(1)
					} else {
						failed[i].Add(1)
					}
				}
			})
		}
		killing.Go(func() {
			tick := time.NewTicker(killEach)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				switch processes := soakProcesses(mark); {
				case n%4 == 3: // beside them somebody connects a server anew
					response, err := http.Post(url+"/api/servers/"+config.Servers[rand.IntN(len(config.Servers))].Name+"/reconnect", "application/json", nil)
					if err == nil {
						_ = response.Body.Close()
					}
				case n%2 == 0 && len(processes) > 0:
					if process, err := os.FindProcess(processes[rand.IntN(len(processes))]); err == nil {
						_ = process.Kill()
					}
				default:
					over[rand.IntN(len(over))].kill()
				}
			}
		})
		time.Sleep(lasting)
		await.True(t, func() bool { // most calls of each succeed: of a busy machine that may take longer
			for i := range tools {
				if succeeded[i].Load() <= failed[i].Load() {
					return false
				}
			}
			return true
		})
		close(ended)
		killing.Wait()
		work.Wait()
		for i, tool := range tools {
			t.Logf("%s: %d calls succeeded, %d failed", tool, succeeded[i].Load(), failed[i].Load())
		}
	})
	for _, one := range over {
		one.close()
	}
}

// openFiles is how many file descriptors the process has.
func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd")
	return len(files)
}

func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers let go of
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// Upstreams, child processes and HTTP servers, are killed at random every second
// while sixteen clients call them. Every answer is that of its call, no call ends
// without an answer or an error, and nothing is left in the end. TOOLFINCH_SOAK=2m
// makes it last.
func TestSoak(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("there is no /proc here that shows which processes are whose")
	}
	lasting := soakFor
	if said := os.Getenv("TOOLFINCH_SOAK"); said != "" {
		var err error
		if lasting, err = time.ParseDuration(said); err != nil {
			t.Fatal(err)
		}
	}
	mark := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	soak(t, mark, min(lasting/4, 2*time.Second)) // what is made once is there before it is measured
	memory, files, ended := memoryInUse(), openFiles(), await.Began("mark3labs/mcp-go/")
	soak(t, mark, lasting)
	ended(t)
	await.Nil(t, func() error {
		switch left := soakProcesses(mark); {
		case len(left) > 0:
			return fmt.Errorf("processes are left: %v", left)
		case openFiles() > files:
			return fmt.Errorf("%d files are open, %d were", openFiles(), files)
		}
		return nil
	})
	if now := memoryInUse(); now > memory+memoryLeft {
		t.Errorf("%d kB are in use, %d kB were", now>>10, memory>>10)
	}
	t.Logf("in use: %d kB, before %d kB; %d files, before %d", memoryInUse()>>10, memory>>10, openFiles(), files)
}
