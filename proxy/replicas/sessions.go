package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/register/transport"
	"toolfinch/store"
)

// Rows are the stored sessions of all replicas. Only the replica that a row names serves the session and writes the
// row.
type Rows interface {
	// Put stores an opened session. It reports false if another replica has taken it over.
	Put(ctx context.Context, s store.Session) (kept bool, err error)
	// Take moves a session of a view and a principal to replica, and tells the previous replica. It returns false if
	// there is no such session.
	Take(ctx context.Context, hash [32]byte, view, principal, replica string) (store.Session, bool, error)
	// Change stores the states of sessions of replica. It returns the sessions that replica does not serve.
	Change(ctx context.Context, replica string, states map[[32]byte][]byte) (lost [][32]byte, err error)
	// Keep marks sessions of replica as alive. It returns the sessions that replica does not serve.
	Keep(ctx context.Context, replica string, all [][32]byte) (lost [][32]byte, err error)
	// Drop removes sessions of replica.
	Drop(ctx context.Context, replica string, all [][32]byte) error
	// Sweep removes sessions whose last mark as alive is older than idle.
	Sweep(ctx context.Context, idle time.Duration) error
}

// Live has the state of a view's sessions apart from their connections, such as the tools listed to them.
type Live interface {
	// State returns the state of a session, as JSON, and false if there is no such session.
	State(id string) (json.RawMessage, bool)
	// Restore gives a session its stored state.
	Restore(id string, state json.RawMessage)
}

// Sessions are the sessions that this replica serves. Each has a row in the store, from which another replica can take
// it over. The methods are safe for concurrent use.
type Sessions struct {
	replica string
	rows    Rows
	idle    time.Duration
	log     *slog.Logger
	wake    chan struct{} // holds one signal: a change waits to be stored

	taken, lost atomic.Int64 // see Count

	mu     sync.Mutex // guards the fields below; held for look-ups only
	here   map[[32]byte]*served
	gone   map[[32]byte]bool // ended sessions that are still stored
	taking map[string]int    // running look-ups by party; "" has the total
}

// served is a session of this replica.
type served struct {
	id         string
	view       *View
	initialize []byte // the message that opened the session; nil once stored if longer than maxInitialize
	principal  string // the principal that opened the session
	stored     bool
	changed    bool // the state differs from the stored one
	restoring  bool // the stored state is not restored yet
}

const (
	// maxInitialize bounds the initialize messages that are kept to store sessions again, in bytes.
	maxInitialize = 16 << 10
	// maxTaking bounds concurrent look-ups of sessions, and maxTakingOf the look-ups for one party: even an invented
	// ID costs a query of the database.
	maxTaking, maxTakingOf = 1_000, 100
	// maxGone bounds the ended sessions whose rows are removed; Sweep removes further rows.
	maxGone = 50_000
)

// NewSessions returns Sessions without any session. Unused sessions end after idle. Run stores changes.
func NewSessions(replica string, rows Rows, idle time.Duration, log *slog.Logger) *Sessions {
	return &Sessions{replica: replica, rows: rows, idle: idle, log: log, wake: make(chan struct{}, 1), taking: map[string]int{}, here: map[[32]byte]*served{}, gone: map[[32]byte]bool{}}
}

// Count returns the number of sessions here, of sessions taken over from other replicas since the start, and of
// sessions lost to other replicas since the start.
func (s *Sessions) Count() (here int, taken, lost int64) {
	s.mu.Lock()
	here = len(s.here)
	s.mu.Unlock()
	return here, s.taken.Load(), s.lost.Load()
}

// View has the sessions of a view. It implements transport.Sessions.
type View struct {
	all   *Sessions
	name  string
	live  Live
	local atomic.Pointer[transport.Streamable]
}

// View returns a View without any session.
func (s *Sessions) View(name string, live Live) *View { return &View{all: s, name: name, live: live} }

// Serve sets the transport that has the connections of the sessions. Call it once, before any request.
func (v *View) Serve(local *transport.Streamable) { v.local.Store(local) }

const (
	// openWithin bounds how long an initialize waits until its session is stored. After that the session opens
	// unstored, and would end with this replica.
	openWithin = time.Second
	// storeWithin bounds all other waits for the store.
	storeWithin = 5 * time.Second
)

// hashOf returns the hash under which a session is stored.
func hashOf(id string) [32]byte { return sha256.Sum256([]byte(id)) }

// Opened implements transport.Sessions.
func (v *View) Opened(ctx context.Context, id string, initialize []byte) {
	s := v.all
	one := &served{id: id, view: v, initialize: append([]byte(nil), initialize...), principal: identity.NameOf(ctx)}
	hash := hashOf(id)
	s.mu.Lock()
	s.here[hash] = one
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openWithin)
	defer cancel()
	if _, err := s.put(ctx, hash, one); err != nil {
		s.log.Warn("a session is not stored yet: until it is, it ends with this replica", "view", v.name, "error", err)
		s.signal()
	}
}

