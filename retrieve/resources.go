package retrieve

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yosida95/uritemplate/v3"

	"toolfinch/index"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// silentTTL is how long a list without a hint may be cached.
const silentTTL = 5 * time.Second

// others are the prompts, resources and resource templates of a catalog. They never
// change.
type others struct {
	servers []Server
	handler func(*tool.Def) tool.Handler // makes the handler of a resource that is not listed

	items map[tool.Kind][]*tool.Tool // in the order of servers and their lists
	byKey map[string]*tool.Tool      // by index.Key
	byID  map[tool.ID]*tool.Tool
	keys  []string // of byKey, sorted

	resources map[string]*tool.Tool // by plain URI, the first server's, and by the one that names the server
	normal    map[string]*tool.Tool // by normalURI, the first of equivalent ones
	templates []*template           // in the order of servers and their lists
	compared  map[string]int        // templates of a server, including those left out of templates
	offering  []string              // the servers that have resources
	isHeld    func(tool.ID) bool    // comes from a template that waits for approval; nil: none waits

	alike func() map[tool.ID][]*tool.Tool // listed resources and templates by their normal forms in lower case, whose kind is none
}

// template is a resource template that URIs are matched against.
type template struct {
	*tool.Tool
	literal string // the text before its first expression
	matches func(uri string) bool
}

func newOthers(contents Contents, prefix map[string]string, handler func(*tool.Def) tool.Handler) *others {
	servers := contents.Servers
	o := &others{
		servers:   servers,
		handler:   handler,
		items:     map[tool.Kind][]*tool.Tool{},
		byKey:     map[string]*tool.Tool{},
		byID:      map[tool.ID]*tool.Tool{},
		resources: map[string]*tool.Tool{},
		normal:    map[string]*tool.Tool{},
		compared:  map[string]int{},
	}
	var prompts []tool.ID
	listed := map[tool.ID]bool{}
	claims := map[tool.ID]int{} // how many servers have it, by ID without the server
	for i := range servers {
		for _, t := range servers[i].look().others {
			switch id := t.Def.ID; {
			case listed[id]:
				continue
			case id.Kind == tool.KindPrompt:
				prompts = append(prompts, id)
			default:
				claims[tool.ID{Name: id.Name, Kind: id.Kind}]++
			}
			listed[t.Def.ID] = true
		}
	}
	names := namesFor(prompts, nil, prefix)
	for i := range servers {
		s := &servers[i]
		offers := rawjson.Member(s.Capabilities, "resources") != nil
		for _, brought := range s.look().others {
			id := brought.Def.ID
			if o.byID[id] != nil {
				continue
			}
			t := renamed(brought.With(tool.LayerNames, o.exposing(brought.Def)), names[id])
			if id.Kind != tool.KindPrompt {
				offers = true
				t.Name = exposedURI(id, claims[tool.ID{Name: id.Name, Kind: id.Kind}])
			}
			t.Name = cmp.Or(brought.Name, t.Name)
			o.add(t, contents.hidden[id])
		}
		if offers {
			o.offering = append(o.offering, s.Name)
		}
	}
	slices.Sort(o.keys)
	o.alike = sync.OnceValue(o.byForm)
	return o
}

func (o *others) add(t *tool.Tool, hidden bool) {
	id := t.Def.ID
	key := index.Key(id.Kind, t.Name)
	o.byKey[key] = t
	o.byID[id] = t
	if !hidden {
		o.items[id.Kind] = append(o.items[id.Kind], t)
		o.keys = append(o.keys, key)
	}
	switch id.Kind {
	case tool.KindResource:
		uris := []string{prefixedURI(id.Server, id.Name)}
		if _, _, prefixed := splitURI(id.Name); !prefixed { // or it could stand for another server's
			uris = append(uris, id.Name)
		}
		for _, uri := range uris {
			if o.resources[uri] == nil {
				o.resources[uri] = t
			}
			if normal := normalURI(uri); o.normal[normal] == nil {
				o.normal[normal] = t
			}
		}
	case tool.KindTemplate:
		if o.compared[id.Server]++; o.compared[id.Server] > maxMatched {
			return
		}
		literal, _, _ := strings.Cut(id.Name, "{")
		compiled := sync.OnceValue(func() func(string) bool { return matcher(id.Name) })
		o.templates = append(o.templates, &template{t, literal, func(uri string) bool { return compiled()(uri) }})
	}
}

// scheme is the scheme of URIs that name their server.
const scheme = "toolfinch:"

// exposedURI returns the URI or URI template that clients see: the server's own if no
// other server has it. A URI that begins with scheme itself, like those of another
// toolfinch, always gets a prefix, so that no two are equal.
func exposedURI(id tool.ID, servers int) string {
	if _, _, prefixed := splitURI(id.Name); servers == 1 && !prefixed {
		return id.Name
	}
	return prefixedURI(id.Server, id.Name)
}

