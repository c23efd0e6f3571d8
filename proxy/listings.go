package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
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

// listings has the last lists of the upstreams, in memory and in the store. One goroutine at a time uses it: the
// refresh loop while it runs.
type listings struct {
	store         *store.Store
	readOnly      bool // new lists are not written to the store
	shared        bool // replicas with other servers may use the store
	log           *slog.Logger
	record        identity.Record
	byServer      map[string]*listing
	listedThisRun map[string]bool             // servers that were listed, or have failed, since Open
	began         map[string]time.Time        // when the wait for a server without any list began
	failures      map[string]upstream.Failure // by server: why it could not be listed last, in this run or an earlier one
	edited        time.Time                   // when the configuration was written last, at Open; zero without a file
	wrote         map[string]int64            // by server: version of the list in the store, if this process stored it
}

// listing is the last list of a server.
type listing struct {
	defs         []*tool.Def
	capabilities json.RawMessage
	instructions string // as listed; instructionsOf returns the approved ones
	unpinned     []pins.Held
	version      string // of serverInfo
	era          upstream.Era
	interactive  bool
	cache        map[tool.Kind]upstream.CacheHint
	faults       []upstream.Fault // logged already

	tools []*tool.Tool    // made from defs for the configuration in of
	of    *configs.Config // nil: tools must be made
}

// recalled is the content of the store that did not come from upstreams.
type recalled struct {
	tokens  map[string]int          // counts of definitions
	clients map[string]tool.Relists // whether they list tools again after list_changed
	uses    []retrieve.Use          // nil unless the configuration learns
}

// recall reads the store. Unreadable content is learned again.
func recall(ctx context.Context, db *store.Store, config *configs.Config, o options) (*listings, recalled) {
	log := o.log
	k := &listings{store: db, log: log, record: o.observer.record, byServer: map[string]*listing{}, listedThisRun: map[string]bool{}, began: map[string]time.Time{}, failures: map[string]upstream.Failure{}, wrote: map[string]int64{}}
	warn := func(what string, err error) {
		if err != nil {
			log.Warn("the store could not be read; starting without it", "what", what, "error", err)
		}
	}
	defs, err := db.Tools(ctx) // before the approvals: another replica may store new definitions meanwhile
	warn("tools", err)
	servers, err := db.Servers(ctx)
	warn("servers", err)
	unchecked := map[string]bool{}
	configured := serversOf(config)
	unpinned, err := db.Pins().Unpinned(ctx)
	warn("what is approved", err)
	if err != nil {
		servers = nil // a definition without a known approval is not served
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
				continue // the next list logs the fault
			}
		}
		if s := k.byServer[def.ID.Server]; s != nil && !slices.Contains(config.Disabled, def.ID.Server) {
			s.defs = append(s.defs, def)
		}
	}
	if info, err := os.Stat(config.Path); err == nil {
		k.edited = info.ModTime()
	}
	failures, err := db.Failures(ctx)
	warn("why servers failed", err)
	for _, f := range failures {
		if slices.Contains(configured, f.Server) {
			k.failures[f.Server] = upstream.Failure{Reason: f.Reason, At: f.At}
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

// storedOf returns the stored listing of a server, without definitions.
func storedOf(s store.Upstream) *listing {
	return &listing{
		defs: []*tool.Def{}, capabilities: s.Capabilities, instructions: s.Instructions, era: upstream.Era(s.Era), interactive: s.Interactive,
		version: versionOf(s.Info),
	}
}

// serversOf returns the names of all servers of a configuration, including disabled ones.
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
	maps.DeleteFunc(k.failures, func(server string, _ upstream.Failure) bool { return !slices.Contains(configured, server) })
	if k.shared { // other replicas may configure the server and need its approvals; toolfinch reindex forgets
		return
	}
	if _, err := k.store.KeepServers(ctx, configured); err != nil && ctx.Err() == nil {
		k.log.Warn("removed servers are still in the store", "error", err)
	}
}

// ofPool returns what the pool must know about each server before it connects.
func (k *listings) ofPool() map[string]upstream.Known {
	known := map[string]upstream.Known{}
	for server, failure := range k.failures {
		known[server] = upstream.Known{Failure: failure}
	}
	for server, listed := range k.byServer {
		known[server] = upstream.Known{Era: listed.era, Interactive: listed.interactive, Listed: true, Failure: k.failures[server]}
	}
	return known
}

// of returns the listings of the servers of a configuration. tools makes tools of definitions and gets the held ones.
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
		} else if failure, failed := k.failures[s.Name]; failed && failure.At.After(k.edited) { // an edit may have mended an older one
			listing.Failed = true
		} else if !listing.Answered && !k.readOnly {
			listing.StartsUntil = k.startOf(s.Name).Add(config.StartWait)
		}
		all[s.Name] = listing
	}
	return all
}

