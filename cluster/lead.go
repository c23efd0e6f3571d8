package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/store"
	"toolfinch/upstream/conn"
)

const (
	// roundEvery is between two rounds of a replica, and so about how long a server has no
	// leader when its own has gone.
	roundEvery = time.Second
	// roundWithin bounds one round. A replica that hears nothing for so long leads nothing.
	roundWithin = 5 * time.Second
	// handOverAfter is how long a replica has to be there before it is handed servers: one
	// that comes and goes is not.
	handOverAfter = 10 * time.Second
	// backWithin is how long after an outage of the database a replica that is not there may be yet to come back.
	backWithin = 10 * time.Second
)

// Membership is a connection to the database that a replica is there by. What it has locked is free when it ends.
type Membership interface {
	// Tell writes down that a replica is there, and returns all that are, and what is led.
	Tell(ctx context.Context, me store.Replica) (replicas []store.Replica, led func(server string) bool, err error)
	// Lead locks servers, and returns those that are its own now.
	Lead(ctx context.Context, servers []string) (leads []string, err error)
	// Leave unlocks servers.
	Leave(ctx context.Context, servers []string) error
	// Close ends it. The replica is not there any more.
	Close() error
}

// Candidate is a server that this replica would lead.
type Candidate struct {
	Server string
	// Stays says that the server is not handed over to a replica that comes: what it knows
	// would be lost.
	Stays bool

	wasHere bool // led by this replica when it last had a connection
	awaited bool // it stays, and another replica that may be yet to come back after an outage led it, or may have
}

// LeadOptions are what Leads are made with.
type LeadOptions struct {
	Me   store.Replica // without Leads and Servers, which follow
	Open func(ctx context.Context) (Membership, error)
	// Hands send requests to other replicas; nil where they are not reached.
	Hands http.RoundTripper
	Log   *slog.Logger
}

// Leads are the servers that this replica leads, and what it knows of the others. Its
// methods are safe for concurrent use.
type Leads struct {
	open  func(ctx context.Context) (Membership, error)
	hands http.RoundTripper
	log   *slog.Logger
	again chan struct{} // holds one signal: a round is due

	mu         sync.Mutex // guards what follows; never held over I/O
	me         store.Replica
	candidates []Candidate
	leads      map[string]bool
	turned     map[string]chan struct{} // closed when Leads answers otherwise; of the servers that were asked about
	replicas   []store.Replica
	changed    chan struct{}   // closed when replicas are others, or lead something else
	last       []string        // what was led over the connection before, and nobody else has led since; never changed in place
	keeps      []string        // what was led at End; me.Ending says whether that was
	withdrawn  chan struct{}   // closed once the others are told what Withdraw says; nil before Withdraw
	lost       error           // why this replica is not there; nil while it is
	regained   time.Time       // when it came to be there again, after it had lost the database
	before     []store.Replica // that were there then, and have not been since
	blind      bool            // it knew of nobody when it lost the database
}

// NewLeads returns Leads that lead nothing before Run.
func NewLeads(o LeadOptions) *Leads {
	return &Leads{
		open: o.Open, hands: o.Hands, log: o.Log, me: o.Me, again: make(chan struct{}, 1), leads: map[string]bool{}, turned: map[string]chan struct{}{},
		changed: make(chan struct{}), lost: errNotYet,
	}
}

// Leads is upstream.Leads.
func (l *Leads) Leads(server string) (leads bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	turned := l.turned[server]
	if turned == nil {
		turned = make(chan struct{})
		l.turned[server] = turned
	}
	return l.leads[server], turned
}

// Compete makes all the servers that this replica would lead. policy is a hash of what
// replicas have in common in their configurations.
func (l *Leads) Compete(all []Candidate, policy string) {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Server
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	l.mu.Lock()
	l.candidates, l.me.Servers, l.me.Policy = all, hex.EncodeToString(sum[:4]), policy
	maps.DeleteFunc(l.turned, func(server string, turned chan struct{}) bool {
		gone := !slices.Contains(names, server) && !l.leads[server]
		if gone {
			close(turned)
		}
		return gone
	})
	l.mu.Unlock()
	l.Again()
}

