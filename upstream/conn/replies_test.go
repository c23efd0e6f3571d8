package conn

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"toolfinch/internal/pipes"
)

// heard is a Handler that keeps what it is told.
type heard struct{ said []string }

func (h *heard) Notified(stream int64, method string, params json.RawMessage) {
	h.said = append(h.said, fmt.Sprint(stream, " ", method, string(params)))
}

func (h *heard) Asked(stream int64, id json.RawMessage, method string, params json.RawMessage) {
	h.said = append(h.said, fmt.Sprint(stream, " ", string(id), " ", method, string(params)))
}

func (h *heard) StreamEnded() {}

// most is the longest message, in bytes.
const most = 256 << 10

func TestMain(m *testing.M) {
	pipes.Install()
	os.Exit(m.Run())
}

// newTestConn is a connection over which nothing was sent, and what it hears.
func newTestConn(o Options, over Transport) (*Conn, *heard) {
	h := &heard{}
	o.MaxAnswer = most
	o.Log = slog.New(slog.DiscardHandler)
	return newConn(o, over, func(*Conn) Handler { return h }), h
}

func TestMessagesAreTakenAsTheyAre(t *testing.T) {
	c, h := newTestConn(Options{}, TransportStdio)
	for _, as := range []string{`%d`, `"%d"`, `%d.0`} {
		reply := c.Expect()
		answer := fmt.Sprintf(`{"result":{"big":12345678901234567890,"x":1e400},"id":`+as+`,"jsonrpc":"2.0"}`, reply.ID)
		for range 2 { // the second one is nobody's
			if !c.receive(0, []byte(answer)) {
				t.Errorf("%s was taken for no message", answer)
			}
		}
		<-reply.Done
		if string(reply.Result) != `{"big":12345678901234567890,"x":1e400}` || reply.Error != nil || reply.Err != nil {
			t.Errorf("id as %s: reply = %s %s %v", as, reply.Result, reply.Error, reply.Err)
		}
	}
	reply := c.Expect()
	c.receive(0, fmt.Appendf(nil, `{"id":%d,"error":{"code":1,"data":9007199254740993,"more":{}}}`, reply.ID))
	if <-reply.Done; string(reply.Error) != `{"code":1,"data":9007199254740993,"more":{}}` {
		t.Errorf("error = %s", reply.Error)
	}
	reply = c.Expect()
	c.receive(0, fmt.Appendf(nil, "{\"id\":%d,\"result\":\"Gr\xf6\xdfe, Größe\"}", reply.ID)) // some servers quote files as they are
	if <-reply.Done; string(reply.Result) != "\"Gr\uFFFDe, Größe\"" {
		t.Errorf("bytes that are no text = %q", reply.Result)
	}
	c.receive(0, []byte(`{"method":"notifications/x","params":{"n":1.0}}`))
	c.receive(7, []byte(`{"id":"x","method":"roots/list","params":{"n":1e400}}`))
	for _, nobodys := range []string{`{"id":99,"result":{}}`, `{"id":null,"error":{}}`, `{"id":"text","result":{}}`, `[]`, `[7]`} {
		if !c.receive(0, []byte(nobodys)) {
			t.Errorf("%s was taken for no message", nobodys)
		}
	}
	for _, broken := range []string{``, `{"broken`, `7`} {
		if c.receive(0, []byte(broken)) {
			t.Errorf("%q was taken for a message", broken)
		}
	}
	// A batch of revision 2025-03-26, and an error of a server that could not
	// read the one request there is.
	first, second := c.Expect(), c.Expect()
	c.receive(0, fmt.Appendf(nil, `[{"method":"notifications/y"},{"id":%d,"result":{"n":1}},{"id":%d,"result":{"n":2}}]`, first.ID, second.ID))
	<-first.Done
	if <-second.Done; string(first.Result) != `{"n":1}` || string(second.Result) != `{"n":2}` {
		t.Errorf("a batch = %s, %s", first.Result, second.Result)
	}
	if want := `[0 notifications/x{"n":1.0} 7 "x" roots/list{"n":1e400} 0 notifications/y]`; fmt.Sprint(h.said) != want {
		t.Errorf("heard %v, want %s", h.said, want)
	}
	standing, only := c.ExpectStanding(), c.Expect()
	if !c.Waits(only.ID) || !c.Waits(standing.ID) || c.Waiting() != 1 {
		t.Error("a request that was not answered is not waited for")
	}
	c.receive(0, []byte(`{"id":null,"error":{"code":-32700}}`))
	if <-only.Done; string(only.Error) != `{"code":-32700}` || c.Waits(only.ID) {
		t.Errorf("error without an ID = %s", only.Error)
	}
	if !c.Waits(standing.ID) {
		t.Error("it was taken for the answer to a request that stays open")
	}
}

func TestAFailedConnectionFailsWhatComesLater(t *testing.T) {
	c, _ := newTestConn(Options{}, TransportStdio)
	gone := errors.New("gone")
	before := c.Expect()
	c.Fail(gone)
	for _, reply := range []*Reply{before, c.Expect()} {
		if <-reply.Done; !errors.Is(reply.Err, gone) {
			t.Errorf("reply.Err = %v", reply.Err)
		}
	}
}
