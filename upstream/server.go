package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/limit"
	"toolfinch/rawjson"
	"toolfinch/tool"
)

// server supervises the connections to one upstream.
type server struct {
	settings Settings // complete; of those that limits has too, as they were first
	limits   atomic.Pointer[limits]
	mask     *mask
	log      *slog.Logger
	events   Events
	sealer   *sealer
	askers   *limit.Limit // connections of clients that are asked
	tasks    *tasks
	life     context.Context    // ends when the connections are to be closed
	end      context.CancelFunc // of life
	term     context.Context    // ends when another takes its place, or none does
	resign   context.CancelFunc // of term
	work     sync.WaitGroup     // whoever starts a goroutine adds to it
	watching sync.WaitGroup     // the watch loop, if there is one
	relist   chan struct{}      // holds one signal: pending is not empty, or something else is to be told
	fresh    chan struct{}      // a call has connected while the watch loop was backing off
	anew     chan struct{}      // holds one signal: the watch loop is to connect at once, as if for the first time
	hasAsked chan struct{}      // closed when the server has asked clients something
	proofs   proofs
	seats    seats
	dropped  atomic.Int64 // notifications that clients did not get

	mu            sync.Mutex // guards what follows; never held over I/O
	status        Status
	era           Era
	interactive   bool               // it has asked clients something
	pending       map[tool.Kind]bool // lists that have changed
	listed        map[tool.Kind]listing
	subscriptions map[string]bool // URIs of resources
	level         string          // of log messages, that legacy clients want
	raised        string          // that a 2026-07-28 client has wanted
	opened        *openURLs
	renewal       *renewal      // the Reconnect that runs, nil for none
	connected     bool          // the main connection was there once
	noHandshake   bool          // a legacy connection beside the main one gives clients nothing
	rooted        bool          // it asks for roots by itself
	unlisted      error         // why the last list of tools failed, nil when it did not
	down          bool          // it was logged that the server is not available
	retired       bool          // its term has ended
	uses          int           // by callers of the pool
	vacant        chan struct{} // closed once it is retired and has no uses
}

// newServer makes a server of settings that are complete. It lives no longer
// than the pool.
func newServer(p *Pool, s Settings, known Known) *server {
	transport := s.Transport
	if s.Command != "" {
		transport = TransportStdio
	}
	hidden := newMask(s.Secrets)
	one := &server{
		settings: s, mask: hidden, log: hidden.logger(p.log).With("server", s.Name), events: p.events, sealer: p.sealer, tasks: p.tasks, askers: p.asking,
		relist:        make(chan struct{}, 1),
		fresh:         make(chan struct{}, 1),
		anew:          make(chan struct{}, 1),
		status:        Status{Server: s.Name, State: StatePending, Since: time.Now(), Era: known.Era, Transport: string(transport)},
		era:           known.Era,
		interactive:   known.Interactive,
		pending:       map[tool.Kind]bool{},
		listed:        map[tool.Kind]listing{},
		subscriptions: map[string]bool{},
		opened:        &openURLs{clients: map[string]string{}},
		vacant:        make(chan struct{}),
		hasAsked:      make(chan struct{}),
	}
	if one.interactive {
		close(one.hasAsked)
	}
	one.adjust(s)
	one.life, one.end = context.WithCancel(p.life)
	one.term, one.resign = context.WithCancel(one.life)
	one.seats.main = &seat{line: &line{server: one, main: true, declare: json.RawMessage(capabilities)}}
	return one
}

func (s *server) connect(ctx context.Context) (*conn, error) { return s.seats.main.line.connect(ctx) }

func (s *server) knownEra() Era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}

// dialled follows every attempt to connect.
func (s *server) dialled(l *line, c *conn, err error) {
	if l.main {
		s.mu.Lock()
		if err == nil {
			s.era, s.status.Era, s.status.Transport = c.era, c.era, string(c.transport())
			if s.connected {
				s.status.Restarts++
				s.status.Since = time.Now()
			}
			s.connected, s.noHandshake = true, false
		}
		s.mu.Unlock()
		s.exchanged(err)
	}
	if err != nil {
		return
	}
	s.log.Debug("connected", "era", c.era, "main", l.main)
	s.mu.Lock()
	level := s.wantedLevel()
	s.mu.Unlock()
	if level != "" {
		c.setLevel(level, raiseWithin) // before the first call over it
	}
	if l.main || l.common && c.http == nil {
		c.attend()
	}
	if l.main {
		wake(s.fresh)
	}
}

// wake leaves a signal in a channel that holds one.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed says that lists of the server have changed, or without kinds that
// something else is to be told of it.
func (s *server) changed(kinds ...tool.Kind) {
	s.mu.Lock()
	for _, kind := range kinds {
		s.pending[kind] = true
	}
	s.mu.Unlock()
	wake(s.relist)
}

// exchanged notes how the last exchange went: that is what health is. A server
// whose tools cannot be listed has failed, however well its calls go.
func (s *server) exchanged(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := StateReady
	if err == nil {
		err = s.unlisted
	}
	if err != nil {
		state = StateFailed
	}
	if s.status.State != state {
		s.status.State, s.status.Since = state, time.Now()
	}
	s.status.Err = err
}

