package conn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// An HTTP answer belongs to the request it came for, whatever is wrong with it.
func TestAnHTTPAnswerEndsItsRequest(t *testing.T) {
	large := strings.Repeat("x", most)
	for name, test := range map[string]struct {
		status     int
		kind, body string // %d in body is the ID of the request
		want       error
		result     string
	}{
		"JSON":                  {200, "application/json; charset=utf-8", ` {"id":%d,"result":{"a":1.0}} `, nil, `{"a":1.0}`},
		"a batch":               {200, "application/json", `[{"method":"n"},{"id":%d,"result":{}}]`, nil, `{}`},
		"events":                {200, "text/event-stream", ": comment\nid: 1\ndata:\n\nevent: message\ndata: {\"method\":\"n\",\ndata: \"params\":{}}\n\nevent: other\ndata: {\"id\":%[1]d,\"result\":7}\n\nretry: 10\r\ndata: {\"id\":%[1]d,\"result\":{\"b\":2.0}}\r\n\r\n", nil, `{"b":2.0}`},
		"error without ID":      {400, "application/json", `{"id":null,"error":{"code":-32000,"message":"no session","data":9007199254740993}}`, &tool.RPCError{Code: -32000}, ""},
		"status":                {503, "text/plain", "busy", &StatusError{Code: 503}, ""},
		"status with JSON":      {500, "application/json", `{"detail":"x"}`, &StatusError{Code: 500}, ""},
		"not authorized":        {401, "text/plain", "", ErrUnauthorized, ""},
		"not authorized, RPC":   {401, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"log in"}}`, ErrUnauthorized, ""},
		"not authorized, JSON":  {401, "application/json", `{"error":"invalid_token","error_description":"expired"}`, ErrUnauthorized, ""},
		"not JSON":              {200, "application/json", `{`, ErrNotMessage, ""},
		"another ID":            {200, "application/json", `{"jsonrpc":"2.0","id":17,"result":{}}`, ErrWrongID, ""},
		"too large":             {200, "application/json", `{"x":"` + large + `"}`, ErrTooLarge, ""},
		"event too large":       {200, "text/event-stream", `data: {"result":"` + large + "\n\n", ErrTooLarge, ""},
		"event of many lines":   {200, "text/event-stream", strings.Repeat(`data: `+large[:most>>3]+"\n", 8) + "\n", ErrTooLarge, ""},
		"stream without answer": {200, "text/event-stream", "data: {\"method\":\"n\"}\n\n", ErrClosed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var posted string
			server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, _ := io.ReadAll(r.Body)
				posted = string(got)
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				if strings.Contains(test.body, "%") {
					test.body = fmt.Sprintf(test.body, 1)
				}
				_, _ = io.WriteString(w, test.body)
			}))
			c, h := newTestConn(Options{URL: server.URL}, TransportHTTP)
			defer c.Close()
			result, err := c.Request(t.Context(), "x", []byte(`{"x":"<\u0026>"}`), nil)
			if want := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"x":"<\u0026>"}}`; posted != want {
				t.Errorf("posted %s, want %s", posted, want)
			}
			status, rpc := new(StatusError), new(tool.RPCError)
			same := errors.Is(err, test.want) || errors.As(err, &status) && status.Code == test.status ||
				errors.As(err, &rpc) && strings.Contains(string(rpc.Raw), "9007199254740993")
			if !same || string(result) != test.result {
				t.Errorf("%s, %v", result, err)
			}
			if strings.Contains(test.body, `"n"`) && (len(h.said) != 1 || !strings.HasPrefix(h.said[0], "1 n")) {
				t.Errorf("heard %q", h.said)
			}
		})
	}
}

// A stream ends a moment after its answer: the caller does not wait for that, and the TCP
// connection carries the next request.
func TestAConnectionIsKeptAfterAStream(t *testing.T) {
	answered := make(chan struct{})
	var from []string
	server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		from = append(from, r.RemoteAddr)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", rawjson.Member(body, "id"))
		_ = http.NewResponseController(w).Flush()
		<-answered
	}))
	c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
	defer c.Close()
	await.Nil(t, func() error { // the next request may come before the end of the stream
		must.Get(c.Request(t.Context(), "x", nil, nil))(t)
		answered <- struct{}{}
		if last := len(from) - 1; last == 0 || from[last] != from[last-1] {
			return fmt.Errorf("requests came from %s", from)
		}
		return nil
	})
}

// Servers close a TCP connection that is idle, most of them after 5 s, and a request that they get at that
// moment is lost: so it is closed here before. The default of Go is 90 s.
func TestAnIdleConnectionIsClosedBeforeItsServerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle, closed := make(chan time.Time, 1), make(chan time.Time, 1)
		server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":1,"result":{}}`)
		}))
		counted := server.Config.ConnState
		server.Config.ConnState = func(c net.Conn, state http.ConnState) {
			counted(c, state)
			switch state {
			case http.StateIdle:
				idle <- time.Now()
			case http.StateClosed:
				closed <- time.Now()
			}
		}
		c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
		defer c.Close()
		must.Get(c.Request(t.Context(), "x", nil, nil))(t)
		if began, ended := <-idle, <-closed; ended.Sub(began) != idlePlain {
			t.Errorf("the connection was closed after %s", ended.Sub(began))
		}
	})
}

