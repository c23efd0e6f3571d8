// Package proxy opens the house, runs it and closes it: store, upstreams,
// catalog and live server become one MCP server. What each of them does is
// their own affair.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/gate"
	"toolfinch/limit"
	"toolfinch/output"
	"toolfinch/rawjson"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/savings"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/transport"
	"toolfinch/upstream"
	"toolfinch/view"
)

// Proxy is one configured toolfinch.
type Proxy struct {
	options options
	first   *configs.Config // what was opened: a part of it holds until a restart
	log     *slog.Logger
	store   *store.Store
	pool    *upstream.Pool
	outputs *output.Cache

	served        atomic.Pointer[served]
	subscriptions *register.Subscriptions
	connected     *transport.Clients
	limits        *register.Limits
	provisioned   *limit.Limit
	vectors       retrieve.QueryVectors
	levels        levels

	// What follows is the refresh loop's own.
	closing  sync.WaitGroup     // views that are no more
	life     context.Context    // of Run; nil before
	known    map[string]*said   // by server
	heard    map[string]bool    // the servers that were listed, or have failed, since Open
	tokens   map[string]int     // counts of definitions that the store knew
	programs map[string]program // by path
	reported map[view.Problem]bool
	partial  bool // not all that is known can be found yet

	relists map[string]bool // what was known of clients at the start
	clients chan clientNews
	reloads chan reload
	news    chan news
	ended   chan struct{}    // closed when reloads and news are taken no more
	uncount chan struct{}    // wakes the token counter
	unembed chan struct{}    // wakes the embedder
	memory  *retrieve.Memory // nil unless it is to learn
	uses    chan retrieve.Use
	close   sync.Once

	savings    *savings.Meter
	reindexing singleflight.Group

	embedding  sync.Mutex     // one Embed at a time; guards the next three
	embedder   embed.Embedder // nil before the first Embed
	wordsAlone bool           // there is to be none
	dropped    bool           // vectors of another dimension were dropped
	fresh      atomic.Int64   // texts that were embedded, not read from the store
	dimension  atomic.Int64   // the embedder's, once the tools turned out to have another
}

// said is what is known of a server: what it said when it was listed last.
type said struct {
	defs         []*tool.Def
	capabilities json.RawMessage
	instructions string
	era          upstream.Era
	interactive  bool
	cache        map[tool.Kind]upstream.CacheHint
	faults       []upstream.Fault // logged already
}

type clientNews struct {
	client  string
	relists bool
}

// Open builds the proxy from what the store last knew: search and lists answer
// at once, and nothing has been dialled. The error wraps ErrNoView when WithView
// names a view that the configuration lacks.
func Open(ctx context.Context, config *configs.Config, options ...Option) (*Proxy, error) {
	o := optionsOf(options)
	db, err := store.Open(ctx, config.DataDir, o.log)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return open(ctx, config, o, db)
}

// OpenCopy is Open over a copy of the store in memory: what is learned is lost, and
// the store stays as it is.
func OpenCopy(ctx context.Context, config *configs.Config, options ...Option) (*Proxy, error) {
	o := optionsOf(options)
	db, err := store.OpenCopy(ctx, config.DataDir, o.log)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return open(ctx, config, o, db)
}

// open takes db over.
func open(ctx context.Context, config *configs.Config, o options, db *store.Store) (*Proxy, error) {
	log := o.log
	p := &Proxy{
		options:  o,
		first:    config,
		log:      log,
		store:    db,
		outputs:  output.New(db, log),
		known:    map[string]*said{},
		heard:    map[string]bool{},
		programs: map[string]program{},
		reported: map[view.Problem]bool{},
		clients:  make(chan clientNews, 16),
		reloads:  make(chan reload),
		news:     make(chan news),
		ended:    make(chan struct{}),
		uncount:  make(chan struct{}, 1),
		unembed:  make(chan struct{}, 1),
		uses:     make(chan retrieve.Use, 256),
	}
	p.served.Store(&served{config: config, ready: make(chan struct{})})
	p.subscriptions = register.NewSubscriptions(p.subscribe)
	p.connected, p.limits = transport.NewClients(transport.Limits{Sessions: int64(config.MaxSessions), SessionIdle: config.SessionTimeout}), register.NewLimits()
	p.provisioned = gate.NewLimit()
	known := p.recall(ctx)
	p.relists, p.tokens = known.clients, known.tokens
	p.savings = savings.New(log)
	if config.Learn {
		p.memory = retrieve.NewMemory(known.uses, p.rememberUse)
	}
	p.pool = upstream.NewPool(config.Servers, known.servers, p.events(), log)
	all := p.upstreams(config)
	p.partial = cutTo(all, openTools)
	if err := p.rebuild(ctx, config, all, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("proxy: %w", err), p.Close())
	}
	if _, err := p.View(""); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// subscribe subscribes to a resource of an upstream, or ends that.
