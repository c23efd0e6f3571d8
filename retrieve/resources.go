package retrieve

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yosida95/uritemplate/v3"

	"toolfinch/index"
	"toolfinch/rawjson"
	"toolfinch/register"
	"toolfinch/tool"
)

// CacheHint is what a server says of how long one of its lists may be cached,
// and whether for everybody.
type CacheHint struct {
	TTL    time.Duration
	Public bool
}

// silentTTL is how long the list of a server may be cached that says nothing.
const silentTTL = 5 * time.Second

// others are the prompts, resources and resource templates of a state. They are
// replaced, never edited.
type others struct {
	items map[tool.Kind][]*tool.Tool // in the order of servers and their lists
	byKey map[string]*tool.Tool      // by index.Key
	byID  map[tool.ID]*tool.Tool
	keys  []string // of byKey, sorted

	resources map[string]*tool.Tool // by exposed URI, and of several servers' by the plain one: the first server's
	templates []*template           // in the order of servers and their lists
	compared  map[string]int        // how many of them are of a server, and more that are left out
	offering  []string              // the servers that have resources
}

// template is a resource template that URIs are compared with.
type template struct {
	*tool.Tool
	literal string // what it begins with
	matches func(uri string) bool
}

func newOthers(servers []Server, prefix map[string]string, exposing func(*tool.Tool) tool.Handler) others {
	o := others{
		items:     map[tool.Kind][]*tool.Tool{},
		byKey:     map[string]*tool.Tool{},
		byID:      map[tool.ID]*tool.Tool{},
		resources: map[string]*tool.Tool{},
		compared:  map[string]int{},
	}
	var prompts []tool.ID
	listed := map[tool.ID]bool{}
	claims := map[tool.ID]int{} // how many servers have it, by ID without the server
	for _, s := range servers {
		for _, t := range s.Tools {
			switch id := t.Def.ID; {
			case id.Kind == tool.KindTool || listed[id]:
				continue
			case id.Kind == tool.KindPrompt:
				prompts = append(prompts, id)
			default:
				claims[tool.ID{Name: id.Name, Kind: id.Kind}]++
			}
			listed[t.Def.ID] = true
		}
	}
	names := register.Names(prompts, nil, prefix)
	for _, s := range servers {
		offers := rawjson.Member(s.Capabilities, "resources") != nil
		for _, brought := range s.Tools {
			id := brought.Def.ID
			if id.Kind == tool.KindTool || o.byID[id] != nil {
				continue
			}
			t := &tool.Tool{Name: names[id], Def: brought.Def, Handler: exposing(brought)}
			if id.Kind != tool.KindPrompt {
				offers = true
				t.Name = exposedURI(id, claims[tool.ID{Name: id.Name, Kind: id.Kind}])
			}
			o.add(t)
		}
		if offers {
			o.offering = append(o.offering, s.Name)
		}
	}
	slices.Sort(o.keys)
	return o
}