// Again has the next round begin now: somebody has said that something is otherwise.
func (l *Leads) Again() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// End says that this replica is about to end: from now on it leads no server that it does not lead
// now. What it leads it keeps, also if it loses the database meanwhile and nobody else took it.
func (l *Leads) End() {
	l.mu.Lock()
	l.me.Ending = true
	l.keeps = slices.Collect(maps.Keys(l.leads))
	if l.lost != nil {
		l.keeps = l.last
	}
	l.mu.Unlock()
	l.Again()
}

// Withdraw tells the other replicas that servers which stay run here no more, and returns once they
// know. This one leads them on until Run ends, so that nobody starts another process while calls
// are in flight here. It returns at once where it leads none, or the database is away. End comes before.
func (l *Leads) Withdraw(ctx context.Context) {
	l.mu.Lock()
	if l.withdrawn == nil {
		l.withdrawn = make(chan struct{})
	}
	me, told := l.me.ID, l.withdrawn
	waits := l.lost == nil && slices.ContainsFunc(l.candidates, func(c Candidate) bool { return c.Stays && l.leads[c.Server] })
	l.mu.Unlock()
	l.Again()
	if !waits {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(roundWithin))
	defer cancel()
	select {
	case <-told:
	case <-ctx.Done():
		return
	}
	all, _, _ := l.Replicas()
	var hearing sync.WaitGroup
	for _, r := range all {
		if r.ID != me {
			hearing.Go(func() { l.heardBy(ctx, r) })
		}
	}
	hearing.Wait()
}

