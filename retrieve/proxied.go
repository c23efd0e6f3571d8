package retrieve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/proxytool"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// proxied is the source of the proxy tool: the same items that clients find and call without it.
type proxied struct{ *Retriever }

// Proxied returns the source of a proxy tool over the catalog.
func (r *Retriever) Proxied() proxytool.Source { return proxied{r} }

// kindsOf maps each type of the proxy tool to kinds.
var kindsOf = map[proxytool.Type][]tool.Kind{
	proxytool.TypeTool:     {tool.KindTool},
	proxytool.TypeResource: {tool.KindResource, tool.KindTemplate},
	proxytool.TypePrompt:   {tool.KindPrompt},
}

// List returns the items that pass the filter, in the order of lists; with a query, best first.
func (p proxied) List(ctx context.Context, _ *tool.Call, t proxytool.Type, f *proxytool.Filter) ([]proxytool.Item, error) {
	passes := func(*tool.Tool) bool { return true }
	if f != nil {
		if err := p.CheckServer(f.Server); err != nil {
			return nil, args.Refuse("filter.server: %v", err)
		}
		has := p.catalog.Tagged(f.Tags)
		passes = func(t *tool.Tool) bool {
			return strings.HasPrefix(t.Name, f.Prefix) && (f.Server == "" || f.Server == t.Def.ID.Server) && has(t)
		}
	}
	if f == nil || f.Query == "" {
		return itemsOf(slices.DeleteFunc(p.all(kindsOf[t]), func(t *tool.Tool) bool { return !passes(t) })), nil
	}
	search := p.Search
	if f.Prefix != "" || len(f.Tags) > 0 {
		search = func(ctx context.Context, q Query) (Found, error) {
			return p.SearchAmong(ctx, q, passes)
		}
	}
	found, err := search(ctx, Query{Text: f.Query, Limit: MaxLimit, Server: f.Server, Kinds: kindsOf[t]})
	if err != nil {
		return nil, err
	}
	tools := make([]*tool.Tool, len(found.Hits))
	for i, hit := range found.Hits {
		tools[i] = hit.Tool
	}
	return itemsOf(tools), nil
}

func (p proxied) all(kinds []tool.Kind) []*tool.Tool {
	var all []*tool.Tool
	for _, kind := range kinds {
		if kind == tool.KindTool {
			all = append(all, p.catalog.Tools()...)
		} else {
			all = append(all, p.catalog.Items(kind)...)
		}
	}
	return all
}

func itemOf(t *tool.Tool) proxytool.Item {
	return proxytool.Item{Path: t.Name, Raw: t.Listed()}
}

func itemsOf(tools []*tool.Tool) []proxytool.Item {
	items := make([]proxytool.Item, len(tools))
	for i, t := range tools {
		items[i] = itemOf(t)
	}
	return items
}

// Info returns the definition listed under path. For an unlisted URI it returns the template that the URI comes
// from.
func (p proxied) Info(_ context.Context, _ *tool.Call, t proxytool.Type, path string) (proxytool.Item, error) {
	target, found := p.listed(t, path)
	if !found && t == proxytool.TypeResource {
		target, found = p.catalog.Template(path)
	}
	if !found {
		return proxytool.Item{}, p.unknown(t, path)
	}
	return itemOf(whole(target)), nil
}

// listed returns the item listed under path; a resource also under its name.
func (p proxied) listed(t proxytool.Type, path string) (*tool.Tool, bool) {
	switch t {
	case proxytool.TypeTool:
		return p.catalog.find(path)
	case proxytool.TypePrompt:
		return p.catalog.Prompt(path)
	}
	all := p.all(kindsOf[t])
	i := proxytool.Find(itemsOf(all), path)
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// Call calls a tool, reads a resource or gets a prompt as clients would.
func (p proxied) Call(ctx context.Context, call *tool.Call, t proxytool.Type, path string, args json.RawMessage) (json.RawMessage, error) {
	if t == proxytool.TypeResource && !proxytool.IsURI(path) {
		if named, ok := p.listed(t, path); ok {
			if err := itemOf(named).Callable(); err != nil {
				return nil, err
			}
			path = named.Name
		}
	}
	var target *tool.Tool
	var found bool
	if t == proxytool.TypeResource {
		target, found = p.catalog.Resource(path) // listed or not
	} else {
		target, found = p.listed(t, path)
	}
	if !found {
		p.refuse(ctx, call, path, nil, tool.ErrNotFound)
		return nil, p.unknown(t, path)
	}
	result, err := target.Handler(ctx, CallOf(call, target, path, args))
	return json.RawMessage(result), err
}

func (p proxied) unknown(t proxytool.Type, path string) error {
	var near []string
	if t == proxytool.TypeTool {
		near = p.catalog.Nearest(path, 3)
	}
	err := proxytool.Unknown(t, path, near)
	if because := p.Because(path); because != "" {
		return args.Refuse("%v%s", err, because)
	}
	return err
}