func (p *Proxy) subscribe(ctx context.Context, id tool.ID, on bool) error {
	if on {
		return p.pool.Subscribe(ctx, id.Server, id.Name)
	}
	return p.pool.Unsubscribe(ctx, id.Server, id.Name)
}

// known is what the store remembered.
type known struct {
	servers map[string]upstream.Known
	tokens  map[string]int
	clients map[string]bool
	uses    []retrieve.Use
}

// recall reads the store. What cannot be read is learned again.
func (p *Proxy) recall(ctx context.Context) known {
	k := known{servers: map[string]upstream.Known{}}
	config := p.served.Load().config
	configured := slices.Clone(config.Disabled)
	enabled := map[string]bool{}
	for _, s := range config.Servers {
		configured = append(configured, s.Name)
		enabled[s.Name] = true
	}
	warn := func(what string, err error) {
		if err != nil {
			p.log.Warn("the store could not be read; starting without it", "what", what, "error", err)
		}
	}
	_, err := p.store.KeepServers(ctx, configured)
	warn("removed servers", err)
	servers, err := p.store.Servers(ctx)
	warn("servers", err)
	unchecked := map[string]bool{}
	for _, s := range servers {
		unchecked[s.Name] = s.Unchecked
		k.servers[s.Name] = upstream.Known{Era: upstream.Era(s.Era), Interactive: s.Interactive}
		p.known[s.Name] = &said{defs: []*tool.Def{}, capabilities: s.Capabilities, instructions: s.Instructions, era: upstream.Era(s.Era), interactive: s.Interactive}
	}
	defs, err := p.store.Tools(ctx)
	warn("tools", err)
	for _, def := range defs {
		if unchecked[def.ID.Server] {
			if def, _, err = tool.TakeIn(def.ID.Kind, def.ID.Server, def.Raw); err != nil {
				continue // the next list says so
			}
		}
		if s := p.known[def.ID.Server]; s != nil && enabled[def.ID.Server] {
			s.defs = append(s.defs, def)
		}
	}
	k.tokens, err = p.store.Tokens(ctx)
	warn("token counts", err)
	k.clients, err = p.store.Clients(ctx)
	warn("clients", err)
	if config.Learn {
		uses, err := p.store.Learned(ctx)
		warn("what was learned from use", err)
		for _, u := range uses {
			k.uses = append(k.uses, retrieve.Use(u))
		}
	}
	return k
}

// upstreamTool is the handler of an upstream's tool.
func (p *Proxy) upstreamTool(def *tool.Def) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := p.pool.Call(ctx, def, call)
		if p.memory != nil && def.ID.Kind == tool.KindTool && err == nil && string(rawjson.Member(json.RawMessage(result), "isError")) != "true" {
			p.memory.Called(call.Session, def.ID)
		}
		return result, err
	}
}

// upstreams joins a configuration with what is known, in its order.
func (p *Proxy) upstreams(config *configs.Config) []view.Upstream {
	all := make([]view.Upstream, len(config.Servers))
	for i, s := range config.Servers {
		all[i] = view.Upstream{Server: s.Name}
		if known := p.known[s.Name]; known != nil {
			all[i].Listed = true
			all[i].Tools = tool.Of(known.defs, p.upstreamTool)
		}
	}
	return all
}

// openTools is how many tools are indexed before the first question can be
// answered; the others follow at once.
const openTools = 10_000

// cutTo leaves as many of the upstreams, in their order, as have most tools
// together; the others are as if they had not been listed yet. It reports
// whether there are such.
func cutTo(all []view.Upstream, most int) (cut bool) {
	total := 0
	for i := range all {
		if total += len(all[i].Tools); total > most {
			all[i].Tools, all[i].Listed, cut = nil, false, true
		}
	}
	return cut
}

// refresh serves all that is known. Views that use none of the changed servers stay
// as they are; nil: none does.
func (p *Proxy) refresh(ctx context.Context, changed map[string]bool) error {
	if p.partial {
		changed = nil // more is known than what changed
	}
	config := p.served.Load().config
	if err := p.rebuild(ctx, config, p.upstreams(config), changed); err != nil {
		return err
	}
	p.partial = false
	return nil
}

