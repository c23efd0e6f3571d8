// Package relay passes the messages of one MCP client on to a toolfinch in another process, bytes unchanged. It keeps
// what the client told that toolfinch of itself, so that another toolfinch can take its place. It does not know how a
// toolfinch is found or started.
package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
)

// Options describe the client, and how to reach a toolfinch.
type Options struct {
	In  io.Reader // one message a line
	Out io.Writer // one message a line
	// Connect finds or starts a toolfinch. The connection carries one message a line.
	Connect func(ctx context.Context) (net.Conn, error)
	// Gone returns when nobody can read Out any more, or when ctx ends; nil if that cannot be known.
	Gone func(ctx context.Context)
	Log  *slog.Logger
}

const (
	tries       = 4                      // attempts to connect before the relay fails
	pause       = 100 * time.Millisecond // before the second attempt; doubled before each other
	greetsIn    = 30 * time.Second       // bounds the answer to a repeated initialize
	steady      = 10 * time.Second       // a connection that lasts shorter is replaced only for the client's next message
	unreadFor   = time.Second            // how long a relay that ends waits for a client that does not read
	maxRequest  = 17 << 20               // bytes that are read of a client's message before it is passed on; a toolfinch refuses longer ones
	maxAnswered = 1 << 20                // bytes that are read of a toolfinch's message before it is passed on; its ID comes first
)

// errGone is what requests fail with when their toolfinch has gone.
var errGone = errors.New("toolfinch has ended, and another one takes its place: this request may or may not have been carried out; check before you repeat it")

