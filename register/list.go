package register

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// listTools answers tools/list. s is nil for a 2026-07-28 client.
func (l *Live) listTools(served *Served, call *tool.Call, s *session) tool.Result {
	var registered Set
	if own := l.sessionFor(call); own != nil {
		l.recall(served, call, own)
		registered, _, _ = own.relisted().sync(served.Lookup) // served may be older than the set
	}
	tools := l.toolsFor(served, call, s, registered)
	if s != nil {
		l.observer.Changed(s.id)
	}
	client := ""
	if call.Client != nil {
		client = call.Client.Name
	}
	l.observer.Listed(call.Session, client, tools)
	as, named := l.listedTo(served, client, s == nil, registered)
	result := listing("tools", tools, "", as)
	if s == nil && *named {
		return hinted(result, 0, false)
	}
	return result
}

// listedTo returns a function that gives a tool's definition as a client is listed it. named tells afterwards whether a
// definition depends on the client's name.
func (l *Live) listedTo(served *Served, client string, modern bool, registered Set) (as func(*tool.Tool) json.RawMessage, named *bool) {
	portable := served.Portable != nil && served.Portable(client)
	some := modern && served.Portable != nil && !served.Portable("") // for some clients, whose names caches do not know
	loads := served.Loads != nil && served.Loads(client)
	named = new(bool)
	*named = len(registered.tools) > 0
	return func(t *tool.Tool) json.RawMessage {
		def := t.ListedTo(modern)
		if loads && registered.found(t.Name) {
			def, _ = rawjson.Update(def, "_meta", func(meta json.RawMessage) []byte {
				marked, err := rawjson.Set(meta, "anthropic/alwaysLoad", []byte("true"))
				if err != nil { // there was none
					return []byte(`{"anthropic/alwaysLoad":true}`)
				}
				return marked
			})
		}
		if portable || some {
			if ported := l.portable.of(t); ported != nil {
				*named = *named || some
				if portable {
					def, _ = rawjson.Set(def, "inputSchema", ported.Schema)
				}
			}
		}
		if served.Short != nil {
			if name := served.Short(t); name != t.Name {
				*named = true
				if served.Prefixes(client) {
					def, _ = rawjson.Set(def, "name", rawjson.Quote(name))
				}
			}
		}
		return def
	}, named
}

// toolsFor returns a client's list: the meta-tools, then all tools, or the pinned, provisioned and
// registered ones.
func (l *Live) toolsFor(served *Served, call *tool.Call, s *session, registered Set) []*tool.Tool {
	if l.listsAll(s, served) {
		return slices.Concat(served.Beside, served.Meta, served.Tools())
	}
	pinned := served.Pinned()
	tools := slices.Concat(served.Search, served.Meta, pinned)
	switch {
	case served.gated() && s != nil:
		provisioned, _, _ := s.provisioned.follow(call.Owner(), served.granted)
		return append(tools, provisioned...)
	case served.gated():
		return append(tools, served.granted(call.Owner())...)
	}
	for _, r := range registered.tools {
		if !slices.ContainsFunc(pinned, func(t *tool.Tool) bool { return t.Name == r.Name }) {
			tools = append(tools, r.Tool)
		}
	}
	return tools
}

// listsByMethod has the lists of prompts, resources, templates and skills, by method.
var listsByMethod = map[string]struct {
	kind tool.Kind
	key  string
}{
	wire.MethodListPrompts:   {tool.KindPrompt, "prompts"},
	wire.MethodListResources: {tool.KindResource, "resources"},
	wire.MethodListTemplates: {tool.KindTemplate, "resourceTemplates"},
	wire.MethodListSkills:    {tool.KindSkill, "skills"},
}

// pageSize bounds one page. Many clients read only the first page.
const pageSize = 1000