// heardBy waits until another replica knows what Withdraw says. One that cannot be asked has had a
// round after twice the time between two.
func (l *Leads) heardBy(ctx context.Context, other store.Replica) {
	begun := time.Now()
	for pause := lookFirst; ; pause = min(2*pause, lookMost) {
		all, err := l.present(ctx, other.Address)
		if err == nil && !l.isTaken(all) || err != nil && time.Since(begun) >= 2*roundEvery {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// isTaken reports whether a server that stays runs here as others see it.
func (l *Leads) isTaken(all []store.Replica) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(all, func(r store.Replica) bool {
		return r.ID == l.me.ID && slices.ContainsFunc(l.candidates, func(c Candidate) bool { return c.Stays && slices.Contains(r.Leads, c.Server) })
	})
}

// Replicas are those that were there in the last round, by ID; changed is closed when
// they are others or lead something else. The error is why that may be out of date.
func (l *Leads) Replicas() (all []store.Replica, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replicas, l.changed, l.lost
}

// Run competes until ctx ends, and then leads nothing.
func (l *Leads) Run(ctx context.Context) {
	again := conn.NewDelays(conn.FirstDelay)
	for ctx.Err() == nil {
		err := l.attend(ctx, again)
		l.without(err)
		if ctx.Err() != nil {
			return
		}
		delay := min(again.Next(), mostDelay)
		l.log.Log(context.Background(), store.Level(err), "this replica leads no servers: the database cannot be reached or used", "error", err, "retry_in", delay.Round(time.Millisecond))
		waiting, cancel := context.WithTimeout(ctx, delay)
		l.consult(waiting)
		<-waiting.Done()
		cancel()
	}
}

// attend competes over one connection until that or ctx ends.
func (l *Leads) attend(ctx context.Context, again *conn.Delays) (err error) {
	opening, cancel := context.WithTimeout(ctx, leeway.Of(roundWithin))
	s, err := l.open(opening)
	cancel()
	if err != nil {
		return err
	}
	defer s.Close()
	free := map[string]int{} // for how many rounds nobody has led them
	for {
		round, cancel := context.WithTimeout(ctx, leeway.Of(roundWithin))
		free, err = l.round(round, s, free)
		cancel()
		if err != nil {
			return err
		}
		again.Reset()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.again:
		case <-time.After(roundEvery*3/4 + rand.N(roundEvery/2)):
		}
	}
}

// round leads what this replica is to lead, hands over what another is to, and tells
// the others.
func (l *Leads) round(ctx context.Context, s Membership, free map[string]int) (map[string]int, error) {
	l.mu.Lock()
	me, candidates := l.me, slices.Clone(l.candidates)
	for i, c := range candidates {
		candidates[i].wasHere = slices.Contains(l.last, c.Server)
		_, elsewhere := leaderOf(c.Server, l.missing())
		candidates[i].awaited = (elsewhere || l.blind && l.awaits()) && c.Stays && !candidates[i].wasHere
	}
	me.Leads = slices.Sorted(maps.Keys(l.leads))
	if me.Ending {
		candidates = slices.DeleteFunc(candidates, func(c Candidate) bool { return !l.leads[c.Server] && !slices.Contains(l.keeps, c.Server) })
	}
	withdrawn := l.withdrawn
	l.mu.Unlock()
	if withdrawn != nil {
		return free, l.withdraw(ctx, s, me, candidates, withdrawn)
	}
	replicas, led, err := s.Tell(ctx, me)
	if err != nil {
		return nil, err
	}
	d := decide(me, candidates, replicas, led, free)
	if len(d.leave) > 0 {
		l.lead(d.leave, false) // before somebody else does
		if err := s.Leave(ctx, d.leave); err != nil {
			return nil, err
		}
	}
	var taken []string
	if len(d.lead) > 0 {
		if taken, err = s.Lead(ctx, d.lead); err != nil {
			return nil, err
		}
		l.lead(taken, true)
	}
	if len(d.leave)+len(taken) > 0 {
		me.Leads = slices.DeleteFunc(append(me.Leads, taken...), func(server string) bool { return slices.Contains(d.leave, server) })
		slices.Sort(me.Leads)
		if replicas, _, err = s.Tell(ctx, me); err != nil {
			return nil, err
		}
	}
	l.heard(replicas, nil)
	l.mu.Lock()
	l.last = slices.DeleteFunc(slices.Clone(l.last), func(server string) bool {
		_, led := leaderOf(server, replicas)
		return led || l.leads[server]
	})
	l.mu.Unlock()
	return d.free, nil
}

// withdraw is the round of a replica that is about to end. It takes and hands over nothing.
func (l *Leads) withdraw(ctx context.Context, s Membership, me store.Replica, candidates []Candidate, told chan struct{}) error {
	for _, c := range candidates {
		if c.Stays {
			me.Leads = slices.DeleteFunc(me.Leads, func(server string) bool { return server == c.Server })
		}
	}
	replicas, _, err := s.Tell(ctx, me)
	if err != nil {
		return err
	}
	l.heard(replicas, nil)
	select {
	case <-told:
	default:
		close(told)
	}
	return nil
}

// lead takes down that this replica leads servers, or that it does not.
func (l *Leads) lead(servers []string, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, server := range servers {
		if l.leads[server] == leads {
			continue
		}
		if leads {
			l.leads[server] = true
			l.log.Debug("this replica leads a server", "server", server)
		} else {
			delete(l.leads, server)
			l.log.Debug("this replica leads a server no more", "server", server)
		}
		if turned := l.turned[server]; turned != nil {
			close(turned)
			delete(l.turned, server)
		}
	}
}

// heard takes down who is there. why is why this replica is not.
func (l *Leads) heard(replicas []store.Replica, why error) {
	same := func(a, b store.Replica) bool {
		return a.ID == b.ID && a.Address == b.Address && a.Ending == b.Ending && slices.Equal(a.Leads, b.Leads)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.lost == nil) != (why == nil) || !slices.EqualFunc(l.replicas, replicas, same) {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	switch {
	case why != nil:
	case l.lost != nil && l.lost != errNotYet:
		l.regained, l.before = time.Now(), slices.Concat(l.before, l.replicas)
		l.blind = l.blind || len(l.before) == 0
	case !l.awaits():
		l.before, l.blind = nil, false
	}
	l.replicas, l.lost = replicas, why
	if why == nil {
		l.before = slices.DeleteFunc(l.before, func(was store.Replica) bool {
			return slices.ContainsFunc(replicas, func(r store.Replica) bool { return r.ID == was.ID })
		})
	}
}

// awaits reports whether replicas that lost the database when this one did may be yet to come back. Lock held.
func (l *Leads) awaits() bool { return l.lost != nil || time.Since(l.regained) < backWithin }

// missing are the replicas that were there before an outage and may be yet to come back. Lock held.
func (l *Leads) missing() []store.Replica {
	if !l.awaits() {
		return nil
	}
	return l.before
}

// Peers are the other replicas that have an address: those that were there in the last round, and after them those
// that may be yet to come back after an outage. It does not block.
func (l *Leads) Peers() (all []Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range slices.Concat(l.replicas, l.missing()) {
		if r.ID != l.me.ID && r.Address != "" {
			all = append(all, Peer{ID: r.ID, Address: r.Address})
		}
	}
	return all
}

// without takes down that there is no connection.
func (l *Leads) without(why error) {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.leads))
	if len(all) > 0 {
		l.last = all
	}
	l.lost = why
	l.mu.Unlock()
	l.lead(all, false)
}

