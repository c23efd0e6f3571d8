package retrieve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// SearchTools returns three meta-tools for clients that list nothing else: {prefix}_search_tools,
// {prefix}_describe_tool and {prefix}_call_tool. They serve one server's tools; "" serves all. about describes the
// tools.
func (r *Retriever) SearchTools(prefix, server, about string) []*tool.Tool {
	names := SearchNames(prefix)
	if about != "" {
		about = " " + Sentence(about)
	}
	return []*tool.Tool{
		meta(names[0], "Find tools of "+prefix+" by what they do, in plain English; without a query, list them."+about+
			" Then "+names[1]+" says how to call one, "+names[2]+" calls it.",
			fmt.Sprintf(`{"type":"object","properties":{`+
				`"query":{"type":"string","default":"","description":"What the tool should do; empty lists all"},`+
				`"limit":{"type":"integer","minimum":1,"maximum":%d,"description":"Default %d for a query, %d for a list"}}}`, maxListed, r.settings.TopK, maxListed),
			`{"readOnlyHint":true,"openWorldHint":false}`, r.search(server)),
		meta(names[1], "The whole definition of a tool that "+names[0]+" found: description and schemas.",
			`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`,
			`{"readOnlyHint":true,"openWorldHint":false}`, r.describe(server)),
		r.callTool(KindDestructive, names[2], "Call a tool that "+names[0]+" found. Arguments that do not fit are answered with the tool's schema.", `{}`, server),
	}
}

// maxListed bounds the tools that a search without a query lists.
const maxListed = 100

// foundTools is the answer of {prefix}_search_tools.
type foundTools struct {
	Tools     []foundTool `json:"tools"`
	Confident *bool       `json:"confident,omitempty"` // of a query; false: perhaps no tool is right
	// Unmentioned are things that the query names and no tool mentions.
	Unmentioned []string `json:"unmentioned,omitempty"`
	More        int      `json:"more,omitempty"`    // of a list: number of tools left out
	Missing     []string `json:"missing,omitempty"` // absent servers, and why
}

type foundTool struct {
	Name      string `json:"name"`
	Server    string `json:"server,omitempty"` // if several are searched
	Summary   string `json:"summary,omitempty"`
	Signature string `json:"signature"`
}

func (f *foundTools) add(t *tool.Tool, server string) {
	found := foundTool{Name: t.Name, Summary: FirstSentence(t.Def.Description), Signature: Signature(t.Def.InputSchema)}
	if server == "" {
		found.Server = t.Def.ID.Server
	}
	f.Tools = append(f.Tools, found)
}

// search is the handler of {prefix}_search_tools.
func (r *Retriever) search(server string) tool.Handler {
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var query string
		var limit int
		err := args.Read(r.searchTool(server), shaped(call.Arguments, "query", "limit"), args.Text("query", &query), args.Int("limit", &limit, 1, maxListed))
		if err != nil {
			return tool.ErrorResult(err.Error()), nil
		}
		all := foundTools{Tools: []foundTool{}}
		var hits []Hit
		if strings.TrimSpace(query) == "" {
			hits, all.More = r.catalog.first(cmp.Or(limit, maxListed), func(t *tool.Tool) bool { return server == "" || t.Def.ID.Server == server })
			all.Missing = described(r.searcher.absent())
		} else {
			found, err := r.Search(ctx, Query{Text: query, Limit: cmp.Or(limit, r.settings.TopK), Server: server})
			if err != nil {
				return nil, err
			}
			r.noteFound(call, query, found.Hits)
			hits, all.Confident, all.Missing = found.Hits, found.confident(), described(found.Absent)
			all.Unmentioned = found.Unmentioned
		}
		if r.settings.PlainSearch {
			return plain(hits, all.Missing), nil
		}
		for _, hit := range hits {
			all.add(hit.Tool, server)
		}
		return answer(rawjson.Of(all)).result(), nil
	}
}

// plain returns an answer of {prefix}_search_tools as a list, with the absent servers in a text of their own.
func plain(hits []Hit, missing []string) tool.Result {
	type found struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	list := make([]found, len(hits))
	for i, hit := range hits {
		list[i] = found{hit.Name, hit.Def.Description, hit.Def.InputSchema}
	}
	out := append(tool.Result(`{"content":[{"type":"text","text":`), rawjson.Of(string(rawjson.Of(list)))...)
	if len(missing) > 0 {
		out = append(append(out, `},{"type":"text","text":`...), rawjson.Of(strings.Join(missing, "\n"))...)
	}
	return append(out, `}]}`...)
}

// describe is the handler of {prefix}_describe_tool.
func (r *Retriever) describe(server string) tool.Handler {
	return func(_ context.Context, call *tool.Call) (tool.Result, error) {
		var name string
		err := args.Read("this tool", shaped(call.Arguments, "name"), args.Text("name", &name))
		if err == nil && name == "" {
			err = args.Refuse(`send {"name": "..."}, a name that %s found`, r.searchTool(server))
		}
		if err != nil {
			return tool.ErrorResult(err.Error()), nil
		}
		t, _ := r.resolve(name)
		if t == nil || server != "" && t.Def.ID.Server != server {
			return tool.ErrorResult(r.unknown(name, server)), nil
		}
		needs, producesFor := r.catalog.Related(t)
		return answer(whole(t).Listed()).with(needs).withNames("producesFor", producesFor).result(), nil
	}
}

// SearchItems searches tools for a program: an array of objects with name, id
// ("server.tool"), server, description, inputSchema and score, best first.
func (s *searcher) SearchItems(ctx context.Context, query string, limit int) (json.RawMessage, error) {
	if strings.TrimSpace(query) == "" {
		return nil, errors.New("retrieve: the query is empty")
	}
	found, err := s.Search(ctx, Query{Text: query, Limit: min(max(limit, 1), MaxLimit)})
	if err != nil {
		return nil, err
	}
	type item struct {
		Name        string          `json:"name"`
		ID          string          `json:"id"`
		Server      string          `json:"server"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema,omitempty"`
		Score       float64         `json:"score"`
	}
	items := []item{}
	for _, hit := range found.Hits {
		items = append(items, item{hit.Name, hit.Def.ID.String(), hit.Def.ID.Server, hit.Def.Description, hit.Def.InputSchema, hit.Score})
	}
	return rawjson.Of(items), nil
}
