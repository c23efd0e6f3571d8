package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// server is one configured server: its parts, and what is asked of it.
type server struct {
	settings Settings // complete; of those that limits has too, as they were first
	limits   atomic.Pointer[limits]
	mask     *mask
	log      *slog.Logger
	events   Events
	version  string // of this client
	traces   *telemetry.Traces
	sealer   *sealer
	tasks    *tasks
	leads    Leads
	program  conn.Program                 // nil: the command of the settings
	ownPort  int                          // where this process listens; 0: nowhere
	private  *limit.Limit                 // connections of clients that are asked
	dropped  atomic.Int64                 // notifications that clients did not get
	process  atomic.Pointer[conn.Process] // the last one of the main connection; nil for none

	login         *login.Server // nil where there is none
	uses          uses
	main          *connector
	sharing       sharing
	supervisor    *supervisor
	reconnects    reconnects
	health        *health
	lists         lists
	questions     questions
	subscriptions subscriptions
	levels        levels

	life context.Context    // ends when the connections are to be closed
	end  context.CancelFunc // of life
	work sync.WaitGroup     // whoever starts a goroutine adds to it
}

// started tells of a process of the server. That of the connection of all is shown.
func (l *connector) started(p *conn.Process) {
	s := l.server
	if l.main {
		s.process.Store(p)
	}
	if s.events.Started != nil {
		s.events.Started(s.settings.Name, &s.settings, p.PID)
	}
}

// newServer makes a server of settings that are complete. It lives no longer
// than the pool.
func newServer(p *Pool, settings Settings, known Known) *server {
	hidden := newMask(settings.Secrets)
	s := &server{
		settings: settings, mask: hidden, log: hidden.logger(p.log).With("server", settings.Name), events: p.events, version: p.version, traces: p.traces,
		sealer: p.sealer, tasks: p.tasks, leads: p.leads, private: p.private, ownPort: p.ownPort,
		health:        newHealth(settings, known.Era, hidden),
		lists:         lists{due: make(chan struct{}, 1), pending: map[tool.Kind]bool{}, known: map[tool.Kind]listing{}},
		subscriptions: subscriptions{uris: map[string]bool{}},
	}
	if p.programs != nil {
		s.program = p.programs(settings)
	}
	s.login = p.loginTo(settings)
	hidden.login = s.login
	s.adjust(settings)
	s.life, s.end = context.WithCancel(p.life)
	s.uses.term, s.uses.resign = context.WithCancel(s.life)
	s.uses.vacant = make(chan struct{})
	s.main = &connector{server: s, main: true, declare: json.RawMessage(capabilities)}
	s.sharing.server, s.sharing.main = s, &slot{connector: s.main}
	s.supervisor = &supervisor{server: s, fresh: make(chan struct{}, 1), anew: make(chan struct{}, 1)}
	s.reconnects.server = s
	s.questions = questions{
		events: p.events, limits: &s.limits, changed: func() { s.lists.changed() }, begun: make(chan struct{}),
		opened: &openURLs{clients: map[string]string{}}, interactive: known.Interactive,
	}
	if known.Interactive {
		close(s.questions.begun)
	}
	return s
}

// limits are the settings of a server that may change while it runs.
type limits struct{ call, total, ask time.Duration }

// adjust takes over the settings that need no new connection.
func (s *server) adjust(to Settings) {
	s.limits.Store(&limits{to.CallTimeout, to.CallTimeoutTotal, to.AskTimeout})
}

func (s *server) connect(ctx context.Context) (*connection, error) { return s.main.connect(ctx) }

// dialled follows every attempt to connect.
func (s *server) dialled(l *connector, c *connection, err error) {
	if l.main {
		if err == nil {
			s.sharing.mainDialled()
		}
		s.health.dialled(c, err)
	}
	if err != nil {
		return
	}
	s.log.Debug("connected", "era", c.Era, "main", l.main)
	if c.login && !l.hasLogin(s.life) { // it ended before there was a connection to retire
		c.Retire()
	}
	if level := s.levels.wanted(); level != "" {
		c.level.tell(c, level) // before the first call over it
	}
	if l.main || l.common && c.Transport == TransportStdio {
		c.listen()
	}
	if l.main {
		wake(s.supervisor.fresh)
	}
}

// call sends one tools/call, prompts/get or resources/read. See Pool.Call.
func (s *server) call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	r := newRequest(def)
	// What came off the wire has been read as JSON already.
	if call.Params == nil && call.Arguments != nil && !json.Valid(call.Arguments) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the arguments are not JSON"}
	}
	if err := s.resume(ctx, &r, call); err != nil {
		return nil, err
	}
	d := s.begin(ctx, call, r)
	defer d.finish()
	return d.untilAnswered()
}

// complete sends one completion/complete. See Pool.Complete.
func (s *server) complete(ctx context.Context, call *tool.Call) (tool.Result, error) {
	d := s.begin(ctx, call, request{
		method: "completion/complete", op: "complete", repeatable: true,
		needs: "completions", without: json.RawMessage(`{"completion":{"values":[]}}`),
	})
	defer d.finish()
	result, _, err := d.send()
	return tool.Result(result), err
}

// status is the health of the server as the owner may see it.
func (s *server) status() Status {
	status := s.health.all()
	status.Dropped = s.dropped.Load()
	if p := s.process.Load(); p != nil {
		status.PID = p.PID
		select {
		case <-p.Exited:
			status.PID = 0
		default:
		}
		for _, line := range p.Stderr.Lines() {
			status.Stderr = append(status.Stderr, s.mask.text(line))
		}
	}
	return status
}

// known is what is to be remembered of the server.
func (s *server) known() Known {
	era, _ := s.health.met()
	return Known{Era: era, Interactive: s.questions.any()}
}

// inherit takes over what clients want of a server that has retired.
func (s *server) inherit(old *server) {
	for _, uri := range old.subscriptions.all() {
		s.subscriptions.uris[uri] = true
	}
	old.levels.mu.Lock()
	s.levels.raised = old.levels.raised
	old.levels.mu.Unlock()
	s.questions.opened = old.questions.opened
}

// close ends the server's life and connections, and waits for whatever it has
// started. It may be called twice.
func (s *server) close() {
	s.end()
	for _, l := range s.sharing.connectors() {
		l.isClosed() // whoever holds its lock has not seen the end of the life: from here on all do
	}
	s.work.Wait()
	var closing sync.WaitGroup
	for _, l := range s.sharing.connectors() {
		closing.Go(l.close)
	}
	closing.Wait()
}
