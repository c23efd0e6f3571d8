package proxy

import (
	"context"
	"encoding/json"
	"slices"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/pins"
)

// Pins are the held definitions of the servers of a configuration.
type Pins struct {
	Reports []pins.Report // by server
	// Versions has "1.2 to 1.3" for each server with another version than the approved one.
	Versions map[string]string
}

// ReadPins returns the stored definitions that a configuration holds and that sees accepts; a nil sees accepts all.
func ReadPins(ctx context.Context, db *store.Store, config *configs.Config, sees func(tool.ID, json.RawMessage) bool) (all Pins, err error) {
	unpinned, err := db.Pins().Unpinned(ctx)
	if err != nil {
		return all, err
	}
	configured := serversOf(config)
	held := slices.DeleteFunc(heldBy(config, unpinned), func(h pins.Held) bool {
		seen := sees == nil || sees(h.ID, h.Raw) && (h.New() || sees(h.ID, h.Approved))
		return !seen || !slices.Contains(configured, h.ID.Server)
	})
	if len(held) == 0 {
		return all, nil
	}
	servers, err := db.Servers(ctx)
	if err != nil {
		return all, err
	}
	all.Versions = map[string]string{}
	for _, s := range servers {
		approved, now := versionOf(s.ApprovedInfo), versionOf(s.Info)
		if approved != "" && now != "" && approved != now && slices.ContainsFunc(held, func(h pins.Held) bool { return h.ID.Server == s.Name }) {
			all.Versions[s.Name] = approved + " to " + now
		}
	}
	all.Reports = pins.Reports(held)
	return all, nil
}

// Warnings returns the warnings about all stored definitions of the servers of a configuration, approved or not.
func Warnings(ctx context.Context, db *store.Store, config *configs.Config) (map[tool.ID][]pins.Warning, error) {
	defs, err := db.Tools(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := db.Servers(ctx)
	if err != nil {
		return nil, err
	}
	warnings, configured := map[tool.ID][]pins.Warning{}, serversOf(config)
	for _, s := range servers {
		if slices.Contains(configured, s.Name) {
			warn(warnings, instructionsID(s.Name), json.RawMessage(s.Instructions))
		}
	}
	for _, def := range defs {
		if slices.Contains(configured, def.ID.Server) {
			warn(warnings, def.ID, def.Raw)
		}
	}
	return warnings, nil
}

// warn adds the warnings about a definition, or about the instructions of a server.
func warn(to map[tool.ID][]pins.Warning, id tool.ID, raw json.RawMessage) {
	if !store.Pinned(id.Kind) {
		return
	}
	if found := pins.Warn(id.Kind, raw); len(found) > 0 {
		to[id] = found
	}
}

// Decide approves or rejects the reported definitions, all or nothing. If a server has since listed another
// definition, the error wraps store.ErrStale. record gets an event for each definition.
func Decide(ctx context.Context, stored *store.Pins, approve bool, reports []pins.Report, record identity.Record) error {
	decided := make([]store.Unpinned, len(reports))
	for i, r := range reports {
		decided[i] = store.Unpinned(r.Held)
		decided[i].Rejected = r.Mark()
	}
	decide, kind := stored.Reject, identity.EventRejected
	if approve {
		decide, kind = stored.Approve, identity.EventApproved
	}
	if err := decide(ctx, decided); err != nil {
		return err
	}
	for _, r := range reports {
		record.Event(ctx, identity.Event{Kind: kind, Server: r.ID.Server, Tool: r.ID.String(), DefHash: r.Hash})
	}
	return nil
}
