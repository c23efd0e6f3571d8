package proxy

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"strings"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/proxy/replicas"
	"toolfinch/store"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
)

// shared coordinates replicas, in addition to the tables of their store.
type shared interface {
	Join(ctx context.Context) (replicas.Membership, error)
	Listen(ctx context.Context) (replicas.Listener, error)
	// Relist notifies all replicas that the lists of a server have changed.
	Relist(ctx context.Context, server string) error
	// Notify notifies all replicas of an event that is not stored.
	Notify(ctx context.Context, topic store.Topic, detail string) error
}

// inPostgres implements shared over a store in PostgreSQL.
type inPostgres struct{ *store.Replicas }

func (r inPostgres) Join(ctx context.Context) (replicas.Membership, error) {
	return r.Replicas.Join(ctx)
}

func (r inPostgres) Listen(ctx context.Context) (replicas.Listener, error) {
	return r.Replicas.Listen(ctx)
}

// others connects this replica with the other replicas. A nil *others has no replicas: this process lists every server.
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
	versions := map[store.Topic]int64{} // if unreadable, every topic counts as changed later
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

// present returns the replicas of the last round, and the servers that this replica leads.
func (o *others) present() (all []store.Replica, leads []string) {
	all, _, _ = o.leads.Replicas()
	for _, r := range all {
		if r.ID == o.me.ID {
			leads = r.LeadsServers()
		}
	}
	return all, leads
}

// leader returns the function that says which servers this process lists; nil means all.
func (o *others) leader() upstream.Leads {
	if o == nil {
		return nil
	}
	return o.leads.Leads
}

// heard returns a function that reports whether changes by other replicas arrive now; nil without replicas.
func (o *others) heard() func() bool {
	if o == nil {
		return nil
	}
	return o.changes.Heard
}

// embeds returns a function that reports whether this replica embeds the texts of a server; nil means all servers. The
// leader of the name "" embeds tools without a server.
func (o *others) embeds(config func() *configs.Config) func(server string) bool {
	if o == nil {
		return nil
	}
	return func(server string) bool {
		if config().Server(server) == nil {
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
	all := []string{""} // the leader of "" does the work that belongs to no server
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

// ledElsewhere reports whether another replica leads a server, as of the last round.
func (o *others) ledElsewhere(server string) bool {
	return o != nil && o.leads.LedElsewhere(server)
}

// share divides limits by the number of replicas.
func (o *others) share(limits *rate.Limits) {
	if o != nil {
		all, _, _ := o.leads.Replicas()
		limits.Share(len(all), time.Now())
	}
}

// loginFailed tells the other replicas that a login has ended without a token, because their calls may wait for it.
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

// maxCallback bounds the callback query of a browser that is passed to other replicas, in bytes.
const maxCallback = 6 << 10

// cameBack passes the query of an authorization server's answer to the other replicas, because the login may have
// begun at one of them. It reports whether that succeeded.
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

// takeWithin bounds how long a notice is handled or sent; after that the attempt has failed.
const takeWithin = 5 * time.Second
