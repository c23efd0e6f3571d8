package proxy

import (
	"context"
	"fmt"
	"slices"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// compare returns the definitions of an unstored list that differ from the approved ones. If the store cannot be
// read, the definitions served before count as approved.
func (k *listings) compare(ctx context.Context, mode pins.Mode, change upstream.Change, before *listing) []store.Unpinned {
	unpinned, err := k.store.Pins().Compare(ctx, change.Server, change.Defs, change.Instructions, mode.First())
	if err == nil {
		return unpinned
	}
	if ctx.Err() == nil {
		k.log.Log(ctx, store.Level(err), "what is approved could not be read: what is served is what was before", "server", change.Server, "error", err)
	}
	approved := map[tool.ID]*tool.Def{}
	var text []byte // approved instructions
	if before != nil {
		text = []byte(before.instructions)
		for _, def := range before.defs {
			approved[def.ID] = def
		}
		for _, h := range before.unpinned {
			delete(approved, h.ID)
			if h.ID.Kind == tool.KindInstructions {
				text = h.Approved
			}
		}
	}
	for _, def := range change.Defs {
		if was := approved[def.ID]; store.Pinned(def.ID.Kind) && (was == nil || was.Hash != def.Hash) {
			u := store.Unpinned{ID: def.ID, Hash: def.Hash, Raw: def.Raw}
			if was != nil {
				u.Approved = was.Raw
			}
			unpinned = append(unpinned, u)
		}
	}
	if change.Instructions != "" && string(text) != change.Instructions {
		unpinned = append(unpinned, store.UnpinnedText(change.Server, change.Instructions, text))
	}
	return unpinned
}

// tellPins reports the newly held definitions of a list: all in one line of the log, and each as an event.
func (k *listings) tellPins(ctx context.Context, server string, before, now *listing, baseline bool) {
	if baseline {
		k.record.Event(ctx, identity.Event{Kind: identity.EventBaseline, Server: server, Details: map[string]string{"definitions": fmt.Sprint(len(now.defs)), "version": now.version}})
	}
	var names []string
	changed := 0
	for _, h := range now.unpinned {
		if h.WasRejected() || before != nil && slices.ContainsFunc(before.unpinned, func(b pins.Held) bool { return b.ID == h.ID && b.Hash == h.Hash }) {
			continue
		}
		k.record.Event(ctx, identity.Event{Kind: identity.EventHeld, Server: server, Tool: h.ID.String(), DefHash: h.Hash, Reason: h.Why()})
		if names = append(names, h.ID.Name); !h.New() {
			changed++
		}
	}
	if len(names) == 0 {
		return
	}
	line := []any{"server", server, "changed", changed, "new", len(names) - changed, "names", names[:min(len(names), maxHeldNames)]}
	if before != nil && before.version != now.version {
		line = append(line, "version", before.version+" -> "+now.version)
	}
	k.log.Warn("definitions are held until you approve them: toolfinch pins", line...)
}

const maxHeldNames = 5 // names in a line of the log

// decided reads the owner's decisions about held definitions, and returns the servers whose served definitions change.
func (k *listings) decided(ctx context.Context, config *configs.Config) (changed map[string]bool, err error) {
	changed = map[string]bool{}
	for server, listed := range k.byServer {
		if len(listed.unpinned) == 0 {
			continue
		}
		// Compares our own list, because the store may have the list of another process.
		unpinned, err := k.store.Pins().Compare(ctx, server, listed.defs, listed.instructions, config.Changes[server].First())
		if err != nil {
			return nil, err
		}
		now := map[tool.ID]store.Unpinned{}
		for _, u := range unpinned {
			now[u.ID] = u
		}
		var left []pins.Held
		for _, h := range listed.unpinned {
			u, still := now[h.ID]
			switch {
			case !still: // approved
				changed[server] = true
			case u.Rejected != h.Rejected:
				changed[server] = true
				h.Rejected = u.Rejected
				fallthrough
			default:
				left = append(left, h)
			}
		}
		if changed[server] {
			replaced := *listed
			replaced.of = nil
			replaced.unpinned = left
			k.byServer[server] = &replaced
		}
	}
	return changed, nil
}

// learn takes an upstream's new list into memory and store. The configuration decides whether changed definitions
// are held. The error comes from the store.
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
	delete(k.failures, change.Server)
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
	told := slices.DeleteFunc(slices.Clone(diff.Changed), func(name string) bool { // served changes only: tellPins reports held ones
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

// defsOf returns listed, with each unchanged definition replaced by its earlier value.
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

// countOf counts definitions without comparing them with the earlier ones.
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

// maxNamed bounds how many of a list's changed tools the log names.
const maxNamed = 50

// logFaults logs the faults of a list that the previous list did not have.
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

// followed is the result of listings.follow.
type followed struct {
	known   bool // a list of the server is known
	changed bool // the list differs from the one before
	listed  *store.Listed
}

// follow takes in the list of a server that another process stored. The cache hints and the logged faults stay
// unchanged, because they are not stored.
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
