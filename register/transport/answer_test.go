package transport

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
)

func TestAClientThatDoesNotReadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := newAnswer(w)
			defer out.end()
			for {
				if err := out.message(make([]byte, 1<<10)); err != nil {
					<-r.Context().Done() // whoever works for it hears of it
					ended <- err
					return
				}
			}
		}))
		began := time.Now()
		response := must.Get(http.Get(server.URL))(t)
		defer response.Body.Close()
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the write ended with %v after %s", err, time.Since(began))
		}
	})
}

// The answer and a notification may come in the same moment: the client gets a
// stream with both, or the answer alone as the body, and nothing after it.
func TestTheLastIsTheLast(t *testing.T) {
	for range 300 {
		w := httptest.NewRecorder()
		out := newAnswer(w)
		var both sync.WaitGroup
		var told error
		both.Go(func() { told = out.message([]byte("note")) })
		both.Go(func() {
			if err := out.last([]byte("answer"), 0); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		want := "answer"
		if told == nil {
			want = "event: message\ndata: note\n\nevent: message\ndata: answer\n\n"
		}
		if got := w.Body.String(); got != want || strings.HasPrefix(w.Header().Get("Content-Type"), "text/") != (told == nil) {
			t.Fatalf("the client got %q as %s; the notification: %v", got, w.Header().Get("Content-Type"), told)
		}
	}
}

// dated is a ResponseWriter that notes the deadline of its connection.
type dated struct {
	httptest.ResponseRecorder
	until time.Time
}

func (d *dated) SetWriteDeadline(until time.Time) error { d.until = until; return nil }

// A connection may carry other requests, and a stream may be silent for long.
func TestADeadlineDoesNotOutliveWhatIsWritten(t *testing.T) {
	connection := &dated{}
	w := NewTimed(connection)
	for name, after := range map[string]func(){"the end": w.End, "a flush": func() { _ = w.FlushError() }} {
		if _, err := w.Write([]byte("x")); err != nil || connection.until.IsZero() {
			t.Errorf("while it is written: %v, %v", connection.until, err)
		}
		if after(); !connection.until.IsZero() {
			t.Errorf("after %s: %v", name, connection.until)
		}
	}
}