// decision is what a round changes.
type decision struct {
	lead, leave []string
	free        map[string]int // for how many rounds nobody has led them
}

// decide says which servers a replica tries to lead: at once those that it is the first
// for, the others when nobody led them in the round before either. What it leads and a
// replica that came later is the first for, it hands over.
func decide(me store.Replica, candidates []Candidate, replicas []store.Replica, led func(server string) bool, freeBefore map[string]int) decision {
	d := decision{free: map[string]int{}}
	wanted := map[string]bool{}
	for _, c := range candidates {
		wanted[c.Server] = true
		mine := slices.Contains(me.Leads, c.Server)
		first := first(c.Server, me, replicas)
		switch {
		case mine && first.ID != me.ID && !c.Stays && first.Up >= leeway.Of(handOverAfter):
			d.leave = append(d.leave, c.Server)
		case mine:
		case !led(c.Server):
			d.free[c.Server] = freeBefore[c.Server] + 1
			if !c.awaited && c.patient(first.ID == me.ID) < d.free[c.Server] {
				d.lead = append(d.lead, c.Server)
			}
		}
	}
	for _, server := range me.Leads {
		if !wanted[server] {
			d.leave = append(d.leave, server)
		}
	}
	return d
}

// patient is how many rounds the server has no leader before a replica takes it that is
// the first for it, or is not. One that stays is given back to whoever had it, after the
// database was away; unless it was led here, which wasHere says.
func (c Candidate) patient(first bool) int {
	switch {
	case c.wasHere:
		return 0
	case c.Stays:
		return 3
	case first:
		return 0
	}
	return 1
}

// first is the replica with the configuration of me that all of them take for the first
// one to lead a server (rendezvous hashing): few servers get another one when replicas
// come and go. One that is about to end is the first for none.
func first(server string, me store.Replica, replicas []store.Replica) store.Replica {
	best, most := me, weight(server, me.ID)
	for _, r := range replicas {
		if w := weight(server, r.ID); r.Servers == me.Servers && !r.Ending && (w > most || w == most && r.ID < best.ID) {
			best, most = r, w
		}
	}
	return best
}

func weight(server, replica string) uint64 {
	sum := sha256.Sum256([]byte(replica + "\x00" + server))
	return binary.BigEndian.Uint64(sum[:])
}
