package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/internal/pipes"
	"toolfinch/upstream/conn"
)

// stage is where servers of one kind are played in this process, one after the other or at once, and
// what they and the test leave there for each other.
type stage struct {
	mode   string
	script func(p *peer) // unless nil, in the place of the mode

	mu      sync.Mutex // guards what follows
	left    map[string]string
	changed chan struct{} // closed with the next change
	starts  int
	running map[int]bool // by the number that takes the place of a process ID
}

// stageVar names the stage of a server in its environment.
const stageVar = "TOOLFINCH_TEST_STAGE"

var (
	stages sync.Map // *stage by its name
	stageN atomic.Int64
	peerN  atomic.Int64
)

// played is a server that is played on a stage.
func played(t testing.TB, name string, on *stage) Settings {
	t.Helper()
	on.left, on.running, on.changed = map[string]string{}, map[int]bool{}, make(chan struct{})
	number := fmt.Sprint(stageN.Add(1))
	stages.Store(number, on)
	t.Cleanup(func() { stages.Delete(number) })
	return Settings{Name: name, Command: "played", Env: map[string]string{stageVar: number}, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
}

// scripted is a legacy server that does what the script says once it has shaken hands.
func scripted(t testing.TB, name string, script func(p *peer)) Settings {
	t.Helper()
	s := played(t, name, &stage{script: func(p *peer) {
		p.shake()
		script(p)
	}})
	s.Protocol = ProtocolLegacy
	return s
}

// programs are those of the servers that are played.
func programs(s Settings) conn.Program {
	if s.Env[stageVar] == "" {
		return nil
	}
	return func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) string {
		return served(ctx, &peer{stage: stageOf(s), env: s.Env, pid: int(peerN.Add(1)), in: bufio.NewReaderSize(stdin, 1<<20), out: stdout, err: stderr, ends: [2]io.Closer{stdin.(io.Closer), stdout.(io.Closer)}, end: ctx})
	}
}

func stageOf(s Settings) *stage {
	on, _ := stages.Load(s.Env[stageVar])
	return on.(*stage)
}

// put leaves something on the stage.
func (s *stage) put(name, text string) {
	if s.left == nil { // a process has none
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[name] = text
	s.change()
}

// change tells who waits. Lock held.
func (s *stage) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stage) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.left[name]
	return ok
}

func (s *stage) take(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, name)
}

// await waits until holds does, which is called with the lock held.
func (s *stage) await(t testing.TB, holds func() bool) {
	t.Helper()
	for {
		s.mu.Lock()
		done, changed := holds(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		await.Value(t, changed)
	}
}

// trace waits for what a server leaves.
func trace(t testing.TB, s Settings, name string) (text string) {
	t.Helper()
	on := stageOf(s)
	on.await(t, func() bool { found, ok := on.left[name]; text = found; return ok })
	return text
}

// soonRuns waits until so many of a server run.
func soonRuns(t testing.TB, s Settings, n int) {
	t.Helper()
	on := stageOf(s)
	on.await(t, func() bool { return len(on.running) == n })
}

// runs is how many of a server run, and started how many were started.
func runs(s Settings) int { return stageOf(s).count(func(on *stage) int { return len(on.running) }) }

func started(s Settings) int { return stageOf(s).count(func(on *stage) int { return on.starts }) }

func (s *stage) count(what func(*stage) int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return what(s)
}

// soonStarted waits until so many of a server were started.
func soonStarted(t testing.TB, s Settings, n int) {
	t.Helper()
	on := stageOf(s)
	on.await(t, func() bool { return on.starts == n })
}

// peer is one server that is played, or the process that this one is.
type peer struct {
	*stage
	env  map[string]string
	pid  int
	in   *bufio.Reader
	out  io.Writer
	err  io.Writer
	ends [2]io.Closer    // of in and out
	end  context.Context // nil in a process
}

// message is a message of the client.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	line   []byte
}

// exited ends a server from within.
type exited struct{ status int }

func (p *peer) exit(status int) {
	if p.end == nil {
		os.Exit(status)
	}
	panic(exited{status})
}

// read returns the next message; the server ends where there is none.
func (p *peer) read() (m message) {
	for {
		line, err := p.in.ReadBytes('\n')
		if err != nil {
			panic(exited{})
		}
		if json.Unmarshal(line, &m) == nil {
			m.line = line[:len(line)-1]
			return m
		}
	}
}

func (p *peer) say(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func (p *peer) answer(to message, result string) {
	p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, to.ID, result)
}

// shake shakes hands.
func (p *peer) shake() {
	p.answer(p.read(), `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"script","version":"1","more":9007199254740993}}`)
	p.read()
}

// wait waits until something is left on the stage; not when the server is to end.
func (p *peer) wait(name string) bool {
	for {
		p.mu.Lock()
		_, ok := p.left[name]
		changed := p.changed
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-p.end.Done():
			return false
		}
	}
}

// served plays a server to its end.
func served(ctx context.Context, p *peer) (state string) {
	if p.end != nil {
		p.runs(true)
		defer p.runs(false)
	}
	defer func() {
		switch end := recover().(type) {
		case nil:
		case exited:
			state = fmt.Sprint("exit status ", end.status)
		default:
			panic(end)
		}
	}()
	switch {
	case p.script != nil:
		p.script(p)
	case p.mode == "eliciting":
		_ = mcpserver.NewStdioServer(newEliciting()).Listen(ctx, p.in, p.out)
	case strings.HasPrefix(p.mode, "asker"):
		serveAsker(p)
	default:
		serveLines(ctx, p)
	}
	return "exit status 0"
}

func (p *peer) runs(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.starts++
		p.running[p.pid] = true
	} else {
		delete(p.running, p.pid)
	}
	p.change()
}

// restartable is an HTTP server over pipes that can end and come back.
type restartable struct {
	host    string
	handler func() http.Handler
	server  *http.Server
	ended   chan struct{}
}

func newRestartable(t testing.TB, handler func() http.Handler) *restartable {
	t.Helper()
	r := &restartable{host: pipes.NewHost(), handler: handler}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *restartable) start() {
	listener := pipes.Listen(r.host)
	server, ended := &http.Server{Handler: r.handler()}, make(chan struct{})
	r.server, r.ended = server, ended
	go func() {
		_ = server.Serve(listener)
		close(ended)
	}()
}

func (r *restartable) stop() {
	_ = r.server.Close()
	<-r.ended
}

func (r *restartable) settings(name, path string) Settings {
	return Settings{Name: name, URL: "http://" + r.host + path, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
}
