package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/proxy/served"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// listings are the last lists of the upstreams, in memory and in the store. One goroutine
// at a time uses them: the refresh loop, while there is one.
type listings struct {
	store         *store.Store
	readOnly      bool // what is learned is not written to the store
	shared        bool // replicas with other servers may use the store
	log           *slog.Logger
	record        identity.Record
	byServer      map[string]*listing
	listedThisRun map[string]bool      // the servers that were listed, or have failed, since Open
	began         map[string]time.Time // when servers that were never listed were met
	wrote         map[string]int64     // by server: the version of what is known, where this process stored that
}

// listing is the last list of a server.
type listing struct {
	defs         []*tool.Def
	capabilities json.RawMessage
	instructions string // as listed; listings.instructionsOf has the approved ones
	unpinned     []pins.Held
	version      string // of serverInfo
	era          upstream.Era
	interactive  bool
	cache        map[tool.Kind]upstream.CacheHint
	faults       []upstream.Fault // logged already

	tools []*tool.Tool    // of defs, for that configuration
	of    *configs.Config // nil: tools must be made
}

// recalled is what the store remembers beside what the upstreams said.
type recalled struct {
	tokens  map[string]int          // counts of definitions
	clients map[string]tool.Relists // whether they list tools again after list_changed
	uses    []retrieve.Use          // nil unless the configuration learns
}

// recall reads the store. What cannot be read is learned again.
func recall(ctx context.Context, db *store.Store, config *configs.Config, o options) (*listings, recalled) {
	log := o.log
	k := &listings{store: db, log: log, record: o.observer.record, byServer: map[string]*listing{}, listedThisRun: map[string]bool{}, began: map[string]time.Time{}, wrote: map[string]int64{}}
	warn := func(what string, err error) {
		if err != nil {
			log.Warn("the store could not be read; starting without it", "what", what, "error", err)
		}
	}
	defs, err := db.Tools(ctx) // before what is approved of them: another replica may store new ones meanwhile
	warn("tools", err)
	servers, err := db.Servers(ctx)
	warn("servers", err)
	unchecked := map[string]bool{}
	configured := serversOf(config)
	unpinned, err := db.Pins().Unpinned(ctx)
	warn("what is approved", err)
	if err != nil {
		servers = nil // what is not known to be approved is not served
	}
	for _, s := range servers {
		if slices.Contains(configured, s.Name) {
			unchecked[s.Name] = s.Unchecked
			k.byServer[s.Name] = storedOf(s)
		}
	}
	for _, u := range unpinned {
		if s := k.byServer[u.ID.Server]; s != nil {
			s.unpinned = append(s.unpinned, pins.Held(u))
		}
	}
	for _, def := range defs {
		if unchecked[def.ID.Server] {
			if def, _, err = tool.TakeIn(def.ID.Kind, def.ID.Server, def.Raw); err != nil {
				continue // the next list says so
			}
		}
		if s := k.byServer[def.ID.Server]; s != nil && !slices.Contains(config.Disabled, def.ID.Server) {
			s.defs = append(s.defs, def)
		}
	}
	var r recalled
	r.tokens, err = db.Tokens(ctx)
	warn("token counts", err)
	r.clients, err = db.Usage().Clients(ctx)
	warn("clients", err)
	if config.Learn {
		uses, err := db.Usage().Learned(ctx)
		warn("what was learned from use", err)
		r.uses = usesOf(uses)
	}
	return k, r
}

// storedOf is what the store has of a server, without definitions.
func storedOf(s store.Upstream) *listing {
	return &listing{
		defs: []*tool.Def{}, capabilities: s.Capabilities, instructions: s.Instructions, era: upstream.Era(s.Era), interactive: s.Interactive,
		version: versionOf(s.Info),
	}
}

// serversOf are the names of all servers of a configuration, disabled ones too.
func serversOf(config *configs.Config) []string {
	names := slices.Clone(config.Disabled)
	for _, s := range config.Servers {
		names = append(names, s.Name)
	}
	return names
}

