package transport_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/register/transport"
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
		{"principal_sessions", transport.Limits{PrincipalSessions: 1}, func(_ *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25", "X-User", "ann")
			_, end := h.listen(session)
			other := h.session("2025-11-25", "X-User", "bob")
			h.session("2025-11-25") // nobody's
			status, got := h.answer(http.MethodPost, greeting("2025-11-25"), "X-User", "ann")
			return status, got, func() {
				end()
				h.answer(http.MethodDelete, "", session...)
				h.answer(http.MethodDelete, "", other...)
			}
		}, 429, "too many sessions of this principal are in use: the limit is 1; end some with DELETE"},
		{"address_sessions", transport.Limits{AddressSessions: 1}, func(_ *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25", "X-From", "192.0.2.1")
			_, end := h.listen(session)
			other := h.session("2025-11-25", "X-From", "192.0.2.2")
			h.session("2025-11-25", "X-From", "127.0.0.1")
			h.session("2025-11-25", "X-From", "127.0.0.1") // this machine has no share
			status, got := h.answer(http.MethodPost, greeting("2025-11-25"), "X-From", "192.0.2.1")
			return status, got, func() {
				end()
				h.answer(http.MethodDelete, "", session...)
				h.answer(http.MethodDelete, "", other...)
			}
		}, 429, "too many sessions from this address are in use: the limit is 1"},
		{"principal_event_streams", transport.Limits{PrincipalStreams: 1}, func(_ *testing.T, h *house) (int, string, func()) {
			session := h.session("2025-11-25", "X-User", "ann")
			_, end := h.listen(session)
			_, endOther := h.listen(h.session("2025-11-25", "X-User", "bob"))
			if status, _ := h.answer(http.MethodGet, "", session...); status != http.StatusTooManyRequests {
				t.Errorf("another GET: %d", status)
			}
			body, header := modern("1", "subscriptions/listen", `"notifications":{}`)
			status, got := h.answer(http.MethodPost, body, append(header, "X-User", "ann")...)
			return status, got, func() { end(); endOther() }
		}, 429, "too many event streams of this principal are open: the limit is 1"},
		{"header_bytes", transport.Limits{HeaderBytes: 1000}, func(_ *testing.T, h *house) (int, string, func()) {
			status, got := h.answer(http.MethodPost, greeting("2025-11-25"), "Authorization", "Bearer "+long[:1000])
			return status, got, func() {}
		}, 431, "too many bytes in the headers of the request: the limit is 1000; send fewer"},
		{"body_seconds", transport.Limits{BodyTime: time.Minute}, func(t *testing.T, h *house) (int, string, func()) {
			conn := h.dial() // it never sends the body
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n")
			response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
			got, _ := io.ReadAll(response.Body)
			return response.StatusCode, string(got), func() { conn.Close() }
		}, 408, "did not arrive in time"},
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
			synctest.Wait()
			if n := h.used("request_bytes"); n != 1<<20 {
				t.Errorf("%d bytes are being read", n)
			}
			status, got := h.answer(http.MethodPost, longCall, session...)
			if _, got := h.answer(http.MethodPost, toolCall("1", "echo"), session...); !strings.Contains(got, `"result"`) {
				t.Errorf("a short message: %s", got)
			}
			return status, got, func() { conn.Close() }
		}, 503, "too many bytes of requests are being read or answered: the limit is 2097152"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				synctest.Wait()
				if n := h.used(test.name); n != 0 {
					t.Errorf("%d are used in the end", n)
				}
			})
		})
	}
}

// A session that nobody uses ends after a while, and one with a stream does not.
func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, transport.Limits{SessionIdle: time.Hour})
		session, listening := h.session("2025-11-25"), h.session("2025-11-25")
		_, end := h.listen(listening)
		defer end()
		for _, test := range []struct {
			after  time.Duration
			status int
			says   string
		}{{time.Hour - 1, 200, "result"}, {time.Hour - 1, 200, "result"}, {time.Hour, 404, "it has ended: send initialize"}} {
			time.Sleep(test.after)
			synctest.Wait()
			if status, got := h.answer(http.MethodPost, toolCall("1", "echo"), session...); status != test.status || !strings.Contains(got, test.says) {
				t.Errorf("after %s: %d %s, want %d", test.after, status, got, test.status)
			}
		}
		if status, got := h.answer(http.MethodPost, toolCall("1", "echo"), listening...); status != 200 {
			t.Errorf("a session with a stream: %d %s", status, got)
		}
		for _, b := range h.clients.Limits() {
			if b.Name() == "session_seconds" && b.Hits() != 1 {
				t.Errorf("%d ended sessions are counted", b.Hits())
			}
		}
	})
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
	for _, request := range []string{
		"POST /mcp", "GET /mcp", "DELETE /mcp", "GET /sse", "POST /message", "GET /nowhere", "PUT /nowhere", "POST /nowhere",
	} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, transport.Limits{BodyTime: time.Minute})
				session, conn, began := h.session("2025-11-25"), h.dial(), time.Now()
				fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: 100\r\n\r\n{", request, session[0], session[1])
				got, _ := io.ReadAll(conn) // to the end of the connection
				if took := time.Since(began); took > 61*time.Second {
					t.Errorf("it took %s", took)
				}
				if request == "POST /mcp" && (!strings.Contains(string(got), " 408 ") || !strings.Contains(string(got), "did not arrive in time")) {
					t.Errorf("the answer is %s", got)
				}
			})
		})
	}
}

