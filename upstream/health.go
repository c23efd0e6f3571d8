package upstream

import (
	"errors"
	"sync"
	"time"

	"toolfinch/upstream/login"
)

// State is the health of a server after the last exchange with it.
type State string

// StatePending is the state before the first exchange.
const (
	StatePending State = "pending"
	// StateQueued is the state of a server with a command that waits for its turn to start, see
	// starts.
	StateQueued State = "queued"
	// StateDownloading is the state of a server that was never listed while its command, such as
	// npx, downloads and starts it.
	StateDownloading State = "downloading"
	StateReady       State = "ready"
	StateFailed      State = "failed"
	// StateLogin means that somebody must log in first. Err says how.
	StateLogin State = "needs_login"
)

// Starts reports whether the server has not come up yet and has not failed.
func (s State) Starts() bool { return s == StatePending || s == StateQueued || s == StateDownloading }

// Health is the health of one server. It is cheap to read, because a search reads the
// health of every server.
type Health struct {
	Server  string
	State   State
	Err     error     // error of the last exchange, with a masked, precomputed text; nil on success
	Command string    // command that starts the server; "" for a server over HTTP
	Began   time.Time // when the last start of its main connection began; zero before the first
	Since   time.Time // when State began, or when a connection was replaced without a change of State
}

// Status is the health of one server, with details.
type Status struct {
	Health
	Failure   Failure // in this run or, until the first exchange, in an earlier one
	Tools     int
	LeftOut   int // malformed definitions that are not served, see Faults
	Mended    int // malformed definitions that are served mended
	Era       Era
	Transport string // Transport of the last connection; before it, the configured Transport
	Restarts  int    // how often a new connection replaced an ended connection
	Dropped   int64  // notifications that clients did not get: too long, or read too slowly
	PID       int    // process ID of the main connection; 0 if no process runs
	// Stderr has the last lines that this process wrote to its standard error, at most 20,
	// with its secrets masked. They are for the owner.
	Stderr []string
}

// health follows the exchanges with a server.
type health struct {
	mask *mask

	mu        sync.Mutex // guards the fields below; never held over I/O
	status    Status     // without Dropped, PID and Stderr
	connected bool       // there has been a main connection
	unlisted  error      // why the last list of tools failed, nil on success; masked
}

func newHealth(s Settings, known Known, m *mask) *health {
	transport, state := s.Transport, StatePending
	if s.Command != "" {
		transport, state = TransportStdio, StateQueued
	}
	now := time.Now()
	return &health{mask: m, status: Status{
		Health: Health{Server: s.Name, Command: s.Command, State: state, Since: now},
		Era:    known.Era, Transport: string(transport), Failure: known.Failure,
	}}
}

// get returns the present health.
func (h *health) get() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status.Health
}

// all returns the present health with its details.
func (h *health) all() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// met returns the server's era, if it is known, and whether this process has been
// connected.
func (h *health) met() (era Era, connected bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status.Era, h.connected
}

// starts notes that the main connection is being made. A server that has failed stays failed
// until it is connected.
func (h *health) starts(downloads bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Began = time.Now()
	if !h.status.State.Starts() {
		return
	}
	h.status.Since = h.status.Began
	if h.status.State = StatePending; downloads {
		h.status.State = StateDownloading
	}
}

// dialled notes that the main connection was made.
func (h *health) dialled(era Era, over Transport) {
	h.mu.Lock()
	h.status.Era, h.status.Transport = era, string(over)
	if h.connected {
		h.status.Restarts++
		h.status.Since = time.Now()
	}
	h.connected = true
	h.mu.Unlock()
	h.exchanged(nil)
}

// exchanged notes the result of an exchange. A server whose tools cannot be listed counts
// as failed even if its calls succeed.
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
	h.status.Err, h.status.Failure = err, Failure{}
	if err != nil {
		h.status.Failure = Failure{err.Error(), time.Now()}
	}
}

// toolsListed notes the result of the last list of tools.
func (h *health) toolsListed(err error) {
	err = h.mask.fixed(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlisted = err
}

// listed notes the size and the faults of the list of tools.
func (h *health) listed(tools int, faults Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Tools, h.status.LeftOut, h.status.Mended = tools, faults.LeftOut, faults.Mended
}