// Run passes messages on, at first over conn, until the client ends In and has got its answers, until the client has
// gone, or until ctx ends. It fails if no toolfinch can be reached.
func Run(ctx context.Context, conn net.Conn, o Options) error {
	ctx, end := context.WithCancelCause(ctx)
	r := &relay{Options: o, ctx: ctx, end: end, client: newClient(), lost: make(chan struct{}, 1)}
	r.serve(newLink(conn))
	go r.take() // a read of In cannot be interrupted: this goroutine ends with In, or with the process
	if o.Gone != nil {
		r.running.Go(func() { o.Gone(ctx); end(nil) })
	}
	for ctx.Err() == nil {
		select {
		case <-r.lost:
			if _, err := r.link(); err != nil {
				end(err)
			}
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	if r.to != nil {
		_ = r.to.conn.Close()
	}
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() { r.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(leeway.Of(unreadFor)): // a write to a client that does not read cannot be interrupted
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// relay is one Run.
type relay struct {
	Options
	ctx     context.Context
	end     context.CancelCauseFunc // nil as cause: the client has gone
	running sync.WaitGroup
	lost    chan struct{} // a connection is to be replaced at once

	connecting sync.Mutex // held while a connection is made
	writing    sync.Mutex // held while a message is written to Out

	mu sync.Mutex // guards the fields below; never held over I/O
	to *link      // nil while there is no connection
	// greetedAgain says that an initialize without an answer was once repeated.
	greetedAgain bool
	ended        bool // In has ended
	client       client
}

// link is a connection to a toolfinch.
type link struct {
	conn  net.Conn
	lines lines
	since time.Time
}

func newLink(conn net.Conn) *link {
	return &link{conn: conn, lines: lines{from: bufio.NewReaderSize(conn, bufferSize), max: maxAnswered}, since: time.Now()}
}

// take passes the client's messages on until In ends.
func (r *relay) take() {
	in := lines{from: bufio.NewReaderSize(r.In, bufferSize), max: maxRequest}
	for r.ctx.Err() == nil {
		line, whole, err := in.next()
		if err == nil {
			err = r.pass(line, whole, &in)
		}
		switch {
		case errors.Is(err, io.EOF):
			r.close()
			return
		case err != nil:
			r.end(err)
			return
		}
	}
}

// pass passes a message of the client on. The rest of a line that is not whole is still to be read.
func (r *relay) pass(line []byte, whole bool, rest *lines) error {
	all := messagesOf(line)
	for {
		to, err := r.link()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.client.sends(all)
		r.mu.Unlock()
		_, err = to.conn.Write(line)
		if !whole && err == nil {
			failed := rest.copyRest(to.conn)
			if errors.Is(failed, io.EOF) {
				return failed
			}
			return nil // the reader of the connection notices its end
		}
		if err == nil {
			return nil
		}
		if !whole {
			r.drop(to, false)
			if failed := rest.copyRest(io.Discard); errors.Is(failed, io.EOF) {
				return failed
			}
			return nil
		}
		r.mu.Lock()
		again := r.client.withdraws(all) // a toolfinch acts on whole lines only
		r.mu.Unlock()
		r.drop(to, false)
		if !again {
			return nil
		}
	}
}

// close ends the relay once the client has its answers.
func (r *relay) close() {
	r.mu.Lock()
	r.ended = true
	to := r.to
	r.mu.Unlock()
	if to == nil {
		r.end(nil)
		return
	}
	half, ok := to.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		r.end(nil)
	}
}

// link returns the connection, and makes one if there is none.
func (r *relay) link() (*link, error) {
	r.connecting.Lock()
	defer r.connecting.Unlock()
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	if to != nil {
		return to, nil
	}
	wait := pause
	for try := 1; ; try++ {
		to, capabilities, err := r.connect()
		if err == nil {
			r.serve(to)
			r.renewed(capabilities)
			return to, nil
		}
		if r.ctx.Err() != nil || try == tries {
			return nil, fmt.Errorf("toolfinch has ended, and no other can take its place: %w", err)
		}
		r.Log.Warn("no toolfinch yet", "error", err, "retry_in", wait)
		select {
		case <-time.After(wait):
		case <-r.ctx.Done():
		}
		wait *= 2
	}
}

// connect reaches another toolfinch, and tells it what its predecessor was told of the client. It returns the
// capabilities of the toolfinch, if the client has initialised.
func (r *relay) connect() (to *link, capabilities json.RawMessage, err error) {
	conn, err := r.Connect(r.ctx)
	if err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(r.ctx, func() { _ = conn.Close() })()
	to = newLink(conn)
	r.mu.Lock()
	greeting, later := r.client.introduction()
	r.mu.Unlock()
	if greeting != nil {
		_ = conn.SetDeadline(time.Now().Add(leeway.Of(greetsIn)))
		capabilities, err = to.greet(greeting)
		_ = conn.SetDeadline(time.Time{})
	}
	for _, message := range later {
		if err == nil {
			_, err = conn.Write(append(message[:len(message):len(message)], '\n'))
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return to, capabilities, nil
}

// greet repeats an initialize request, and returns the capabilities of its answer. Nothing else can come before it.
func (to *link) greet(initialize []byte) (capabilities json.RawMessage, err error) {
	if _, err := to.conn.Write(append(initialize[:len(initialize):len(initialize)], '\n')); err != nil {
		return nil, err
	}
	line, _, err := to.lines.next()
	if err != nil {
		return nil, err
	}
	result := rawjson.Member(line, "result")
	if result == nil {
		return nil, fmt.Errorf("initialize is refused: %s", rawjson.Clip(string(line), 200))
	}
	return append(json.RawMessage(nil), rawjson.Member(result, "capabilities")...), nil
}

// renewed tells the client to list again, because another toolfinch may have other tools.
func (r *relay) renewed(capabilities json.RawMessage) {
	for kind, method := range map[string]string{"tools": mcp.MethodNotificationToolsListChanged, "prompts": mcp.MethodNotificationPromptsListChanged, "resources": mcp.MethodNotificationResourcesListChanged} {
		if string(rawjson.Member(rawjson.Member(capabilities, kind), "listChanged")) == "true" {
			r.tell(wire.Message(nil, method, nil))
		}
	}
}

// serve passes messages of a toolfinch on until its connection ends.
func (r *relay) serve(to *link) {
	r.mu.Lock()
	r.to = to
	ended := r.ended
	r.mu.Unlock()
	if ended {
		r.end(nil)
	}
	r.running.Go(func() {
		stopped := false
		for {
			line, whole, err := to.lines.next()
			if err != nil || whole && line[len(line)-1] != '\n' { // of a cut message the client gets nothing
				break
			}
			all := messagesOf(line)
			r.mu.Lock()
			passed := r.client.gets(all)
			r.mu.Unlock()
			stopped = stopped || all[0].method == Stopped
			if !passed {
				continue
			}
			cut, read := r.write(line, whole, &to.lines)
			if !read {
				return
			}
			if cut {
				r.fail(answered(all))
			}
		}
		r.drop(to, !stopped && time.Since(to.since) > steady)
	})
}

// write writes a message of a toolfinch to the client. cut reports that its rest is lost, and read whether the client
// can still read.
func (r *relay) write(line []byte, whole bool, rest *lines) (cut, read bool) {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.Out.Write(line)
	if err == nil && !whole {
		if cut = rest.copyRest(r.Out) != nil; cut {
			_, err = r.Out.Write([]byte{'\n'}) // ends the cut message, so that the next one can be read
		}
	}
	if err != nil {
		r.end(nil)
	}
	return cut, err == nil
}

// fail tells the client that requests have failed with their toolfinch.
func (r *relay) fail(ids []json.RawMessage) {
	for _, id := range ids {
		refusal := wire.Refusal{ID: id, Code: mcp.INTERNAL_ERROR, Reason: errGone.Error()}
		r.tell(refusal.Answer())
	}
}

// tell sends the client a message of the relay itself.
func (r *relay) tell(message []byte) { r.write(append(message, '\n'), true, nil) }

// drop gives a connection up, and tells the client what has failed. With again, another connection is made at once.
func (r *relay) drop(to *link, again bool) {
	_ = to.conn.Close()
	r.mu.Lock()
	if r.to != to {
		r.mu.Unlock()
		return
	}
	r.to = nil
	if !r.greetedAgain && r.client.greets() { // the client sends nothing before the answer
		r.greetedAgain, again = true, true
	}
	failed, cancelled := r.client.loses(again)
	ended := r.ended
	r.mu.Unlock()
	r.fail(failed)
	for _, id := range cancelled {
		r.tell(wire.Message(nil, string(mcp.MethodNotificationCancelled), rawjson.Of(map[string]json.RawMessage{"requestId": id})))
	}
	switch {
	case ended:
		r.end(nil)
	case again:
		select {
		case r.lost <- struct{}{}:
		default:
		}
	}
}
