package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestTapTakesOutWhatIsOurs(t *testing.T) {
	var notified []string
	tap := &Tap{Notify: func(_ int64, method string, params json.RawMessage) {
		notified = append(notified, method+string(params))
	}}
	filter := func(message string) string {
		forward, _ := tap.Filter([]byte(message))
		return string(forward)
	}
	for _, as := range []string{`%d`, `"%d"`, `%d.0`} {
		id, reply := tap.Expect()
		answer := fmt.Sprintf(`{"result":{"big":12345678901234567890,"x":1e400},"id":`+as+`,"jsonrpc":"2.0"}`, id)
		stub := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
		if got := filter(answer); got != stub {
			t.Errorf("the library sees %s, want %s", got, stub)
		}
		<-reply.Done
		if string(reply.Result) != `{"big":12345678901234567890,"x":1e400}` || reply.Error != nil || reply.Err != nil {
			t.Errorf("id as %s: reply = %s %s %v", as, reply.Result, reply.Error, reply.Err)
		}
		if got := filter(answer); got != answer {
			t.Errorf("a second answer was taken too: the library sees %s", got)
		}
	}
	id, reply := tap.Expect()
	filter(fmt.Sprintf(`{"id":%d,"error":{"code":1,"data":9007199254740993,"more":{}}}`, id))
	if <-reply.Done; string(reply.Error) != `{"code":1,"data":9007199254740993,"more":{}}` {
		t.Errorf("error = %s", reply.Error)
	}
	if got := filter(`{"method":"notifications/x","params":{"n":1.0}}`); got != "" || len(notified) != 1 || notified[0] != `notifications/x{"n":1.0}` {
		t.Errorf("the library sees %s of a notification; notified %v", got, notified)
	}
	for _, theirs := range []string{
		`{"id":1,"result":{}}`, `{"id":7,"method":"ping"}`, `{"id":null,"error":{}}`, `{"id":"text","result":{}}`,
	} {
		if got := filter(theirs); got != theirs {
			t.Errorf("the library sees %s of %s", got, theirs)
		}
	}
	if got := filter(`{"id":"1","result":{}}`); got != `{"id":1,"result":{}}` {
		t.Errorf("an answer to the library with its ID as text: it sees %s", got)
	}
	for _, broken := range []string{``, `{"broken`, `7`} {
		if forward, valid := tap.Filter([]byte(broken)); valid || forward != nil {
			t.Errorf("%q was taken for a message: the library sees %s", broken, forward)
		}
	}

	// A batch of revision 2025-03-26, and an error of a server that could not
	// read the one request there is.
	_, first := tap.Expect()
	second, also := tap.Expect()
	filter(fmt.Sprintf(`[{"method":"notifications/y"},{"id":%d,"result":{"n":1}},{"id":%d,"result":{"n":2}}]`, first.id, second))
	if <-first.Done; string(first.Result) != `{"n":1}` {
		t.Errorf("first of a batch = %s", first.Result)
	}
	if <-also.Done; string(also.Result) != `{"n":2}` || len(notified) != 2 {
		t.Errorf("second of a batch = %s, notified %v", also.Result, notified)
	}
	open, standing := tap.ExpectStanding()
	lone, only := tap.Expect()
	if !tap.Waits(lone) || !tap.Waits(open) {
		t.Error("a request that was not answered is not waited for")
	}
	filter(`{"id":null,"error":{"code":-32700}}`)
	if <-only.Done; string(only.Error) != `{"code":-32700}` || tap.Waits(lone) {
		t.Errorf("error without an ID = %s", only.Error)
	}
	select {
	case <-standing.Done:
		t.Error("it was taken for the answer to a request that stays open")
	default:
	}
}

func TestTapTakesRequestsWithWhatTheyCameOn(t *testing.T) {
	var got []string
	tap := &Tap{
		Notify: func(stream int64, method string, _ json.RawMessage) {
			got = append(got, fmt.Sprint(stream, " ", method))
		},
		Request: func(stream int64, id json.RawMessage, method string, params json.RawMessage) {
			got = append(got, fmt.Sprint(stream, " ", method, string(id), string(params)))
		},
	}
	const question = `{"id":"x","method":"roots/list","params":{"n":1e400}}`
	if forward, valid := tap.Filter([]byte(question)); forward != nil || !valid {
		t.Errorf("the library sees %s", forward)
	}
	id, reply := tap.Expect()
	kind, body := "text/event-stream", "id: 1\ndata: "+question+"\n\ndata: {\"method\":\"n\"}\n\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	post := func() string {
		request, err := http.NewRequestWithContext(Outgoing(t.Context(), []byte(`{}`), reply), http.MethodPost, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: RoundTripper(http.DefaultTransport, tap)}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		seen, _ := io.ReadAll(response.Body)
		return string(seen)
	}
	if seen := post(); seen != "id: 1\n\n" {
		t.Errorf("the library reads %q", seen)
	}
	kind, body = "application/json", fmt.Sprintf(`[{"method":"n"},{"id":%d,"result":{}}]`, id)
	post()
	<-reply.Done
	ask := `roots/list"x"{"n":1e400}`
	want := fmt.Sprintf("[0 %s %d %s %d n %d n]", ask, id, ask, id, id)
	if fmt.Sprint(got) != want {
		t.Errorf("taken out: %v, want %s", got, want)
	}
}