func prefixedURI(server, uri string) string { return scheme + url.PathEscape(server) + "/" + uri }

// splitURI undoes prefixedURI.
func splitURI(uri string) (server, own string, ok bool) {
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", "", false
	}
	escaped, own, ok := strings.Cut(uri[len(scheme):], "/")
	server, err := url.PathUnescape(escaped)
	return server, own, ok && err == nil && server != ""
}

// normalURI returns a URI in the form for comparisons.
func normalURI(uri string) string {
	if server, own, ok := splitURI(uri); ok {
		return prefixedURI(server, tool.NormalURI(own))
	}
	return tool.NormalURI(uri)
}

// Bounds of matching, which takes time with the product of variables and bytes.
const (
	maxTemplate   = 512 // bytes
	maxVariables  = 16  // of a template
	maxMatchedURI = 2 << 10
	maxMatched    = 200 // templates of a server that are matched, the first ones
)

// A modifier like {id:3} states the length of a value. The library compiles a program
// of that length for it; which template a URI matches does not depend on it.
var (
	expression = regexp.MustCompile(`\{[^{}]*\}`)
	modifier   = regexp.MustCompile(`:[0-9]+`)
)

// matcher returns a predicate for the URIs that may come from a template. An invalid
// template matches nothing.
func matcher(text string) func(uri string) bool {
	text = expression.ReplaceAllStringFunc(text, func(e string) string { return modifier.ReplaceAllString(e, "") })
	if len(text) > maxTemplate || strings.Count(text, "{")+strings.Count(text, ",") > maxVariables {
		return func(string) bool { return false }
	}
	parsed, err := uritemplate.New(text)
	if err != nil {
		return func(string) bool { return false }
	}
	return func(uri string) bool { return parsed.Match(uri) != nil }
}

// templateOf returns the template that a URI comes from, of any server or of the named
// one. Of several it returns the first with the longest literal beginning.
func (o *others) templateOf(uri, server string) *template {
	if len(uri) > maxMatchedURI {
		return nil
	}
	normal := tool.NormalURI(uri)
	var best *template
	for _, t := range o.templates {
		if (server == "" || server == t.Def.ID.Server) && (best == nil || len(t.literal) > len(best.literal)) &&
			(t.has(uri) || normal != uri && t.has(normal)) {
			best = t
		}
	}
	return best
}

func (t *template) has(uri string) bool { return strings.HasPrefix(uri, t.literal) && t.matches(uri) }

// Items returns all prompts, resources or resource templates, in the order of
// the servers and then as listed. Name is the exposed name, URI or URI template.
func (o *others) Items(kind tool.Kind) []*tool.Tool { return o.items[kind] }

// Prompt finds a prompt by the name that clients see.
func (o *others) Prompt(name string) (*tool.Tool, bool) {
	t, ok := o.byKey[index.Key(tool.KindPrompt, name)]
	return t, ok
}

// Resource finds a resource by the URI that a client uses. URIs are compared in their
// normal form (RFC 3986, section 6.2). If several servers list the URI, the first one's
// counts. If none lists it, it belongs to the server of the template that it comes
// from, else to the one that Unlisted selects; its Def then has an ID and nothing else.
// Everything that reads, follows or completes a resource asks here.
func (o *others) Resource(uri string) (*tool.Tool, bool) { return o.resource(uri, true) }

// Template finds the listed template that a URI of a client comes from.
func (o *others) Template(uri string) (*tool.Tool, bool) {
	id := tool.ID{Name: uri, Kind: tool.KindResource}
	if server, own, named := splitURI(uri); named && o.server(server) != nil {
		id.Server, id.Name = server, own
	}
	t := o.templateOf(id.Name, id.Server)
	if t == nil {
		return nil, false
	}
	id.Server = t.Def.ID.Server
	return t.Tool, !o.Excludes(id)
}

// TemplateOf finds the template that a server's own URI comes from.
func (o *others) TemplateOf(id tool.ID) (*tool.Tool, bool) {
	t := o.templateOf(id.Name, id.Server)
	if t == nil {
		return nil, false
	}
	return t.Tool, true
}

// resource is Resource. With guess, an unlisted URI may belong to the only server that
// has resources.
func (o *others) resource(uri string, guess bool) (*tool.Tool, bool) {
	if t := o.listed(uri); t != nil {
		return t, true
	}
	id, ok := o.unlisted(uri, guess)
	if !ok {
		return nil, false
	}
	def := &tool.Def{ID: id}
	t := &tool.Tool{Name: uri, Def: def, Handler: o.handler(def)}
	return t.With(tool.LayerNames, o.exposing(def)), true
}