// put stores a session of this replica. It reports false if another replica has taken the session over, or the session
// cannot be stored again.
func (s *Sessions) put(ctx context.Context, hash [32]byte, one *served) (kept bool, err error) {
	state, ok := one.view.live.State(one.id)
	s.mu.Lock()
	initialize := one.initialize
	s.mu.Unlock()
	switch {
	case !ok: // the session has ended
		return true, nil
	case initialize == nil:
		return false, nil
	}
	kept, err = s.rows.Put(ctx, store.Session{Hash: hash, Replica: s.replica, View: one.view.name, Principal: one.principal, Initialize: initialize, State: state})
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one.stored = true
	one.bound()
	return kept, nil
}

// bound drops a long initialize message of a stored session.
func (one *served) bound() {
	if len(one.initialize) > maxInitialize {
		one.initialize = nil
	}
}

// Changed marks the state of a session as changed. It does not block.
func (v *View) Changed(id string) {
	s := v.all
	s.mu.Lock()
	one := s.here[hashOf(id)]
	if one != nil {
		one.changed = true
	}
	s.mu.Unlock()
	if one != nil {
		s.signal()
	}
}

func (s *Sessions) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ended implements transport.Sessions.
func (v *View) Ended(id string) {
	s, hash := v.all, hashOf(id)
	s.mu.Lock()
	_, here := s.here[hash]
	delete(s.here, hash)
	if here && len(s.gone) < maxGone {
		s.gone[hash] = true
	}
	s.mu.Unlock()
	s.signal()
}

// Take implements transport.Sessions.
func (v *View) Take(ctx context.Context, id string, open func(initialize []byte, restore func()) error) error {
	s, hash := v.all, hashOf(id)
	s.mu.Lock()
	ended := s.gone[hash]
	s.mu.Unlock()
	if ended {
		return transport.ErrNoSession
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(patience))
	defer cancel()
	row, found, err := s.take(ctx, hash, v.name)
	switch {
	case err != nil: // the client does not get err, which may contain host names
		s.log.Log(context.WithoutCancel(ctx), store.Level(err), "a session cannot be looked up", "view", v.name, "error", err)
		return errUnknownNow
	case !found:
		return transport.ErrNoSession
	}
	one := &served{id: id, view: v, initialize: row.Initialize, principal: row.Principal, stored: true, changed: true, restoring: true}
	s.mu.Lock()
	s.here[hash] = one
	s.mu.Unlock()
	err = open(row.Initialize, func() { v.live.Restore(id, row.State) })
	s.mu.Lock()
	one.bound()
	if one.restoring = false; err != nil {
		delete(s.here, hash)
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("the session of another replica cannot be taken over: %w", err)
	}
	s.taken.Add(1)
	s.log.Info("a session was taken over", "session", identity.Digest(id), "view", v.name, "from", row.Replica)
	s.signal()
	return nil
}

// take moves a session to this replica in the store. It waits for an absent store longer than a restart takes, but
// refuses if too many requests wait already.
func (s *Sessions) take(ctx context.Context, hash [32]byte, view string) (row store.Session, found bool, err error) {
	from, _ := identity.SourceOf(ctx)
	party := "of " + identity.NameOf(ctx) + "\x00" + from.Address
	s.mu.Lock()
	full := s.taking[""] >= maxTaking || s.taking[party] >= maxTakingOf
	if !full {
		s.taking[""]++
		s.taking[party]++
	}
	s.mu.Unlock()
	if full {
		return row, false, errors.New("too many sessions are being looked up")
	}
	defer s.lookedUp(party)
	for {
		row, found, err = s.rows.Take(ctx, hash, view, identity.NameOf(ctx), s.replica)
		if !store.Transient(err) {
			return row, found, err
		}
		if !leeway.Wait(ctx, takeAgain) {
			return row, found, err
		}
	}
}

// lookedUp counts the end of a look-up for a party.
func (s *Sessions) lookedUp(party string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking[""]--
	if s.taking[party]--; s.taking[party] == 0 {
		delete(s.taking, party)
	}
}

var errUnknownNow = errors.New("whether another replica has this session is not known now: the store cannot be read")

// Taken ends a session here, because another replica has taken it over.
func (s *Sessions) Taken(hash [32]byte) {
	s.mu.Lock()
	one := s.here[hash]
	if one != nil && !one.restoring {
		delete(s.here, hash)
	}
	s.mu.Unlock()
	if one != nil && !one.restoring && one.view.local.Load().Drop(one.id) {
		s.lost.Add(1)
		s.log.Info("another replica has taken a session over", "session", identity.Digest(one.id), "view", one.view.name)
	}
}

