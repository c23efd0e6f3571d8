package conn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

func TestLinesDropGarbageAndBoundLength(t *testing.T) {
	c, _ := newTestConn(Options{}, TransportStdio)
	mine, other := c.Expect(), c.Expect()
	long := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"x":"%s"}}`, mine.ID, strings.Repeat("x", most))
	c.readLines(strings.NewReader("Server ready!\n{\"broken\n\n" + long + "\n" + `{"id":99,"result":{}}` + "\r\n"))
	if <-mine.Done; !errors.Is(mine.Err, ErrTooLarge) {
		t.Errorf("the call whose answer was too long: %v", mine.Err)
	}
	// A notification that is too long was awaited by nobody.
	c.readLines(strings.NewReader(`{"method":"notifications/x","params":"` + strings.Repeat("x", most) + "\n"))
	if !c.Waits(other.ID) {
		t.Errorf("another call failed with it: %v", other.Err)
	}
	// Nobody can tell whose this is: all fail, rather than wait in vain.
	c.readLines(strings.NewReader(strings.Repeat("x", most+1) + "\n"))
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
	q := newQueue(w, func() {})
	message := bytes.Repeat([]byte("x"), 1<<20)
	var refused error
	for range 2 * maxQueued / len(message) {
		if err := q.send(message, nil); err != nil {
			refused = err
		}
	}
	if !errors.Is(refused, ErrNotReading) {
		t.Errorf("with a reader that does not read: %v", refused)
	}
	q.close()
	if err := q.send(message, nil); err == nil {
		t.Error("a message after close was taken")
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	r, w := io.Pipe()
	q := newQueue(w, func() {})
	var want strings.Builder
	read := make(chan string)
	go func() { got, _ := io.ReadAll(r); read <- string(got) }()
	for i := range 1000 {
		line := fmt.Sprintf("%d\n", i)
		want.WriteString(line)
		must.Do(t, q.send([]byte(line), nil))
	}
	await.True(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.size == 0
	})
	q.close()
	if got := <-read; got != want.String() {
		t.Errorf("read %d bytes, want the %d that were written, in order", len(got), want.Len())
	}
}

func TestQueueKnowsWhatWasSent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan bool, 1)
	q := newQueue(w, func() { failed <- true })
	defer q.close()
	sent, lost := &Reply{}, &Reply{}
	must.Do(t, q.send([]byte("read\n"), sent))
	if _, err := r.Read(make([]byte, 5)); err != nil || !sent.sent.Load() {
		t.Errorf("a message that was read: sent %v, %v", sent.sent.Load(), err)
	}
	r.Close()
	must.Do(t, q.send([]byte("never read\n"), lost))
	if <-failed; lost.sent.Load() {
		t.Error("a message that nobody can read counts as sent")
	}
}

// A server that ends neither with its input nor when it is asked to is ended, a moment after each.
func TestAServerThatDoesNotEndIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asked time.Duration
		p := run(Options{Log: slog.New(slog.DiscardHandler), Program: func(ctx context.Context, _ io.Reader, stdout, stderr io.Writer) string {
			<-ctx.Done()
			asked = time.Since(began)
			for {
				if _, err := stdout.Write([]byte("on and on\n")); err != nil {
					return "ended"
				}
			}
		}})
		go p.stderr.Follow(p.errors)
		p.end()
		if took := time.Since(began); asked != grace || took != 2*grace {
			t.Errorf("it was asked after %s, and ended after %s", asked, took)
		}
	})
}

// Whatever a server writes, a reply is given once, and what is taken out is JSON.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":[1.0]}}`, `{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"x"}}`,
		`{"id":null,"error":{"code":-32700}}`, `{"id":1.0,"result":null,"error":null}`, `{"method":"notifications/x","params":[1]}`,
		`{"id":"a","method":"roots/list"}`, `[{"id":1,"result":{}},{"method":"x"},7]`, `{"id":1,"id":7,"method":null}`, "{\"id\":\n1", "\xff{}\r\n\r\n[]", `{"id":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stdout []byte) {
		c, _ := newTestConn(Options{}, TransportStdio)
		c.handler = valid{t}
		reply := c.Expect()
		c.readLines(bytes.NewReader(stdout))
		select {
		case <-reply.Done:
			valid{t}.check("the result", reply.Result)
			valid{t}.check("the error", reply.Error)
			if n := min(len(reply.Result), 1) + min(len(reply.Error), 1); reply.Err == nil && n != 1 || reply.Err != nil && n > 0 || c.Waits(reply.ID) {
				t.Errorf("result %s, error %s, %v", reply.Result, reply.Error, reply.Err)
			}
		default:
			if !c.Waits(reply.ID) {
				t.Error("the reply is neither given nor waited for")
			}
		}
	})
}

// valid is a Handler that wants JSON.
type valid struct{ t *testing.T }

func (v valid) check(what string, raw json.RawMessage) {
	if len(raw) > 0 && !json.Valid(raw) {
		v.t.Errorf("%s is %q", what, raw)
	}
}

func (v valid) Notified(_ int64, _ string, params json.RawMessage) {
	v.check("the params of a notification", params)
}

func (v valid) Asked(_ int64, id json.RawMessage, _ string, params json.RawMessage) {
	v.check("an ID", id)
	v.check("params", params)
}

func (v valid) StreamEnded() {}
