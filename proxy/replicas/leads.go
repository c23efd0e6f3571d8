package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/store"
	"toolfinch/upstream/conn"
)

const (
	// roundEvery is the pause between two rounds of a replica. A server is without a leader for about as long after
	// its leader has gone.
	roundEvery = time.Second
	// roundWithin bounds one round. If a round takes longer, the replica leads nothing.
	roundWithin = 5 * time.Second
)

// Membership is the connection to the database that makes a replica present. When it ends, its locks are released.
type Membership interface {
	// Tell stores that a replica is present, and returns all present replicas.
	Tell(ctx context.Context, me store.Replica) (replicas []store.Replica, err error)
	// Lead locks the unlocked servers among servers, and returns the newly locked servers.
	Lead(ctx context.Context, servers []string) (leads []string, err error)
	// Leave unlocks servers.
	Leave(ctx context.Context, servers []string) error
	// Close closes the connection. The replica is then no longer present.
	Close() error
}

// Leads knows the servers that this replica leads, and the other replicas. A leader lists its servers for all replicas.
// The methods are safe for concurrent use.
type Leads struct {
	open  func(ctx context.Context) (Membership, error)
	log   *slog.Logger
	again chan struct{} // holds one signal: a round is due

	mu       sync.Mutex // guards the fields below; never held over I/O
	me       store.Replica
	servers  []string // servers that this replica would lead
	leads    map[string]bool
	turned   map[string]chan struct{} // closed when the answer of Leads changes; has the servers that Leads was asked about
	replicas []store.Replica
	changed  chan struct{} // closed when the replicas or the servers they lead change
	lost     error         // why this replica is absent; nil while it is present
}

// NewLeads returns Leads that lead nothing before Run. Run sets me.Leads; Compete sets me.Servers and me.Policy.
func NewLeads(me store.Replica, open func(ctx context.Context) (Membership, error), log *slog.Logger) *Leads {
	return &Leads{
		open: open, log: log, me: me, again: make(chan struct{}, 1), leads: map[string]bool{}, turned: map[string]chan struct{}{},
		changed: make(chan struct{}), lost: errNotYet,
	}
}

// Leads reports whether this replica leads a server. changed is closed when the answer changes. It is an
// upstream.Leads.
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

// Compete sets the servers that this replica would lead. policy is a hash of the configuration keys that all replicas
// should share.
func (l *Leads) Compete(servers []string, policy string) {
	servers = slices.Sorted(slices.Values(servers))
	sum := sha256.Sum256([]byte(strings.Join(servers, "\x00")))
	l.mu.Lock()
	l.servers, l.me.Servers, l.me.Policy = servers, hex.EncodeToString(sum[:4]), policy
	maps.DeleteFunc(l.turned, func(server string, turned chan struct{}) bool {
		gone := !slices.Contains(servers, server) && !l.leads[server]
		if gone {
			close(turned)
		}
		return gone
	})
	l.mu.Unlock()
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// Replicas returns the replicas of the last round, by ID. changed is closed when the replicas or the servers they lead
// change. The error says why the result may be out of date.
func (l *Leads) Replicas() (all []store.Replica, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replicas, l.changed, l.lost
}

// LedElsewhere reports whether another replica leads a server, as of the last round.
func (l *Leads) LedElsewhere(server string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost == nil && !l.leads[server] && slices.ContainsFunc(l.replicas, func(r store.Replica) bool {
		return r.ID != l.me.ID && slices.Contains(r.Leads, server)
	})
}

// Run competes for servers until ctx ends, and then leads nothing.
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
		leeway.Wait(ctx, delay)
	}
}

// attend competes for servers over one connection until the connection or ctx ends.
func (l *Leads) attend(ctx context.Context, again *conn.Delays) (err error) {
	opening, cancel := context.WithTimeout(ctx, leeway.Of(roundWithin))
	m, err := l.open(opening)
	cancel()
	if err != nil {
		return err
	}
	defer m.Close()
	for {
		round, cancel := context.WithTimeout(ctx, leeway.Of(roundWithin))
		err = l.round(round, m)
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

// round takes the lead of configured servers without a leader, gives up removed servers, and tells the other replicas.
func (l *Leads) round(ctx context.Context, m Membership) error {
	l.mu.Lock()
	me, before := l.me, slices.Sorted(maps.Keys(l.leads))
	var free, gone []string
	for _, server := range l.servers {
		if !l.leads[server] {
			free = append(free, server)
		}
	}
	for _, server := range before {
		if !slices.Contains(l.servers, server) {
			gone = append(gone, server)
		}
	}
	l.mu.Unlock()
	if len(gone) > 0 {
		l.lead(gone, false) // before another replica can lead them
		if err := m.Leave(ctx, gone); err != nil {
			return err
		}
	}
	if len(free) > 0 {
		taken, err := m.Lead(ctx, free)
		if err != nil {
			return err
		}
		l.lead(taken, true)
	}
	l.mu.Lock()
	me.Leads = slices.Sorted(maps.Keys(l.leads))
	l.mu.Unlock()
	replicas, err := m.Tell(ctx, me)
	if err != nil {
		return err
	}
	l.heard(replicas)
	return nil
}

// lead sets whether this replica leads servers.
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

// heard sets the present replicas.
func (l *Leads) heard(replicas []store.Replica) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := func(a, b store.Replica) bool { return a.ID == b.ID && slices.Equal(a.Leads, b.Leads) }
	if l.lost != nil || !slices.EqualFunc(l.replicas, replicas, same) {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.replicas, l.lost = replicas, nil
}

// without gives up all servers, because the connection has ended.
func (l *Leads) without(why error) {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.leads))
	if l.lost == nil {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.lost = why
	l.mu.Unlock()
	l.lead(all, false)
}
