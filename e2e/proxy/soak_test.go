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

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/upstream"
)

const (
	soakVar     = "TOOLFINCH_TEST_SOAK" // makes the test binary a server; the value marks its processes
	soakClients = 16
	soakLong    = 200      // kills with TOOLFINCH_LONG=1
	soakShort   = 8        // kills without
	killAfter   = 200      // calls between two kills
	memoryLeft  = 16 << 20 // bytes that may be in use afterwards and were not before
)

// soakUpstream is a child process over stdio, of an era before 2026-07-28. Its tools answer with the ID that
// they are called with: at once, after progress, or after asking the client who it is.
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
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ ID string }
				Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
			Result struct{ Content struct{ Who string } }
		}
		_ = json.Unmarshal(line, &m)
		switch m.Method {
		case "":
			if answer, ok := asked.LoadAndDelete(string(m.ID)); ok {
				answer.(chan string) <- m.Result.Content.Who
			}
		case "initialize":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"soak","version":"1"}}}`, m.ID)
		case "tools/list":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"progress","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}}`, m.ID)
		case "tools/call":
			go func() {
				who := "nobody"
				switch m.Params.Name {
				case "progress":
					for i := range 20 {
						say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Params.Meta.ProgressToken, i)
					}
				case "ask":
					answer, key := make(chan string, 1), strconv.FormatInt(count.Add(1), 10)
					asked.Store(key, answer)
					say(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{"who":{"type":"string"}}}}}`, key)
					if who = <-answer; who == "" {
						say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"nobody answered"}}`, m.ID)
						return
					}
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s of %s"}]}}`, m.ID, m.Params.Arguments.ID, who)
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

// mortal is an HTTP server on one port that is killed, and comes back with none of its connections and sessions.
type mortal struct {
	net.Listener
	handler func() http.Handler
	server  *http.Server
	ended   chan struct{}
}

// unclosed is a listener that stays when a server closes it: another program could take the number otherwise.
type unclosed struct {
	*mortal
	over chan struct{}
	once *sync.Once
}

func (u unclosed) Accept() (net.Conn, error) {
	accepted := make(chan net.Conn)
	go func() {
		conn, err := u.Listener.Accept()
		if err != nil {
			return
		}
		select {
		case accepted <- conn:
		case <-u.over: // of the next server, which the client finds with its next attempt
			_ = conn.Close()
		}
	}()
	select {
	case conn := <-accepted:
		return conn, nil
	case <-u.over:
		return nil, net.ErrClosed
	}
}

func (u unclosed) Close() error {
	u.once.Do(func() { close(u.over) })
	return nil
}

func newMortal(t testing.TB, options ...server.StreamableHTTPOption) *mortal {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	m := &mortal{Listener: listener, handler: func() http.Handler {
		s := server.NewMCPServer("soak", "1", server.WithToolCapabilities(true))
		s.AddTool(mcp.NewTool("echo"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(r.GetString("id", "")), nil
		})
		return server.NewStreamableHTTPServer(s, options...)
	}}
	m.start()
	return m
}

func (m *mortal) start() {
	server, ended := &http.Server{Handler: m.handler()}, make(chan struct{})
	m.server, m.ended = server, ended
	on := unclosed{m, make(chan struct{}), new(sync.Once)}
	go func() {
		defer close(ended)
		_ = server.Serve(on)
	}()
}

func (m *mortal) stop() {
	_ = m.server.Close()
	<-m.ended
}

func (m *mortal) close() {
	m.stop()
	_ = m.Listener.Close()
}

// soakClient calls tools, one after the other.
type soakClient struct {
	*client.Client
	name string
	n    int
}

var soakIDs = regexp.MustCompile(`c\d+-\d+`)

