package register

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// stuck is a client that does not read.
type stuck struct {
	http.ResponseWriter
	entered chan struct{} // gets one signal with every write
	release chan struct{} // closed when the client reads again
}

func (s stuck) Write(p []byte) (int, error) {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-s.release
	return len(p), nil
}

// Messages come from the read loop of an upstream, which must not wait for a client.
func TestAnOutletTakesMessagesWhileTheClientDoesNotRead(t *testing.T) {
	client := stuck{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
	o := newOutlet(client)
	if o.offer([]byte("{}")) {
		t.Error("an outlet took a message before the stream was open")
	}
	o.WriteHeader(http.StatusOK)
	ran := make(chan struct{})
	go func() { o.run(); close(ran) }()
	o.offer([]byte("{}"))
	receive(t, client.entered, "the write")
	offered := make(chan int, 1)
	go func() {
		taken := 0
		for range maxOutlet + 10 {
			if o.offer([]byte("{}")) {
				taken++
			}
		}
		offered <- taken
	}()
	if got := receive(t, offered, "the offers"); got != maxOutlet {
		t.Errorf("%d messages were taken, want %d", got, maxOutlet)
	}
	o.end()
	if o.offer([]byte("{}")) {
		t.Error("an outlet took a message after its end")
	}
	close(client.release)
	receive(t, ran, "the end of the outlet")
}
