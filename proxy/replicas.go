package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/proxy/replicas"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
)

// shared is what replicas share beside the tables of their store.
type shared interface {
	Join(ctx context.Context) (replicas.Membership, error)
	Listen(ctx context.Context) (replicas.Listener, error)
	// Relist notifies all replicas that the lists of a server have changed.
	Relist(ctx context.Context, server string) error
	// Notify notifies all replicas of something that is not stored.
	Notify(ctx context.Context, topic store.Topic, detail string) error
}

// inPostgres is what replicas share over a store in PostgreSQL.
type inPostgres struct{ *store.Replicas }

func (r inPostgres) Join(ctx context.Context) (replicas.Membership, error) {
	return r.Replicas.Join(ctx)
}

func (r inPostgres) Listen(ctx context.Context) (replicas.Listener, error) {
	return r.Replicas.Listen(ctx)
}

// others are the replicas beside this one. Nil has none: this process lists every server.
type others struct {
	me      store.Replica
	shared  shared
	leads   *replicas.Leads
	changes *replicas.Changes
	log     *slog.Logger
}

// join makes this process one of the replicas of a store; nil for a store of one process.
func join(ctx context.Context, config *configs.Config, o options, db *store.Store) *others {
	in := db.Replicas()
	if in == nil {
		return nil
	}
	all := &others{shared: inPostgres{in}, log: o.log}
	all.me = store.Replica{ID: strings.ToLower(rand.Text()[:16]), Version: o.version, Started: time.Now()}
	all.me.Name, _ = os.Hostname()
	versions := map[store.Topic]int64{} // where they cannot be read, all has changed when they can
	if l, err := all.shared.Listen(ctx); err == nil {
		if read, err := l.Versions(ctx); err == nil {
			versions = read
		}
		_ = l.Close()
	}
	all.leads = replicas.NewLeads(all.me, all.shared.Join, o.log)
	all.changes = replicas.NewChanges(all.shared.Listen, versions, o.log)
	all.compete(config)
	o.audit.log.Name(all.me.Name + " " + all.me.ID)
	return all
}

// present are the replicas that were there last, and the servers that this one leads.
func (o *others) present() (all []store.Replica, leads []string) {
	all, _, _ = o.leads.Replicas()
	for _, r := range all {
		if r.ID == o.me.ID {
			leads = r.LeadsServers()
		}
	}
	return all, leads
}

// leader says which servers this process lists; nil: all.
func (o *others) leader() upstream.Leads {
	if o == nil {
		return nil
	}
	return o.leads.Leads
}

// heard reports whether changes are heard of now; nil: they never are.
func (o *others) heard() func() bool {
	if o == nil {
		return nil
	}
	return o.changes.Heard
}

// embeds reports whether this replica embeds the texts of a server; nil: those of all. Tools
// that are no server's are embedded by whoever leads the name "".
func (o *others) embeds(config func() *configs.Config) func(server string) bool {
	if o == nil {
		return nil
	}
	return func(server string) bool {
		if !slices.ContainsFunc(config().Servers, func(s upstream.Settings) bool { return s.Name == server }) {
			server = ""
		}
		leads, _ := o.leads.Leads(server)
		return leads
	}
}

// compete has this replica compete for the servers of a configuration.
func (o *others) compete(config *configs.Config) {
	if o == nil {
		return
	}
	all := []string{""} // what is no server's is done by whoever leads ""
	for _, s := range config.Servers {
		if s.Fault == "" {
			all = append(all, s.Name)
		}
	}
	o.leads.Compete(all, config.Fingerprint())
}

// relist asks the leader of a server to list it.
func (o *others) relist(ctx context.Context, server string) error {
	if o == nil {
		return nil
	}
	err := o.shared.Relist(ctx, server)
	if err != nil && ctx.Err() == nil {
		o.log.Log(context.Background(), store.Level(err), "the leader of a server was not told that its lists have changed", "server", server, "error", err)
	}
	return err
}

// ledElsewhere reports whether another replica leads a server, as far as is known here.
func (o *others) ledElsewhere(server string) bool {
	return o != nil && o.leads.LedElsewhere(server)
}

