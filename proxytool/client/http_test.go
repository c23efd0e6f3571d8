package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/proxytool"
	proxyclient "toolfinch/proxytool/client"
)

// plain is an HTTP server of the legacy era with a proxy tool, whose faults a test
// chooses.
type plain struct {
	sessions, calls atomic.Int64
	call            func(w http.ResponseWriter, call *plainCall) // of the proxy tool
	resume          func(w http.ResponseWriter)                  // of a stream that ended early; nil: refused
	pages           bool                                         // tools/list has no end
}

type plainCall struct {
	n       int64           // from 1
	path    string          // of the operation
	id      json.RawMessage // of the request
	session string
}

func (c *plainCall) answer(w http.ResponseWriter) { answer(w, c.id, `{"content":[]}`) }

func answer(w http.ResponseWriter, id json.RawMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (p *plain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		if r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") != "" && p.resume != nil {
			p.resume(w)
			return
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			Cursor    string
			Arguments struct{ Path string }
		}
	}
	body, _ := io.ReadAll(r.Body)
	if json.Unmarshal(body, &m) != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("session ", p.sessions.Add(1)))
		answer(w, m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"plain","version":"1"}}`)
	case "tools/list":
		if p.pages {
			answer(w, m.ID, `{"tools":[],"nextCursor":"`+m.Params.Cursor+`x"}`)
			return
		}
		answer(w, m.ID, `{"tools":[{"name":"proxy","inputSchema":`+plainSchema+`}]}`)
	case "tools/call":
		p.call(w, &plainCall{p.calls.Add(1), m.Params.Arguments.Path, m.ID, r.Header.Get("Mcp-Session-Id")})
	default:
		answer(w, m.ID, `{}`)
	}
}

// serve serves p and opens a client to it.
func (p *plain) serve(t *testing.T) *proxyclient.Client {
	t.Helper()
	dial, options := p.dial(t)
	return open(t, dial, options...)
}

func (p *plain) dial(t *testing.T) (proxyclient.Dial, []proxyclient.Option) {
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	dial := func(context.Context) (transport.Interface, error) {
		return transport.NewStreamableHTTP(s.URL, transport.WithHTTPBasicClient(s.Client()))
	}
	return dial, []proxyclient.Option{proxyclient.WithClientOptions(client.WithProtocolVersion(mcp.LATEST_LEGACY_PROTOCOL_VERSION))}
}

// breakOff begins an answer that the client is to fetch the rest of.
func breakOff(w http.ResponseWriter, retry int) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "id: 1\nretry: %d\ndata: \n\n", retry)
}

func hangUp(w http.ResponseWriter) { panic(http.ErrAbortHandler) }

// The tool may have done its work, whatever became of the rest of the answer.
func TestACallWhoseAnswerBeganIsNotRepeated(t *testing.T) {
	for name, resume := range map[string]func(http.ResponseWriter){
		"the session is over":    func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"the server is away":     hangUp,
		"the server has no such": nil,
	} {
		t.Run(name, func(t *testing.T) {
			p := &plain{resume: resume, call: func(w http.ResponseWriter, _ *plainCall) { breakOff(w, 10) }}
			if _, err := p.serve(t).Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "pay", nil); err == nil {
				t.Error("there is an answer")
			}
			if n := p.calls.Load(); n != 1 {
				t.Errorf("the tool was called %d times", n)
			}
		})
	}
	// The client knows of another call that the session is over, and does not even ask.
	t.Run("the session is known to be over", func(t *testing.T) {
		var paid atomic.Int64
		begun, over := make(chan struct{}), make(chan struct{})
		p := &plain{call: func(w http.ResponseWriter, call *plainCall) {
			switch {
			case call.path == "pay":
				paid.Add(1)
				breakOff(w, 10)
				_ = http.NewResponseController(w).Flush()
				close(begun)
				<-over
			case call.session == "session 1":
				w.WriteHeader(http.StatusNotFound)
			default:
				call.answer(w)
			}
		}}
		c := p.serve(t)
		var paying sync.WaitGroup
		paying.Go(func() {
			if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "pay", nil); !errors.Is(err, transport.ErrSessionTerminated) {
				t.Errorf("error = %v", err)
			}
		})
		<-begun
		if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "other", nil); err != nil {
			t.Errorf("the other call: %v", err)
		}
		close(over)
		paying.Wait()
		if n := paid.Load(); n != 1 {
			t.Errorf("the tool was called %d times", n)
		}
	})
}

// A server that is busy, or finds a request too large, has lost nothing.
func TestAStatusOfOneCallLeavesTheSession(t *testing.T) {
	for _, status := range []int{400, 403, 413, 429, 500, 502, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			p := &plain{call: func(w http.ResponseWriter, call *plainCall) {
				if call.n == 1 {
					http.Error(w, "too much", status)
					return
				}
				call.answer(w)
			}}
			c := p.serve(t)
			_, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionList, "", nil)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint("status ", status)) {
				t.Errorf("error = %v", err)
			}
			if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionCall, "x", nil); err != nil {
				t.Errorf("the next call: %v", err)
			}
			if sessions, calls := p.sessions.Load(), p.calls.Load(); sessions != 1 || calls != 2 {
				t.Errorf("%d sessions, %d calls", sessions, calls)
			}
		})
	}
}

// Where each session is lost by its first call, they are not made as fast as
// calls come.
func TestAServerThatHangsUpIsNotStormed(t *testing.T) {
	var mu sync.Mutex // guards lost
	var lost []time.Time
	p := &plain{call: func(w http.ResponseWriter, _ *plainCall) {
		mu.Lock()
		lost = append(lost, time.Now())
		mu.Unlock()
		hangUp(w)
	}}
	c := p.serve(t)
	for p.sessions.Load() < 4 {
		if _, err := c.Proxy(t.Context(), proxytool.TypeTool, proxytool.ActionList, "", nil); err == nil {
			t.Error("there is an answer")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	least := 100 * time.Millisecond
	for i := 1; i < len(lost); i++ {
		if waited := lost[i].Sub(lost[i-1]); waited < least {
			t.Errorf("session %d was made %s after the one before was lost, want at least %s", i+1, waited, least)
		}
		least *= 2
	}
}

func TestAListWithoutEndIsGivenUp(t *testing.T) {
	p := &plain{pages: true}
	dial, options := p.dial(t)
	if _, err := proxyclient.Open(t.Context(), dial, options...); err == nil || !strings.Contains(err.Error(), "more than 1000 pages") {
		t.Errorf("Open: %v", err)
	}
	p = &plain{call: func(w http.ResponseWriter, call *plainCall) {
		answer(w, call.id, fmt.Sprintf(`{"content":[{"type":"resource","resource":{"uri":"proxy:list/tool","mimeType":"application/json","text":"[]"},`+
			`"annotations":{"proxyAction":"list","proxyType":"tool","many":true,"totalCount":1,"offset":0,"count":0,"nextCursor":"%d"}}]}`, call.n))
	}}
	dial, options = p.dial(t)
	c := open(t, dial, append(options, proxyclient.WithTransparent())...)
	if _, err := c.ListTools(t.Context(), mcp.ListToolsRequest{}); err == nil || !strings.Contains(err.Error(), "more than 1000 pages") || p.calls.Load() != 1000 {
		t.Errorf("ListTools: %v after %d pages", err, p.calls.Load())
	}
}
