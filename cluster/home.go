package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/limit"
	"toolfinch/store"
	"toolfinch/transport"
	"toolfinch/trust"
)

// HashOf returns what is stored of the ID of a session.
func HashOf(id string) [32]byte { return sha256.Sum256([]byte(id)) }

// Rows are the sessions of all replicas, as they are stored.
type Rows interface {
	// Put stores a session that was opened, and reports false where it has another home by now.
	Put(ctx context.Context, s store.Session) (kept bool, err error)
	// Find returns a session, and false where there is none.
	Find(ctx context.Context, hash [32]byte) (store.Session, bool, error)
	// Move makes to, at an address, the home of a session whose home was from until now, and
	// reports whether it was.
	Move(ctx context.Context, hash [32]byte, from, to, address string) (bool, error)
	// Release stores the state of a session that had a home, and gives it none, at once. It reports
	// whether that was its home.
	Release(ctx context.Context, hash [32]byte, home string, state []byte) (bool, error)
	// Change stores the states of sessions that have a home, and returns those of them that have
	// another one, or are not stored.
	Change(ctx context.Context, home string, states map[[32]byte][]byte) (lost [][32]byte, err error)
	// Keep says that sessions with a home are there still, and returns those of them that have
	// another one, or are not stored.
	Keep(ctx context.Context, home string, all [][32]byte) (lost [][32]byte, err error)
	// Drop removes sessions that have a home.
	Drop(ctx context.Context, home string, all [][32]byte) error
	// Sweep removes sessions that nobody has said of for so long that they are there.
	Sweep(ctx context.Context, idle time.Duration) error
}

// Live is what the sessions of a view have beside the connection: what they were listed, and
// what they may call.
type Live interface {
	// State returns what a session has, as JSON, and false where there is no such session.
	State(id string) (json.RawMessage, bool)
	// Restore gives a session what it had. lost says that its home was lost, or some of what waited
	// there: what its client was told last may not have arrived.
	Restore(id string, state json.RawMessage, lost bool)
}

// Options of Homes.
type Options struct {
	Keys  []configs.ClusterKey // of which one seals the IDs of sessions, and all open them
	Hands *http.Transport      // the connections to other replicas, as of Reach
	Me    Peer
	Rows  Rows
	// Peers returns the other replicas that are there, or may be: as of Leads. It does not block.
	Peers func() []Peer
	// There reports whether a replica is there by what the store knows now.
	There func(ctx context.Context, id string) (bool, error)
	// Ask has the store ask a replica for a session: Asked is called there.
	Ask func(ctx context.Context, id string, hash [32]byte) error
	// Forwarded hears of each request that was handed to another replica.
	Forwarded func(outcome string, took time.Duration)
	Idle      time.Duration // until a session that nobody uses ends
	Log       *slog.Logger
}

// Homes knows where the sessions of clients live, hands requests to the replica that has their
// session, and adopts sessions whose replica is gone. Its methods are safe for concurrent use.
type Homes struct {
	me        Peer
	seal      *Seal
	hands     *http.Transport
	rows      Rows
	peers     func() []Peer
	there     func(ctx context.Context, id string) (bool, error)
	ask       func(ctx context.Context, id string, hash [32]byte) error
	idle      time.Duration
	patience  time.Duration // as storePatience
	log       *slog.Logger
	handed    func(outcome string, took time.Duration)
	forwarded *limit.Limit
	adoptions singleflight.Group
	backs     singleflight.Group // by hash
	draining  atomic.Bool
	streams   context.Context // of event streams of other replicas
	end       context.CancelFunc
	life      context.Context // of requests that are with other replicas
	cutting   context.CancelFunc

	moves struct{ adopted, received, given, dropped atomic.Int64 } // as of Moves

	wake  chan struct{} // holds one signal: there is something to store
	asked chan [32]byte // sessions that other replicas ask for

	mu    sync.Mutex        // guards what follows; held for look-ups only
	mine  map[string]*mine  // by session ID
	moved *known            // where sessions are that are not where their ID says
	given *known            // sessions that were given up here because another replica cannot reach this one
	gone  map[[32]byte]bool // sessions that have ended, and are still stored
	cut   map[string]cut    // replicas that could not be reached, by ID
}