// forget forgets the servers that a configuration does not name.
func (k *listings) forget(ctx context.Context, config *configs.Config) {
	configured := serversOf(config)
	maps.DeleteFunc(k.byServer, func(server string, _ *listing) bool { return !slices.Contains(configured, server) })
	if k.shared { // what is approved of a server is not to go with the configuration of one replica: toolfinch reindex forgets
		return
	}
	if _, err := k.store.KeepServers(ctx, configured); err != nil && ctx.Err() == nil {
		k.log.Warn("removed servers are still in the store", "error", err)
	}
}

// ofPool is what the pool needs to know.
func (k *listings) ofPool() map[string]upstream.Known {
	known := map[string]upstream.Known{}
	for server, listed := range k.byServer {
		known[server] = upstream.Known{Era: listed.era, Interactive: listed.interactive}
	}
	return known
}

// of returns what is known of the servers of a configuration. tools makes the tools of definitions, some of
// which are held.
func (k *listings) of(config *configs.Config, tools func([]*tool.Def, map[tool.ID]pins.Held) []*tool.Tool) map[string]served.Listing {
	all := make(map[string]served.Listing, len(config.Servers))
	for _, s := range config.Servers {
		listing := served.Listing{Answered: k.listedThisRun[s.Name], Waiting: k.waiting(config, s.Name)}
		if listed := k.byServer[s.Name]; listed != nil {
			held := k.heldOf(config, s.Name)
			if listed.of != config {
				listed.tools, listed.of = tools(listed.defs, held), config
			}
			listing.Listed, listing.Tools, listing.Held = true, listed.tools, held
			listing.Instructions, listing.Capabilities = k.instructionsOf(config, s.Name), listed.capabilities
			listing.Era, listing.Cache = listed.era, listed.cache
		} else if !listing.Answered && !k.readOnly {
			listing.StartsUntil = k.startOf(s.Name).Add(config.StartWait)
		}
		all[s.Name] = listing
	}
	return all
}

// startOf returns when a server that was never listed was met.
func (k *listings) startOf(server string) time.Time {
	if k.began[server].IsZero() {
		k.began[server] = time.Now()
	}
	return k.began[server]
}

// stillListed are the servers that were heard of and that another configuration
// leaves as they are.
func (k *listings) stillListed(before, after *configs.Config) map[string]bool {
	heard := map[string]bool{}
	for _, s := range before.Servers {
		if k.listedThisRun[s.Name] && slices.ContainsFunc(after.Servers, func(now upstream.Settings) bool { return reflect.DeepEqual(s, now) }) {
			heard[s.Name] = true
		}
	}
	return heard
}

// learn takes what an upstream said of itself into memory and store. What becomes of
// changed definitions is up to the configuration. The error is the store's.
func (k *listings) learn(ctx context.Context, config *configs.Config, change upstream.Change) (store.Diff, error) {
	k.logFaults(change)
	before := k.byServer[change.Server]
	defs := k.defsOf(change.Defs, before)
	now := &listing{
		defs: defs, version: versionOf(change.Info),
		capabilities: change.Capabilities, instructions: change.Instructions, era: change.Era, interactive: change.Interactive, cache: change.Cache,
		faults: change.Faults.Described,
	}
	k.byServer[change.Server] = now
	mode := config.Changes[change.Server]
	if k.readOnly {
		diff := countOf(change.Defs)
		diff.Held = k.compare(ctx, mode, change, before)
		now.unpinned = heldBy(config, diff.Held)
		return diff, nil
	}
	diff, err := k.store.PutServer(ctx, store.Upstream{
		Name: change.Server, Era: string(change.Era), Info: change.Info, Instructions: change.Instructions,
		Capabilities: change.Capabilities, Interactive: change.Interactive,
		LeftOut: change.Faults.LeftOut, Mended: change.Faults.Mended,
	}, change.Defs, &store.Review{
		First: mode.First(), Unheard: change.Unheard, Forget: mode == pins.Allow,
		Approve: func(u store.Unpinned) bool { return mode.Approves(pins.Held(u)) },
	})
	k.wrote[change.Server] = diff.Version
	unpinned := diff.Held
	if err != nil {
		unpinned = k.compare(ctx, mode, change, before)
	}
	now.unpinned = heldBy(config, unpinned)
	k.tellPins(ctx, change.Server, before, now, diff.Baseline)
	told := slices.DeleteFunc(slices.Clone(diff.Changed), func(name string) bool { // the others, where changes are allowed
		return slices.ContainsFunc(now.unpinned, func(h pins.Held) bool { return h.ID.Kind == tool.KindTool && h.ID.Name == name })
	})
	for _, name := range told[:min(len(told), maxNamed)] {
		k.log.Warn("the definition of a tool changed", "server", change.Server, "tool", name)
	}
	if more := len(told) - maxNamed; more > 0 {
		k.log.Warn("more definitions changed", "server", change.Server, "more", more)
	}
	return diff, err
}