// The time of a body is none of what follows it: neither of the answer, nor of the
// next request on the connection.
func TestTheTimeOfABodyEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, transport.Limits{BodyTime: time.Second})
		call := h.post(toolCall("1", "wait"), h.session("2025-11-25")...)
		<-h.started
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(h.ended) > 0 {
			t.Fatalf("the call ended: %v", <-h.ended)
		}
		h.release <- struct{}{}
		want(t, "the call", <-call.answer, "waited")
	})
}

// A session that is refused takes nothing of the shares of its principal and its address.
func TestARefusedSessionTakesNoShare(t *testing.T) {
	h := newHouse(t, transport.Limits{Sessions: 1, PrincipalSessions: 1, AddressSessions: 1})
	session := h.session("2025-11-25")
	_, end := h.listen(session)
	greet := func() int {
		status, _ := h.answer(http.MethodPost, greeting("2025-11-25"), "X-User", "ann", "X-From", "192.0.2.1")
		return status
	}
	if status := greet(); status != http.StatusServiceUnavailable {
		t.Errorf("one session too many: %d", status)
	}
	end()
	h.answer(http.MethodDelete, "", session...)
	if status := greet(); status != http.StatusOK {
		t.Errorf("the next one of the same principal: %d", status)
	}
}

// Who has too many sessions ends an idle one of their own, and nobody else's.
func TestAnIdleSessionOfOnesOwnGivesWay(t *testing.T) {
	h := newHouse(t, transport.Limits{PrincipalSessions: 1})
	other, first := h.session("2025-11-25", "X-User", "bob"), h.session("2025-11-25", "X-User", "ann")
	second := h.session("2025-11-25", "X-User", "ann")
	for _, test := range []struct {
		session []string
		status  int
	}{{other, 200}, {first, 404}, {second, 200}} {
		if status, got := h.answer(http.MethodPost, toolCall("1", "echo"), test.session...); status != test.status {
			t.Errorf("%v: %d %s", test.session, status, got)
		}
	}
}

// A session is that of who opened it: to others, and to nobody, it is one that is not there.
func TestSessionsAreOfWhoOpenedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, transport.Limits{})
		stream, err := h.do(t.Context(), http.MethodGet, "/sse", "", "X-User", "ann")
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
		lines := bufio.NewReader(stream.Body)
		endpoint := ""
		for !strings.HasPrefix(endpoint, "data: ") {
			if endpoint, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		post := func(path, body string, header ...string) string {
			t.Helper()
			response := must.Get(h.do(t.Context(), http.MethodPost, path, body, header...))(t)
			defer response.Body.Close()
			said, _ := io.ReadAll(response.Body)
			return response.Status + " " + string(said)
		}
		sse := strings.TrimSpace(strings.TrimPrefix(endpoint, "data: "))
		ann := h.session("2025-11-25", "X-User", "ann")[:2]
		nobody := h.session("2025-11-25")
		for _, user := range []string{"bob", ""} {
			unknown := post("/message?sessionId=unknown", greeting("2024-11-05"), "X-User", user)
			if got := post(sse, greeting("2024-11-05"), "X-User", user); got != unknown || !strings.HasPrefix(got, "404") {
				t.Errorf("%q posts to the stream of ann: %s, want %s", user, got, unknown)
			}
			_, unknown = h.answer(http.MethodPost, toolCall("1", "echo"), "Mcp-Session-Id", "unknown", "X-User", user)
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
				if status, got := h.answer(method, toolCall("1", "echo"), append(ann, "X-User", user)...); status != 404 || got != unknown {
					t.Errorf("%q: %s to a session of ann: %d %s, want %s", user, method, status, got, unknown)
				}
			}
		}
		if status, got := h.answer(http.MethodPost, toolCall("1", "echo"), append(nobody, "X-User", "ann")...); status != 404 {
			t.Errorf("ann in a session of nobody: %d %s", status, got)
		}
		if got := post(sse, greeting("2024-11-05"), "X-User", "ann"); !strings.HasPrefix(got, "202") {
			t.Errorf("ann posts to her stream: %s", got)
		}
		if status, got := h.answer(http.MethodPost, toolCall("1", "echo"), append(ann, "X-User", "ann")...); status != 200 {
			t.Errorf("ann in her session: %d %s", status, got)
		}
	})
}

// Names in Host are checked whatever the address and path; an address is no name.
func TestHosts(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	for host, allowed := range map[string]bool{
		"localhost": true, "localhost:8080": true, "127.0.0.1:1": true, "[::1]": true, "a.localhost": true,
		"tools.example.com": true, "Tools.Example.com.": true, "tools.example.com:8443": true, "other.example.com:81": true,
		"other.example.com": false, "other.example.com:82": false, "evil.example.com": false, "tools.example.com.evil.example.com": false,
		"192.0.2.1": false, "": false,
	} {
		for _, path := range []string{"/readyz", "/mcp", "/nothing"} {
			conn := h.dial()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
			response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
			if refused := response.StatusCode == http.StatusForbidden; refused == allowed {
				t.Errorf("Host: %s, %s: %s", host, path, response.Status)
			}
			conn.Close()
		}
	}
}