func TestAFailedTapFailsWhatComesLater(t *testing.T) {
	tap := &Tap{}
	gone := errors.New("gone")
	_, before := tap.Expect()
	tap.FailAll(gone, true)
	_, after := tap.Expect()
	for _, reply := range []*Reply{before, after} {
		if <-reply.Done; !errors.Is(reply.Err, gone) {
			t.Errorf("reply.Err = %v", reply.Err)
		}
	}
}

func TestLinesDropGarbageAndBoundLength(t *testing.T) {
	tap := &Tap{}
	mine, reply := tap.Expect()
	_, other := tap.Expect()
	long := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"x":"%s"}}`, mine, strings.Repeat("x", MaxAnswer))
	in := "Server ready!\n{\"broken\n\n" + long + "\n" + `{"id":1,"result":{}}` + "\r\n"
	ends := 0
	got, err := io.ReadAll(Lines(strings.NewReader(in), tap, slog.New(slog.DiscardHandler), func() { ends++ }))
	if err != nil || string(got) != `{"id":1,"result":{}}`+"\n" {
		t.Errorf("the library reads %.200q, %v", got, err)
	}
	if ends != 1 {
		t.Errorf("the end was told %d times", ends)
	}
	if <-reply.Done; !errors.Is(reply.Err, ErrTooLarge) {
		t.Errorf("the call whose answer was too long: %v", reply.Err)
	}
	select {
	case <-other.Done:
		t.Errorf("another call failed with it: %v", other.Err)
	default:
	}
	// A notification that is too long was awaited by nobody.
	_, _ = io.ReadAll(Lines(strings.NewReader(`{"method":"notifications/x","params":"`+strings.Repeat("x", MaxAnswer)+"\n"), tap, slog.New(slog.DiscardHandler), func() {}))
	select {
	case <-other.Done:
		t.Errorf("a call failed with a notification: %v", other.Err)
	default:
	}
	// Nobody can tell whose this is: all fail, rather than wait in vain.
	_, _ = io.ReadAll(Lines(strings.NewReader(strings.Repeat("x", MaxAnswer+1)+"\n"), tap, slog.New(slog.DiscardHandler), func() {}))
	if <-other.Done; !errors.Is(other.Err, ErrTooLarge) {
		t.Errorf("error = %v", other.Err)
	}
}

