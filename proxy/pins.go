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
	// Warnings are of all definitions, approved or not.
	Warnings map[tool.ID][]pins.Warning
}

// ReadPins returns what is held of the servers of a configuration.
func ReadPins(ctx context.Context, db *store.Store, config *configs.Config) (all Pins, err error) {
	unpinned, err := db.Unpinned(ctx)
	if err != nil {
		return all, err
	}
	defs, err := db.Tools(ctx)
	if err != nil {
		return all, err
	}
	servers, err := db.Servers(ctx)
	if err != nil {
		return all, err
	}
	configured := serversOf(config)
	var held, gone []pins.Held
	var known []pins.Definition
	all.Versions = map[string][2]string{}
	for _, u := range unpinned {
		if slices.Contains(configured, u.ID.Server) {
			held = append(held, heldBy(config.Changes[u.ID.Server], []store.Unpinned{u})...)
		}
	}
	for _, def := range defs {
		if def.ID.Kind != tool.KindResource && slices.Contains(configured, def.ID.Server) {
			known = append(known, pins.Definition{ID: def.ID, Raw: def.Raw})
		}
	}
	for _, s := range servers {
		if !slices.Contains(configured, s.Name) {
			continue
		}
		if s.Instructions != "" {
			known = append(known, pins.Definition{ID: instructionsID(s.Name), Raw: json.RawMessage(s.Instructions)})
		}
		if slices.ContainsFunc(held, func(h pins.Held) bool { return h.ID.Server == s.Name }) {
			all.Versions[s.Name] = [2]string{versionOf(s.ApprovedInfo), versionOf(s.Info)}
			of, err := db.Gone(ctx, s.Name)
			if err != nil {
				return all, err
			}
			for _, u := range of {
				gone = append(gone, pins.Held(u))
			}
		}
	}
	all.Warnings = pins.Warn(known)
	all.Reports = pins.Reports(held, gone, all.Warnings)
	return all, nil
}

// Decide approves or rejects what was reported, all or nothing: store.ErrStale is wrapped
// by the error where a server has listed something else since. record hears of each.
func Decide(ctx context.Context, db *store.Store, approve bool, reports []pins.Report, record trust.Record) error {
	decided := make([]store.Unpinned, len(reports))
	for i, r := range reports {
		decided[i] = store.Unpinned(r.Held)
		decided[i].Rejected = r.Mark()
	}
	decide, kind := db.Reject, trust.EventRejected
	if approve {
		decide, kind = db.Approve, trust.EventApproved
	}
	if err := decide(ctx, decided); err != nil {
		return err
	}
	for _, r := range reports {
		record.Event(ctx, trust.Event{Kind: kind, Server: r.ID.Server, Tool: r.ID.String(), DefHash: r.Hash})
	}
	return nil
}
