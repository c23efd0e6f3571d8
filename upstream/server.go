package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// server supervises the connection to one upstream.
type server struct {
	settings Settings
	log      *slog.Logger
	life     context.Context // of the pool
	work     *sync.WaitGroup // the pool's: whoever starts a goroutine adds to it
	relist   chan struct{}   // list_changed arrived
	fresh    chan struct{}   // a call has connected while the watch loop was backing off

	mu      sync.Mutex // guards what follows; never held over I/O
	conn    *conn
	dialing *dialing
	status  Status
	era     Era
	level   string // what logging/setLevel was asked for last
	calls   map[string]*inFlight

	tokens atomic.Int64 // progress tokens given out
}

// dialing is one attempt to connect that any number of callers wait for.
type dialing struct {
	done chan struct{}
	conn *conn
	err  error
}

// inFlight is a call whose notifications can be passed on. The key of
// server.calls is the progress token that the upstream knows it by. They are
// passed on one after the other, off the read loop, so that a client that does
// not read holds up its own call and no other.
type inFlight struct {
	call  *tool.Call
	token json.RawMessage // the client's own; nil when it sent none

	mu      sync.Mutex // guards what follows; never held over Notify
	waiting []notification
	passing bool
	over    bool
	work    sync.WaitGroup
}

type notification struct {
	method string
	params json.RawMessage
}

// maxWaiting bounds the notifications that wait for one client; more are dropped.
const maxWaiting = 256

func (f *inFlight) pass(method string, params json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || len(f.waiting) >= maxWaiting {
		return
	}
	f.waiting = append(f.waiting, notification{method, params})
	if !f.passing {
		f.passing = true
		f.work.Go(f.drain)
	}
}

func (f *inFlight) drain() {
	for {
		f.mu.Lock()
		if len(f.waiting) == 0 {
			f.passing = false
			f.mu.Unlock()
			return
		}
		next := f.waiting[0]
		f.waiting = f.waiting[1:]
		f.mu.Unlock()
		f.call.Notify(next.method, next.params)
	}
}

// end returns when everything that arrived before the answer was passed on.
func (f *inFlight) end() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.work.Wait()
}

func newServer(life context.Context, work *sync.WaitGroup, s Settings, era Era, log *slog.Logger) *server {
	if s.ConnectTimeout <= 0 {
		s.ConnectTimeout = DefaultConnectTimeout
	}
	if s.CallTimeout <= 0 {
		s.CallTimeout = DefaultCallTimeout
	}
	return &server{
		settings: s, log: log.With("server", s.Name), life: life, work: work, era: era,
		relist: make(chan struct{}, 1),
		fresh:  make(chan struct{}, 1),
		status: Status{Server: s.Name, State: StatePending, Since: time.Now(), Era: era},
		calls:  map[string]*inFlight{},
	}
}

