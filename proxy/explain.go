package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view"
)

// WhyNot explains the rank of a tool in a view for a query. If the view has no such tool, it tells the owner, and nobody
// else, what of the configuration keeps it out.
func (s *views) WhyNot(ctx context.Context, v *View, name string, q retrieve.Query) (retrieve.Why, error) {
	why, err := v.Retriever.WhyNot(ctx, name, q)
	if _, ofClient := identity.PartyOf(ctx); ofClient || err != nil || why.Out != retrieve.OutUnknown {
		return why, err
	}
	config := s.now.Load().Config
	known, err := listedTools(ctx, s.known.store, config)
	if err != nil {
		return why, fmt.Errorf("why not: %w", err)
	}
	var in []string // other views with the tool
	t, there := retrieve.Finder(known)(name)
	for _, other := range s.Views() {
		if one, err := other.Catalog.Find(name); err == nil {
			t, there, in = one, true, append(in, other.Name)
		} else if there {
			if _, ok := other.Catalog.ByID(t.Def.ID); ok {
				in = append(in, other.Name)
			}
		}
	}
	if !there {
		return s.unlisted(ctx, why, known, config)
	}
	id := t.Def.ID
	why.ID = id.String()
	switch {
	case slices.Contains(config.Disabled, id.Server):
		why.Out, why.Reason = retrieve.OutServer, disabled(id.Server)
	case view.Hidden(config.Tools, id):
		why.Out, why.Reason = retrieve.OutHidden, "the configuration hides it from every view. Show it again with: toolfinch tool unhide "+id.String()
	default:
		why.Out, why.Reason = retrieve.OutView, fmt.Sprintf("the view %s leaves it out", v.Name)
		if len(in) > 0 {
			why.Reason += "; it is in " + strings.Join(in, ", ")
		}
		why.Reason += fmt.Sprintf(". tool_views.%s of the configuration decides, and toolfinch validate names its problems", v.Name)
	}
	return why, nil
}

// unlisted explains a name that no listed tool has: its server may be one that is disabled, has failed or was never
// listed.
func (s *views) unlisted(ctx context.Context, why retrieve.Why, known []retrieve.Server, config *configs.Config) (retrieve.Why, error) {
	failures, err := s.known.store.Failures(ctx)
	if err != nil {
		return why, fmt.Errorf("why not: %w", err)
	}
	for _, server := range known {
		after, of := strings.CutPrefix(why.Tool, server.Name)
		if !of || after == "" || !strings.ContainsRune(".:_", rune(after[0])) || server.Tools != nil {
			continue
		}
		why.Out, why.Reason = retrieve.OutServer, fmt.Sprintf("the server %s was never listed. List it with: toolfinch reindex %s", server.Name, server.Name)
		if at := slices.IndexFunc(failures, func(f store.Failure) bool { return f.Server == server.Name }); at >= 0 {
			why.Reason = fmt.Sprintf("the server %s failed: %s", server.Name, failures[at].Reason)
		}
		if slices.Contains(config.Disabled, server.Name) {
			why.Reason = disabled(server.Name)
		}
	}
	return why, nil
}

func disabled(server string) string {
	return fmt.Sprintf("the server %s is disabled. Enable it with: toolfinch server enable %s", server, server)
}

// listedTools returns what the store knows of the configured servers, also of disabled ones.
func listedTools(ctx context.Context, db *store.Store, config *configs.Config) (all []retrieve.Server, err error) {
	for _, name := range serversOf(config) {
		one := retrieve.Server{Name: name}
		if s := config.Server(name); s != nil {
			one.Prefix = s.Prefix
		}
		listed, err := db.Listed(ctx, name)
		if err != nil {
			return nil, err
		}
		if listed != nil {
			one.Tools = tool.Of(listed.Defs, func(*tool.Def) tool.Handler { return nil })
		}
		all = append(all, one)
	}
	return all, nil
}