// listPage answers prompts/list, resources/list, resources/templates/list and skills/list. A cursor names the last
// item of the previous page.
func listPage(served *Served, x *wire.Exchange) (tool.Result, error) {
	list := listsByMethod[x.Method]
	items := served.Items(list.kind)
	if cursor := rawjson.Member(x.Params, "cursor"); cursor != nil && string(cursor) != "null" {
		after, err := base64.RawURLEncoding.DecodeString(rawjson.Text(cursor))
		i := slices.IndexFunc(items, func(t *tool.Tool) bool { return t.Name == string(after) })
		if err != nil || i < 0 {
			return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "invalid cursor: the list has changed, or the cursor is of another server; list from the start"}
		}
		items = items[i+1:]
	}
	next := ""
	if len(items) > pageSize {
		items = items[:pageSize]
		next = base64.RawURLEncoding.EncodeToString([]byte(items[pageSize-1].Name))
	}
	return listing(list.key, items, next, func(t *tool.Tool) json.RawMessage { return t.ListedTo(true) }), nil
}

// listing is the result of a list.
func listing(key string, items []*tool.Tool, next string, as func(*tool.Tool) json.RawMessage) tool.Result {
	listed := make([]json.RawMessage, len(items))
	for i, t := range items {
		listed[i] = as(t)
	}
	var out rawjson.Object
	out.Add(key, rawjson.Array(listed))
	if next != "" {
		out.AddText("nextCursor", next)
	}
	return tool.Result(out.JSON())
}

// cached adds the caching members that the 2026-07-28 revision (SEP-2549) requires of lists and
// resources/read, unless the result has them. A list may be kept only as far as it follows from the
// credentials and declared capabilities of a client, because caches know nothing else of it.
func cached(served *Served, result tool.Result, x *wire.Exchange, principal string) tool.Result {
	if rawjson.Text(rawjson.Member(result, "resultType")) == inputRequired {
		return result
	}
	var ttl time.Duration
	public := false
	switch x.Method {
	case wire.MethodListTools:
		ttl, public = served.CacheHint(tool.KindTool)
		public = public && served.Groups == nil && served.Grouped == nil // the list depends on what the client declares
		if served.gated() {                                              // a principal's list depends on what it has provisioned
			public = false
			if principal != "" {
				ttl = 0
			}
		}
	case wire.MethodGetSkill, wire.MethodReadDirectory: // SEP-2640 does not ask for it of directories, clients do
		ttl, public = served.CacheHint(tool.KindSkill)
	case wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates, wire.MethodListSkills:
		ttl, public = served.CacheHint(listsByMethod[x.Method].kind)
	case wire.MethodListGroups, wire.MethodGetGroup:
		ttl, _ = served.CacheHint(tool.KindTool)
	case wire.MethodReadResource:
		if served.Class != "" && rawjson.Member(result, "cacheScope") != nil { // the server does not know the policies
			result, _ = rawjson.Set(result, "cacheScope", []byte(`"private"`))
		}
	default:
		return result
	}
	if served.Started != nil || served.Unsettled || served.ByClient {
		ttl = 0
	}
	return hinted(result, ttl, public && served.Class == "")
}

// hinted adds the caching members that a result lacks.
func hinted(result tool.Result, ttl time.Duration, public bool) tool.Result {
	scope := `"private"`
	if public {
		scope = `"public"`
	}
	for _, hint := range []struct{ key, value string }{{"ttlMs", strconv.FormatInt(ttl.Milliseconds(), 10)}, {"cacheScope", scope}} {
		if rawjson.Member(result, hint.key) == nil {
			if with, err := rawjson.Set(result, hint.key, []byte(hint.value)); err == nil {
				result = with
			}
		}
	}
	return result
}

// listsAll decides whether a client is listed every tool. s is nil for 2026-07-28 clients.
func (l *Live) listsAll(s *session, v *Served) bool {
	switch {
	case s != nil:
		return s.direct.in(v)
	case l.countAsOne(v):
		return l.direct.in(v)
	}
	return v.Direct != nil && !v.gated() && v.Direct(false)
}

// countAsOne reports whether all 2026-07-28 clients share one decision of direct. They do not if
// policies tell them apart or other replicas serve them.
func (l *Live) countAsOne(v *Served) bool { return v.Class == "" && !l.replicated }
