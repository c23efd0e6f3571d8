// Package upstream owns the connections to MCP servers: it dials, supervises,
// lists and calls. It keeps nothing beyond them and shows nothing to clients.
package upstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/limit"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// Pool is the set of configured servers. Its methods are safe for concurrent use.
type Pool struct {
	env *environment
	end context.CancelFunc // ends the environment's life
	membership
}

// Options configure a pool. Every field may be left out.
type Options struct {
	Known   map[string]Known // stored knowledge about the servers, by name
	Events  Events
	Version string            // client version that servers are told; default "dev"
	Log     *slog.Logger      // default: nothing is logged
	Logins  *login.Logins     // default: no server is logged in to
	Traces  *telemetry.Traces // default: requests have no spans
	Leads   Leads             // default: this process lists every server
	Key     [32]byte          // seals the state that clients keep between calls; default: a random key
	// Programs returns the program that runs instead of a server's command; nil for the command.
	// Default: every server runs its command.
	Programs func(Settings) conn.Program
	Starting int // how many servers start at once, see DefaultStarting
}

// NewPool makes a pool without connecting to any server.
func NewPool(settings []Settings, o Options) *Pool {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Key == [32]byte{} {
		_, _ = rand.Read(o.Key[:]) // never fails
	}
	if o.Leads == nil {
		o.Leads = leadsAlways
	}
	life, end := context.WithCancel(context.Background())
	env := &environment{events: o.Events, version: cmp.Or(o.Version, "dev"), sealer: newSealer(o.Key), tasks: newTasks(o.Key), logins: o.Logins, traces: o.Traces, leads: o.Leads, programs: o.Programs, starts: &starts{free: cmp.Or(o.Starting, DefaultStarting())}, log: o.Log, life: life}
	p := &Pool{env: env, end: end, membership: membership{env: env}}
	env.private = limit.Measured("asking_connections", maxPrivate, "clients of the server are asked something", "call again", p.privateConnections)
	p.now.Store(&members{})
	p.Update(settings, o.Known)
	return p
}

// DefaultStarting is how many servers start at once: one for each core, and at least two, so
// that a server that hangs does not stop the others.
func DefaultStarting() int { return max(2, runtime.NumCPU()) }

// Limits returns the bounds of state that clients can make grow. Each bound applies to each
// server; the counts are sums over all servers.
func (p *Pool) Limits() []*limit.Limit { return []*limit.Limit{p.env.private} }

// Update sets the servers of the pool, in the order of settings. If a name occurs several
// times, the first settings count. Update waits for no server. known is stored knowledge
// about servers, by name; a changed server that is not in known keeps its own knowledge.
//
// A server with equal settings continues untouched. A server also continues if only
// Description, Prefix, Validate, CallTimeout, CallTimeoutTotal or AskTimeout has changed; the
// new values apply from the next call on. For any other change a successor replaces the
// server: it takes over subscriptions and log levels and gets new calls, and running calls
// have 10 s to end on the old connections. Running calls of a removed server have the same
// time; new calls fail with ErrUnknownServer.
//
// While Watch runs, new and changed servers are watched too. A Change of a removed server may
// still arrive after Update has returned. No Change of a replaced server arrives after a
// Change of its successor. Update does nothing to a closed pool.
func (p *Pool) Update(settings []Settings, known map[string]Known) { p.update(settings, known) }

// Watch keeps every server connected and its definitions known, all in parallel, until ctx
// ends or the pool is closed; it includes servers that Update adds. It sends news about
// servers to changes, and returns when every connection is closed and every child process
// has ended. It is called once.
func (p *Pool) Watch(ctx context.Context, changes chan<- Change) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.env.life, stop)()
	p.watch(watching, changes)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(closeWithin))
	defer cancel()
	return p.Close(ending)
}

// closeWithin bounds the end of Watch. It should never be reached: a child is killed after
// two seconds, and a session is given up after five.
const closeWithin = 15 * time.Second

// Refresh connects to a server if necessary and lists its definitions. If another process
// lists the server, the Change only says so, and that the lists may have changed.
func (p *Pool) Refresh(ctx context.Context, name string) Change {
	s := p.enter(name)
	if s == nil {
		return Change{Server: name, Err: &Error{Server: name, Op: "refresh", Err: ErrUnknownServer}}
	}
	defer s.uses.exit()
	return s.mask.change(s.main.refresh(ctx))
}

// SetOwnPort names the port where this process listens: servers in a sandbox that start from
// now on cannot connect to it. The first port counts, because a sandbox closes one.
func (p *Pool) SetOwnPort(port int) { p.env.ownPort.CompareAndSwap(0, int64(port)) }