func (p *Proxy) rebuild(ctx context.Context, config *configs.Config, upstreams []view.Upstream, changed map[string]bool) error {
	plans, problems := p.plan(config, upstreams, changed)
	next, err := p.build(ctx, config, plans, problems)
	if err != nil {
		return err
	}
	p.show(ctx, next)
	return nil
}

// Complete indexes what Open left for later because it was much. Run does so
// by itself.
func (p *Proxy) Complete(ctx context.Context) error {
	if !p.partial {
		return nil
	}
	if err := p.refresh(ctx, nil); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return nil
}

// rememberClient never blocks: it is called while a client waits.
func (p *Proxy) rememberClient(client string, relists bool) {
	select {
	case p.clients <- clientNews{client, relists}:
	default: // learned again next time
	}
}

// rememberUse never blocks, either: a call waits.
func (p *Proxy) rememberUse(use retrieve.Use) {
	select {
	case p.uses <- use:
	default: // learned already, until the program ends
	}
}

// Run keeps the proxy connected and serves clients until serve returns or ctx
// ends; serve gets a context that ends when anything else failed. Everything
// that Run started has ended when it returns.
func (p *Proxy) Run(ctx context.Context, serve func(context.Context) error) error {
	// Upstreams live on while serve drains its calls.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	changes := make(chan upstream.Change, 16)
	g.Go(func() error { return quiet(p.pool.Watch(life, changes)) })
	g.Go(func() error { return p.follow(life, changes) })
	g.Go(func() error { p.countTokens(life); return nil })
	g.Go(func() error { p.embedTools(life); return nil })
	g.Go(func() error { p.outputs.Sweep(life); return nil })
	g.Go(func() error { p.savings.Run(life, p.store); return nil })
	g.Go(func() error {
		defer end()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		return quiet(serve(serving))
	})
	return g.Wait()
}

