// Package upstream owns the connections to MCP servers: it dials, supervises,
// lists and calls. It keeps nothing beyond them and shows nothing to clients.
package upstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/limit"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

// Errors that callers may tell apart. They come wrapped in an *Error. Where
// there was no connection, why may be the others: ErrNotConnected is to be
// looked for before them.
var (
	ErrUnknownServer = errors.New("no such server is configured")
	ErrNotConnected  = conn.ErrNotConnected // nothing was sent: there was no connection
	ErrClosed        = conn.ErrClosed       // it was lost while it was used
	ErrTimeout       = conn.ErrTimeout      // by a limit of the server's settings, or the caller's deadline
)

// Reason is the text of the error of a call without what its server wrote, which may repeat
// arguments.
func Reason(err error) string { return conn.WithoutWords(err) }

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
	Capabilities json.RawMessage // of the server, as sent
	Instructions string
	Interactive  bool                    // it asks clients something
	Defs         []*tool.Def             // of all kinds, in the order of tool.Kinds, each as listed
	Cache        map[tool.Kind]CacheHint // of kinds whose list came with a hint
	Faults       Faults                  // what of the lists is left out or mended
	Unheard      []tool.Kind             // kinds whose list has failed and that are not known from before
	// Followed says that another process lists the server: only Era and Interactive are
	// known from here.
	Followed bool
	Outdated bool  // with Followed: the server said that its lists have changed
	Version  int64 // with Followed: of what is stored; 0: not known
	Err      error
}

// CacheHint is what a 2026-07-28 server says of keeping a list.
type CacheHint struct {
	TTL    time.Duration
	Public bool // the list is the same for everybody
}

// Known is what is remembered of a server from before.
type Known struct {
	Era         Era
	Interactive bool // it asks clients something
}

// Events are told what servers say outside of any call. Each may be nil. Except
// for Ask they must not block.
type Events struct {
	// Updated is told that a resource has changed: the server's own URI of it, and
	// the params of notifications/resources/updated.
	Updated func(server, uri string, params json.RawMessage)
	// Log gets the params of a server's notifications/message, and the key of the
	// client that alone uses the connection it came on, "" for none or several. asked
	// says that the server was told a level that somebody wants: a client that wants
	// none is to get nothing.
	Log func(server, clientKey string, asked bool, params json.RawMessage)
	// Notify gets a notification for one client (notifications/elicitation/complete).
	Notify func(clientKey, method string, params json.RawMessage)
	// Ask is tool.Client.Ask for a request outside of a call, to the one client
	// that a connection belongs to.
	Ask func(ctx context.Context, clientKey, method string, params json.RawMessage) (json.RawMessage, error)
	// Started is told of the process of a server, before anything is said to it; it may
	// block. It must not change settings.
	Started func(server string, settings *Settings, pid int)
	// Reaches reports whether Ask gets through to a client at once.
	Reaches func(clientKey string) bool
}

// Pool is the set of configured servers. Its methods are safe for concurrent use.
type Pool struct {
	events   Events
	version  string // of this client
	sealer   *sealer
	tasks    *tasks
	logins   *login.Logins
	traces   *telemetry.Traces
	private  *limit.Limit // connections of clients that are asked
	log      *slog.Logger
	life     context.Context // ends with Close
	end      context.CancelFunc
	now      atomic.Pointer[members] // replaced under mu, read without
	work     sync.WaitGroup          // whoever closes servers that have left
	leads    Leads
	programs func(Settings) conn.Program // nil: all are commands
	ownPort  int                         // where this process listens; 0: nowhere

	mu      sync.Mutex // guards what follows, and the replacing of now; never held over I/O
	leaving []*server  // removed or replaced, not closed yet
	watcher *watcher   // nil unless Watch runs
	level   string     // of log messages, that legacy clients want
}

// Options are what a pool is made with. Every field may be left out.
type Options struct {
	Known   map[string]Known // what is remembered of the servers, by name
	Events  Events
	Version string            // of this client, as servers are told; default "dev"
	Log     *slog.Logger      // default: nothing is logged
	Logins  *login.Logins     // default: no server is logged in to
	Traces  *telemetry.Traces // default: requests have no spans
	Leads   Leads             // default: this process lists every server
	Key     [32]byte          // of what clients carry from one call to the next; default: a random one that lives as long as the pool
	// Programs returns what runs in the place of the command of a server; nil where the command does.
	// Default: all are commands.
	Programs func(Settings) conn.Program
	OwnPort  int // where this process listens, which no server in a sandbox connects to; default: nowhere
}