// Ask puts servers that are still to start before those that nobody waits for. It does not
// wait.
func (p *Pool) Ask(names ...string) {
	for _, name := range names {
		if s := p.now.Load().byName[name]; s != nil {
			s.main.ask()
		}
	}
}

// Renew lists servers again that do not say when their lists change, and those in named even
// if they do; of these, it connects at once those that are not connected. It waits for that,
// and for lists that are being read: for a second at most, ten for new connections.
func (p *Pool) Renew(ctx context.Context, servers, named []string) {
	longest := answersWait
	var renewed []*lists
	for _, name := range servers {
		s := p.now.Load().byName[name]
		if s == nil {
			continue
		}
		if named := slices.Contains(named, name); named && s.main.current() == nil {
			s.lists.hurry(s.reconnects.anew)
			longest = 10 * answersWait
		} else {
			s.lists.renew(named)
		}
		renewed = append(renewed, s.lists)
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, l := range renewed {
		l.await(ctx)
	}
}

// Follow notes what another process has learned about a server: its number of tools, its
// faulty definitions, and whether it asks clients something.
func (p *Pool) Follow(name string, tools int, faults Faults, interactive bool) {
	s := p.now.Load().byName[name]
	if s == nil {
		return
	}
	s.health.listed(tools, faults)
	if interactive {
		s.questions.learn()
	}
}

// Relist makes the watch list a server again if this process lists it: another process has
// heard that the lists have changed.
func (p *Pool) Relist(name string) {
	s := p.now.Load().byName[name]
	if s == nil {
		return
	}
	if leads, _ := s.leads(); leads { // a follower would send the request back
		s.lists.changed(tool.Kinds...)
	}
}

// Reconnect makes a new connection to a server, without the delay that follows failures, and
// lists its definitions. The new connection is made first. The old connections, including
// private connections, are closed when their calls have ended, after 10 s at most. If no
// second connection comes up, they are closed first. A running attempt to connect is given
// up, and its callers get the new connection.
//
// It takes at most twice ConnectTimeout, CallTimeout, 10 s and some seconds for closing.
// Callers at the same time share one attempt, which continues when their contexts end. The
// next attempt begins when the old connections are closed.
func (p *Pool) Reconnect(ctx context.Context, name string) Change {
	s := p.enter(name)
	if s == nil {
		return Change{Server: name, Err: &Error{Server: name, Op: "reconnect", Err: ErrUnknownServer}}
	}
	change := s.reconnects.reconnect(ctx)
	s.uses.exit()
	if s.uses.isRetired() && ctx.Err() == nil {
		return p.Refresh(ctx, name) // its successor has a new connection anyway
	}
	return s.mask.change(change)
}

// Call calls a tool, gets a prompt, or reads a resource or a file of a skill, by the kind of def. def.Raw may be
// nil. If the connection is dead, Call makes a new one at once. It sends the call once more
// if it was not sent, and once more if it was sent and may be repeated: prompts, resources,
// and tools annotated as read-only or idempotent. An error answer is a *tool.RPCError with
// the upstream's bytes. Any other error is an *Error: ErrNotConnected without a connection,
// ErrClosed if the connection was lost, ErrTimeout if CallTimeout or ctx's deadline has
// passed, context.Canceled if the caller gave up.
//
// If the server announces new lists during the call, the answer waits for Change.Served, a
// second at most.
//
// The call's client answers the questions that the upstream asks during the call. A
// 2026-07-28 client may get an input_required result instead.
func (p *Pool) Call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	if def.ID.Kind == tool.KindSkill {
		result, err := readSkill(ctx, def, call, p.Call)
		if errors.Is(err, ErrSkillChanged) {
			p.Relist(def.ID.Server)
		}
		return result, err
	}
	s := p.enter(def.ID.Server)
	if s == nil {
		return nil, &Error{Server: def.ID.Server, Op: newRequest(def).op, Err: ErrUnknownServer}
	}
	defer s.uses.exit()
	ctx, called := telemetry.Start(ctx, telemetry.StageUpstream, def.ID.Shown())
	announced := s.lists.announced()
	result, err := s.call(ctx, def, call)
	err = s.mask.error(err)
	called(err)
	if s.lists.announced() > announced { // so that a tool that the call has added can be called
		ctx, cancel := context.WithTimeout(ctx, answersWait)
		defer cancel()
		s.lists.await(ctx)
	}
	return result, err
}

