package proxy

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/proxytool"
	"toolfinch/rawjson/args"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// capabilities are what the proxy tool of a view lists and calls: what clients of
// the view could find and call without it.
type capabilities struct{ view *View }

// kindsOf are the kinds that the proxy tool knows under one type.
var kindsOf = map[proxytool.Type][]tool.Kind{
	proxytool.TypeTool:     {tool.KindTool},
	proxytool.TypeResource: {tool.KindResource, tool.KindTemplate},
	proxytool.TypePrompt:   {tool.KindPrompt},
}

// List returns what passes the filter, in the order of lists, or best first where
// it has a query.
func (c capabilities) List(ctx context.Context, _ *tool.Call, t proxytool.Type, f *proxytool.Filter) ([]proxytool.Item, error) {
	passes := func(*tool.Tool) bool { return true }
	if f != nil {
		if err := c.view.retriever.CheckServer(f.Server); err != nil {
			return nil, args.Refuse("filter.server: %v", err)
		}
		has := c.view.catalog.Tagged(f.Tags)
		passes = func(t *tool.Tool) bool {
			return strings.HasPrefix(t.Name, f.Prefix) && (f.Server == "" || f.Server == t.Def.ID.Server) && has(t)
		}
	}
	if f == nil || f.Query == "" {
		return itemsOf(slices.DeleteFunc(c.all(kindsOf[t]), func(t *tool.Tool) bool { return !passes(t) })), nil
	}
	search := c.view.retriever.Search
	if f.Prefix != "" || len(f.Tags) > 0 {
		search = func(ctx context.Context, q retrieve.Query) (retrieve.Found, error) {
			return c.view.retriever.SearchAmong(ctx, q, passes)
		}
	}
	found, err := search(ctx, retrieve.Query{Text: f.Query, Limit: retrieve.MaxLimit, Server: f.Server, Kinds: kindsOf[t]})
	if err != nil {
		return nil, err
	}
	tools := make([]*tool.Tool, len(found.Hits))
	for i, hit := range found.Hits {
		tools[i] = hit.Tool
	}
	return itemsOf(tools), nil
}

func (c capabilities) all(kinds []tool.Kind) []*tool.Tool {
	var all []*tool.Tool
	for _, kind := range kinds {
		if kind == tool.KindTool {
			all = append(all, c.view.catalog.Tools()...)
		} else {
			all = append(all, c.view.catalog.Items(kind)...)
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

// Info returns the definition that is listed under path, of a URI that is not listed
// the template that it comes from.
func (c capabilities) Info(_ context.Context, _ *tool.Call, t proxytool.Type, path string) (proxytool.Item, error) {
	target, found := c.listed(t, path)
	if !found && t == proxytool.TypeResource {
		target, found = c.view.catalog.Template(path)
	}
	if !found {
		return proxytool.Item{}, c.unknown(t, path)
	}
	return itemOf(target), nil
}

// listed is what is listed under path, a resource also under its name.
func (c capabilities) listed(t proxytool.Type, path string) (*tool.Tool, bool) {
	switch t {
	case proxytool.TypeTool:
		return c.view.catalog.Lookup(path)
	case proxytool.TypePrompt:
		return c.view.catalog.Prompt(path)
	}
	all := c.all(kindsOf[t])
	i := proxytool.Find(itemsOf(all), path)
	if i < 0 {
		return nil, false
	}
	return all[i], true
}

// Call calls a tool, reads a resource or gets a prompt as its clients would.
func (c capabilities) Call(ctx context.Context, call *tool.Call, t proxytool.Type, path string, args json.RawMessage) (json.RawMessage, error) {
	if t == proxytool.TypeResource && !proxytool.IsURI(path) {
		if named, ok := c.listed(t, path); ok {
			if err := itemOf(named).Callable(); err != nil {
				return nil, err
			}
			path = named.Name
		}
	}
	var target *tool.Tool
	var found bool
	if t == proxytool.TypeResource {
		target, found = c.view.catalog.Resource(path) // listed or not
	} else {
		target, found = c.listed(t, path)
	}
	if !found {
		return nil, c.unknown(t, path)
	}
	result, err := target.Handler(ctx, retrieve.CallOf(call, target, path, args))
	return json.RawMessage(result), err
}

func (c capabilities) unknown(t proxytool.Type, path string) error {
	var near []string
	if t == proxytool.TypeTool {
		near = c.view.catalog.Nearest(path, 3)
	}
	return proxytool.Unknown(t, path, near)
}