// defsOf are definitions as they are served: those of before, where they are the same.
func (k *listings) defsOf(listed []*tool.Def, before *listing) []*tool.Def {
	known := map[tool.ID]*tool.Def{}
	if before != nil {
		for _, def := range before.defs {
			known[def.ID] = def
		}
	}
	defs := make([]*tool.Def, len(listed)) // not nil: it was listed
	for i, def := range listed {
		defs[i] = def
		if was := known[def.ID]; was != nil && was.Hash == def.Hash {
			defs[i] = was
		}
	}
	return defs
}

// same reports whether a server lists what it listed before: nothing that is served follows from the rest.
func (s *listing) same(before *listing) bool {
	return slices.EqualFunc(s.defs, before.defs, func(a, b *tool.Def) bool {
		return a.ID == b.ID && a.Hash == b.Hash
	}) && slices.EqualFunc(s.unpinned, before.unpinned, func(a, b pins.Held) bool {
		return a.ID == b.ID && a.Hash == b.Hash && a.Rejected == b.Rejected && bytes.Equal(a.Approved, b.Approved)
	}) && bytes.Equal(s.capabilities, before.capabilities) && s.instructions == before.instructions && s.version == before.version &&
		s.era == before.era && s.interactive == before.interactive && maps.Equal(s.cache, before.cache)
}

// countOf counts definitions that are not compared with those before.
func countOf(defs []*tool.Def) (diff store.Diff) {
	for _, def := range defs {
		if def.ID.Kind == tool.KindTool {
			diff.Total++
		} else {
			diff.Others++
		}
	}
	return diff
}

// maxNamed bounds how many tools are named in the log that one list changed.
const maxNamed = 50

// logFaults logs the faults of a list that the list before did not have.
func (k *listings) logFaults(change upstream.Change) {
	var before []upstream.Fault
	if listed := k.byServer[change.Server]; listed != nil {
		before = listed.faults
	}
	for _, fault := range change.Faults.Described {
		if slices.Contains(before, fault) {
			continue
		}
		message := "a malformed definition is left out: clients would refuse the whole list"
		if fault.Mended {
			message = "a malformed definition is served mended"
		}
		k.log.Warn(message, "server", change.Server, fault.Kind.String(), fault.Name, "reason", fault.Text)
	}
	if more := change.Faults.LeftOut + change.Faults.Mended - len(change.Faults.Described); more > 0 && len(before) == 0 {
		k.log.Warn("more definitions are malformed than are named", "server", change.Server, "more", more)
	}
}

func usesOf(stored []store.LearnedUse) []retrieve.Use {
	uses := make([]retrieve.Use, len(stored))
	for i, u := range stored {
		uses[i] = retrieve.Use(u)
	}
	return uses
}

// followed is what following a server came to.
type followed struct {
	known   bool // the store has a list of it
	changed bool // it is another one
	listed  *store.Listed
}

// follow takes in what another process has stored of a server. What is not stored, which
// is how long a list may be kept and what was logged, stays as it was.
func (k *listings) follow(ctx context.Context, config *configs.Config, server string) (f followed, err error) {
	listed, err := k.store.Listed(ctx, server)
	delete(k.wrote, server)
	if err != nil || listed == nil {
		return followed{known: k.byServer[server] != nil}, err
	}
	now, before := storedOf(listed.Upstream), k.byServer[server]
	now.defs = k.defsOf(listed.Defs, before)
	now.unpinned = heldBy(config, listed.Unpinned)
	if before != nil {
		now.cache, now.faults = before.cache, before.faults
	}
	f = followed{known: true, changed: before == nil || !before.same(now), listed: listed}
	if f.changed {
		k.byServer[server] = now
	}
	return f, nil
}