// Leads says whether this process lists a server. If not, another does: this process
// keeps a connection and calls the server. changed is closed when the answer is another.
// It must not block.
type Leads func(server string) (leads bool, changed <-chan struct{})

// alone is the Leads of a process that has no others beside it.
func alone(string) (leads bool, changed <-chan struct{}) { return true, nil }

// NewPool makes a pool; nothing is connected.
func NewPool(settings []Settings, o Options) *Pool {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Key == [32]byte{} {
		_, _ = rand.Read(o.Key[:]) // never fails
	}
	if o.Leads == nil {
		o.Leads = alone
	}
	life, end := context.WithCancel(context.Background())
	p := &Pool{events: o.Events, version: cmp.Or(o.Version, "dev"), sealer: newSealer(o.Key), tasks: newTasks(o.Key), logins: o.Logins, traces: o.Traces, leads: o.Leads, programs: o.Programs, ownPort: o.OwnPort, log: o.Log, life: life, end: end}
	p.private = limit.Measured("asking_connections", maxPrivate, "clients of the server are asked something", "call again", p.privates)
	p.now.Store(&members{})
	p.Update(settings, o.Known)
	return p
}

// Limits are what clients of the servers can make grow: a limit of each server, used
// by all of them together.
func (p *Pool) Limits() []*limit.Limit { return []*limit.Limit{p.private} }

// privates is how many connections of clients that are asked the servers have.
func (p *Pool) privates() (n int64) {
	for _, s := range p.now.Load().order {
		s.sharing.mu.Lock()
		n += int64(s.sharing.count())
		s.sharing.mu.Unlock()
	}
	return n
}

// Watch keeps every server connected and its definitions known, all in parallel,
// until ctx ends or the pool is closed; servers that Update brings too. It sends
// what becomes known to changes, and returns once every connection is closed
// and every child process gone. It is called once.
func (p *Pool) Watch(ctx context.Context, changes chan<- Change) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.life, stop)()
	w := &watcher{ctx: watching, changes: changes}
	p.mu.Lock()
	p.watcher = w
	for _, s := range p.now.Load().order {
		w.begin(s, nil)
	}
	p.mu.Unlock()
	<-watching.Done()
	p.mu.Lock()
	p.watcher = nil
	p.mu.Unlock()
	w.work.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(closeWithin))
	defer cancel()
	return p.Close(ending)
}

// closeWithin bounds the end of Watch. Nothing should take it: a child has
// been killed after two seconds, and a session is given up after five.
const closeWithin = 15 * time.Second

// Refresh connects to a server if need be and lists what it has now. Of a server that
// another process lists, the Change says so, and that its lists may have changed.
func (p *Pool) Refresh(ctx context.Context, name string) Change {
	s := p.enter(name)
	if s == nil {
		return Change{Server: name, Err: &Error{Server: name, Op: "refresh", Err: ErrUnknownServer}}
	}
	defer s.uses.exit()
	return s.mask.change(s.refresh(ctx))
}

// Follow takes in what another process has learned of a server: how many tools it has,
// how many definitions are left out or mended, and whether it asks clients something.
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

// Relist has a server listed again, at some time, where this process lists it: another
// one has heard that its lists have changed.
func (p *Pool) Relist(name string) {
	s := p.now.Load().byName[name]
	if s == nil {
		return
	}
	if leads, _ := s.leads(name); leads { // a follower would ask for it again
		s.lists.changed(tool.Kinds...)
	}
}

// Reconnect connects to a server anew, without the delay that earlier failures have
// earned, and lists what it has now. The new connection is made first; the ones
// before it, those of single clients too, are closed when the calls over them have
// ended, after 10 s at most. Where no second connection comes up, they are closed
// first. What is being dialled is given up; who waits for it gets the new connection.
//
// It takes no longer than twice ConnectTimeout, CallTimeout, that wait and some
// seconds for closing. Callers at the same time share one attempt, which goes on
// when their contexts end; the next begins when the connections before are closed.
func (p *Pool) Reconnect(ctx context.Context, name string) Change {
	s := p.enter(name)
	if s == nil {
		return Change{Server: name, Err: &Error{Server: name, Op: "reconnect", Err: ErrUnknownServer}}
	}
	change := s.reconnects.reconnect(ctx)
	s.uses.exit()
	if s.uses.isRetired() && ctx.Err() == nil {
		return p.Refresh(ctx, name) // what took its place is new as it is
	}
	return s.mask.change(change)
}

