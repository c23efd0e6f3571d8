// Package proxy composes: it opens store, upstreams, views and live servers as one MCP server, runs it, and closes it.
// The behaviour of each part belongs to the part's own package. Workspace has the same views for commands, without
// live servers.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/proxy/savings"
	"toolfinch/proxy/served"
	"toolfinch/proxy/web/page"
	"toolfinch/register"
	"toolfinch/register/transport"
	"toolfinch/retrieve"
	"toolfinch/retrieve/gate"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
	"toolfinch/view/output"
	"toolfinch/view/python"
	"toolfinch/view/script"
)

// Proxy is one configured toolfinch: Open, Run, Close. It has more than 30 methods, because each way in (stdio, HTTP,
// page, notices of replicas) begins at a method.
type Proxy struct {
	*views
	loop  *loop
	store *store.Store

	connections *connections // of clients over HTTP
	draining    atomic.Bool  // the proxy was told to stop, and waits until load balancers know
	started     time.Time
	close       sync.Once
	reindexing  singleflight.Group
	page        struct {
		*page.Server // nil before the first call of servedPage
		made         sync.Once
	}
}

// openTools is how many tools Open indexes before the first question: loading the whole index of a very large store
// takes too long, even if the index is stored. Run indexes the remaining tools at once.
const openTools = 10_000

// Open builds the proxy from the store: search and lists answer at once, and nothing is dialled. The error wraps
// ErrNoView if WithView names a view that the configuration lacks.
func Open(ctx context.Context, config *configs.Config, options ...Option) (*Proxy, error) {
	o := optionsOf(options)
	if config.Store != "" { // SQLite would make the folder
		if err := os.MkdirAll(config.DataDir, 0o700); err != nil {
			o.log.Warn("there is no folder for what belongs to this machine", "error", err)
		}
	}
	at := config.Places()
	db, err := store.OpenOrReplace(ctx, at.Store, o.log)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if err := db.MadeFor(config.Path); err != nil {
		o.log.Warn("toolfinch store --clean will not know whose store this is", "error", err)
	}
	p := &Proxy{store: db, started: time.Now(), connections: newConnections()}
	beside := join(ctx, config, o, db) // before anything is read, so that no later change is missed
	all, known, err := newViews(ctx, config, o, db, eventsOf(func() *current { return p.now.Load() }, o.observer), beside)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", errors.Join(err, db.Close()))
	}
	count := &counter{store: db, log: o.log, catalogs: all.catalogs, idle: o.idle, work: make(chan struct{}, 1)}
	all.others, all.embedder.mine = beside, beside.embeds(func() *configs.Config { return all.now.Load().Config })
	p.views, p.loop = all, newLoop(all, db, count)
	p.desk = &desk{
		views: all, store: db, meter: savings.New(o.log), counter: count,
		subscriptions: register.NewSubscriptions(p.subscribe), limits: register.NewLimits(), provisioned: gate.NewLimit(),
		connected: transport.NewClients(limitsOf(config, p.connections.bound.Max())),
		relists:   known.clients, later: p.loop.later, sessions: newSessions(config, o, beside, db), keysChanged: make(chan struct{}, 1),
	}
	p.desk.entrance = inbound.New(inbound.Options{
		Settings: config.Auth, Header: config.PrincipalHeader, Proxies: config.Proxies, Store: db.Keys(), Heard: beside.heard(), Refuse: refuse, Record: o.observer.record, Root: func() string { return p.rootOf(p.now.Load().Config) }, Log: o.log, Agent: o.agent(),
	})
	p.logins.entrance = p.desk.entrance
	if config.Learn {
		all.memory = retrieve.NewMemory(known.uses, p.loop.rememberUse)
	}
	all.known.shared, all.segments.shared = beside != nil, beside != nil
	all.known.forget(ctx, config)
	if err := p.build(ctx, config); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// build builds and serves the first views.