// mine is a session that lives here.
type mine struct {
	view       *View
	hash       [32]byte
	initialize []byte // the message that opened it; nil once it is stored and longer than maxInitialize
	principal  string // who opened it
	stored     bool
	changed    bool // its state is not the one that is stored
	reopening  bool // it has not got yet what is stored of it
}

// maxInitialize bounds the messages, in bytes, with which sessions can be stored again.
const maxInitialize = 16 << 10

const (
	maxForwarded = 16_384 // requests that are with other replicas
	maxMoved     = 50_000 // sessions of which it is remembered where they went, or that they were given up
	maxGone      = 50_000 // sessions whose rows are yet to be removed; others are swept
	maxAsked     = 1_000  // sessions that are yet to be given up; others are asked for again
)

// NewHomes returns homes of a replica, without sessions. Nothing is stored before Run but what
// cannot wait.
func NewHomes(o Options) (*Homes, error) {
	seal, err := NewSeal(o.Keys)
	if err != nil {
		return nil, err
	}
	streams, end := context.WithCancel(context.Background())
	life, cutting := context.WithCancel(context.Background())
	return &Homes{
		streams: streams, end: end, life: life, cutting: cutting,
		me: o.Me, seal: seal, rows: o.Rows, peers: o.Peers, there: o.There, ask: o.Ask, handed: o.Forwarded, idle: o.Idle, patience: leeway.Of(storePatience), log: o.Log, hands: o.Hands,
		forwarded: limit.New("forwarded_requests", maxForwarded, "requests are with other replicas", "try again later"),
		wake:      make(chan struct{}, 1), asked: make(chan [32]byte, maxAsked), cut: map[string]cut{}, mine: map[string]*mine{}, moved: newKnown(maxMoved), given: newKnown(maxMoved), gone: map[[32]byte]bool{},
	}, nil
}

// Limits are those of requests for other replicas. h may be nil: there are none.
func (h *Homes) Limits() []*limit.Limit {
	if h == nil {
		return nil
	}
	return []*limit.Limit{h.forwarded}
}

// Moves are sessions since the start: adopted here because their home had gone, received from
// one that gave them up, given up here, and dropped here because they were adopted elsewhere.
type Moves struct{ Adopted, Received, Given, Dropped int64 }

// Sessions returns how many sessions live here, and how many have come and gone.
func (h *Homes) Sessions() (here int, moves Moves) {
	h.mu.Lock()
	here = len(h.mine)
	h.mu.Unlock()
	return here, Moves{h.moves.adopted.Load(), h.moves.received.Load(), h.moves.given.Load(), h.moves.dropped.Load()}
}

// Drain has sessions adopted here no more.
func (h *Homes) Drain() { h.draining.Store(true) }

// EndStreams ends the event streams of other replicas that clients have through this one. They
// open others.
func (h *Homes) EndStreams() { h.end() }

// Cut ends the requests that are with other replicas, each of which says so. It is called when this
// process cannot wait for them any longer.
func (h *Homes) Cut() { h.cutting() }

// View is the sessions of a view. It implements transport.Homes.
type View struct {
	homes *Homes
	name  string
	live  Live
	local atomic.Pointer[transport.Streamable]
}

// View returns the sessions of a view: none.
func (h *Homes) View(name string, live Live) *View { return &View{homes: h, name: name, live: live} }

// Serve says who serves the sessions here. It is called once, before any request.
func (v *View) Serve(local *transport.Streamable) { v.local.Store(local) }

// Name is that of transport.Homes.
func (v *View) Name(ctx context.Context) string {
	return v.homes.seal.Make(Place{Home: v.homes.me, View: v.name, Owner: OwnerOf(trust.NameOf(ctx))})
}