// connect returns a connection that works as far as is known, dialling one if
// there is none. Callers at the same time share one attempt.
func (s *server) connect(ctx context.Context) (*conn, error) {
	s.mu.Lock()
	if s.conn != nil && !s.conn.dead() {
		defer s.mu.Unlock()
		return s.conn, nil
	}
	if s.life.Err() != nil {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	d := s.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		s.dialing = d
		old, era := s.conn, s.era
		s.conn = nil
		s.work.Go(func() { s.dial(d, old, era) })
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *server) dial(d *dialing, old *conn, era Era) {
	if old != nil {
		s.work.Go(old.close) // it may take its time
	}
	ctx, cancel := context.WithTimeoutCause(s.life, s.settings.ConnectTimeout,
		fmt.Errorf("%w: no connection within %s", ErrTimeout, s.settings.ConnectTimeout))
	defer cancel()
	d.conn, d.err = dial(ctx, s.settings, era, s.notified, s.log)
	s.mu.Lock()
	s.dialing = nil
	level := s.level
	if d.err == nil {
		s.conn, s.era = d.conn, d.conn.era
		s.status.Era = s.era
	}
	s.mu.Unlock()
	s.exchanged(d.err)
	if d.err == nil {
		s.log.Debug("connected", "era", d.conn.era)
		if level != "" {
			s.setLevel(d.conn, level)
		}
		select {
		case s.fresh <- struct{}{}:
		default:
		}
	}
	close(d.done)
}

// exchanged notes how the last exchange went: that is what health is.
func (s *server) exchanged(err error) {
	state := StateReady
	if err != nil {
		state = StateFailed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.State != state {
		s.status.State, s.status.Since = state, time.Now()
	}
	s.status.Err = err
}

// exchangedOver is exchanged for c, unless another connection has taken its place.
func (s *server) exchangedOver(c *conn, err error) {
	s.mu.Lock()
	current := s.conn == c
	s.mu.Unlock()
	if current {
		s.exchanged(err)
	}
}

func (s *server) connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn != nil && !s.conn.dead()
}

// barrier returns once nobody is inside connect's critical section.
func (s *server) barrier() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// close ends the connection. The life of the pool has ended before.
func (s *server) close() {
	s.mu.Lock()
	c := s.conn
	s.conn = nil
	s.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// debounce is how long list_changed may repeat before the server is listed.
const debounce = 200 * time.Millisecond

// watch keeps the server connected and its tools known until ctx ends.
func (s *server) watch(ctx context.Context, changes chan<- Change) {
	retry := backoff.NewExponentialBackOff() // jittered
	retry.InitialInterval = 500 * time.Millisecond
	retry.MaxInterval = time.Minute
	for ctx.Err() == nil {
		c, err := s.connect(ctx)
		change := Change{Server: s.settings.Name, Err: err}
		if err == nil {
			connected := time.Now()
			for ctx.Err() == nil && !c.dead() {
				if change = s.list(ctx, c); !s.tell(ctx, changes, change) || change.Err != nil {
					break
				}
				if !s.rest(ctx, c) {
					break
				}
			}
			if time.Since(connected) > time.Minute {
				retry.Reset()
			}
			if err = change.Err; c.dead() && err == nil {
				err = plain(context.Cause(c.life))
				s.exchangedOver(c, err)
			}
		} else {
			s.tell(ctx, changes, change)
		}
		if ctx.Err() != nil {
			return
		}
		drainSignal(s.fresh)
		if s.connected() {
			continue // a call has been quicker
		}
		wait := retry.NextBackOff()
		s.log.Warn("the upstream is not available", "error", err, "retry_in", wait.Round(time.Millisecond))
		select {
		case <-ctx.Done():
		case <-s.fresh:
		case <-time.After(wait):
		}
	}
}

func drainSignal(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// rest waits for list_changed and reports whether to list again; not when the
// connection or the watch has ended.
func (s *server) rest(ctx context.Context, c *conn) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.life.Done():
		return false
	case <-s.relist:
	}
	quiet := time.NewTimer(debounce)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.relist:
			quiet.Reset(debounce)
		case <-quiet.C:
			return true
		}
	}
}

func (s *server) tell(ctx context.Context, changes chan<- Change, change Change) bool {
	select {
	case changes <- change:
		return true
	case <-ctx.Done():
		return false
	}
}

// list asks for the tools over c.
func (s *server) list(ctx context.Context, c *conn) Change {
	ctx, cancel := context.WithTimeoutCause(ctx, s.settings.CallTimeout,
		fmt.Errorf("%w: no list of tools within %s", ErrTimeout, s.settings.CallTimeout))
	defer cancel()
	change := Change{Server: s.settings.Name, Era: c.era, Info: c.introduction(), Instructions: c.instructions}
	defs, rejected, err := c.list(ctx)
	if err != nil {
		s.lost(c, err)
		change.Err = &Error{Server: s.settings.Name, Op: "list tools", Err: plain(err)}
	}
	s.exchanged(change.Err)
	change.Defs, change.Rejected = defs, rejected
	if err == nil {
		s.mu.Lock()
		s.status.Tools = len(defs)
		s.mu.Unlock()
	}
	return change
}

// lost gives the connection up when err says that it is of no more use.
func (s *server) lost(c *conn, err error) bool {
	if !errors.As(err, new(broken)) {
		return false
	}
	c.fail(plain(err))
	return true
}

// plain is err without the marks that this package puts on it.
func plain(err error) error {
	for {
		switch e := err.(type) {
		case broken:
			err = e.error
		case undelivered:
			err = e.error
		case retriable:
			err = e.error
		case refused:
			err = e.error
		default:
			return err
		}
	}
}

