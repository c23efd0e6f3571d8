//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// wire passes connections on to a replica, until it is cut.
type wire struct {
	at, to string

	mu       sync.Mutex // guards what follows; never held over I/O
	listener net.Listener
	conns    []net.Conn
	silent   chan struct{} // closed when bytes pass again; nil while they do
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	w := &wire{at: freeAddress(t), to: to}
	w.listen(t)
	t.Cleanup(func() { w.refuse(); w.heal(nil) })
	return w
}

func (w *wire) listen(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", w.at)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.listener = listener
	w.mu.Unlock()
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", w.to)
			if err != nil {
				in.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, in, out)
			w.mu.Unlock()
			go w.pass(in, out)
			go w.pass(out, in)
		}
	}()
}

// pass copies bytes until one of the connections ends.
func (w *wire) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	for buffer := make([]byte, 16<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		w.mu.Lock()
		silent := w.silent
		w.mu.Unlock()
		if silent != nil {
			<-silent
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// silence has nothing pass any more, and nobody told.
func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = make(chan struct{})
}

// refuse ends all connections, and takes no more.
func (w *wire) refuse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener.Close()
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
}

// heal has bytes pass again; without a test nobody listens for more of them.
func (w *wire) heal(t *testing.T) {
	w.mu.Lock()
	silent := w.silent
	if w.silent = nil; silent != nil {
		close(silent)
	}
	w.mu.Unlock()
	if t != nil && silent == nil {
		w.listen(t)
	}
}

// ask sends a message to one replica for a session, "" for none, and returns the status, the
// body, and the session of the answer.
func (r *fleetReplica) ask(t *testing.T, session, method string, params any) (status int, body, opened string) {
	t.Helper()
	message := map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
	if !strings.HasPrefix(method, "notifications/") {
		message["id"] = 1
	}
	text, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+r.port+"/mcp", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
		request.Header.Set("MCP-Protocol-Version", legacyRevision)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Errorf("%s is not answered: %v", method, err)
		return 0, "", ""
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Errorf("%s is not answered: %v", method, err)
	}
	return answer.StatusCode, string(read), answer.Header.Get("Mcp-Session-Id")
}

// A replica that clients and the database reach and other replicas do not gives each session up
// that a client asks another replica for, once no call of it is in flight: what clients ask is
// answered, nothing is lost, and no session lives twice.
func TestAReplicaThatOthersCannotReach(t *testing.T) {
	for _, how := range []struct {
		name string
		cut  func(*wire)
	}{{"it refuses", (*wire).refuse}, {"it is silent", (*wire).silence}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel() // most of the time somebody waits
			database := postgres.Start(t)
			var wires []*wire
			f := fleetReached(t, 3, database, upstreams(t, "everything"), func(inside string) string {
				wires = append(wires, newWire(t, inside))
				return wires[len(wires)-1].at
			})
			home, others := f.replicas[0], f.replicas[1:]
			_, text, session := home.ask(t, "", "initialize", map[string]any{"protocolVersion": legacyRevision, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "raw", "version": "1"}})
			if session == "" {
				t.Fatalf("initialize is answered %s", text)
			}
			home.ask(t, session, "notifications/initialized", map[string]any{})
			home.ask(t, session, "tools/call", map[string]any{"name": "retrieve_tools", "arguments": map[string]any{"query": "echo a message", "limit": 1}})
			echo := func(over *fleetReplica) error {
				status, text, _ := over.ask(t, session, "tools/call", map[string]any{"name": "everything_echo", "arguments": map[string]any{"message": "still here"}})
				switch {
				case status == http.StatusOK && strings.Contains(text, "still here"):
					return nil
				case status == http.StatusServiceUnavailable || status == http.StatusOK && strings.Contains(text, "may or may not have happened"):
					return fmt.Errorf("%d %s", status, text)
				}
				t.Errorf("a call is answered %d %s", status, text)
				return nil
			}
			for _, r := range f.replicas { // and so connections between them are there
				if err := echo(r); err != nil {
					t.Fatal(err)
				}
			}
			long := make(chan string)
			go func() {
				_, text, _ := home.ask(t, session, "tools/call", map[string]any{"name": "everything_trigger-long-running-operation", "arguments": map[string]any{"duration": 4, "steps": 2}})
				long <- text
			}()
			how.cut(wires[0])
			await.Nil(t, func() error { return echo(others[0]) })
			if text := await.Value(t, long); !strings.Contains(text, "completed") {
				t.Errorf("a call in flight where the session lived is answered %s", text)
			}
			conn, err := pgx.Connect(t.Context(), database)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			lives := func() (at string) {
				t.Helper()
				if err := conn.QueryRow(t.Context(), `SELECT name FROM sessions JOIN replicas ON home = id`).Scan(&at); err != nil {
					t.Fatal(err)
				}
				return at
			}
			if at := lives(); at != "replica-2" {
				t.Errorf("the session lives in %s", at)
			}
			for _, r := range f.replicas {
				if err := echo(r); err != nil {
					t.Errorf("after the session has moved: %v", err)
				}
				if _, text, _ := r.ask(t, session, "tools/list", map[string]any{}); !strings.Contains(text, "everything_echo") {
					t.Errorf("the session has lost what was registered: %s", text)
				}
			}
			wires[0].heal(t)
			for _, r := range f.replicas {
				if err := echo(r); err != nil {
					t.Errorf("when all is well again: %v", err)
				}
			}
			if at := lives(); at != "replica-2" {
				t.Errorf("the session lives in %s", at)
			}
		})
	}
}