const (
	// openWithin bounds how long an initialize waits until its session is stored. It goes on
	// without: until it is stored, the session ends with this replica.
	openWithin = time.Second
	// storeWithin bounds what else waits for the store.
	storeWithin = 5 * time.Second
)

// Opened is that of transport.Homes.
func (v *View) Opened(ctx context.Context, id string, initialize []byte) {
	h := v.homes
	one := &mine{view: v, hash: HashOf(id), initialize: append([]byte(nil), initialize...), principal: trust.NameOf(ctx)}
	h.mu.Lock()
	h.mine[id] = one
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openWithin)
	defer cancel()
	if _, err := h.put(ctx, id, one); err != nil {
		h.log.Warn("a session is not stored yet: until it is, it ends with this replica", "view", v.name, "error", err)
		h.signal()
	}
}

// put stores a session that was opened here, and reports false where it lives elsewhere by now, or cannot be stored
// again.
func (h *Homes) put(ctx context.Context, id string, one *mine) (kept bool, err error) {
	state, ok := one.view.state(id, nil)
	h.mu.Lock()
	initialize := one.initialize
	h.mu.Unlock()
	switch {
	case !ok: // it has ended
		return true, nil
	case initialize == nil:
		return false, nil
	}
	kept, err = h.rows.Put(ctx, store.Session{Hash: one.hash, Home: h.me.ID, Address: h.me.Address, View: one.view.name, Principal: one.principal, Initialize: initialize, State: state})
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if one.stored = true; len(initialize) > maxInitialize {
		one.initialize = nil
	}
	return kept, nil
}

// isStored reports whether a session is, or was.
func (h *Homes) isStored(one *mine) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return one.stored
}

// Changed hears of a session whose state has changed. It does not block.
func (v *View) Changed(id string) {
	h := v.homes
	h.mu.Lock()
	one := h.mine[id]
	if one != nil {
		one.changed = true
	}
	h.mu.Unlock()
	if one != nil {
		h.signal()
	}
}

func (h *Homes) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Ended is that of transport.Homes.
func (v *View) Ended(id string) {
	h := v.homes
	h.mu.Lock()
	one := h.mine[id]
	delete(h.mine, id)
	if one != nil && len(h.gone) < maxGone {
		h.gone[one.hash] = true
	}
	h.mu.Unlock()
	h.signal()
}