func TestQueueNeverBlocks(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	q := NewQueue(w, func(error) {})
	message := bytes.Repeat([]byte("x"), 1<<20)
	var refused error
	for range 2 * maxQueued / len(message) {
		if _, err := q.Write(message); err != nil {
			refused = err
		}
	}
	if !errors.Is(refused, ErrNotReading) {
		t.Errorf("with a reader that does not read: %v", refused)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if _, err := q.Write(message); err == nil {
		t.Error("a write after Close was taken")
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	r, w := io.Pipe()
	q := NewQueue(w, func(error) {})
	var want strings.Builder
	read := make(chan string)
	go func() { got, _ := io.ReadAll(r); read <- string(got) }()
	for i := range 1000 {
		line := fmt.Sprintf("%d\n", i)
		want.WriteString(line)
		if _, err := q.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		q.mu.Lock()
		empty := q.size == 0
		q.mu.Unlock()
		if empty {
			break
		}
	}
	_ = q.Close()
	if got := <-read; got != want.String() {
		t.Errorf("read %d bytes, want the %d that were written, in order", len(got), want.Len())
	}
}

func TestRoundTripper(t *testing.T) {
	var body, kind string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	var notified []string
	tap := &Tap{Notify: func(_ int64, method string, params json.RawMessage) {
		notified = append(notified, method+string(params))
	}}
	client := &http.Client{Transport: RoundTripper(http.DefaultTransport, tap)}
	get := func(contentType, text string) string {
		t.Helper()
		kind, body = contentType, text
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		got, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}

	id, reply := tap.Expect()
	stub := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
	if got := get("application/json; charset=utf-8", fmt.Sprintf(` {"id":%d,"result":{"a":1.0}} `, id)); got != stub {
		t.Errorf("JSON: the library reads %s", got)
	}
	if <-reply.Done; string(reply.Result) != `{"a":1.0}` {
		t.Errorf("result = %s", reply.Result)
	}

	id, reply = tap.Expect()
	stub = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
	stream := ": comment\nid: 1\ndata:\n\n" +
		"event: message\nid: 2\ndata: {\"method\":\"notifications/a\",\ndata: \"params\":{}}\n\n" +
		"event: endpoint\ndata: /message?x=1\n\n" +
		"retry: 10\r\ndata: {\"id\":9,\"method\":\"ping\"}\r\n\r\n" +
		fmt.Sprintf("data: {\"id\":%d,\"result\":{\"b\":2.0}}\n\n", id)
	want := ": comment\nid: 1\n\n" +
		"event: message\nid: 2\n\n" +
		"event: endpoint\ndata: /message?x=1\n\n" +
		"retry: 10\ndata: {\"id\":9,\"method\":\"ping\"}\n\n" +
		"data: " + stub + "\n\n"
	if got := get("text/event-stream", stream); got != want {
		t.Errorf("stream: the library reads\n%q\nwant\n%q", got, want)
	}
	if <-reply.Done; string(reply.Result) != `{"b":2.0}` || len(notified) != 1 || notified[0] != "notifications/a{}" {
		t.Errorf("result = %s, notified %v", reply.Result, notified)
	}
	if got := get("text/html", "<html>"); got != "<html>" {
		t.Errorf("other content: %s", got)
	}
}

func TestQueueKnowsWhatWasSent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	q := NewQueue(w, func(err error) { failed <- err })
	defer q.Close()
	sent, lost := &Reply{}, &Reply{}
	if err := q.Send([]byte("read\n"), sent); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 5)); err != nil || !sent.Sent() {
		t.Errorf("a message that was read: sent %v, %v", sent.Sent(), err)
	}
	r.Close()
	if err := q.Send([]byte("never read\n"), lost); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil || lost.Sent() {
		t.Errorf("a message nobody can read: sent %v, %v", lost.Sent(), err)
	}
}

// An HTTP answer belongs to the request it came for, whatever is wrong with it.
func TestRoundTripperEndsTheRequestItCarries(t *testing.T) {
	wrongID := `{"jsonrpc":"2.0","id":17,"result":{}}`
	noID := `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session","data":9007199254740993}}`
	for name, test := range map[string]struct {
		status     int
		kind, body string
		want       error
		rpc        string
	}{
		"error without id":     {400, "application/json", noID, nil, `{"code":-32000,"message":"no session","data":9007199254740993}`},
		"status":               {503, "text/plain", "busy", &StatusError{503}, ""},
		"status, JSON":         {500, "application/json", `{"detail":"x"}`, &StatusError{500}, ""},
		"not JSON":             {200, "application/json", `{`, ErrNotMessage, ""},
		"wrong id":             {200, "application/json", wrongID, ErrWrongID, ""},
		"too large":            {200, "application/json", `{"x":"` + strings.Repeat("x", MaxAnswer) + `"}`, ErrTooLarge, ""},
		"event too large":      {200, "text/event-stream", `data: {"result":"` + strings.Repeat("x", MaxAnswer) + "\n\n", ErrTooLarge, ""},
		"event of many, large": {200, "text/event-stream", strings.Repeat(`data: `+strings.Repeat("x", 1<<20)+"\n", MaxAnswer>>20) + "\n", ErrTooLarge, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var posted string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, _ := io.ReadAll(r.Body)
				posted = string(got)
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			tap := &Tap{}
			id, reply := tap.Expect()
			message := fmt.Sprintf(`{"id":%d,"params":{"x":"<\u0026>"}}`, id)
			request, err := http.NewRequestWithContext(Outgoing(t.Context(), []byte(message), reply), http.MethodPost, server.URL, strings.NewReader("the library's"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&http.Client{Transport: RoundTripper(http.DefaultTransport, tap)}).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			<-reply.Done
			status := new(StatusError)
			same := errors.Is(reply.Err, test.want) || errors.As(reply.Err, &status) && errors.As(test.want, new(*StatusError)) && status.Code == test.status
			if !same || string(reply.Error) != test.rpc || reply.Status() != test.status || !reply.Sent() {
				t.Errorf("reply: %v %s, status %d, sent %v", reply.Err, reply.Error, reply.Status(), reply.Sent())
			}
			if posted != message {
				t.Errorf("posted %s, want %s", posted, message)
			}
		})
	}
}