// share divides limits by the replicas that are there.
func (o *others) share(limits *rate.Limits) {
	if o != nil {
		all, _, _ := o.leads.Replicas()
		limits.Share(len(all), time.Now())
	}
}

// loginFailed tells the other replicas that a login has ended without a token: a call may wait for it there.
func (o *others) loginFailed(id string) {
	if o == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(takeWithin))
	defer cancel()
	if err := o.shared.Notify(ctx, store.Topic{Kind: store.TopicLogin}, id); err != nil {
		o.log.Log(context.Background(), store.Level(err), "the other replicas were not told that a login has ended", "error", err)
	}
}

// maxCallback bounds the query with which a browser comes back from an authorization server, as it is handed on.
const maxCallback = 6 << 10

// cameBack tells the other replicas with which query a browser has come back from an authorization server: the login
// may have begun at one of them. It reports whether they were told.
func (o *others) cameBack(ctx context.Context, query string) bool {
	if o == nil || query == "" || len(query) > maxCallback {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(takeWithin))
	defer cancel()
	err := o.shared.Notify(ctx, store.Topic{Kind: store.TopicCallback}, query)
	if err != nil {
		o.log.Log(context.WithoutCancel(ctx), store.Level(err), "the other replicas were not told that a browser has come back from a login", "error", err)
	}
	return err == nil
}

// hear takes in what other replicas change, until ctx ends. What waits for the loop, which may be
// busy for long, waits aside: keys that were revoked do not wait for it.
func (p *Proxy) hear(ctx context.Context, changes chan<- upstream.Change) {
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	learned, called, embedded := signal(), signal(), signal()
	servers := changedServers{work: make(chan struct{}, 1), versions: map[string]int64{}}
	var lazy sync.WaitGroup
	defer lazy.Wait()
	lazy.Go(func() { servers.run(ctx, changes) })
	lazy.Go(func() {
		lazilyDo(ctx, lazily, learned, func() {
			if store.Transient(p.unread(ctx, store.TopicLearned, p.recallLearned(ctx))) {
				wake(learned)
			}
		})
	})
	lazy.Go(func() {
		lazilyDo(ctx, lazily, called, func() {
			if store.Transient(p.unread(ctx, store.TopicCalled, p.recallCalled(ctx))) {
				wake(called)
			}
		})
	})
	lazy.Go(func() { lazilyDo(ctx, lazily, embedded, func() { wake(p.embedder.work) }) })
	p.others.changes.Run(ctx, func(ctx context.Context, n store.Notice) (err error) {
		if n.Detail != "" { // one owner, one row: a key that is revoked meanwhile does not wait behind it for long
			within, cancel := context.WithTimeout(ctx, leeway.Of(takeWithin))
			defer cancel()
			ctx = within
		}
		switch n.Kind {
		case store.TopicServer:
			servers.put(n.Key, n.Version)
		case store.TopicProvisions:
			err = p.recallProvisions(ctx, n.Detail)
		case store.TopicKeys:
			p.desk.entrance.Forget()
			wake(p.desk.keysChanged)
		case store.TopicLearned:
			wake(learned)
		case store.TopicCalled:
			wake(called)
		case store.TopicVault:
			p.pool.LoginChanged(n.Detail)
			err = p.logins.rows.readAnew(ctx, n.Detail)
		case store.TopicLogin:
			p.logins.Ended(n.Detail)
		case store.TopicVectors: // 64 texts at a time
			wake(embedded)
		case store.TopicRelist:
			p.pool.Relist(n.Key)
		case store.TopicSession:
			if hash, err := hex.DecodeString(n.Detail); p.desk.sessions != nil && n.Key == p.others.me.ID && err == nil && len(hash) == sha256.Size {
				p.desk.sessions.Taken([sha256.Size]byte(hash))
			}
		case store.TopicCallback:
			lazy.Go(func() { p.logins.answer(context.WithoutCancel(ctx), n.Detail) }) // the server takes its time
		}
		return p.unread(ctx, n.Kind, err)
	})
}

// changedServers are those that other replicas have changed and the loop has not heard of yet.
type changedServers struct {
	work chan struct{} // holds one signal

	mu       sync.Mutex // guards versions
	versions map[string]int64
}