// call calls a tool and reports whether it succeeded. An answer that is another caller's is a fault.
func (c *soakClient) call(t *testing.T, tool string) bool {
	c.n++
	id := fmt.Sprintf("%s-%d", c.name, c.n)
	got, err := c.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: tool, Arguments: map[string]any{"id": id}, Meta: &mcp.Meta{ProgressToken: id}}})
	said := fmt.Sprint(err)
	if err == nil {
		raw, _ := json.Marshal(got)
		said = string(raw)
	}
	for _, found := range soakIDs.FindAllString(said, -1) {
		if found != id {
			t.Errorf("%s of %s was answered with what is %s's: %s", tool, id, found, said)
		}
	}
	if err != nil || got.IsError {
		return false
	}
	if strings.HasSuffix(tool, "_ask") && !strings.Contains(said, " of "+c.name+`"`) || !strings.Contains(said, id) {
		t.Errorf("%s of %s was answered with %s", tool, id, said)
	}
	return true
}

// soak is clients in front of servers of which one is killed whenever so many calls have ended.
func soak(t *testing.T, mark string, kills int) {
	over := []*mortal{newMortal(t, server.WithStateful(true), server.WithStreamableHTTPProtocolVersions("2025-11-25")), newMortal(t)}
	config := configOf(t, nil)
	for i, name := range []string{"one", "two"} {
		config.Servers = append(config.Servers,
			upstream.Settings{Name: name, Command: os.Args[0], Env: map[string]string{soakVar: mark}},
			upstream.Settings{Name: name + "web", URL: "http://" + over[i].Addr().String() + "/mcp"})
	}
	tools := []string{"one_echo", "one_progress", "one_ask", "oneweb_echo", "two_echo", "two_progress", "two_ask", "twoweb_echo"}
	t.Run("clients", func(t *testing.T) { // their ends and that of the proxy are cleanups of it
		r := open(t, config)
		r.has("", tools...)
		var calling sync.WaitGroup
		succeeded, failed, ended := make([]atomic.Int64, len(tools)), make([]atomic.Int64, len(tools)), make(chan struct{})
		calls := make(chan struct{})
		for n := range soakClients {
			name := fmt.Sprintf("c%d", n)
			c := &soakClient{Client: r.connect("", n%2 == 1, "", name), name: name}
			calling.Go(func() {
				for {
					i := rand.IntN(len(tools))
					if c.call(t, tools[i]) {
						succeeded[i].Add(1)
					} else {
						failed[i].Add(1)
					}
					select {
					case calls <- struct{}{}:
					case <-ended:
						return
					}
				}
			})
		}
		kill := func(n int) {
			switch processes := soakProcesses(mark); {
			case n%4 == 3: // somebody connects a server anew
				r.rest(http.MethodPost, "/api/servers/"+config.Servers[rand.IntN(len(config.Servers))].Name+"/reconnect", "")
			case n%2 == 0 && len(processes) > 0:
				if process, err := os.FindProcess(processes[rand.IntN(len(processes))]); err == nil {
					_ = process.Kill()
				}
			default:
				one := over[rand.IntN(len(over))]
				one.stop()
				one.start()
			}
		}
		var killing sync.WaitGroup
		mostSucceed := func() bool { // of each tool
			for i := range tools {
				if succeeded[i].Load() <= failed[i].Load() {
					return false
				}
			}
			return true
		}
		for n := 0; n < kills; n++ {
			for range killAfter {
				await.Value(t, calls)
			}
			killing.Wait()
			killing.Go(func() { kill(n) })
		}
		for !mostSucceed() { // on a busy machine a server may take longer to come back
			await.Value(t, calls)
		}
		close(ended)
		killing.Wait()
		answered := make(chan struct{})
		go func() { defer close(answered); calling.Wait() }()
		await.Value(t, answered) // each call has its end
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

// Servers, child processes and HTTP servers, are killed at random while sixteen clients call them. Every answer
// is that of its call, no call ends without an answer or an error, and nothing is left in the end.
func TestSoak(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("there is no /proc here that shows which processes are whose")
	}
	kills := soakShort
	if long {
		kills = soakLong
	}
	mark := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	soak(t, mark, 2) // what is made once is there before it is measured
	memory, files, ended := memoryInUse(), openFiles(), await.Began("mark3labs/mcp-go/")
	soak(t, mark, kills)
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
