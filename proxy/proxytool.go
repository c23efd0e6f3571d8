package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolfinch/proxytool"
	"toolfinch/rawjson"
	"toolfinch/register"
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
	all, err := c.find(ctx, t, f)
	if err != nil {
		return nil, err
	}
	passes := func(*tool.Tool) bool { return true }
	if f != nil {
		has := c.view.catalog.Tagged(f.Tags)
		passes = func(t *tool.Tool) bool {
			return strings.HasPrefix(t.Name, f.Prefix) && (f.Server == "" || f.Server == t.Def.ID.Server) && has(t)
		}
	}
	items := []proxytool.Item{}
	for _, t := range all {
		if passes(t) {
			items = append(items, itemOf(t))
		}
	}
	return items, nil
}

func (c capabilities) find(ctx context.Context, t proxytool.Type, f *proxytool.Filter) ([]*tool.Tool, error) {
	kinds := kindsOf[t]
	if f == nil || f.Query == "" {
		return c.all(kinds), nil
	}
	found, err := c.view.Retriever().Search(ctx, retrieve.Query{Text: f.Query, Limit: retrieve.MaxLimit, Server: f.Server, Kinds: kinds})
	if err != nil {
		return nil, err
	}
	tools := make([]*tool.Tool, len(found.Hits))
	for i, hit := range found.Hits {
		tools[i] = hit.Tool
	}
	return tools, nil
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
	return proxytool.Item{Path: t.Name, Raw: register.Listed(t)}
}

// Info returns the definition that is listed under path. For the sake of clients
// of other servers a resource is found by its name too, if no other has it.
func (c capabilities) Info(_ context.Context, _ *tool.Call, t proxytool.Type, path string) (proxytool.Item, error) {
	all := c.all(kindsOf[t])
	if i := slices.IndexFunc(all, func(t *tool.Tool) bool { return t.Name == path }); i >= 0 {
		return itemOf(all[i]), nil
	}
	var named []proxytool.Item
	if t == proxytool.TypeResource {
		for _, t := range all {
			if item := itemOf(t); rawjson.Text(rawjson.Member(item.Raw, "name")) == path {
				named = append(named, item)
			}
		}
	}
	if len(named) != 1 {
		return proxytool.Item{}, c.unknown(t, path)
	}
	return named[0], nil
}

// Call calls a tool, reads a resource or gets a prompt as its clients would.
func (c capabilities) Call(ctx context.Context, call *tool.Call, t proxytool.Type, path string, args json.RawMessage) (json.RawMessage, error) {
	var target *tool.Tool
	var found bool
	switch t {
	case proxytool.TypeTool:
		target, found = c.view.catalog.Lookup(path)
	case proxytool.TypeResource:
		target, found = c.view.catalog.Resource(path)
	case proxytool.TypePrompt:
		target, found = c.view.catalog.Prompt(path)
	}
	if !found {
		return nil, c.unknown(t, path)
	}
	result, err := target.Handler(ctx, retrieve.CallOf(call, target, path, args))
	return json.RawMessage(result), err
}

func (c capabilities) unknown(t proxytool.Type, path string) error {
	hint := ""
	if near := c.view.catalog.Nearest(path, 3); t == proxytool.TypeTool && len(near) > 0 {
		hint = "; nearest: " + strings.Join(near, ", ")
	}
	return &tool.RPCError{Code: tool.CodeInvalidParams, Message: fmt.Sprintf("unknown %s %q%s", t, path, hint)}
}
