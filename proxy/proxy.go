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
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"toolfinch/configs"
	"toolfinch/embed"
	"toolfinch/output"
	"toolfinch/rawjson"
	"toolfinch/register"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

// Proxy is one configured toolfinch.
type Proxy struct {
	// Completed, if set before Run, is called once all that the store knows is
	// indexed.
	Completed func()
	// Only, if set before Run, is the name of the one view that is served, in the
	// place of the default view.
	Only string

	first   *configs.Config // what was opened: a part of it holds until a restart
	config  atomic.Pointer[configs.Config]
	version string
	log     *slog.Logger
	store   *store.Store
	pool    *upstream.Pool
	outputs *output.Cache

	views         atomic.Pointer[views]
	subscriptions *register.Subscriptions
	vectors       retrieve.QueryVectors
	levels        levels
	problems      atomic.Pointer[[]view.Problem]
	modules       atomic.Pointer[[]string]

	// What follows is the refresh loop's own.
	closing  sync.WaitGroup     // views that are no more
	life     context.Context    // of Run; nil before
	known    map[string]*said   // by server
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

	savings *accountant

	embedding  sync.Mutex     // one Embed at a time; guards the next three
	embedder   embed.Embedder // nil before the first Embed
	wordsAlone bool           // there is to be none
	dropped    bool           // vectors of another dimension were dropped
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
}

type clientNews struct {
	client  string
	relists bool
}

// Open builds the proxy from what the store last knew: search and lists answer
// at once, and nothing has been dialled. version is the program's.
func Open(ctx context.Context, config *configs.Config, version string, log *slog.Logger) (*Proxy, error) {
	db, err := store.Open(ctx, config.DataDir, log)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{
		first:    config,
		version:  version,
		log:      log,
		store:    db,
		outputs:  output.New(db, log),
		known:    map[string]*said{},
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
	p.config.Store(config)
	p.views.Store(&views{})
	p.problems.Store(&[]view.Problem{})
	p.modules.Store(&[]string{})
	p.subscriptions = register.NewSubscriptions(p.subscribe)
	known := p.recall(ctx)
	p.relists = known.clients
	p.savings = newAccountant(db, log, p.putTokens)
	if config.Learn {
		p.memory = retrieve.NewMemory(known.uses, p.rememberUse)
	}
	p.pool = upstream.NewPool(config.Servers, known.servers, p.events(), log)
	all := p.upstreams(config)
	p.partial = cutTo(all, openTools)
	next, problems := p.arrange(config, all, known.tokens)
	if err := p.show(ctx, next); err != nil {
		return nil, errors.Join(fmt.Errorf("proxy: %w", err), p.Close())
	}
	p.report(problems)
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
	config := p.config.Load()
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
	for _, s := range servers {
		k.servers[s.Name] = upstream.Known{Era: upstream.Era(s.Era), Interactive: s.Interactive}
		p.known[s.Name] = &said{defs: []*tool.Def{}, capabilities: s.Capabilities, instructions: s.Instructions, era: upstream.Era(s.Era), interactive: s.Interactive}
	}
	defs, err := p.store.Tools(ctx)
	warn("tools", err)
	for _, def := range defs {
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

// swap makes all that is known what can be found and called.
func (p *Proxy) swap(ctx context.Context) error {
	config := p.config.Load()
	next, problems := p.arrange(config, p.upstreams(config), nil)
	if err := p.show(ctx, next); err != nil {
		return err
	}
	p.report(problems)
	p.partial = false
	return nil
}

// Complete indexes what Open left for later because it was much. Run does so
// by itself.
func (p *Proxy) Complete(ctx context.Context) error {
	if !p.partial {
		return nil
	}
	if err := p.swap(ctx); err != nil {
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
	g.Go(func() error { p.savings.run(life); return nil })
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
	for _, v := range p.views.Load().all {
		v.run(ctx)
	}
	defer func() {
		for _, v := range p.views.Load().all {
			<-v.ended
		}
		p.closing.Wait()
	}()
	if err := p.Complete(ctx); err != nil && ctx.Err() == nil {
		p.log.Error("not all known tools are indexed", "error", err)
	}
	if p.Completed != nil {
		p.Completed()
	}
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
	news := false
	for i, change := range changes {
		diffs[i] = p.learn(ctx, change)
		news = news || change.Err == nil
	}
	if !news {
		return diffs // the last known tools stay
	}
	if err := p.swap(ctx); err != nil {
		if ctx.Err() == nil {
			p.log.Error("the catalog was not refreshed", "error", err)
		}
		return diffs
	}
	wake(p.uncount)
	wake(p.unembed)
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

// learn takes what an upstream said of itself into memory and store.
func (p *Proxy) learn(ctx context.Context, change upstream.Change) (diff store.Diff) {
	removed := !slices.ContainsFunc(p.config.Load().Servers, func(s upstream.Settings) bool { return s.Name == change.Server })
	if change.Err != nil || removed {
		return diff // its last known tools stay; the pool has logged it
	}
	for _, err := range change.Rejected {
		p.log.Warn("a tool was left out", "server", change.Server, "error", err)
	}
	p.known[change.Server] = &said{
		defs:         append([]*tool.Def{}, change.Defs...), // not nil: it was listed
		capabilities: change.Capabilities, instructions: change.Instructions, era: change.Era, interactive: change.Interactive, cache: change.Cache,
	}
	diff, err := p.store.PutServer(ctx, store.Server{
		Name: change.Server, Era: string(change.Era), Info: change.Info, Instructions: change.Instructions,
		Capabilities: change.Capabilities, Interactive: change.Interactive,
	}, change.Defs)
	if err != nil && ctx.Err() == nil {
		p.log.Warn("not written to the store; the tools are known until the program ends", "server", change.Server, "error", err)
	}
	return diff
}

// wake tells whoever waits on c that there is work; once is enough.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// countTokens counts new definitions in the background. It is the last thing
// that news of an upstream cause, so the memory they took is given back then.
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
			debug.FreeOSMemory()
		}
	}
}

// countNew counts the definitions of all views that were not counted yet.
func (p *Proxy) countNew(ctx context.Context) map[string]int {
	fresh := map[string]int{}
	for _, v := range p.views.Load().all {
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
		for _, v := range p.views.Load().all {
			err = errors.Join(err, v.close(ctx))
		}
		err = errors.Join(err, p.closeEmbedder(), p.store.Close())
	})
	return err
}
