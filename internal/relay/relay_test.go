package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// relayed is a running relay, at the end of its client.
type relayed struct {
	end
	out    *io.PipeReader // what from reads
	done   chan error
	peers  chan end // toolfinches that the relay has connected to, in order
	cancel context.CancelFunc
}

// start runs a relay, and returns the toolfinch that it is connected to. connect, if set, fails instead of making
// another connection.
func start(t *testing.T, connect func() error) (*relayed, end) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", ""))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener := must.Get(net.Listen("unix", filepath.Join(dir, "s")))(t)
	t.Cleanup(func() { listener.Close() })
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	r := &relayed{end: end{t, "the client", inW, bufio.NewReader(outR)}, out: outR, done: make(chan error, 1), peers: make(chan end, 10)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.peers <- end{t, "toolfinch", conn, bufio.NewReader(conn)}
		}
	}()
	dial := func(context.Context) (net.Conn, error) { return net.Dial("unix", listener.Addr().String()) }
	first := must.Get(dial(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		r.done <- Run(ctx, first, Options{In: inR, Out: outW, Log: slog.New(slog.DiscardHandler), Connect: func(ctx context.Context) (net.Conn, error) {
			if connect != nil {
				return nil, connect()
			}
			return dial(ctx)
		}})
	}()
	t.Cleanup(func() { cancel(); outR.Close(); inW.Close(); <-r.done })
	return r, r.peer()
}

// end is an end of the relay.
type end struct {
	*testing.T
	name string
	to   io.WriteCloser
	from *bufio.Reader
}

// sends sends a message from this end.
func (e end) sends(line string) {
	e.Helper()
	must.Get(io.WriteString(e.to, line+"\n"))(e.T)
}

// gets reads the next messages at this end.
func (e end) gets(want ...string) {
	e.Helper()
	for _, line := range want {
		if got := must.Get(e.from.ReadString('\n'))(e.T); got != line+"\n" {
			e.Fatalf("%s gets %.300s\nwant %.300s", e.name, got, line)
		}
	}
}

// peer returns the next toolfinch that the relay has connected to.
func (r *relayed) peer() end { r.Helper(); return await.Value(r.T, r.peers) }

// passes has the client send messages, which arrive at p.
func (r *relayed) passes(p end, lines ...string) {
	r.Helper()
	for _, line := range lines {
		go r.sends(line)
		p.gets(line)
	}
}

// dies ends a toolfinch, and returns the next one.
func (r *relayed) dies(p end) end {
	r.Helper()
	p.to.Close()
	return r.peer()
}

// ends waits for the end of the relay.
func (r *relayed) ends() error {
	r.Helper()
	err := await.Value(r.T, r.done)
	r.done <- err
	return err
}