func (o *others) add(t *tool.Tool) {
	id := t.Def.ID
	key := index.Key(id.Kind, t.Name)
	o.items[id.Kind] = append(o.items[id.Kind], t)
	o.byKey[key] = t
	o.byID[id] = t
	o.keys = append(o.keys, key)
	switch id.Kind {
	case tool.KindResource:
		o.resources[t.Name] = t
		if o.resources[id.Name] == nil && !strings.HasPrefix(id.Name, scheme) { // or it could stand for another server's
			o.resources[id.Name] = t
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

// scheme is that of URIs which say whose they are.
const scheme = "toolfinch:"

// exposedURI is the URI or URI template that clients see: as it is where only
// one server has it. One that looks prefixed already, as those of another
// toolfinch do, is prefixed always, so that no two are the same.
func exposedURI(id tool.ID, servers int) string {
	if servers == 1 && !strings.HasPrefix(id.Name, scheme) {
		return id.Name
	}
	return prefixedURI(id.Server, id.Name)
}

func prefixedURI(server, uri string) string { return scheme + url.PathEscape(server) + "/" + uri }

// splitURI undoes prefixedURI.
func splitURI(uri string) (server, own string, ok bool) {
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return "", "", false
	}
	escaped, own, ok := strings.Cut(rest, "/")
	server, err := url.PathUnescape(escaped)
	return server, own, ok && err == nil && server != ""
}

// Bounds of what is compared: matching takes time with the product of
// variables and bytes, whatever a server lists.
const (
	maxTemplate   = 512 // bytes
	maxVariables  = 16  // of a template
	maxMatchedURI = 2 << 10
	maxMatched    = 200 // templates of a server that URIs are compared with, the first ones
)

// Modifiers like {id:3} say how long a value is, which the library takes a
// program of that length for; whose URI it is does not depend on them.
var (
	expression = regexp.MustCompile(`\{[^{}]*\}`)
	modifier   = regexp.MustCompile(`:[0-9]+`)
)

// matcher reports whether a URI may come from a template. What is no template
// matches nothing.
func matcher(text string) func(uri string) bool {
	text = expression.ReplaceAllStringFunc(text, func(e string) string { return modifier.ReplaceAllString(e, "") })
	if len(text) > maxTemplate || strings.Count(text, "{")+strings.Count(text, ",") > maxVariables {
		return func(string) bool { return false }
	}
	parsed, err := uritemplate.New(text)
	if err != nil {
		return func(string) bool { return false }
	}
	return func(uri string) bool { return len(uri) <= maxMatchedURI && parsed.Match(uri) != nil }
}

// templateOf returns the template that a URI comes from: of several the one
// that begins with most of it, and of these the first.
func (o *others) templateOf(uri string) *template {
	var best *template
	for _, t := range o.templates {
		if strings.HasPrefix(uri, t.literal) && (best == nil || len(t.literal) > len(best.literal)) && t.matches(uri) {
			best = t
		}
	}
	return best
}

// Items returns all prompts, resources or resource templates, in the order of
// the servers and then as listed. Name is the exposed name, URI or URI template.
func (c *Catalog) Items(kind tool.Kind) []*tool.Tool { return c.now().others.items[kind] }

// Prompt finds a prompt by the name clients see.
func (c *Catalog) Prompt(name string) (*tool.Tool, bool) {
	t, ok := c.now().others.byKey[index.Key(tool.KindPrompt, name)]
	return t, ok
}

// Resource finds a resource by the URI a client uses. One that is not listed is
// the server's that the URI names, else that of a template which it matches, else
// the only server's that has resources; its Def has an ID and nothing else. A
// listed URI of several servers is the first one's.
func (c *Catalog) Resource(uri string) (*tool.Tool, bool) { return c.resource(uri, true) }

// resource is Resource. Without guess, the only server with resources is not
// enough.
func (c *Catalog) resource(uri string, guess bool) (*tool.Tool, bool) {
	now := c.now()
	o := now.others
	if t, ok := o.resources[uri]; ok {
		return t, true
	}
	id := tool.ID{Name: uri, Kind: tool.KindResource}
	if server, own, ok := splitURI(uri); ok && slices.ContainsFunc(now.servers, func(s Server) bool { return s.Name == server }) {
		id.Server, id.Name = server, own
	} else if t := o.templateOf(uri); t != nil {
		id.Server = t.Def.ID.Server
	} else if guess && len(o.offering) == 1 {
		id.Server = o.offering[0]
	} else {
		return nil, false
	}
	if t, listed := o.byID[id]; listed {
		return t, true
	}
	i := slices.IndexFunc(now.servers, func(s Server) bool { return s.Name == id.Server })
	if excluded := now.servers[i].Excluded; excluded != nil && excluded(id) {
		return nil, false
	}
	def := &tool.Def{ID: id}
	t := &tool.Tool{Name: uri, Def: def, Handler: c.handler(def)}
	t.Handler = c.exposing(t)
	return t, true
}

// Exposed returns the URI that clients know a server's resource by: its own
// where that leads to the server, else with the server before it.
func (c *Catalog) Exposed(server, uri string) string {
	if t := c.now().others.byID[tool.ID{Server: server, Name: uri, Kind: tool.KindResource}]; t != nil {
		return t.Name
	}
	if t, ok := c.Resource(uri); ok && t.Def.ID == (tool.ID{Server: server, Name: uri, Kind: tool.KindResource}) {
		return uri
	}
	return prefixedURI(server, uri)
}

// exposing is the handler of t. What is read of a resource says the URIs that
// clients know it by, when it was asked for by another than its own.
func (c *Catalog) exposing(t *tool.Tool) tool.Handler {
	def, handler := t.Def, t.Handler
	if def.ID.Kind != tool.KindResource {
		return handler
	}
	return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		result, err := handler(ctx, call)
		if err == nil && call.Name != def.ID.Name {
			result = c.exposeContents(def.ID.Server, result)
		}
		return result, err
	}
}

// exposeContents is a result of resources/read with the URIs that clients know
// the server's resources by.
func (c *Catalog) exposeContents(server string, result tool.Result) tool.Result {
	contents := []byte{'['}
	for item := range rawjson.Elements(rawjson.Member(result, "contents")) {
		if uri := rawjson.Text(rawjson.Member(item, "uri")); uri != "" {
			if own, err := rawjson.Set(item, "uri", marshal(c.Exposed(server, uri))); err == nil {
				item = own
			}
		}
		if len(contents) > 1 {
			contents = append(contents, ',')
		}
		contents = append(contents, item...)
	}
	if exposed, err := rawjson.Set(result, "contents", append(contents, ']')); err == nil && len(contents) > 1 {
		return exposed
	}
	return result
}

// CacheHint says how long the list of a kind may be cached, and whether for
// everybody: what all servers that have some agree to. One that says nothing
// agrees to 5 s and to its own client.
func (c *Catalog) CacheHint(kind tool.Kind) (ttl time.Duration, public bool) {
	all := CacheHint{Public: true}
	some := false
	for _, s := range c.now().servers {
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