func (p *Proxy) build(ctx context.Context, config *configs.Config) error {
	known := p.known.of(config, p.upstreamTools)
	p.partial = served.CutTo(known, config, cmp.Or(p.atFirst, openTools))
	next := p.now.Load().next(config)
	if err := p.views.build(ctx, next, known, nil, nil); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	if !p.partial {
		p.stored = nil
	}
	p.loop.show(ctx, next)
	if p.only == "" {
		return nil
	}
	_, err := p.View("")
	return err
}

// newViews reads the store. It builds no view.
func newViews(ctx context.Context, config *configs.Config, o options, db *store.Store, events upstream.Events, among *others) (*views, recalled, error) {
	var key [32]byte
	if among != nil {
		var err error
		if key, err = db.Replicas().StateKey(ctx); err != nil {
			return nil, recalled{}, err
		}
	}
	logins, err := newLogins(config, o, db, among, key)
	if err != nil {
		return nil, recalled{}, err
	}
	if config.Store != "" {
		if err := logins.rows.readAll(ctx); err != nil {
			return nil, recalled{}, err
		}
	}
	known, beside := recall(ctx, db, config, o)
	scripts := script.NewSandbox(o.log)
	all := &views{
		options: o, first: config, known: known, tokens: beside.tokens,
		outputs: output.New(db.Outputs(), scripts, store.Level, o.log),
		scripts: scripts,
		reread:  make(chan struct{}, 1),
		logins:  logins,
		pool:    upstream.NewPool(config.Servers, upstream.Options{Known: known.ofPool(), Events: events, Version: o.version, Log: o.log, Logins: logins.Logins, Traces: o.traces, Key: key, Leads: among.leader(), Programs: o.programs, Starting: config.Starting}),
	}
	all.pool.SetOwnPort(cmp.Or(o.ownPort, config.Port()))
	all.embedder = &embedder{settings: config.Embed, store: db, log: o.log, catalogs: all.catalogs, complete: func() bool { return all.now.Load().Complete }, idle: o.idle, work: make(chan struct{}, 1)}
	if config.Learn {
		all.memory = retrieve.NewMemory(beside.uses, func(retrieve.Use) {})
	}
	all.segments = &segments{store: db, log: o.log, catalogs: all.catalogs, done: o.idle, work: make(chan struct{}, 1)}
	all.stored = all.segments.recall(ctx)
	first := &current{
		Served:  &served.Served{Config: config, Limits: rate.New(config.RateLimits, nil)},
		modules: script.NewModules(o.log), python: python.New(config.Python, o.log), ready: make(chan struct{}),
	}
	all.readSkills(first)
	all.now.Store(first)
	return all, beside, nil
}

// subscribe subscribes to a resource of an upstream, or unsubscribes.
func (p *Proxy) subscribe(ctx context.Context, id tool.ID, on bool) error {
	if on {
		return p.pool.Subscribe(ctx, id.Server, id.Name)
	}
	return p.pool.Unsubscribe(ctx, id.Server, id.Name)
}

// Ready returns a channel that is closed once each upstream has been listed or has failed since Open, and the lists
// are served. It needs Run. After a Reload that adds servers, Ready returns another channel.
func (p *Proxy) Ready() <-chan struct{} { return p.now.Load().ready }

// Servers returns the states of the configured servers, in the order of the configuration.
func (p *Proxy) Servers() []upstream.Status { return p.pool.Status() }

// closeWithin bounds how long Close may take.
const closeWithin = 15 * time.Second

// Close closes every connection and the store. It may be called twice.
func (p *Proxy) Close() error {
	var err error
	p.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(closeWithin))
		defer cancel()
		err = errors.Join(p.closeAll(ctx), p.store.Close())
		p.audit.log.Record(ctx, identity.Event{Kind: identity.EventStop})
		err = errors.Join(err, p.audit.log.Close())
	})
	return err
}
