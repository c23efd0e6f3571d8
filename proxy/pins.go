package proxy

import (
	"context"
	"encoding/json"
	"slices"

	"toolfinch/configs"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust"
	"toolfinch/trust/pins"
)

// Pins is what a configuration holds of what a store knows.
type Pins struct {
	Reports  []pins.Report        // by server
	Versions map[string][2]string // of the servers in Reports: when all was approved, and now
	// Warnings are of all definitions, approved or not; for who sees some, of those that are
	// held.
	Warnings map[tool.ID][]pins.Warning
	partial  map[string]bool // servers of which something was not to be seen
}

// ReadPins returns what is held of the servers of a configuration.
func ReadPins(ctx context.Context, db *store.Store, config *configs.Config) (all Pins, err error) {
	return readPins(ctx, db, config, nil)
}

// readPins is ReadPins for whoever sees the definitions that sees takes (nil: all): nothing
// is said of others, neither in warnings nor as what was there before.
func readPins(ctx context.Context, db *store.Store, config *configs.Config, sees func(tool.ID, json.RawMessage) bool) (all Pins, err error) {
	all.partial = map[string]bool{}
	look := func(id tool.ID, raw json.RawMessage) bool {
		if raw == nil || sees == nil || sees(id, raw) {
			return true
		}
		all.partial[id.Server] = true
		return false
	}
	unpinned, err := db.Pins().Unpinned(ctx)
	if err != nil {
		return all, err
	}
	configured := serversOf(config)
	var held, gone []pins.Held
	for _, u := range unpinned {
		if slices.Contains(configured, u.ID.Server) && look(u.ID, u.Raw) && look(u.ID, u.Approved) {
			held = append(held, heldBy(config.Changes[u.ID.Server], []store.Unpinned{u})...)
		}
	}
	if len(held) == 0 && sees != nil {
		return all, nil
	}
	defs, err := db.Tools(ctx)
	if err != nil {
		return all, err
	}
	servers, err := db.Servers(ctx)
	if err != nil {
		return all, err
	}
	var known []pins.Definition
	all.Versions = map[string][2]string{}
	for _, def := range defs {
		if slices.Contains(configured, def.ID.Server) && look(def.ID, def.Raw) && def.ID.Kind != tool.KindResource {
			known = append(known, pins.Definition{ID: def.ID, Raw: def.Raw})
		}
	}
	for _, s := range servers {
		if !slices.Contains(configured, s.Name) {
			continue
		}
		if s.Instructions != "" && look(instructionsID(s.Name), json.RawMessage(s.Instructions)) {
			known = append(known, pins.Definition{ID: instructionsID(s.Name), Raw: json.RawMessage(s.Instructions)})
		}
		if slices.ContainsFunc(held, func(h pins.Held) bool { return h.ID.Server == s.Name }) {
			all.Versions[s.Name] = [2]string{versionOf(s.ApprovedInfo), versionOf(s.Info)}
			of, err := db.Pins().Gone(ctx, s.Name)
			if err != nil {
				return all, err
			}
			for _, u := range of {
				if look(u.ID, u.Raw) && look(u.ID, u.Approved) {
					gone = append(gone, pins.Held(u))
				}
			}
		}
	}
	var of func(tool.ID) bool
	if sees != nil {
		isHeld := map[tool.ID]bool{}
		for _, h := range held {
			isHeld[h.ID] = true
		}
		of = func(id tool.ID) bool { return isHeld[id] }
	}
	all.Warnings = pins.Warn(known, of)
	all.Reports = pins.Reports(held, gone, all.Warnings)
	return all, nil
}

// Decide approves or rejects what was reported, all or nothing: store.ErrStale is wrapped
// by the error where a server has listed something else since. record hears of each.
func Decide(ctx context.Context, stored *store.Pins, approve bool, reports []pins.Report, record trust.Record) error {
	decided := make([]store.Unpinned, len(reports))
	for i, r := range reports {
		decided[i] = store.Unpinned(r.Held)
		decided[i].Rejected = r.Mark()
	}
	decide, kind := stored.Reject, trust.EventRejected
	if approve {
		decide, kind = stored.Approve, trust.EventApproved
	}
	if err := decide(ctx, decided, trust.NameOf(ctx)); err != nil {
		return err
	}
	for _, r := range reports {
		record.Event(ctx, trust.Event{Kind: kind, Server: r.ID.Server, Tool: r.ID.String(), DefHash: r.Hash})
	}
	return nil
}