// quiet drops the error of an end that was asked for.
func quiet(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

const (
	// settle is how long the refresh loop waits for more changes to come.
	settle = 20 * time.Millisecond
	// settleMost bounds that wait while changes keep coming.
	settleMost = 200 * time.Millisecond
)

// follow is the refresh loop, the only writer of store and catalog while the
// proxy runs.
func (p *Proxy) follow(ctx context.Context, changes <-chan upstream.Change) error {
	defer close(p.ended)
	p.life = ctx
	p.report(p.Problems())
	for _, v := range p.served.Load().views {
		v.run(ctx)
	}
	defer func() {
		for _, v := range p.served.Load().views {
			<-v.ended
		}
		p.closing.Wait()
	}()
	if err := p.Complete(ctx); err != nil && ctx.Err() == nil {
		p.log.Error("not all known tools are indexed", "error", err)
	}
	p.options.indexed()
	wake(p.uncount)
	wake(p.unembed)
	for {
		select {
		case <-ctx.Done():
			return nil
		case news := <-p.clients:
			if err := p.store.PutClient(ctx, news.client, news.relists); err != nil && ctx.Err() == nil {
				p.log.Warn("client not remembered", "error", err)
			}
		case r := <-p.reloads:
			r.done <- p.reload(ctx, r.config)
		case use := <-p.uses:
			if err := p.store.PutLearned(ctx, store.LearnedUse(use)); err != nil && ctx.Err() == nil {
				p.log.Warn("what was learned from a call is not kept", "error", err)
			}
		case change := <-changes:
			p.take(ctx, collect(ctx, changes, change))
		case n := <-p.news:
			n.diffs <- p.take(ctx, n.changes)
		}
	}
}

// take makes what became known of servers what is found and called.
func (p *Proxy) take(ctx context.Context, changes []upstream.Change) []store.Diff {
	diffs := make([]store.Diff, len(changes))
	changed := map[string]bool{}
	news := false
	for i, change := range changes {
		var err error
		if diffs[i], err = p.learn(ctx, change); err != nil && ctx.Err() == nil {
			p.log.Warn("not written to the store; the tools are known until the program ends", "server", change.Server, "error", err)
		}
		news = news || change.Err == nil
		if change.Err == nil || p.known[change.Server] == nil && !p.heard[change.Server] {
			changed[change.Server] = true
		}
		p.heard[change.Server] = true
	}
	if len(changed) == 0 && p.served.Load().complete {
		return diffs // the last known tools stay
	}
	if err := p.refresh(ctx, changed); err != nil {
		if ctx.Err() == nil {
			p.log.Error("the catalog was not refreshed", "error", err)
		}
		return diffs
	}
	if news {
		wake(p.uncount)
		wake(p.unembed)
	}
	return diffs
}

// collect gathers the changes of one burst.
func collect(ctx context.Context, changes <-chan upstream.Change, first upstream.Change) []upstream.Change {
	batch := []upstream.Change{first}
	most := time.NewTimer(settleMost)
	defer most.Stop()
	for {
		select {
		case change := <-changes:
			batch = append(batch, change)
		case <-time.After(settle):
			return batch
		case <-most.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
}

// learn takes what an upstream said of itself into memory and store. The error is
// the store's.
func (p *Proxy) learn(ctx context.Context, change upstream.Change) (store.Diff, error) {
	removed := !slices.ContainsFunc(p.served.Load().config.Servers, func(s upstream.Settings) bool { return s.Name == change.Server })
	if change.Err != nil || removed {
		return store.Diff{}, nil // its last known tools stay; the pool has logged it
	}
	p.reportFaults(change)
	p.known[change.Server] = &said{
		defs:         append([]*tool.Def{}, change.Defs...), // not nil: it was listed
		capabilities: change.Capabilities, instructions: change.Instructions, era: change.Era, interactive: change.Interactive, cache: change.Cache,
		faults: change.Faults.Described,
	}
	diff, err := p.store.PutServer(ctx, store.Server{
		Name: change.Server, Era: string(change.Era), Info: change.Info, Instructions: change.Instructions,
		Capabilities: change.Capabilities, Interactive: change.Interactive,
		LeftOut: change.Faults.LeftOut, Mended: change.Faults.Mended,
	}, change.Defs)
	for _, name := range diff.Changed[:min(len(diff.Changed), maxNamed)] {
		p.log.Warn("the definition of a tool changed", "server", change.Server, "tool", name)
	}
	if more := len(diff.Changed) - maxNamed; more > 0 {
		p.log.Warn("more definitions changed", "server", change.Server, "more", more)
	}
	return diff, err
}

// maxNamed bounds how many tools are named in the log that one list changed.
const maxNamed = 50

// reportFaults logs the faults of a list that the list before did not have.
func (p *Proxy) reportFaults(change upstream.Change) {
	var before []upstream.Fault
	if known := p.known[change.Server]; known != nil {
		before = known.faults
	}
	for _, fault := range change.Faults.Described {
		if slices.Contains(before, fault) {
			continue
		}
		message := "a malformed definition is left out: clients would refuse the whole list"
		if fault.Mended {
			message = "a malformed definition is served mended"
		}
		p.log.Warn(message, "server", change.Server, fault.Kind.String(), fault.Name, "reason", fault.Text)
	}
	if more := change.Faults.LeftOut + change.Faults.Mended - len(change.Faults.Described); more > 0 && len(before) == 0 {
		p.log.Warn("more definitions are malformed than are named", "server", change.Server, "more", more)
	}
}

// wake tells whoever waits on c that there is work; once is enough.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// countTokens counts new definitions in the background. It is the last thing
// that news of an upstream cause.
func (p *Proxy) countTokens(ctx context.Context) {
	wake(p.uncount)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.uncount:
		}
		p.putTokens(ctx, p.countNew(ctx))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second): // not beside the first answer
			p.options.idle()
		}
	}
}

// countNew counts the definitions of all views that were not counted yet.
func (p *Proxy) countNew(ctx context.Context) map[string]int {
	fresh := map[string]int{}
	for _, v := range p.served.Load().views {
		maps.Copy(fresh, v.catalog.CountTokens(ctx))
	}
	return fresh
}

func (p *Proxy) putTokens(ctx context.Context, fresh map[string]int) {
	if len(fresh) == 0 || ctx.Err() != nil {
		return
	}
	if err := p.store.PutTokens(ctx, fresh); err != nil && ctx.Err() == nil {
		p.log.Warn("token counts not written to the store", "error", err)
	}
}

// Close ends every connection and the store. It may be called twice.
func (p *Proxy) Close() error {
	var err error
	p.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		err = p.pool.Close(ctx)
		for _, v := range p.served.Load().views {
			err = errors.Join(err, v.close(ctx))
		}
		err = errors.Join(err, p.closeEmbedder(), p.store.Close())
	})
	return err
}