// Messages of the handshake, and their answers.
const (
	initialize  = `{"method":"initialize","params":{"protocolVersion":"2025-06-18"},"jsonrpc":"2.0","id":0}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	greeted     = `{"jsonrpc":"2.0","id":0,"result":{"capabilities":{"tools":{"listChanged":true},"prompts":{}}}}`
	listAgain   = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	gone        = `"error":{"code":-32603,"message":"toolfinch has ended, and another one takes its place: this request may or may not have been carried out; check before you repeat it"}}`
)

// Every byte arrives, of messages of any length.
func TestMessagesArriveUnchanged(t *testing.T) {
	r, p := start(t, nil)
	long := strings.Repeat("x", 3<<20)
	for _, line := range []string{
		initialize, ` { "id" : "a\u0062" , "method":"tools/call"}  `, "", "no JSON", "[" + initialized + "," + initialized + "]", "\xff\xfe",
		`{"id":1,"method":"tools/call","params":{"a":"` + long + `"}}`, `{"method":"x","params":"` + strings.Repeat("y", maxRequest+1) + `"}`,
	} {
		r.passes(p, line)
		go p.sends(line)
		r.gets(line)
	}
}

// A client whose toolfinch dies is told which requests failed, and goes on with another one, which learns what the
// first one knew of the client.
func TestAnotherToolfinchTakesOver(t *testing.T) {
	const level, subscribe, listen = `{"id":1,"method":"logging/setLevel","params":{"level":"info"}}`, `{"id":2,"method":"resources/subscribe","params":{"uri":"a:b"}}`, `{"id":3,"method":"subscriptions/listen"}`
	r, p := start(t, nil)
	r.passes(p, initialize, initialized, level, subscribe, listen,
		`{"id":4,"method":"resources/subscribe","params":{"uri":"c:d"}}`, `{"id":5,"method":"resources/unsubscribe","params":{"uri":"c:d"}}`,
		`{"id":"six","method":"tools/call"}`, `{"id":7,"method":"tools/call"}`, `{"method":"notifications/cancelled","params":{"requestId":7}}`)
	for _, line := range []string{greeted, `{"id":1,"result":{}}`, `{"id":2,"result":{}}`, `{"id":4,"result":{}}`, `{"id":5,"result":{}}`, `{"id":"ask-1","method":"roots/list"}`} {
		p.sends(line)
		r.gets(line)
	}
	must.Get(io.WriteString(p.to, `{"id":"six","res`))(t) // a cut message
	p.to.Close()
	r.gets(`{"jsonrpc":"2.0","id":"six",`+gone, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ask-1"}}`)
	go r.sends(`{"id":8,"method":"tools/list"}`)
	p = r.peer()
	p.gets(initialize)
	p.sends(greeted)
	p.gets(initialized, level, subscribe, listen)
	r.gets(listAgain)
	p.gets(`{"id":8,"method":"tools/list"}`)
	p.sends(`{"id":1,"result":{}}`)
	p.sends(`{"id":2,"result":{}}`)
	p.sends(`{"id":8,"result":{"tools":[]}}`)
	p.sends(`{"id":3,"result":{}}`)
	r.gets(`{"id":8,"result":{"tools":[]}}`, `{"id":3,"result":{}}`) // those of 1 and 2 it has already
}

// A toolfinch that dies before it has answered initialize is asked again in its successor.
func TestInitializeIsRepeated(t *testing.T) {
	r, p := start(t, nil)
	r.passes(p, initialize)
	p = r.dies(p)
	p.gets(initialize)
	p.sends(greeted)
	r.gets(greeted)
}

// It is repeated once: a client that nobody can answer is told.
func TestInitializeIsRepeatedOnce(t *testing.T) {
	r, p := start(t, nil)
	r.passes(p, initialize)
	p = r.dies(p)
	p.gets(initialize)
	p.to.Close()
	r.gets(`{"jsonrpc":"2.0","id":0,` + gone)
	go r.sends(initialize)
	r.peer().gets(initialize)
}

// Of an answer that is cut the client has a part, and is told that its request has failed.
func TestACutAnswer(t *testing.T) {
	r, p := start(t, nil)
	r.passes(p, `{"id":1,"method":"tools/call"}`)
	part := `{"id":1,"result":"` + strings.Repeat("x", 2*maxAnswered)
	go func() { io.WriteString(p.to, part); p.to.Close() }()
	r.gets(part, `{"jsonrpc":"2.0","id":1,`+gone)
}

// A relay that is told to end does not wait for a client that does not read.
func TestAClientThatDoesNotRead(t *testing.T) {
	r, p := start(t, nil)
	p.sends(`{"id":1,"result":{}}`)
	r.cancel()
	if err := r.ends(); err != nil {
		t.Error(err)
	}
}

// A toolfinch that was stopped is not started again before the client needs it.
func TestAStoppedToolfinchStaysStopped(t *testing.T) {
	r, p := start(t, nil)
	p.sends(`{"jsonrpc":"2.0","method":"` + Stopped + `"}`)
	p.to.Close()
	go r.sends(`{"id":1,"method":"ping"}`)
	r.peer().gets(`{"id":1,"method":"ping"}`)
	if len(r.peers) > 0 {
		t.Error("it was started twice")
	}
}

// A client that has ended its input still gets its answers.
func TestTheLastAnswersArrive(t *testing.T) {
	r, p := start(t, nil)
	r.sends(`{"id":1,"method":"tools/call"}`)
	r.to.Close()
	p.gets(`{"id":1,"method":"tools/call"}`)
	if _, err := p.from.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatalf("toolfinch does not see the end of the client: %v", err)
	}
	p.sends(`{"id":1,"result":{}}`)
	r.gets(`{"id":1,"result":{}}`)
	p.to.Close()
	if err := r.ends(); err != nil {
		t.Error(err)
	}
}

// If its toolfinch dies, too, the client is told, and no other is started.
func TestTheLastRequestsAreTold(t *testing.T) {
	r, p := start(t, nil)
	r.passes(p, `{"id":1,"method":"tools/call"}`)
	r.to.Close()
	if _, err := p.from.ReadByte(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	p.to.Close()
	r.gets(`{"jsonrpc":"2.0","id":1,` + gone)
	if err := r.ends(); err != nil || len(r.peers) > 0 {
		t.Errorf("error %v, %d more connections", err, len(r.peers))
	}
}

// A relay ends with its client.
func TestAClientThatHasGone(t *testing.T) {
	r, p := start(t, nil)
	r.out.Close()
	p.sends(`{"id":1,"result":{}}`)
	if err := r.ends(); err != nil {
		t.Error(err)
	}
	if _, err := p.from.ReadByte(); err == nil {
		t.Error("the connection stays")
	}
}

// Where no other toolfinch can be reached, the relay fails with the reason.
func TestNoOtherToolfinch(t *testing.T) {
	r, p := start(t, func() error { return errors.New("the configuration has no servers") })
	p.to.Close()
	go r.sends(`{"id":1,"method":"ping"}`)
	if err := r.ends(); err == nil || !strings.Contains(err.Error(), "the configuration has no servers") {
		t.Errorf("got %v", err)
	}
}
