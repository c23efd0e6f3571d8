package transport

import (
	"context"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/wire"
)

// pipe is a session with one connection for everything: stdio, or HTTP+SSE. mcp-go's
// own loops for them have a session per process and no room for raw bytes.
type pipe struct {
	*session
	write   func(message []byte) error // frames one message
	writing sync.Mutex                 // held while one message is written

	taking   sync.Mutex     // guards what follows
	finished bool           // no message is taken any more
	requests sync.WaitGroup // messages that are being handled
	listens  sync.WaitGroup // subscriptions/listen: they last as long as the session
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

// forward writes what belongs to no request until ctx ends, and then what was queued
// before. alive is as of run.
func (p *pipe) forward(ctx context.Context, alive func() error) {
	w := newWriter(p.send)
	defer p.out.stream(w)()
	if p.out.run(ctx, nil, w, alive) == nil {
		_ = p.out.flush(w)
	}
}

// receive handles what the client sent at once: requests on goroutines of their own,
// notifications and initialize before it returns, so that none overtakes another.
// finish waits for all of them. They are made by whoever makes the request of from.
func (p *pipe) receive(sent []byte, from context.Context) {
	messages, refusals, batch := wire.ParseMessages(sent)
	if batch && !p.batches() {
		messages, refusals, batch = nil, []*wire.Refusal{p.noBatch()}, false
	}
	group, aside := &p.requests, batch
	for _, m := range messages {
		aside = aside || m.IsRequest() && m.Method != string(mcp.MethodInitialize)
		if m.Method == string(mcp.MethodSubscriptionsListen) {
			group = &p.listens
		}
	}
	if !p.enter(group) {
		return
	}
	handle := func() {
		defer group.Done()
		p.handle(sent, from, messages, refusals, batch)
	}
	if aside {
		go handle()
		return
	}
	handle()
}

func (p *pipe) handle(sent []byte, from context.Context, messages []*wire.Inbound, refusals []*wire.Refusal, batch bool) {
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
	answer := func(m *wire.Inbound) []byte {
		message, _ := p.answer(m, from, nil, p.send, nil)
		return message
	}
	var message []byte
	switch {
	case batch:
		message = p.batch(messages, refusals, answer)
	case len(refusals) > 0:
		message = refusals[0].Answer()
	case messages[0].IsRequest():
		message = answer(messages[0])
	default:
		p.take(messages[0])
	}
	if message != nil {
		_ = p.send(message)
	}
}

// enter counts a message in, unless finish has begun.
func (p *pipe) enter(group *sync.WaitGroup) bool {
	p.taking.Lock()
	defer p.taking.Unlock()
	if !p.finished {
		group.Add(1)
	}
	return !p.finished
}

// finish waits for the requests in flight, bounded, then ends the rest. Those that
// ask the client something end at once: it sends no more.
func (p *pipe) finish() {
	p.taking.Lock()
	p.finished = true
	p.taking.Unlock()
	p.host.EndAsks(p.id)
	done := make(chan struct{})
	go func() { p.requests.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainTime):
	}
	p.end(nil)
	<-done
	p.listens.Wait()
}
