package transport_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/transport"
)

// For each limit: whoever reaches it is told, it is counted, and what was taken is
// given back.
func TestLimits(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	longCall := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"x":"` + long + `"}}}`
	for _, test := range []struct {
		name   string
		limits transport.Limits
		// reach reaches the limit and returns the answer to what is too much, and what
		// gives everything back.
		reach  func(t *testing.T, h *house) (status int, got string, back func())
		status int
		says   string
	}{
		{"sessions", transport.Limits{Sessions: 1}, func(_ *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25")
			_, end := h.listen(session) // one in use gives no way
			status, got := h.answer(http.MethodPost, greeting("2025-11-25"))
			return status, got, func() { end(); h.answer(http.MethodDelete, "", session...) }
		}, 503, "too many sessions are in use: the limit is 1; end some with DELETE"},
		{"event_streams", transport.Limits{EventStreams: 1}, func(_ *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25")
			_, end := h.listen(session)
			status, got := h.answer(http.MethodGet, "", session...)
			return status, got, end
		}, 503, "too many event streams are open: the limit is 1"},
		{"requests", transport.Limits{Requests: 1}, func(t *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25")
			call := h.post(toolCall("1", "wait"), session...)
			await.Value(t, h.started)
			if response, err := h.do(t.Context(), http.MethodGet, "/counted", ""); err != nil || response.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a request that is no MCP: %v, %v", response, err)
			}
			body, header := modern("2", "tools/list", "")
			status, got := h.answer(http.MethodPost, body, header...)
			return status, got, func() { h.release <- struct{}{}; await.Value(t, call.answer) }
		}, 503, `"code":-32000,"message":"too many requests are being answered: the limit is 1; try again later"`},
		{"session_requests", transport.Limits{Calls: 1}, func(t *testing.T, h *house) (int, string, func()) {
			session, other := h.session("2025-11-25"), h.session("2025-11-25")
			call := h.post(toolCall("1", "wait"), session...)
			await.Value(t, h.started)
			if _, got := h.answer(http.MethodPost, toolCall("2", "echo"), other...); !strings.Contains(got, `"result"`) {
				t.Errorf("another session: %s", got)
			}
			status, got := h.answer(http.MethodPost, toolCall("2", "echo"), session...)
			return status, got, func() { h.release <- struct{}{}; await.Value(t, call.answer) }
		}, 200, "too many requests of this session are being answered: the limit is 1; wait for some"},
		{"message_bytes", transport.Limits{MessageBytes: 1000}, func(_ *testing.T, h *house) (int, string, func()) {
			status, got := h.answer(http.MethodPost, longCall, h.session("2025-11-25")...)
			return status, got, func() {}
		}, 413, "the body is larger than 1000 bytes: send less at once"},
		{"initialize_bytes", transport.Limits{}, func(_ *testing.T, h *house) (int, string, func()) {
			status, got := h.answer(http.MethodPost, strings.Replace(greeting("2025-11-25"), `"name":"c"`, `"name":"`+long+`"`, 1))
			return status, got, func() {}
		}, 413, "too many bytes in an initialize request: the limit is 65536; declare less"},
		{"listen_bytes", transport.Limits{}, func(_ *testing.T, h *house) (int, string, func()) {
			body, header := modern("1", "subscriptions/listen", `"notifications":{"resourceSubscriptions":["`+long+`"]}`)
			status, got := h.answer(http.MethodPost, body, header...)
			return status, got, func() {}
		}, 413, "too many bytes in a subscriptions/listen request: the limit is 262144; listen to less"},
		{"waiting_bytes", transport.Limits{WaitingBytes: 100}, func(_ *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25")
			for range 3 {
				h.live.Notify(session[1], "notifications/of_some_length_of_its_own", nil)
			}
			_, got := h.answer(http.MethodPost, toolCall("1", "echo"), session...)
			return strings.Count(got, "of_some_length"), got, func() { // what waits goes with its session
				h.live.Notify(session[1], "notifications/of_some_length_of_its_own", nil)
				h.answer(http.MethodDelete, "", session...)
			}
		}, 1, `"id":1,"result"`}, // one was kept, the others were dropped
		{"request_bytes", transport.Limits{RequestBytes: 2 << 20}, func(t *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25")
			conn := h.dial() // it never sends the end
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n%s", long)
			await.True(t, func() bool { return h.used("request_bytes") == 1<<20 })
			status, got := h.answer(http.MethodPost, longCall, session...)
			if _, got := h.answer(http.MethodPost, toolCall("1", "echo"), session...); !strings.Contains(got, `"result"`) {
				t.Errorf("a short message: %s", got)
			}
			return status, got, func() { conn.Close() }
		}, 503, "too many bytes of requests are being read or answered: the limit is 2097152"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHouse(t, test.limits)
			status, got, back := test.reach(t, h)
			if status != test.status || !strings.Contains(got, test.says) {
				t.Errorf("%d %.300s\nwant %d %s", status, got, test.status, test.says)
			}
			for _, b := range h.clients.Limits() {
				if b.Name() == test.name && b.Hits() == 0 {
					t.Error("that the limit was reached is not counted")
				}
			}
			back()
			await.True(t, func() bool { return h.used(test.name) == 0 })
		})
	}
}

// Who opens sessions without end ends their own; a session that is used is the last
// to give way.
func TestAnIdleSessionGivesWay(t *testing.T) {
	h := newHouse(t, transport.Limits{Sessions: 3})
	busy, used, fresh := h.session("2025-11-25"), h.session("2025-11-25"), h.session("2025-11-25")
	_, end := h.listen(busy)
	defer end()
	h.answer(http.MethodPost, toolCall("1", "echo"), used...)
	status := func(session []string) int {
		status, _ := h.answer(http.MethodPost, toolCall("1", "echo"), session...)
		return status
	}
	for range 50 {
		h.session("2025-11-25")
	}
	if got := status(fresh); got != http.StatusNotFound {
		t.Errorf("a session that has asked nothing: %d, want 404", got)
	}
	if a, b := status(busy), status(used); a != http.StatusOK || b != http.StatusOK {
		t.Errorf("a session with a stream: %d, one that was used: %d", a, b)
	}
	if n := h.used("sessions"); n != 3 {
		t.Errorf("%d sessions, want 3", n)
	}
}

// What a session keeps of its client does not grow with what the client says.
func TestNothingIsKeptOfARefusedSession(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	big := strings.Replace(greeting("2025-11-25"), `"name":"c"`, `"name":"`+strings.Repeat("x", 70<<10)+`"`, 1)
	for range 20 {
		h.answer(http.MethodPost, big)
	}
	if n := h.used("sessions"); n != 0 {
		t.Errorf("%d sessions are open, want none", n)
	}
}

// A body that never ends holds its connection for the time of a body, whatever the
// method and the path.
func TestABodyThatNeverEndsIsGivenUp(t *testing.T) {
	h := newHouse(t, transport.Limits{BodyTime: 100 * time.Millisecond})
	session := h.session("2025-11-25")
	for _, request := range []string{
		"POST /mcp", "GET /mcp", "DELETE /mcp", "GET /sse", "POST /message", "GET /nowhere", "PUT /nowhere", "POST /nowhere",
	} {
		t.Run(request, func(t *testing.T) {
			conn := h.dial()
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: 100\r\n\r\n{", request, session[0], session[1])
			_ = conn.SetReadDeadline(time.Now().Add(await.Bound))
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
	t.Run("an answer says why", func(t *testing.T) {
		conn := h.dial()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(got), "did not arrive in time") {
			t.Errorf("%s %s", response.Status, got)
		}
	})
}

// The time of a body is none of what follows it: neither of the answer, nor of the
// next request on the connection.
func TestTheTimeOfABodyEndsWithIt(t *testing.T) {
	h := newHouse(t, transport.Limits{BodyTime: 50 * time.Millisecond})
	session := h.session("2025-11-25")
	call := h.post(toolCall("1", "wait"), session...)
	await.Value(t, h.started)
	select {
	case err := <-h.ended:
		t.Fatalf("the call ended: %v", err)
	case <-time.After(300 * time.Millisecond): // past the time of a body
	}
	h.release <- struct{}{}
	want(t, "the call", await.Value(t, call.answer), "waited")
}
