package upstream

import (
	"errors"
	"sync"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/login"
)

// State is the health of a server: what the last exchange with it said.
type State string

// StatePending means that nothing has been exchanged yet.
const (
	StatePending State = "pending"
	StateReady   State = "ready"
	StateFailed  State = "failed"
	// StateLogin means that somebody has to log in first. Err says how.
	StateLogin State = "needs_login"
)

// Health is how one server is. It is cheap to read: a search looks at that of every server.
type Health struct {
	Server  string
	State   State
	Err     error     // of the last exchange, nil when it went well. Its text is masked and ready
	Command string    // that starts it; "" for one that is reached over HTTP
	Began   time.Time // when it was configured
	Since   time.Time // of State, or of the connection that took another's place in it
}

// Status is how one server is, and what there is to say of it.
type Status struct {
	Health
	Tools     int
	LeftOut   int // malformed definitions that are not served, see Faults
	Mended    int // malformed definitions that are served mended
	Era       Era
	Transport string // a Transport: as connected last, as configured before that
	Restarts  int    // how often a connection took the place of one that had ended
	Dropped   int64  // notifications that clients did not get: too long, or read too slowly
	PID       int    // of the process of the connection that all share; 0 where none runs
	// Stderr is what the last such process wrote last to its standard error, for the owner:
	// at most 20 lines, as they are.
	Stderr []string
}

// health is how the exchanges with a server go.
type health struct {
	mask *mask

	mu        sync.Mutex // guards what follows; never held over I/O
	status    Status     // without Dropped, PID and Stderr
	connected bool       // the main connection was there once
	unlisted  error      // why the last list of tools failed, nil when it did not; masked
}

func newHealth(s Settings, era Era, m *mask) *health {
	transport := s.Transport
	if s.Command != "" {
		transport = TransportStdio
	}
	now := time.Now()
	return &health{mask: m, status: Status{
		Health: Health{Server: s.Name, Command: s.Command, Began: now, State: StatePending, Since: now},
		Era:    era, Transport: string(transport),
	}}
}

// get returns the health as it is.
func (h *health) get() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status.Health
}

// all returns get and what else is noted.
func (h *health) all() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// met returns the era of the server, as far as is known, and whether there was a
// connection of this process.
func (h *health) met() (era Era, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status.Era, h.connected
}

// dialled notes an attempt to make the main connection.
func (h *health) dialled(c *connection, err error) {
	if err == nil {
		h.mu.Lock()
		h.status.Era, h.status.Transport = c.Era, string(c.Transport)
		if h.connected {
			h.status.Restarts++
			h.status.Since = time.Now()
		}
		h.connected = true
		h.mu.Unlock()
	}
	h.exchanged(err)
}

// exchanged notes how the last exchange went. A server whose tools cannot be listed
// has failed, however well its calls go.
func (h *health) exchanged(err error) {
	err = h.mask.fixed(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	state := StateReady
	if err == nil {
		err = h.unlisted
	}
	switch {
	case err == nil:
	case errors.As(err, new(*login.Needed)):
		state = StateLogin
	default:
		state = StateFailed
	}
	if h.status.State != state {
		h.status.State, h.status.Since = state, time.Now()
	}
	h.status.Err = err
}

// toolsListed notes how the last list of tools went.
func (h *health) toolsListed(err error) {
	err = h.mask.fixed(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlisted = err
}

// listed notes what is listed.
func (h *health) listed(tools int, faults Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Tools, h.status.LeftOut, h.status.Mended = tools, faults.LeftOut, faults.Mended
}

// lists are the definitions of a server, and which of them are to be listed again.
type lists struct {
	due chan struct{} // holds one signal: pending is not empty, or something else is to be told

	mu      sync.Mutex // guards what follows; never held over I/O
	pending map[tool.Kind]bool
	known   map[tool.Kind]listing
}

// changed says that lists of the server have changed, or without kinds that
// something else is to be told of it.
func (l *lists) changed(kinds ...tool.Kind) {
	l.mu.Lock()
	for _, kind := range kinds {
		l.pending[kind] = true
	}
	l.mu.Unlock()
	wake(l.due)
}

// take returns the lists that have changed, and forgets them.
func (l *lists) take() (kinds []tool.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range tool.Kinds {
		if l.pending[kind] {
			kinds = append(kinds, kind)
		}
	}
	clear(l.pending)
	return kinds
}

// keep keeps what was listed of some kinds, and adds to a change what is known of
// all. It returns the number of tools.
func (l *lists) keep(got map[tool.Kind]listing, change *Change) (tools int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change.Cache = map[tool.Kind]CacheHint{}
	for _, kind := range tool.Kinds {
		one, ok := got[kind]
		if ok {
			l.known[kind] = one
		} else if one, ok = l.known[kind]; !ok {
			change.Unheard = append(change.Unheard, kind)
		}
		change.Defs = append(change.Defs, one.defs...)
		change.Faults.add(one.faults)
		if one.hint != nil {
			change.Cache[kind] = *one.hint
		}
	}
	return len(l.known[tool.KindTool].defs)
}