// Call calls a tool, gets a prompt or reads a resource, by the kind of def,
// whose Raw may be nil. A dead upstream is connected again at once, and the call
// made once more if it was never delivered, and once more if it may be repeated: prompts,
// resources, and tools annotated as read-only or idempotent. An error answer
// comes back as *tool.RPCError with the upstream's bytes, everything else as
// *Error: ErrNotConnected without a connection, ErrClosed when it was lost,
// ErrTimeout when CallTimeout or ctx's deadline has passed, context.Canceled
// when the caller gave up.
//
// What the upstream asks while the call runs, the call's client is asked; a
// client of the 2026-07-28 era may get an input_required result instead.
func (p *Pool) Call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	s := p.enter(def.ID.Server)
	if s == nil {
		return nil, &Error{Server: def.ID.Server, Op: newRequest(def).op, Err: ErrUnknownServer}
	}
	defer s.uses.exit()
	ctx, called := telemetry.Start(ctx, telemetry.StageUpstream, def.ID.Shown())
	result, err := s.call(ctx, def, call)
	err = s.mask.error(err)
	called(err)
	return result, err
}

// Complete asks a server to complete an argument. call.Params is the whole
// params object, with the server's own name in its ref. A server that cannot
// completes to nothing. Errors are those of Call.
func (p *Pool) Complete(ctx context.Context, server string, call *tool.Call) (tool.Result, error) {
	s := p.enter(server)
	if s == nil {
		return nil, &Error{Server: server, Op: "complete", Err: ErrUnknownServer}
	}
	defer s.uses.exit()
	result, err := s.complete(ctx, call)
	return result, s.mask.error(err)
}

// Subscribe has a server tell of changes of a resource, by its own URI, over
// whatever connections, until Unsubscribe or until the server is removed. Of a
// server that is not there that begins when it is. A server that cannot is an
// *tool.RPCError.
func (p *Pool) Subscribe(ctx context.Context, server, uri string) error {
	return p.subscribe(ctx, server, uri, true)
}

// Unsubscribe ends what Subscribe began; a 2026-07-28 server hears of it a moment
// after.
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
		// Its successor may not have heard of it.
	}
}

// SetLogLevel asks every legacy upstream for log messages from level on, now
// and after each reconnect: the most verbose that any legacy client wants. It
// waits until those that are connected have answered, 2 s at most, because the
// next call is to be logged.
func (p *Pool) SetLogLevel(level string) {
	p.mu.Lock()
	p.level = level
	servers := p.now.Load().order
	p.mu.Unlock()
	var told sync.WaitGroup
	for _, s := range servers {
		s.levels.set(level)
		s.tellLevel(&told)
	}
	told.Wait()
}

// RootsChanged tells the upstreams that know a client's roots that they have
// changed. It does not wait.
func (p *Pool) RootsChanged(clientKey string) {
	for _, s := range p.all() {
		s.sharing.rootsChanged(clientKey)
	}
}

// Forget gives up the connections that a client has to itself: its session has
// ended. It does not wait.
func (p *Pool) Forget(clientKey string) {
	for _, s := range p.all() {
		s.sharing.forget(clientKey)
	}
}

// all are the servers and those that are leaving.
func (p *Pool) all() []*server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(p.now.Load().order, p.leaving)
}

// Login is what logs in to a server; nil where that needs or wants no login.
func (p *Pool) Login(server string) *login.Server {
	if s := p.now.Load().byName[server]; s != nil {
		return s.login
	}
	return nil
}

// LoginChanged has the login of a row of the vault read again: it was changed elsewhere, or ended. ""
// stands for all rows. Connections that were made with a login which is no more end, with the streams
// over them; calls over them end first, as with Reconnect.
func (p *Pool) LoginChanged(row string) {
	for _, s := range p.now.Load().order {
		if s.login == nil {
			continue
		}
		s.login.Changed(row)
		s.retire(func(l *connector, c *connection) bool { return c.login && !l.hasLogin(s.life) })
	}
}

// Health returns how every server is, in configured order.
func (p *Pool) Health() []Health {
	servers := p.now.Load().order
	all := make([]Health, len(servers))
	for i, s := range servers {
		all[i] = s.health.get()
	}
	return all
}

// Status returns Health with what else there is to say of every server. It copies what
// processes wrote to their standard error.
func (p *Pool) Status() []Status {
	servers := p.now.Load().order
	all := make([]Status, len(servers))
	for i, s := range servers {
		all[i] = s.status()
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
		p.barrier() // an Update from here on sees that the life has ended
		var closing sync.WaitGroup
		for _, s := range p.now.Load().order {
			closing.Go(s.close)
		}
		closing.Wait()
		p.work.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
