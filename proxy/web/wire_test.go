package web_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
	"toolfinch/proxy/web"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

func slogTo(w io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

func TestAClientThatGoesEndsItsCall(t *testing.T) {
	r := newRig(t)
	server := httptest.NewServer(r.handler)
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/api/proxy/execute", strings.NewReader(`{"tool_id":"clock_wait"}`)))(t)
	request.Header.Set("Content-Type", "application/json")
	go func() {
		<-r.waiting
		leave()
	}()
	if answer, err := http.DefaultClient.Do(request); err == nil {
		t.Fatalf("answered: %s", answer.Status)
	}
	server.Close() // waits for the handler
	if log := r.log.String(); strings.Contains(log, "ERROR") {
		t.Errorf("log: %s", log)
	}
}

func TestABodyThatBreaksOffIsNotAnswered(t *testing.T) {
	r := newRig(t)
	server := httptest.NewServer(r.handler)
	defer server.Close()
	conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/proxy/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	must.Do(t, conn.(*net.TCPConn).CloseWrite())
	if answer, _ := io.ReadAll(conn); len(answer) > 0 {
		t.Errorf("answered: %s", answer)
	}
}

func TestABodyThatNeverEndsIsAnswered(t *testing.T) {
	r := newRig(t)
	clients := transport.NewClients(transport.Limits{BodyTime: time.Millisecond})
	server := httptest.NewServer(clients.Guard(r.handler, transport.Names{}, func(w http.ResponseWriter, _ *http.Request, status int, reason string) { web.Refuse(w, status, reason) }))
	defer server.Close()
	for _, request := range []string{"POST /api/proxy/execute", "GET /api/tools", "DELETE /api/tools/provision/x"} {
		conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
		defer conn.Close()
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", request)
		answer, err := io.ReadAll(conn) // to the end of the connection
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), `{"detail":"the body did not arrive in time`) {
			t.Errorf("%s: %s, %v", request, answer, err)
		}
	}
}

// A connection is used again: the time for a body is no bound of what follows.
func TestAConnectionIsUsedAgain(t *testing.T) {
	r := newRig(t)
	server := httptest.NewServer(r.handler)
	defer server.Close()
	conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 3 {
		const body = `{"tool_id":"clock_now","arguments":{"city":"Bern"}}`
		fmt.Fprintf(conn, "POST /api/proxy/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		answer := must.Get(http.ReadResponse(in, nil))(t)
		if got, _ := io.ReadAll(answer.Body); answer.StatusCode != 200 || !strings.Contains(string(got), "noon") {
			t.Fatalf("%s %s", answer.Status, got)
		}
	}
}

// benchRig is a rig with n tools more.
func benchRig(b *testing.B, n int) *rig {
	r := newRig(b)
	var raw []string
	for i := range n {
		raw = append(raw, fmt.Sprintf(`{"name":"task_%d","description":"Process batch %d of %s records and report the outcome","inputSchema":{"type":"object","properties":{"id":{"type":"string"}}}}`,
			i, i, []string{"invoice", "customer", "shipment", "payment", "ticket"}[i%5]))
	}
	v := r.views["default"]
	servers := append(v.Catalog.Servers(), serverOf("bulk", r.tools("bulk", raw...)))
	var err error
	if v.Catalog, err = v.Catalog.With(b.Context(), retrieve.Contents{Servers: servers, Reserved: retrieve.Reserved()}); err != nil {
		b.Fatal(err)
	}
	r.views["default"] = v
	v.Catalog.CountTokens(b.Context())
	r.handler = web.Handler(r, "1", slog.New(slog.DiscardHandler))
	return r
}

const executeNow = `{"tool_id":"clock_now","arguments":{"city":"Bern"}}`

func BenchmarkExecute(b *testing.B) {
	r := benchRig(b, 0)
	b.Run("tool", func(b *testing.B) {
		t, ok := r.views["default"].Catalog.Lookup("clock_now")
		if !ok {
			b.Fatal("no clock_now")
		}
		for b.Loop() {
			must.Get(t.Handler(b.Context(), &tool.Call{Name: t.Name}))(b)
		}
	})
	b.Run("handler", func(b *testing.B) {
		for b.Loop() {
			if answer := r.ask("POST", "/api/proxy/execute", executeNow); answer.Code != 200 {
				b.Fatal(answer.Body)
			}
		}
	})
	b.Run("loopback", func(b *testing.B) {
		server := httptest.NewServer(r.handler)
		defer server.Close()
		for b.Loop() {
			found(b, "POST", server.URL+"/api/proxy/execute", executeNow)
		}
	})
}

func BenchmarkDiscover(b *testing.B) {
	for _, n := range []int{1_000, 5_000} {
		r := benchRig(b, n)
		server := httptest.NewServer(r.handler)
		for name, target := range map[string]string{
			"query": "/api/tools/discover?query=report+the+outcome+of+a+batch+of+payment+records",
			"tags":  "/api/tools/discover?query=batch+of+payment+records&tags=bulk,payment",
			"list":  "/api/tools?limit=100&tags=payment",
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					found(b, "GET", server.URL+target, "")
				}
			})
		}
		server.Close()
	}
}

func found(b *testing.B, method, url, body string) {
	if got := fetch.Send(b, method, url, body); got.Status != 200 {
		b.Fatal(got.Status, got.Body)
	}
}
