package transport

import (
	"context"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/internal/wire"
)

// pipe is a session with one connection for everything: stdio, or HTTP+SSE. mcp-go's loops for them
// allow one session per process, and no raw bytes.
type pipe struct {
	*session
	write   func(message []byte) error // frames one message
	writing sync.Mutex                 // held while one message is written

	taking   sync.Mutex     // guards the field below
	finished bool           // no message is taken any more
	handling sync.WaitGroup // messages being handled
	lasting  sync.WaitGroup // subscriptions/listen, which lasts as long as the session
}

func newPipe(s *session, write func([]byte) error) *pipe { return &pipe{session: s, write: write} }

func (p *pipe) send(message []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	err := p.write(message)
	if err != nil {
		p.log.Debug("message not delivered", "session", p.id, "error", err)
	}
	return err
}

// forward writes messages outside of requests until ctx ends, and then the queued rest. See run for
// alive.
func (p *pipe) forward(ctx context.Context, alive func() error) {
	w := newWriter(p.send)
	defer p.out.stream(w)()
	if p.out.run(ctx, nil, w, alive) == nil {
		_ = p.out.flush(w)
	}
}

// receive handles one message or batch of the client, for the party of from. Requests run in
// goroutines, waited for by finish; notifications and initialize are handled before receive returns, so
// that none overtakes another.
func (p *pipe) receive(sent []byte, from context.Context) {
	messages, refusals, batch := wire.ParseMessages(sent)
	if batch && !p.batches() {
		messages, refusals, batch = nil, []*wire.Refusal{p.noBatch()}, false
	}
	group, initialize := &p.handling, false
	for _, m := range messages {
		initialize = m.Method == string(mcp.MethodInitialize)
		if m.Method == string(mcp.MethodSubscriptionsListen) {
			group = &p.lasting
		}
	}
	if !p.enter(group) {
		return
	}
	begun := p.begin(messages...)
	handle := func() {
		defer group.Done()
		defer begun.over()
		p.handle(sent, from, messages, begun, refusals, batch)
	}
	if begun.areTaken() && (batch || !initialize) {
		go handle()
		return
	}
	handle() // refusals slow the client down: otherwise they would have no limit
}

func (p *pipe) handle(sent []byte, from context.Context, messages []*wire.Inbound, begun requests, refusals []*wire.Refusal, batch bool) {
	size := int64(len(sent))
	if err := p.clients.bytes.Take(size); err != nil {
		for _, m := range messages {
			if m.IsRequest() {
				_ = p.send(refused(m, err))
			}
		}
		return
	}
	defer p.clients.bytes.Release(size)
	answer := func(r *request) []byte {
		message, _ := p.answer(r, from, nil, p.send)
		return message
	}
	var message []byte
	switch {
	case batch:
		message = p.batch(messages, begun, refusals, answer)
	case len(refusals) > 0:
		message = refusals[0].Answer()
	case messages[0].IsRequest():
		message = answer(begun[0])
	default:
		p.take(messages[0])
	}
	if message != nil {
		_ = p.send(message)
	}
}

// enter counts a message, unless finish has begun.
func (p *pipe) enter(group *sync.WaitGroup) bool {
	p.taking.Lock()
	defer p.taking.Unlock()
	if !p.finished {
		group.Add(1)
	}
	return !p.finished
}

// readWithin bounds how long a client that ends may read the rest.
const readWithin = 3 * time.Second

// finish waits for the requests in flight, bounded, and only a moment once told is closed; then it ends
// them. Requests that ask the client end at once, because it sends no more. Unread messages are
// dropped.
func (p *pipe) finish(told <-chan struct{}) {
	p.taking.Lock()
	p.finished = true
	p.taking.Unlock()
	p.host.EndAsks(p.id)
	handled, over := make(chan struct{}), make(chan struct{})
	go func() { p.handling.Wait(); close(handled); p.lasting.Wait(); close(over) }()
	drained := time.After(leeway.Of(drainTime))
	for waiting := true; waiting; {
		select {
		case <-handled:
			waiting = false
		case <-drained:
			waiting = false
		case <-told:
			told, drained = nil, time.After(leeway.Of(toldTime))
		}
	}
	p.end(nil)
	select {
	case <-over:
	case <-time.After(readWithin):
	}
}
