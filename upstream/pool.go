// Package upstream owns the connections to MCP servers: it dials, supervises,
// lists and calls. It keeps nothing beyond them and shows nothing to clients.
package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"toolfinch/tool"
)

// Errors that callers may tell apart. They come wrapped in an *Error.
var (
	ErrUnknownServer = errors.New("no such server is configured")
	ErrClosed        = errors.New("the connection is closed")
	ErrTimeout       = errors.New("timed out")
)

// Error is what went wrong with an upstream. Its text may be shown to clients.
type Error struct {
	Server string
	Op     string // "call search_code", "list tools"
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("upstream %s: %s: %v", e.Server, e.Op, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// Change is what became known of one server. With Err set nothing else is, and
// what was known before stays.
type Change struct {
	Server       string
	Era          Era
	Info         json.RawMessage // serverInfo
	Instructions string
	Defs         []*tool.Def
	Rejected     []error // definitions that were left out
	Err          error
}

// State is the health of a server: what the last exchange with it said.
type State string

// StatePending means that nothing has been exchanged yet.
const (
	StatePending State = "pending"
	StateReady   State = "ready"
	StateFailed  State = "failed"
)

// Status of one server.
type Status struct {
	Server string
	State  State
	Err    error     // of the last exchange, nil when it went well
	Since  time.Time // of State
	Tools  int
	Era    Era
}

// Pool is the set of configured servers. Its methods are safe for concurrent use.
type Pool struct {
	order  []*server
	byName map[string]*server
	end    context.CancelFunc
	work   sync.WaitGroup
}

// NewPool makes a pool; nothing is connected. eras is what is known of the
// servers' protocol, by name.
func NewPool(settings []Settings, eras map[string]Era, log *slog.Logger) *Pool {
	life, end := context.WithCancel(context.Background())
	p := &Pool{byName: map[string]*server{}, end: end}
	for _, s := range settings {
		one := newServer(life, &p.work, s, eras[s.Name], log)
		p.order = append(p.order, one)
		p.byName[s.Name] = one
	}
	return p
}

// Watch keeps every server connected and its tools known, all in parallel,
// until ctx ends. It sends what becomes known to changes, and returns once
// every connection is closed and every child process gone.
func (p *Pool) Watch(ctx context.Context, changes chan<- Change) error {
	var watching sync.WaitGroup
	for _, s := range p.order {
		watching.Go(func() { s.watch(ctx, changes) })
	}
	watching.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return p.Close(ending)
}

// closeWithin bounds the end of Watch. Nothing should take it: a child has
// been killed after two seconds, and a session is given up after five.
const closeWithin = 15 * time.Second

// Refresh connects to a server if need be and lists its tools now.
func (p *Pool) Refresh(ctx context.Context, name string) Change {
	s := p.byName[name]
	if s == nil {
		return Change{Server: name, Err: &Error{Server: name, Op: "refresh", Err: ErrUnknownServer}}
	}
	c, err := s.connect(ctx)
	if err != nil {
		return Change{Server: name, Err: &Error{Server: name, Op: "connect", Err: plain(err)}}
	}
	return s.list(ctx, c)
}

// Call calls a tool. A dead upstream is connected again at once, and the call
// made a second time if it was never delivered or the tool is annotated as
// read-only or idempotent. An error answer comes back as *tool.RPCError with
// the upstream's bytes, everything else as *Error.
func (p *Pool) Call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	s := p.byName[def.ID.Server]
	if s == nil {
		return nil, &Error{Server: def.ID.Server, Op: "call " + def.ID.Name, Err: ErrUnknownServer}
	}
	return s.call(ctx, def, call)
}

// SetLogLevel asks every upstream for log messages from level on, now and
// after each reconnect. It does not wait for their answers.
func (p *Pool) SetLogLevel(_ context.Context, level string) {
	for _, s := range p.order {
		s.mu.Lock()
		s.level = level
		c := s.conn
		s.mu.Unlock()
		if c != nil && !c.dead() {
			s.setLevel(c, level)
		}
	}
}

// Status returns the health of every server, in configured order.
func (p *Pool) Status() []Status {
	all := make([]Status, len(p.order))
	for i, s := range p.order {
		s.mu.Lock()
		all[i] = s.status
		s.mu.Unlock()
	}
	return all
}

// Close closes every connection and ends every child process, in parallel, and
// waits for that: about two seconds for children that do not want to end. It
// may be called twice. The error is ctx's.
func (p *Pool) Close(ctx context.Context) error {
	p.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range p.order {
			s.barrier() // whoever dials from here on sees that the life has ended
		}
		p.work.Wait()
		var closing sync.WaitGroup
		for _, s := range p.order {
			closing.Go(s.close)
		}
		closing.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