// exchangedOver is exchanged for c, unless another connection has taken its place.
func (s *server) exchangedOver(c *conn, err error) {
	l := s.seats.main.line
	l.mu.Lock()
	current := l.conn == c
	l.mu.Unlock()
	if current {
		s.exchanged(err)
	}
}

// barrier returns once nobody starts work any more that does not see that the
// life has ended.
func (s *server) barrier() {
	for _, l := range s.lines() {
		l.barrier()
	}
}

// close ends the server's life and connections, and waits for whatever it has
// started. It may be called twice.
func (s *server) close() {
	s.end()
	s.barrier()
	s.work.Wait()
	var closing sync.WaitGroup
	for _, l := range s.lines() {
		closing.Go(l.close)
	}
	closing.Wait()
}

// maxNotice bounds a notification, in bytes: many may wait for many clients.
const maxNotice = 1 << 20

// lost gives the connection up when err says that it is of no more use.
func (s *server) lost(c *conn, err error) bool {
	if !errors.As(err, new(broken)) {
		return false
	}
	c.fail(plain(err))
	return true
}

// marked is an error that is also mark to errors.Is. Its text does not say so.
type marked struct {
	error
	mark error
}

func (m marked) Unwrap() error { return m.error }

func (m marked) Is(target error) bool { return target == m.mark }

// plain is err without the marks that are this package's own affair.
func plain(err error) error {
	for {
		switch e := err.(type) {
		case broken:
			err = e.error
		case undelivered:
			err = e.error
		case retriable:
			err = e.error
		default:
			return err
		}
	}
}

// listChanged are the notifications after which lists are asked for again.
var listChanged = map[string][]tool.Kind{
	"notifications/tools/list_changed":     {tool.KindTool},
	"notifications/prompts/list_changed":   {tool.KindPrompt},
	"notifications/resources/list_changed": {tool.KindResource, tool.KindTemplate},
}

// notified gets what the upstream notifies. stream is the ID of the request
// that it belongs to, if that is known. It runs on the read loop, so it hands on
// and returns.
func (c *conn) notified(stream int64, method string, params json.RawMessage) {
	s := c.server
	if kinds := listChanged[method]; kinds != nil {
		if c.main {
			s.changed(kinds...)
		}
		return
	}
	if len(params) > maxNotice {
		level := slog.LevelDebug
		if s.dropped.Add(1) == 1 { // a server can send many
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "a notification is too long and was dropped", "method", method, "bytes", len(params))
		return
	}
	if strings.HasPrefix(method, notificationsTasks) {
		c.taskNotified(stream, method, params)
		return
	}
	switch method {
	case "notifications/progress":
		token := strings.Trim(string(rawjson.Member(params, "progressToken")), `"`)
		id, _ := strconv.ParseInt(strings.TrimPrefix(token, tokenPrefix), 10, 64)
		c.mu.Lock()
		f := c.flights[id]
		c.mu.Unlock()
		if f == nil {
			return
		}
		f.limit.renew()
		if f.token == nil {
			return
		}
		if own, err := rawjson.Set(params, "progressToken", f.token); err == nil {
			c.pass(stream, f, method, own)
		}
	case "notifications/message":
		targets := c.aboard(stream)
		params = s.mask.json(params)
		asked := c.leveled()
		for _, f := range targets {
			if c.wantsLog(f, asked, params) {
				c.pass(stream, f, method, params)
			}
		}
		if len(targets) == 0 && s.events.Log != nil {
			s.events.Log(s.settings.Name, c.onlyUser(), asked, params)
		}
		if len(targets) == 0 {
			s.log.Debug("log message of the upstream", "params", string(bytes.TrimSpace(params[:min(len(params), 500)])))
		}
	case "notifications/resources/updated":
		if s.events.Updated != nil {
			s.events.Updated(s.settings.Name, rawjson.Text(rawjson.Member(params, "uri")), ownSubscription(params))
		}
	case "notifications/elicitation/complete":
		c.completed(params)
	case "notifications/cancelled":
		c.withdraw(rawjson.Member(params, "requestId"))
	case "notifications/subscriptions/acknowledged":
		c.acknowledged(params)
	default:
		for _, f := range c.aboard(stream) { // whatever it is, it came with a call
			c.pass(stream, f, method, params)
		}
	}
}

// aboard returns the calls that a message on a stream may be about: the
// stream's own, else all in flight, because nothing says which. Some servers
// send what they have to say on whatever stream of the session is open.
func (c *conn) aboard(stream int64) []*flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[stream]; f != nil {
		return []*flight{f}
	}
	all := make([]*flight, 0, len(c.flights))
	for _, f := range c.flights {
		all = append(all, f)
	}
	return all
}

// ownSubscription takes the ID of our subscription out of a notification: it
// means nothing to anybody else.
func ownSubscription(params json.RawMessage) json.RawMessage {
	meta := rawjson.Member(params, "_meta")
	if rawjson.Member(meta, mcp.MetaKeySubscriptionID) == nil {
		return params
	}
	rest := without(meta, mcp.MetaKeySubscriptionID)
	if string(rest) == "{}" {
		return without(params, "_meta")
	}
	if out, err := rawjson.Set(params, "_meta", rest); err == nil {
		return out
	}
	return params
}