// Task sends a tasks/get, tasks/update or tasks/cancel to the server of the task that
// call.Name names. A task of another principal is answered as unknown; so is a task of a
// principal if the call has none. Names are valid as long as the key of the pool. Task fails
// like Call.
func (p *Pool) Task(ctx context.Context, method string, call *tool.Call) (tool.Result, error) {
	name, id, ok := p.env.tasks.open(call.Name, call.Principal)
	var s *member
	if ok {
		s = p.enter(name)
	}
	if s == nil {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "there is no such task"}
	}
	defer s.uses.exit()
	result, err := s.task(ctx, method, id, call)
	return result, s.mask.error(err)
}

// Complete asks a server to complete an argument. call.Params is the whole params object,
// with the server's own name in its ref. A server without completions gives an empty result.
// Complete fails like Call.
func (p *Pool) Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error) {
	s := p.enter(server)
	if s == nil {
		return nil, &Error{Server: server, Op: "complete", Err: ErrUnknownServer}
	}
	defer s.uses.exit()
	result, err := s.complete(ctx, call)
	return result, s.mask.error(err)
}

// Subscribe makes a server report changes of a resource, by its own URI, until Unsubscribe
// or until the server is removed. If the server is not connected, the subscription begins
// when it is. The error is a *tool.RPCError if the server has no subscriptions.
func (p *Pool) Subscribe(ctx context.Context, server, uri string) error {
	return p.subscribe(ctx, server, uri, true)
}

// Unsubscribe ends a subscription. A 2026-07-28 server is told a moment later.
func (p *Pool) Unsubscribe(ctx context.Context, server, uri string) error {
	return p.subscribe(ctx, server, uri, false)
}

func (p *Pool) subscribe(ctx context.Context, server, uri string, on bool) error {
	for {
		s := p.enter(server)
		if s == nil {
			return &Error{Server: server, Op: "subscribe " + uri, Err: ErrUnknownServer}
		}
		err := s.subscribe(ctx, uri, on)
		s.uses.exit()
		if ctx.Err() != nil || !s.uses.isRetired() {
			return s.mask.error(err)
		}
		// The server was replaced, and its successor may not know the subscription.
	}
}

// SetLogLevel sets the most verbose log level that any legacy client wants, at every legacy
// upstream, now and after each reconnect. It waits at most 2 s for answers of the connected
// upstreams, so that the next call is logged.
func (p *Pool) SetLogLevel(level string) {
	var told sync.WaitGroup
	for _, s := range p.setLevel(level) {
		s.sharing.tellLevel(&told)
	}
	told.Wait()
}

// RootsChanged tells the upstreams that know a client's roots of their change. It does not
// wait.
func (p *Pool) RootsChanged(clientKey string) {
	for _, s := range p.all() {
		s.sharing.rootsChanged(clientKey)
	}
}

// Forget gives up the private connections of a client whose session has ended. It does not
// wait.
func (p *Pool) Forget(clientKey string) {
	for _, s := range p.all() {
		s.sharing.forget(clientKey)
	}
}

// Login returns the login to a server; nil if the server has none.
func (p *Pool) Login(server string) *login.Server {
	if s := p.now.Load().byName[server]; s != nil {
		return s.login
	}
	return nil
}

// LoginChanged reads the login in a row of the vault again, because another process has changed
// or ended it; "" means all rows. Connections that were made with an ended login are closed
// when their calls have ended, as with Reconnect.
func (p *Pool) LoginChanged(row string) {
	for _, s := range p.now.Load().order {
		if s.login == nil {
			continue
		}
		s.login.Changed(row)
		s.sharing.retire(func(c *connection) bool { return c.hasLogin && !s.hasLogin(s.life, c.principal) })
	}
}

// Health returns the health of every server, in configured order.
func (p *Pool) Health() []Health {
	servers := p.now.Load().order
	all := make([]Health, len(servers))
	for i, s := range servers {
		all[i] = s.health.get()
	}
	return all
}

// Status returns Health with the details of every server. It copies the last standard error
// of processes.
func (p *Pool) Status() []Status {
	servers := p.now.Load().order
	all := make([]Status, len(servers))
	for i, s := range servers {
		all[i] = s.status()
	}
	return all
}

// Lines returns the last log lines about a server whose numbers are above after: what its process wrote to standard
// error, its log messages, and what became of its connections. It reports false for an unknown server.
func (p *Pool) Lines(server string, after int64) ([]Line, bool) {
	s := p.now.Load().byName[server]
	if s == nil {
		return nil, false
	}
	return s.lines.after(after), true
}

// Close closes every connection and ends every child process, in parallel, and waits: about
// two seconds for children that do not end by themselves. It may be called twice. The error
// is ctx.Err().
func (p *Pool) Close(ctx context.Context) error {
	p.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