// call sends one tools/call. See Pool.Call.
func (s *server) call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.settings.CallTimeout,
		fmt.Errorf("%w: no answer within %s", ErrTimeout, s.settings.CallTimeout))
	defer cancel()
	op := "call " + def.ID.Name
	if call.Arguments != nil && !json.Valid(call.Arguments) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the arguments are not JSON"}
	}
	for retried := false; ; retried = true {
		c, err := s.connect(ctx)
		if err != nil {
			return nil, &Error{Server: s.settings.Name, Op: op, Err: fmt.Errorf("connect: %w", plain(err))}
		}
		result, err := s.callOver(ctx, c, def, call)
		if err == nil {
			s.exchanged(nil)
			return tool.Result(result), nil
		}
		if errors.Is(err, context.Canceled) { // by the caller: it says nothing of the server
			return nil, &Error{Server: s.settings.Name, Op: op, Err: context.Canceled}
		}
		again := s.lost(c, err) || errors.As(err, new(retriable))
		safe := errors.As(err, new(undelivered)) || def.Annotations.Repeatable()
		if again && safe && !retried && ctx.Err() == nil {
			continue
		}
		var rpc *tool.RPCError
		if errors.As(err, &rpc) {
			s.exchanged(nil)
			return nil, rpc
		}
		s.exchanged(plain(err))
		return nil, &Error{Server: s.settings.Name, Op: op, Err: plain(err)}
	}
}

func (s *server) callOver(ctx context.Context, c *conn, def *tool.Def, call *tool.Call) (json.RawMessage, error) {
	key, level := "", ""
	if call.Notify != nil {
		key = "toolfinch-" + strconv.FormatInt(s.tokens.Add(1), 10)
		flight := &inFlight{call: call, token: rawjson.Member(rawjson.Member(call.Params, "_meta"), "progressToken")}
		s.mu.Lock()
		s.calls[key] = flight
		level = s.level
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.calls, key)
			s.mu.Unlock()
			flight.end()
		}()
	}
	params, err := c.params(def, call, key, level)
	if err != nil {
		return nil, err
	}
	return c.request(ctx, "tools/call", params, c.header("tools/call", params, def))
}

// params is the params object of a call as the upstream gets it: the client's
// own, with the upstream's name for the tool.
func (c *conn) params(def *tool.Def, call *tool.Call, progressToken, level string) (json.RawMessage, error) {
	name, err := json.Marshal(def.ID.Name)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(call.Params)+len(call.Arguments)+64)
	out = append(append(out, `{"name":`...), name...)
	if call.Arguments != nil {
		out = append(append(out, `,"arguments":`...), call.Arguments...)
	}
	for key, value := range rawjson.Members(call.Params) {
		if key == "name" || key == "arguments" {
			continue
		}
		quoted, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		out = append(append(append(append(out, ','), quoted...), ':'), value...)
	}
	return c.withMeta(append(out, '}'), progressToken, level)
}

const methodListChanged = "notifications/tools/list_changed"

// notified gets what the upstream notifies. It runs on the read loop, so it
// hands on and returns.
func (s *server) notified(method string, params json.RawMessage) {
	switch method {
	case methodListChanged:
		select {
		case s.relist <- struct{}{}:
		default:
		}
	case "notifications/progress":
		key := strings.Trim(string(rawjson.Member(params, "progressToken")), `"`)
		s.mu.Lock()
		target := s.calls[key]
		s.mu.Unlock()
		if target == nil || target.token == nil {
			return
		}
		if own, err := rawjson.Set(params, "progressToken", target.token); err == nil {
			target.pass(method, own)
		}
	case "notifications/message":
		// Nothing says which call a log line belongs to.
		s.mu.Lock()
		targets := make([]*inFlight, 0, len(s.calls))
		for _, target := range s.calls {
			targets = append(targets, target)
		}
		s.mu.Unlock()
		for _, target := range targets {
			target.pass(method, params)
		}
		if len(targets) == 0 {
			s.log.Debug("log message of the upstream", "params", string(bytes.TrimSpace(params[:min(len(params), 500)])))
		}
	}
}

// setLevel asks a legacy upstream for log messages, off the caller's path.
// A 2026-07-28 upstream is told with each request.
func (s *server) setLevel(c *conn, level string) {
	if c.era != EraLegacy || c.capabilities.Logging == nil {
		return
	}
	params, err := json.Marshal(map[string]string{"level": level})
	if err != nil {
		return
	}
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.life, 10*time.Second)
		defer cancel()
		if _, err := c.request(ctx, "logging/setLevel", params, nil); err != nil {
			s.log.Debug("the log level was not set", "error", plain(err))
		}
	})
}
