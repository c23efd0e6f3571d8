package proxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"toolfinch/cluster"
	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/upstream"
)

// shared is what replicas share beside the tables of their store.
type shared interface {
	// Versions are those of all that has changed at any time.
	Versions(ctx context.Context) (map[store.Topic]int64, error)
	Session(ctx context.Context) (cluster.Session, error)
	Listen(ctx context.Context) (cluster.Listener, error)
	// Ask notifies all replicas of something that is not stored.
	Ask(ctx context.Context, topic store.Topic) error
}

// others are the replicas beside this one. Nil has none: this process lists every server.
type others struct {
	me      store.Replica
	shared  shared
	leads   *cluster.Leads
	changes *cluster.Changes
	log     *slog.Logger
}

// join makes this process one of the replicas of a store; nil for a store that has none.
func (p *Proxy) join(ctx context.Context, config *configs.Config, o options, db *store.Store) (*others, error) {
	if o.shared == nil {
		return nil, nil
	}
	versions, err := o.shared.Versions(ctx)
	if err != nil {
		return nil, fmt.Errorf("the other replicas: %w", err)
	}
	me := store.Replica{ID: newReplicaID(), Version: o.version, Started: time.Now()}
	if config.Cluster != nil {
		at, err := peer(me.ID, config.Cluster)
		if err != nil {
			return nil, err
		}
		me.Name, me.Address = config.Cluster.Name, at.Address
	}
	all := &others{me: me, shared: o.shared, log: o.log}
	all.leads = cluster.NewLeads(cluster.LeadOptions{Me: me, Open: o.shared.Session, Log: o.log})
	all.changes = cluster.NewChanges(o.shared.Listen, versions, o.log)
	all.compete(config)
	return all, nil
}

// newReplicaID returns the ID of a replica, which it has until it ends.
func newReplicaID() string { return strings.ToLower(rand.Text()[:16]) }

// leader says which servers this process lists; nil: all.
func (o *others) leader() upstream.Leads {
	if o == nil {
		return nil
	}
	return o.leads.Leads
}

// compete has this replica compete for the servers of a configuration.
func (o *others) compete(config *configs.Config) {
	if o == nil {
		return
	}
	var all []cluster.Candidate
	for _, s := range config.Servers {
		if s.Fault == "" {
			all = append(all, cluster.Candidate{Server: s.Name})
		}
	}
	o.leads.Compete(all)
}

// relist asks the leader of a server to list it.
func (o *others) relist(ctx context.Context, server string) {
	if o == nil {
		return
	}
	if err := o.shared.Ask(ctx, store.Topic{Kind: store.TopicRelist, Key: server}); err != nil && ctx.Err() == nil {
		o.log.Warn("the leader of a server was not told that its lists have changed", "server", server, "error", err)
	}
}

// hear takes in what the other replicas change, until ctx ends.
func (o *others) hear(ctx context.Context, l *loop, changes chan<- upstream.Change) {
	o.changes.Run(ctx, func(ctx context.Context, n store.Notice) {
		switch n.Kind {
		case store.TopicServer:
			select {
			case changes <- upstream.Change{Server: n.Key, Followed: true}:
			case <-ctx.Done():
			}
		case store.TopicDecisions:
			l.soon(ctx, l.decisions)
		case store.TopicRelist:
			l.pool.Relist(n.Key)
		}
	})
}