// startOf returns when the wait for a server without any list began.
func (k *listings) startOf(server string) time.Time {
	if k.began[server].IsZero() {
		k.began[server] = time.Now()
	}
	return k.began[server]
}

const (
	maxFailure   = 997         // bytes of a stored reason, before "..."
	failureEvery = time.Minute // how often the same reason is stored again: a server is tried again and again
)

// fail stores why a server could not be listed.
func (k *listings) fail(ctx context.Context, server string, why error) error {
	before, now := k.failures[server], upstream.Failure{Reason: reasonOf(server, why), At: time.Now()}
	if k.readOnly || before.Reason == now.Reason && now.At.Sub(before.At) < failureEvery {
		return nil
	}
	k.failures[server] = now
	return k.store.PutFailure(ctx, store.Failure{Server: server, Reason: now.Reason, At: now.At})
}

// reasonOf returns the text of a server's error without its name.
func reasonOf(server string, why error) string {
	return upstream.ClipReason(printable.Line(strings.TrimPrefix(why.Error(), "upstream "+server+": ")), maxFailure)
}

// unchanged returns the servers in listedThisRun, and the failures, of the servers whose settings are the same in both
// configurations.
func (k *listings) unchanged(before, after *configs.Config) (heard map[string]bool, failures map[string]upstream.Failure) {
	heard, failures = map[string]bool{}, map[string]upstream.Failure{}
	for _, s := range before.Servers {
		if !slices.ContainsFunc(after.Servers, func(now upstream.Settings) bool { return reflect.DeepEqual(s, now) }) {
			continue
		}
		if k.listedThisRun[s.Name] {
			heard[s.Name] = true
		}
		if failure, failed := k.failures[s.Name]; failed {
			failures[s.Name] = failure
		}
	}
	return heard, failures
}

// same reports whether two listings of a server are equal in every field that affects what is served.
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

// heldBy returns the unapproved definitions that a configuration holds. Views are also compiled of held definitions,
// so that the settings for them are checked; the handler of a held definition refuses, and no catalog contains it.
func heldBy(config *configs.Config, unpinned []store.Unpinned) (held []pins.Held) {
	for _, u := range unpinned {
		if h := pins.Held(u); !config.Changes[h.ID.Server].Approves(h) {
			held = append(held, h)
		}
	}
	return held
}

// heldOf returns the definitions of a server that a configuration holds.
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

// waiting counts the definitions of a server that await approval, without rejected ones.
func (k *listings) waiting(config *configs.Config, server string) (n int) {
	for _, h := range k.heldOf(config, server) {
		if !h.WasRejected() {
			n++
		}
	}
	return n
}

// instructionsOf returns the instructions of a server that were approved last.
func (k *listings) instructionsOf(config *configs.Config, server string) string {
	if h, held := k.heldOf(config, server)[instructionsID(server)]; held {
		return string(h.Approved)
	}
	return k.byServer[server].instructions
}

func instructionsID(server string) tool.ID {
	return tool.ID{Server: server, Kind: tool.KindInstructions, Name: string(tool.KindInstructions)}
}

// someHeld reports whether any definition is unapproved.
func (k *listings) someHeld() bool {
	for _, listed := range k.byServer {
		if len(listed.unpinned) > 0 {
			return true
		}
	}
	return false
}

// versionOf returns the version in a serverInfo.
func versionOf(info json.RawMessage) string {
	return rawjson.Clip(printable.Line(rawjson.Text(rawjson.Member(info, "version"))), 40)
}
