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
	tap := &Tap{Notify: func(method string, params json.RawMessage) { notified = append(notified, method+string(params)) }}
	for _, as := range []string{`%d`, `"%d"`, `%d.0`} {
		id, reply := tap.Expect()
		answer := fmt.Sprintf(`{"result":{"big":12345678901234567890,"x":1e400},"id":`+as+`,"jsonrpc":"2.0"}`, id)
		stub := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
		if got := string(tap.Filter([]byte(answer))); got != stub {
			t.Errorf("the library sees %s, want %s", got, stub)
		}
		<-reply.Done
		if string(reply.Result) != `{"big":12345678901234567890,"x":1e400}` || reply.Error != nil || reply.Err != nil {
			t.Errorf("id as %s: reply = %s %s %v", as, reply.Result, reply.Error, reply.Err)
		}
		if got := string(tap.Filter([]byte(answer))); got != answer {
			t.Errorf("a second answer was taken too: the library sees %s", got)
		}
	}
	id, reply := tap.Expect()
	tap.Filter(fmt.Appendf(nil, `{"id":%d,"error":{"code":1,"data":9007199254740993,"more":{}}}`, id))
	if <-reply.Done; string(reply.Error) != `{"code":1,"data":9007199254740993,"more":{}}` {
		t.Errorf("error = %s", reply.Error)
	}
	if got := tap.Filter([]byte(`{"method":"notifications/x","params":{"n":1.0}}`)); got != nil || len(notified) != 1 || notified[0] != `notifications/x{"n":1.0}` {
		t.Errorf("the library sees %s of a notification; notified %v", got, notified)
	}
	for _, theirs := range []string{
		`{"id":1,"result":{}}`, `{"id":7,"method":"ping"}`, `{"id":null,"error":{}}`, `{"broken`, `[]`, `{"id":"text","result":{}}`,
	} {
		if got := string(tap.Filter([]byte(theirs))); got != theirs {
			t.Errorf("the library sees %s of %s", got, theirs)
		}
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
	got, err := io.ReadAll(Lines(strings.NewReader(in), tap, slog.New(slog.DiscardHandler)))
	if err != nil || string(got) != `{"id":1,"result":{}}`+"\n" {
		t.Errorf("the library reads %.200q, %v", got, err)
	}
	if <-reply.Done; !errors.Is(reply.Err, ErrTooLarge) {
		t.Errorf("the call whose answer was too long: %v", reply.Err)
	}
	select {
	case <-other.Done:
		t.Errorf("another call failed with it: %v", other.Err)
	default:
	}
	// Nobody can tell whose this is: all fail, rather than wait in vain.
	_, _ = io.ReadAll(Lines(strings.NewReader(strings.Repeat("x", MaxAnswer+1)+"\n"), tap, slog.New(slog.DiscardHandler)))
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
	q := NewQueue(w)
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
	q := NewQueue(w)
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
	tap := &Tap{Notify: func(method string, params json.RawMessage) { notified = append(notified, method+string(params)) }}
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