// listed returns the listed resource of a URI, nil without one.
func (o *others) listed(uri string) *tool.Tool {
	if t := o.resources[uri]; t != nil {
		return t
	}
	return o.normal[normalURI(uri)]
}

// unlisted returns the ID of a resource that no server lists, false if the URI is not
// to be sent to any server.
func (o *others) unlisted(uri string, guess bool) (id tool.ID, ok bool) {
	id = tool.ID{Name: uri, Kind: tool.KindResource}
	least := UnlistedOnly
	if server, own, named := splitURI(uri); named && o.server(server) != nil {
		id.Server, id.Name, least = server, own, UnlistedNamed
	}
	if t := o.templateOf(id.Name, id.Server); t != nil {
		id.Server, least = t.Def.ID.Server, UnlistedTemplate
	} else if only := o.offering; id.Server == "" && guess && len(only) == 1 {
		id.Server = only[0]
	} else if id.Server == "" {
		return id, false
	}
	return id, o.server(id.Server).Unlisted <= least && !o.Excludes(id)
}

// Excludes reports whether the catalog leaves out a resource of a server, listed or not.
func (o *others) Excludes(id tool.ID) bool {
	server := o.server(id.Server)
	return o.byID[id] == nil && (server == nil || server.Excluded != nil && server.Excluded(id) || o.isHeld != nil && o.isHeld(id))
}

// server returns the server of that name, nil without one.
func (o *others) server(name string) *Server {
	if i := slices.IndexFunc(o.servers, func(s Server) bool { return s.Name == name }); i >= 0 {
		return &o.servers[i]
	}
	return nil
}

// Exposed returns the URI under which clients know a server's resource: its own, unless
// only the URI that names the server leads to it.
func (o *others) Exposed(server, uri string) string {
	id := tool.ID{Server: server, Name: uri, Kind: tool.KindResource}
	if t := o.byID[id]; t != nil {
		return t.Name
	}
	prefixed := prefixedURI(server, uri)
	found, plain := o.Resource(uri)
	if _, named := o.Resource(prefixed); plain && found.Def.ID == id || !plain && !named {
		return uri
	}
	return prefixed
}

// exposing has the contents of a resource state the URIs that clients know, if it is read by
// another URI than its own. It is nil for prompts and templates.
func (o *others) exposing(def *tool.Def) tool.Middleware {
	if def.ID.Kind != tool.KindResource {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			result, err := next(ctx, call)
			if err == nil && call.Name != def.ID.Name {
				result = o.exposeContents(def.ID.Server, result)
			}
			return result, err
		}
	}
}

// exposeContents returns a result of resources/read with the URIs that clients know.
func (o *others) exposeContents(server string, result tool.Result) tool.Result {
	var contents []json.RawMessage
	for item := range rawjson.Elements(rawjson.Member(result, "contents")) {
		if uri := rawjson.Text(rawjson.Member(item, "uri")); uri != "" {
			if own, err := rawjson.Set(item, "uri", rawjson.Quote(o.Exposed(server, uri))); err == nil {
				item = own
			}
		}
		contents = append(contents, item)
	}
	if exposed, err := rawjson.Set(result, "contents", rawjson.Array(contents)); err == nil && contents != nil {
		return exposed
	}
	return result
}

// CacheHint returns how long the list of a kind may be cached, and whether for
// everybody: the strictest hint of all servers that have some. A server without a hint
// counts as 5 s, for its own client.
func (o *others) CacheHint(kind tool.Kind) (ttl time.Duration, public bool) {
	all := CacheHint{Public: true}
	some := false
	for _, s := range o.servers {
		if !slices.ContainsFunc(s.Tools, func(t *tool.Tool) bool { return t.Def.ID.Kind == kind }) {
			continue
		}
		hint, said := s.Cache[kind]
		if !said {
			hint = CacheHint{TTL: silentTTL}
		}
		if !some || hint.TTL < all.TTL {
			all.TTL = hint.TTL
		}
		all.Public = all.Public && hint.Public
		some = true
	}
	if !some {
		return silentTTL, false
	}
	return all.TTL, all.Public
}

func (o *others) byForm() map[tool.ID][]*tool.Tool {
	forms := map[tool.ID][]*tool.Tool{}
	for id, t := range o.byID {
		if id.Kind != tool.KindResource && id.Kind != tool.KindTemplate {
			continue
		}
		normal := strings.ToLower(tool.NormalURI(id.Name))
		decoded := strings.ToLower(tool.NormalURI(tool.UnescapeURI(id.Name)))
		forms[tool.ID{Server: id.Server, Name: normal}] = append(forms[tool.ID{Server: id.Server, Name: normal}], t)
		if decoded != normal {
			forms[tool.ID{Server: id.Server, Name: decoded}] = append(forms[tool.ID{Server: id.Server, Name: decoded}], t)
		}
	}
	return forms
}