// A legacy server may end the stream of a request before the answer and be asked
// again for what follows (SEP-1699), also where the connection gets no new calls
// meanwhile: this one ends over it.
func TestAStreamIsResumedWhereItEnded(t *testing.T) {
	var resumed []string
	var retire func()
	server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, "id: a\nretry: 10\ndata:\n\n")
			return
		}
		resumed = append(resumed, r.Header.Get("Last-Event-Id"))
		if len(resumed) == 1 {
			retire()
			_, _ = io.WriteString(w, "id: b\ndata: {\"method\":\"n\"}\n\n")
			return
		}
		_, _ = io.WriteString(w, "data: {\"id\":1,\"result\":{\"late\":true}}\n\n")
	}))
	c, h := newTestConn(Options{URL: server.URL}, TransportHTTP)
	defer c.Close()
	retire = c.Retire
	result, err := c.Request(t.Context(), "x", nil, nil)
	if err != nil || string(result) != `{"late":true}` || fmt.Sprint(resumed) != "[a b]" || fmt.Sprint(h.said) != "[1 n]" {
		t.Errorf("%s, %v; resumed after %v, heard %v", result, err, resumed, h.said)
	}
}

// Also where the network broke it, or cannot be used for a moment.
func TestAStreamIsResumedWhereItBroke(t *testing.T) {
	asked := 0
	server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, "id: a\nretry: 10\ndata:\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		if asked++; asked == 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "data: {\"id\":1,\"result\":{\"after\":"+strconv.Quote(r.Header.Get("Last-Event-Id"))+"}}\n\n")
	}))
	c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
	defer c.Close()
	if result, err := c.Request(t.Context(), "x", nil, nil); err != nil || string(result) != `{"after":"a"}` {
		t.Errorf("%s, %v", result, err)
	}
}

// A server that is gone meanwhile may have made the call.
func TestAStreamThatCannotBeResumedWasAsked(t *testing.T) {
	var server *httptest.Server
	server = pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: a\nretry: 10\ndata:\n\n")
		_ = http.NewResponseController(w).Flush()
		_ = server.Listener.Close()
		panic(http.ErrAbortHandler)
	}))
	c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
	defer c.Close()
	if _, err := c.Request(t.Context(), "x", nil, nil); !FailureOf(err).Sent || errors.Is(err, ErrNotConnected) {
		t.Errorf("sent %t, %v", FailureOf(err).Sent, err)
	}
}

// An error without an ID is about the request that it is the answer to, and about
// no other, even if nobody else waits.
func TestAnErrorWithoutIDIsOfItsRequest(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "slow") {
			close(asked)
			<-release
			_, _ = io.WriteString(w, `{"id":1,"result":{}}`)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"id":null,"error":{"code":-32600,"message":"no"}}`)
	}))
	c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
	defer c.Close()
	slow := make(chan error, 1)
	go func() {
		_, err := c.Request(t.Context(), "slow", nil, nil)
		slow <- err
	}()
	await.Value(t, asked)
	c.spoken.Store(mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	standing := c.ExpectStanding()
	rpc := new(tool.RPCError)
	if _, err := c.Exchange(t.Context(), standing, "listen", nil, nil); !errors.As(err, &rpc) {
		t.Errorf("the request that was refused: %v", err)
	}
	close(release)
	if err := await.Value(t, slow); err != nil {
		t.Errorf("the other request: %v", err)
	}
}

// A server that ends its streams at once is asked ever less often.
func TestAStreamWithoutNewsIsAskedForAfterGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		var before time.Time
		const asked = 12
		server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			switch {
			case r.Method == http.MethodPost:
				before = time.Now()
				_, _ = io.WriteString(w, "id: a\nretry: 10\ndata:\n\n")
			case len(pauses) == asked:
				_, _ = io.WriteString(w, "data: {\"id\":1,\"result\":{}}\n\n")
			default:
				pauses = append(pauses, time.Since(before))
				before = time.Now()
			}
		}))
		c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
		defer c.Close()
		must.Get(c.Request(t.Context(), "x", nil, nil))(t)
		want := 10 * time.Millisecond
		for i, got := range pauses {
			if got != want {
				t.Errorf("pause %d: %s, want %s", i, got, want)
			}
			want = min(2*want, mostPause)
		}
	})
}

// A server that refuses a version of the 2026-07-28 era and supports that very
// version is asked a second time, and not a third.
func TestARefusedVersionThatIsSupportedIsTriedAgainOnce(t *testing.T) {
	for refusals, want := range map[int]int{1: 2, 9: 2} {
		posts := 0
		server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if posts++; posts <= refusals {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"id":1,"error":{"code":%d,"data":{"supported":[%q]}}}`, mcp.UNSUPPORTED_PROTOCOL_VERSION, mcp.LATEST_PROTOCOL_VERSION)
				return
			}
			_, _ = io.WriteString(w, `{"id":1,"result":{}}`)
		}))
		c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
		c.spoken.Store(mcp.LATEST_PROTOCOL_VERSION)
		_, err := c.Request(t.Context(), "x", nil, nil)
		if posts != want || (err == nil) != (refusals == 1) {
			t.Errorf("%d refusals: %d posts, %v", refusals, posts, err)
		}
		c.Close()
	}
}
