package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
)

// A held definition stays what the views are compiled of, so that their settings are
// checked as if it were not; its handler refuses, and no catalog has it.

// heldBy returns those of unapproved definitions that a configuration holds.
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

// compare is what of a list that is not stored differs from what is approved. Where the
// store does not say, what was served before is what is approved.
func (k *listings) compare(ctx context.Context, mode pins.Mode, change upstream.Change, before *listing) []store.Unpinned {
	unpinned, err := k.store.Pins().Compare(ctx, change.Server, change.Defs, change.Instructions, mode.First())
	if err == nil {
		return unpinned
	}
	if ctx.Err() == nil {
		k.log.Log(ctx, store.Level(err), "what is approved could not be read: what is served is what was before", "server", change.Server, "error", err)
	}
	approved := map[tool.ID]*tool.Def{}
	var text []byte // that was approved
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

// versionOf is the version of a serverInfo.
func versionOf(info json.RawMessage) string {
	return rawjson.Clip(printable.Line(rawjson.Text(rawjson.Member(info, "version"))), 40)
}

// tellPins says what of a list is held that was not before, once in the log, and each
// as an event.
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

const maxHeldNames = 5 // in a line of the log

// decided takes in what the owner decided of what is held, in this process or another,
// and returns the servers that have something else to serve.
func (k *listings) decided(ctx context.Context, config *configs.Config) (changed map[string]bool, err error) {
	changed = map[string]bool{}
	for server, listed := range k.byServer {
		if len(listed.unpinned) == 0 {
			continue
		}
		// Another process may have been listed something else: the store's list is not asked.
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

// someHeld reports whether anything is.
func (k *listings) someHeld() bool {
	for _, listed := range k.byServer {
		if len(listed.unpinned) > 0 {
			return true
		}
	}
	return false
}