// Released is that of transport.Homes.
func (v *View) Released(ctx context.Context, id string, waiting [][]byte) {
	h := v.homes
	h.mu.Lock()
	one := h.mine[id]
	delete(h.mine, id)
	h.mu.Unlock()
	if one == nil {
		return
	}
	within := storeWithin // or as long as all have to leave: they may be many
	if end, ok := ctx.Deadline(); ok {
		within = max(within, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	h.moves.given.Add(1)
	state, ok := one.view.state(id, waiting) // as it is now: what its client is told from now on is not among what waits
	if !ok {
		return
	}
	for until := time.Now().Add(h.patience); ; {
		err := h.release(ctx, id, one, state)
		switch {
		case err == nil:
			return
		case time.Now().After(until) || !waited(ctx, storeAgain):
			h.log.Warn("a session could not be handed over: another replica adopts it as it was stored last", "view", v.name, "error", err)
			return
		}
	}
}

func (h *Homes) release(ctx context.Context, id string, one *mine, state []byte) error {
	if !h.isStored(one) {
		if _, err := h.put(ctx, id, one); err != nil {
			return err
		}
	}
	_, err := h.rows.Release(ctx, one.hash, h.me.ID, state)
	return err
}

// stored is what is stored of a session that changes.
type stored struct {
	Live    json.RawMessage   `json:"live"`
	Waiting []json.RawMessage `json:"waiting,omitempty"` // messages that its client was not sent
	Lost    bool              `json:"lost,omitempty"`    // not all of them are here
}

// maxHandedOver bounds, in bytes, the messages that are handed over; those that do not fit any more
// are left out.
const maxHandedOver = 256 << 10

func (v *View) state(id string, waiting [][]byte) ([]byte, bool) {
	live, ok := v.live.State(id)
	if !ok {
		return nil, false
	}
	s := stored{Live: live}
	size := 0
	for _, message := range waiting {
		if size+len(message) > maxHandedOver {
			s.Lost = true
			continue
		}
		size += len(message)
		s.Waiting = append(s.Waiting, message)
	}
	state, err := json.Marshal(s)
	return state, err == nil
}

// isMine reports whether a session lives here.
func (h *Homes) isMine(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mine[id] != nil
}

// adopt makes this replica the home of a session, and reports false where another one was
// faster.
func (v *View) adopt(ctx context.Context, id string, row store.Session) (bool, error) {
	h := v.homes
	won, err, _ := h.adoptions.Do(id, func() (any, error) {
		if h.isMine(id) {
			return true, nil
		}
		storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leeway.Of(storeWithin))
		defer cancel()
		won, err := h.rows.Move(storing, row.Hash, row.Home, h.me.ID, h.me.Address)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errStore, err)
		}
		if !won {
			return false, nil
		}
		// What was stored when the row was found may have changed before it was moved.
		now, found, err := h.rows.Find(storing, row.Hash)
		if err != nil || !found || now.Home != h.me.ID { // a Move whose answer was lost made it the home; it has gone on since
			return false, err
		}
		if err := v.reopen(ctx, id, now, row.Home != ""); err != nil {
			_, back := h.rows.Move(storing, row.Hash, h.me.ID, "", "")
			return false, fmt.Errorf("the session cannot be taken over here: %w", joined(err, back))
		}
		if row.Home == "" {
			h.moves.received.Add(1)
		} else {
			h.moves.adopted.Add(1)
		}
		h.log.Info("a session was adopted", "session", trust.Digest(id), "view", v.name, "from", row.Home)
		return true, nil
	})
	return won == true, err
}

// errStore says that the store is at fault, and nothing was taken over.
var errStore = errors.New("the store")

func joined(err, beside error) error {
	if beside != nil {
		return fmt.Errorf("%w (and it could not be given back: %v)", err, beside)
	}
	return err
}

// reopen opens a session here as it was where it lived; lost is as of Live.
func (v *View) reopen(ctx context.Context, id string, row store.Session, lost bool) error {
	h := v.homes
	var had stored
	if err := json.Unmarshal(row.State, &had); err != nil {
		return fmt.Errorf("what is stored of it cannot be read: %w", err)
	}
	waiting := make([][]byte, len(had.Waiting))
	for i, message := range had.Waiting {
		waiting[i] = message
	}
	h.mu.Lock()
	one := &mine{view: v, hash: row.Hash, initialize: row.Initialize, principal: row.Principal, stored: true, changed: true, reopening: true}
	if len(one.initialize) > maxInitialize {
		one.initialize = nil
	}
	h.mine[id] = one
	h.mu.Unlock()
	err := v.local.Load().Adopt(ctx, id, row.Initialize, waiting, func() { v.live.Restore(id, had.Live, lost || had.Lost) })
	h.mu.Lock()
	if one.reopening = false; err != nil {
		delete(h.mine, id)
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	h.moved.drop(row.Hash)
	h.signal()
	return nil
}

// Names reports whether an ID is that of a session of the view that whoever makes the request of
// a context has or had, here or elsewhere.
func (v *View) Names(ctx context.Context, id string) bool {
	_, ok := v.owned(ctx, id)
	return ok
}

// owned reports whether a place is that of a session of the view, and of whoever makes the
// request of a context.
func (v *View) owned(ctx context.Context, id string) (Place, bool) {
	place, ok := v.homes.seal.Open(strings.TrimPrefix(id, transport.PipedPrefix))
	return place, ok && place.View == v.name && place.Owner == OwnerOf(trust.NameOf(ctx))
}
