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
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
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

// same reports whether a server lists what it listed before: nothing that is served follows from the rest.
func (s *listing) same(before *listing) bool {
	return slices.EqualFunc(s.defs, before.defs, func(a, b *tool.Def) bool {
		return a.ID == b.ID && a.Hash == b.Hash
	}) && slices.EqualFunc(s.unpinned, before.unpinned, func(a, b pins.Held) bool {
		return a.ID == b.ID && a.Hash == b.Hash && a.Rejected == b.Rejected && bytes.Equal(a.Approved, b.Approved)
	}) && bytes.Equal(s.capabilities, before.capabilities) && s.instructions == before.instructions && s.version == before.version &&
		s.era == before.era && s.interactive == before.interactive && maps.Equal(s.cache, before.cache)
}

func usesOf(stored []store.LearnedUse) []retrieve.Use {
	uses := make([]retrieve.Use, len(stored))
	for i, u := range stored {
		uses[i] = retrieve.Use(u)
	}
	return uses
}

// heldBy returns the unapproved definitions that a configuration holds. Views are compiled of held definitions, too, so
// that settings for them are checked; their handler refuses, and no catalog has them.
func heldBy(config *configs.Config, unpinned []store.Unpinned) (held []pins.Held) {
	for _, u := range unpinned {
		if h := pins.Held(u); !config.Changes[h.ID.Server].Approves(h) {
			held = append(held, h)
		}
	}
	return held
}

// heldOf is what a configuration holds of a server.
func (k *listings) heldOf(config *configs.Config, server string) map[tool.ID]pins.Held {
	listed := k.byServer[server]
	if listed == nil || len(listed.unpinned) == 0 {
		return nil
	}
	held := map[tool.ID]pins.Held{}
	for _, h := range listed.unpinned {
		if !config.Changes[server].Approves(h) {
			held[h.ID] = h
		}
	}
	return held
}

// waiting counts what of a server waits for approval, without what was rejected.
func (k *listings) waiting(config *configs.Config, server string) (n int) {
	for _, h := range k.heldOf(config, server) {
		if !h.WasRejected() {
			n++
		}
	}
	return n
}

// instructionsOf are the instructions of a server that were approved last.
func (k *listings) instructionsOf(config *configs.Config, server string) string {
	if h, held := k.heldOf(config, server)[instructionsID(server)]; held {
		return string(h.Approved)
	}
	return k.byServer[server].instructions
}

func instructionsID(server string) tool.ID {
	return tool.ID{Server: server, Kind: tool.KindInstructions, Name: string(tool.KindInstructions)}
}

// someHeld reports whether anything is.
func (k *listings) someHeld() bool {
	for _, listed := range k.byServer {
		if len(listed.unpinned) > 0 {
			return true
		}
	}
	return false
}

// versionOf is the version of a serverInfo.
func versionOf(info json.RawMessage) string {
	return rawjson.Clip(printable.Line(rawjson.Text(rawjson.Member(info, "version"))), 40)
}
