package web

import (
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Default and largest number of tools on a page of GET /api/tools.
const (
	defaultPage = 100
	maxPage     = 1000
)

// execute calls a tool. Its result is answered unchanged and with status 200, even if it has isError.
func (s *server) execute(q *request) (any, error) {
	var id string
	var arguments json.RawMessage
	if err := q.fields(args.Text("tool_id", &id), args.Raw("arguments", &arguments)); err != nil {
		return nil, err
	}
	if id == "" {
		return nil, badRequest(`tool_id is missing: send {"tool_id": "server_tool", "arguments": {...}}`)
	}
	if err := q.complete(id); err != nil {
		return nil, err
	}
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	result, err := q.view.Retriever.Execute(q.Context(), call, id, arguments)
	if err != nil {
		return nil, err
	}
	if !json.Valid(result) {
		return nil, &retrieve.ExecuteError{Failure: retrieve.FailureExecution, ID: id, Err: errNoResult}
	}
	out := make([]byte, 0, len(result)+len(`{"result":}`))
	return document{body: append(append(append(out, `{"result":`...), result...), '}')}, nil
}

func (s *server) discoverGet(q *request) (any, error) {
	limit, err := q.number("limit", 0, 1, retrieve.MaxLimit)
	if err != nil {
		return nil, err
	}
	return discover(q, retrieve.DiscoverQuery{Text: q.values.Get("query"), Tags: q.tags(), Limit: limit})
}

func (s *server) discoverPost(q *request) (any, error) {
	var d retrieve.DiscoverQuery
	if err := q.fields(args.Text("query", &d.Text), args.Int("limit", &d.Limit, 1, retrieve.MaxLimit), args.Texts("tags", &d.Tags)); err != nil {
		return nil, err
	}
	d.Tags = args.Trimmed(d.Tags)
	return discover(q, d)
}

type found struct {
	retrieve.Discovery
	Pending []string `json:"pending,omitempty"` // servers that were never listed: their tools may be missing
}

func discover(q *request, query retrieve.DiscoverQuery) (any, error) {
	if err := q.complete(); err != nil {
		return nil, err
	}
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	ctx, done, err := q.observe(call, identity.EventRetrieve, "")
	if err != nil {
		return nil, err
	}
	discovery, err := q.view.Retriever.Discover(ctx, call, query)
	if done(err); err != nil {
		return nil, err
	}
	return found{discovery, q.pending()}, nil
}

// whyNot explains the rank of a tool for a query. Of what the caller may not use it knows nothing.
func (s *server) whyNot(q *request) (any, error) {
	limit, err := q.number("limit", 0, 1, retrieve.MaxLimit)
	if err != nil {
		return nil, err
	}
	name, query := q.values.Get("tool"), q.values.Get("query")
	if name == "" || strings.TrimSpace(query) == "" {
		return nil, badRequest("tool or query is missing: send ?tool=server_tool&query=...")
	}
	if err := q.complete(name); err != nil {
		return nil, err
	}
	return q.view.Retriever.WhyNot(q.Context(), name, retrieve.Query{Text: query, Limit: limit})
}

// listTools answers with a page of the tools that pass the filters, sorted by name.
func (s *server) listTools(q *request) (any, error) {
	limit, err := q.number("limit", defaultPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	offset, err := q.number("offset", 0, 0, 1<<31-1)
	if err != nil {
		return nil, err
	}
	if err := q.complete(); err != nil {
		return nil, err
	}
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	tools, err := q.filtered(q.values.Get("server"), q.tags())
	if err != nil {
		return nil, err
	}
	page := struct {
		Tools []retrieve.Discovered `json:"tools"`
		Total int                   `json:"total"`
	}{[]retrieve.Discovered{}, len(tools)}
	from := min(offset, len(tools))
	for _, t := range tools[from:min(from+limit, len(tools))] {
		page.Tools = append(page.Tools, q.view.Retriever.Describe(call, t))
	}
	return page, nil
}

// filtered returns the tools of a server ("" for all) that have all the tags.
func (q *request) filtered(server string, tags []string) ([]*tool.Tool, error) {
	tools := q.view.Catalog.Tools()
	var names []string
	for _, s := range q.view.Catalog.Servers() {
		names = append(names, s.Name)
	}
	if server != "" && !slices.Contains(names, server) {
		return nil, args.Unknown("server", server, names)
	}
	has := q.view.Catalog.Tagged(tags)
	return slices.DeleteFunc(tools, func(t *tool.Tool) bool {
		return server != "" && t.Def.ID.Server != server || !has(t)
	}), nil
}

// getTool answers with one tool and the definition that clients get.
func (s *server) getTool(q *request) (any, error) {
	call, err := q.call()
	if err != nil {
		return nil, err
	}
	t, err := q.tool(q.PathValue("id"))
	if err != nil {
		return nil, err
	}
	d := q.view.Retriever.Describe(call, t)
	return struct {
		ToolID      string          `json:"tool_id"`
		Server      string          `json:"server"`
		Name        string          `json:"name"`
		Tokens      int             `json:"tokens"`
		Tags        []string        `json:"tags"`
		Provisioned *bool           `json:"provisioned,omitempty"`
		Definition  json.RawMessage `json:"definition"`
	}{d.ToolID, d.Server, d.Name, d.Tokens, d.Tags, d.Provisioned, t.Listed()}, nil
}

// tool is Catalog.Find with an error that names the nearest tools.
func (q *request) tool(id string) (*tool.Tool, error) {
	if err := q.complete(id); err != nil {
		return nil, err
	}
	if t, err := q.view.Catalog.Find(id); err == nil {
		return t, nil
	}
	near := q.view.Catalog.Nearest(id, 3)
	if len(near) == 0 {
		return nil, notFound("there is no tool %q%s", rawjson.Clip(id, maxClipped), q.view.Retriever.Because(id))
	}
	return nil, notFound("there is no tool %q; nearest: %s%s", rawjson.Clip(id, maxClipped), joined(near), q.view.Retriever.Because(id))
}