func (c *changedServers) put(server string, version int64) {
	c.mu.Lock()
	c.versions[server] = version
	c.mu.Unlock()
	wake(c.work)
}

// run tells the loop of them until ctx ends.
func (c *changedServers) run(ctx context.Context, changes chan<- upstream.Change) {
	lazilyDo(ctx, 0, c.work, func() {
		c.mu.Lock()
		all := c.versions
		c.versions = map[string]int64{}
		c.mu.Unlock()
		for server, version := range all {
			select {
			case changes <- upstream.Change{Server: server, Followed: true, Version: version}:
			case <-ctx.Done():
				return
			}
		}
	})
}

// takeWithin bounds how long one change of another replica is taken in before it counts as not heard.
const takeWithin = 5 * time.Second

// unread returns why something that other replicas have changed could not be read, where that
// passes: it is read again then.
func (p *Proxy) unread(ctx context.Context, kind string, err error) error {
	if store.Transient(err) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("what another replica has changed could not be read", "what", kind, "error", err)
	}
	return nil
}

// attend keeps what depends on who is there: how limits are shared, and which texts this
// replica embeds.
func (p *Proxy) attend(ctx context.Context) {
	for {
		_, changed, _ := p.others.leads.Replicas()
		p.loop.soon(ctx, func(context.Context) { p.others.share(p.limits) })
		wake(p.embedder.work)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// recallProvisions takes in what clients have provisioned over other replicas: detail is a
// JSON array of the view and the owner, "" for all.
func (p *Proxy) recallProvisions(ctx context.Context, detail string) (failed error) {
	var of [2]string
	if detail != "" && json.Unmarshal([]byte(detail), &of) != nil {
		return nil
	}
	for _, v := range p.now.Load().views {
		if detail != "" && v.name != of[0] {
			continue
		}
		owners, err := []string{of[1]}, error(nil)
		if detail == "" {
			owners, err = p.ownersIn(ctx, v)
		}
		for _, owner := range owners {
			if err == nil {
				err = v.gate.Recall(ctx, owner, v.endpoint.provisions)
			}
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("view %s: %w", v.name, err))
		}
	}
	return failed
}

// ownersIn are those who have something provisioned in a view, as far as this replica or
// the store knows.
func (p *Proxy) ownersIn(ctx context.Context, v *View) ([]string, error) {
	stored, err := p.store.Usage().Provisions(ctx, v.name)
	owners := v.gate.Owners()
	for _, one := range stored {
		owners = append(owners, one.Owner)
	}
	slices.Sort(owners)
	return slices.Compact(owners), err
}

// recallLearned takes in what was learned from use elsewhere.
func (p *Proxy) recallLearned(ctx context.Context) error {
	if p.memory == nil {
		return nil
	}
	stored, err := p.store.Usage().Learned(ctx)
	if err == nil {
		p.memory.Recall(usesOf(stored))
	}
	return err
}

func usesOf(stored []store.LearnedUse) []retrieve.Use {
	uses := make([]retrieve.Use, len(stored))
	for i, u := range stored {
		uses[i] = retrieve.Use(u)
	}
	return uses
}

// recallCalled takes in what clients called over other replicas.
func (p *Proxy) recallCalled(ctx context.Context) error {
	for _, v := range p.now.Load().views {
		called, err := p.store.Usage().Called(ctx, v.name)
		if err != nil {
			return fmt.Errorf("view %s: %w", v.name, err)
		}
		v.live.Recalled(called)
	}
	return nil
}

// lazily is how long what nobody waits for may be out of date.
const lazily = 2 * time.Second

// waited waits, and reports false if ctx ends before.
func waited(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// lazilyDo does something a while after it is woken, once for all that woke it meanwhile, until
// ctx ends.
func lazilyDo(ctx context.Context, after time.Duration, work <-chan struct{}, do func()) {
	for {
		select {
		case <-work:
		case <-ctx.Done():
			return
		}
		if !waited(ctx, after) {
			return
		}
		select { // those that came meanwhile
		case <-work:
		default:
		}
		do()
	}
}