const (
	// storeEvery is the least pause between two writes: many changes of a session become one write.
	storeEvery = 50 * time.Millisecond
	// keepEvery is how often this replica marks its sessions as alive.
	keepEvery = 30 * time.Second
	// againAfter is the pause after the store failed; takeAgain is the pause while a client waits. patience bounds the
	// wait for an absent store.
	againAfter, takeAgain, patience = time.Second, 200 * time.Millisecond, 10 * time.Second
	// sweepAfter is added to the idle time of sessions: a row is swept only after several missed marks.
	sweepAfter = 4 * keepEvery
	// keptBefore is how often in a row keep must succeed before anything is swept: after an outage of the database,
	// the other replicas must first mark their sessions as alive.
	keptBefore = 3
)

// Run stores changes of the sessions here in the background until ctx ends.
func (s *Sessions) Run(ctx context.Context) {
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	kept := 0
	for {
		var err error
		select {
		case <-ctx.Done():
			s.last(context.WithoutCancel(ctx))
			return
		case <-s.wake:
			err = s.store(ctx)
		case <-keep.C:
			if err = s.keep(ctx); err != nil {
				kept = 0
			} else if kept++; kept >= keptBefore {
				err = s.rows.Sweep(ctx, s.idle+sweepAfter)
			}
		}
		pause := storeEvery
		if err != nil && ctx.Err() == nil {
			s.log.Warn("what has changed of sessions is not stored yet", "error", err, "retry_in", againAfter)
			pause = againAfter
			s.signal()
		}
		leeway.Wait(ctx, pause)
	}
}

// last stores the remaining changes when this replica ends. It waits for an absent store longer than a restart takes.
func (s *Sessions) last(ctx context.Context) {
	for until := time.Now().Add(leeway.Of(patience)); ; {
		err := s.store(ctx)
		if err == nil {
			return
		}
		if time.Now().After(until) {
			s.log.Warn("what has changed of sessions is not stored: they go on as they were", "error", err)
			return
		}
		time.Sleep(againAfter)
	}
}

// store stores all changes. After a failure, the next call stores the newest states.
func (s *Sessions) store(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(storeWithin))
	defer cancel()
	changed, fresh, ended := s.unstored()
	for hash, one := range fresh {
		if _, err := s.put(ctx, hash, one); err != nil {
			s.changedAgain(changed)
			return err
		}
	}
	states := map[[32]byte][]byte{}
	for hash, one := range changed {
		if state, ok := one.view.live.State(one.id); ok {
			states[hash] = state
		}
	}
	if len(states) > 0 {
		lost, err := s.rows.Change(ctx, s.replica, states)
		if err != nil {
			s.changedAgain(changed)
			return err
		}
		if err := s.putAgain(ctx, lost); err != nil {
			return err
		}
	}
	if len(ended) == 0 {
		return nil
	}
	if err := s.rows.Drop(ctx, s.replica, ended); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, hash := range ended {
		delete(s.gone, hash)
	}
	return nil
}

// unstored returns the changed sessions, the sessions without a row, and the ended sessions.
func (s *Sessions) unstored() (changed, fresh map[[32]byte]*served, ended [][32]byte) {
	changed, fresh = map[[32]byte]*served{}, map[[32]byte]*served{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash, one := range s.here {
		switch {
		case one.restoring:
			continue
		case !one.stored:
			fresh[hash] = one
		case one.changed:
			changed[hash] = one
		}
		one.changed = false
	}
	for hash := range s.gone {
		ended = append(ended, hash)
	}
	return changed, fresh, ended
}

func (s *Sessions) changedAgain(all map[[32]byte]*served) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range all {
		one.changed = true
	}
}

// keep marks the sessions here as alive.
func (s *Sessions) keep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(storeWithin))
	defer cancel()
	s.mu.Lock()
	var all [][32]byte
	for hash, one := range s.here {
		if one.stored && !one.restoring {
			all = append(all, hash)
		}
	}
	s.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	lost, err := s.rows.Keep(ctx, s.replica, all)
	if err == nil {
		err = s.putAgain(ctx, lost)
	}
	return err
}

// putAgain stores lost sessions again: their rows are gone if a backup of the database was restored. A session that
// another replica has taken over ends here.
func (s *Sessions) putAgain(ctx context.Context, lost [][32]byte) error {
	for i, hash := range lost {
		s.mu.Lock()
		one := s.here[hash]
		s.mu.Unlock()
		if one == nil {
			continue
		}
		kept, err := s.put(ctx, hash, one)
		switch {
		case err != nil:
			s.mu.Lock()
			for _, hash := range lost[i:] {
				if one := s.here[hash]; one != nil {
					one.changed = true
				}
			}
			s.mu.Unlock()
			return err
		case !kept:
			s.Taken(hash)
		}
	}
	return nil
}
