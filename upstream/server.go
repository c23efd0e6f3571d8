package upstream

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/limit"
	"toolfinch/internal/telemetry"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// environment is shared by all servers of a pool.
type environment struct {
	events   Events
	version  string // client version that servers are told
	sealer   *sealer
	tasks    *tasks
	logins   *login.Logins
	traces   *telemetry.Traces
	leads    Leads
	programs func(Settings) conn.Program // nil: each server runs its command
	starts   *starts
	ownPort  atomic.Int64 // the port where this process listens; 0: none
	private  *limit.Limit // connections of clients that can be asked
	log      *slog.Logger
	life     context.Context // ends when the pool is closed
}

// server is one configured server: its settings, and the state that its connections share.
type server struct {
	env      *environment
	settings Settings               // complete; fields that are also in limits may be outdated
	limits   atomic.Pointer[limits] // the present limits
	mask     *mask
	log      *slog.Logger                 // masks secrets
	lines    *recent                      // the last lines of log, and log messages
	program  conn.Program                 // nil: the command of the settings
	process  atomic.Pointer[conn.Process] // the last process of the main connection; nil for none
	login    *login.Server                // nil if the server has no login
	dropped  atomic.Int64                 // notifications that did not reach clients
	listed   atomic.Bool                  // its tools were listed, in this run or an earlier one

	// noHandshake is set if legacy clients gain nothing from a legacy connection beside a main
	// connection of 2026-07-28.
	noHandshake atomic.Bool

	health        *health
	lists         *lists
	questions     *questions
	subscriptions subscriptions
	levels        levels

	life context.Context    // ends when the connections must be closed
	end  context.CancelFunc // ends life
	work sync.WaitGroup     // every goroutine of the server is counted here
}

// newServer makes a server of complete settings. It ends with the environment's life.
func newServer(env *environment, settings Settings, known Known) *server {
	hidden, lines := newMask(settings.Secrets), &recent{}
	s := &server{
		env: env, settings: settings, mask: hidden, lines: lines, log: hidden.logger(slog.New(keeping{env.log.Handler(), lines})).With("server", settings.Name),
		login: LoginTo(env.logins, settings), health: newHealth(settings, known, hidden), lists: newLists(),
		subscriptions: subscriptions{uris: map[string]bool{}},
	}
	if env.programs != nil {
		s.program = env.programs(settings)
	}
	hidden.login = s.login
	s.limits.Store(settings.limits())
	s.listed.Store(known.Listed)
	s.life, s.end = context.WithCancel(env.life)
	s.questions = newQuestions(env.events, &s.limits, s.lists, known.Interactive)
	return s
}

// turn waits until the server may start. done ends the start. Only servers that run here
// queue: to connect over HTTP costs this machine nothing.
func (s *server) turn(ctx context.Context, one *start) (done func(), err error) {
	if s.settings.Command == "" {
		return func() {}, context.Cause(ctx)
	}
	return s.env.starts.wait(ctx, one)
}

// fetches reports whether the server's command may have to download the server first.
func (s *server) fetches() bool { return !s.listed.Load() && s.settings.downloads() }

// connectWithin bounds one attempt to connect.
func (s *server) connectWithin() time.Duration {
	switch {
	case s.settings.ConnectTimeout > 0:
		return s.settings.ConnectTimeout
	case s.fetches():
		return DownloadTimeout
	}
	return DefaultConnectTimeout
}

// LoginTo returns the login to the server of settings; nil if the server's headers
// authenticate the proxy, or logging in is turned off.
func LoginTo(logins *login.Logins, s Settings) *login.Server {
	if logins == nil || s.URL == "" || s.Login.Off {
		return nil
	}
	for name := range s.Headers {
		if strings.EqualFold(name, "Authorization") {
			return nil
		}
	}
	s.Login.TLS = s.TLS
	return logins.Server(s.Name, s.URL, s.Login)
}

// leads reports whether this process lists the server. changed is closed when that changes.
func (s *server) leads() (leads bool, changed <-chan struct{}) { return s.env.leads(s.settings.Name) }

// started reports a new process of the server. The process of the main connection is shown
// in the server's status.
func (s *server) started(main bool, p *conn.Process) {
	if main {
		s.process.Store(p)
	}
	if s.env.events.Started != nil {
		s.env.events.Started(s.settings.Name, &s.settings, p.PID)
	}
}

// status returns the server's health with the details for its owner.
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

// known returns the knowledge to remember about the server.
func (s *server) known() Known {
	era, _ := s.health.met()
	return Known{Era: era, Interactive: s.questions.any(), Listed: s.listed.Load()}
}

// inherit takes over the wishes of clients from the server's predecessor.
func (s *server) inherit(old *server) {
	s.subscriptions.inherit(&old.subscriptions)
	s.levels.inherit(&old.levels)
	s.questions.opened = old.questions.opened
	s.lines.inherit(old.lines)
}

// failed returns the Change of a failed operation.
func (s *server) failed(op string, err error) Change {
	return Change{Server: s.settings.Name, Err: &Error{Server: s.settings.Name, Op: op, Err: err}}
}
