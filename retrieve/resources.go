package retrieve

import (
	"cmp"
	"context"
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

// nonTools holds the prompts, resources, resource templates and skills of a catalog. It is immutable.
type nonTools struct {
	servers []Server
	handler func(*tool.Def) tool.Handler // makes the handler of an unlisted resource

	items map[tool.Kind][]*tool.Tool // in the order of servers and their lists
	byKey map[string]*tool.Tool      // by index.Key
	byID  map[tool.ID]*tool.Tool
	keys  []string // of byKey, sorted

	resources       map[string]*tool.Tool // by plain URI (the first server's counts) and by the URI that names the server
	normal          map[string]*tool.Tool // by normalURI; the first of equivalent ones counts
	skills          skills
	directories     map[string]directories // of skills, by server; also of those that are left out
	templates       []*template            // in the order of servers and their lists
	templateCount   map[string]int         // number of templates of a server, also of those left out of templates
	resourceServers []string               // servers that have resources
	isHeld          func(tool.ID) bool     // reports whether a resource comes from a held template; nil: none is held

	byForms func() map[tool.ID][]*tool.Tool // listed resources and templates by their normal form in lower case; the key has no kind
}

// template is a resource template that URIs are matched against.
type template struct {
	*tool.Tool
	literal string // the text before its first expression
	matches func(uri string) bool
}

func newNonTools(contents Contents, prefix map[string]string, handler func(*tool.Def) tool.Handler) *nonTools {
	servers := contents.Servers
	o := &nonTools{
		servers:       servers,
		handler:       handler,
		items:         map[tool.Kind][]*tool.Tool{},
		byKey:         map[string]*tool.Tool{},
		byID:          map[tool.ID]*tool.Tool{},
		resources:     map[string]*tool.Tool{},
		normal:        map[string]*tool.Tool{},
		skills:        skills{},
		directories:   map[string]directories{},
		templateCount: map[string]int{},
	}
	var prompts []tool.ID
	listed := map[tool.ID]bool{}
	claims := map[tool.ID]int{} // number of servers that have it
	for i := range servers {
		for _, t := range servers[i].summarize().nonTools {
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
	for i := range servers { // before resources: those in a skill's directory are there only with the skill
		if s := &servers[i]; len(s.Skills) > 0 {
			o.directories[s.Name] = directoriesOf(s.Skills)
		}
		for _, brought := range servers[i].summarize().nonTools {
			if id := brought.Def.ID; id.Kind != tool.KindSkill || o.byID[id] != nil {
				continue
			}
			if t := o.skills.add(brought); t != nil {
				o.add(t, contents.hidden[brought.Def.ID])
			}
		}
	}
	names := namesFor(prompts, nil, prefix)
	for i := range servers {
		s := &servers[i]
		offers := rawjson.Member(s.Capabilities, "resources") != nil
		for _, brought := range s.summarize().nonTools {
			id := brought.Def.ID
			if id.Kind == tool.KindSkill || o.byID[id] != nil {
				continue
			}
			t := renamed(brought.With(tool.LayerNames, o.exposing(brought.Def)), names[id])
			if id.Kind != tool.KindPrompt {
				offers = true
				t.Name = exposedURI(id, claims[tool.ID{Name: id.Name, Kind: id.Kind}])
			}
			t.Name = cmp.Or(brought.Name, t.Name)
			if t, is := o.asSkillFile(t); is {
				o.add(t, contents.hidden[id])
			}
		}
		if offers {
			o.resourceServers = append(o.resourceServers, s.Name)
		}
	}
	slices.Sort(o.keys)
	o.byForms = sync.OnceValue(o.byForm)
	return o
}

func (o *nonTools) add(t *tool.Tool, hidden bool) {
	id := t.Def.ID
	key := index.Key(id.Kind, t.Name)
	o.byKey[key] = t
	o.byID[id] = t
	if !hidden {
		o.items[id.Kind] = append(o.items[id.Kind], t)
		if len(o.skillsAround(id)) == 0 { // else the skill is found
			o.keys = append(o.keys, key)
		}
	}
	switch id.Kind {
	case tool.KindResource:
		uris := []string{prefixedURI(id.Server, id.Name)}
		if _, _, prefixed := splitURI(id.Name); !prefixed { // else it could stand for a resource of another server
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
		if o.templateCount[id.Server]++; o.templateCount[id.Server] > maxMatched {
			return
		}
		literal, _, _ := strings.Cut(id.Name, "{")
		compiled := sync.OnceValue(func() func(string) bool { return matcher(id.Name) })
		o.templates = append(o.templates, &template{t, literal, func(uri string) bool { return compiled()(uri) }})
	}
}

// Bounds of matching, whose time grows with variables times bytes.
const (
	maxTemplate  = 512 // bytes
	maxVariables = 16  // of a template
	maxMatched   = 200 // templates of a server that are matched: the first ones
)

// A modifier like {id:3} bounds the length of a value. The library would compile a program of that length; which
// template a URI matches does not depend on it, so modifiers are removed.
var (
	expression = regexp.MustCompile(`\{[^{}]*\}`)
	modifier   = regexp.MustCompile(`:[0-9]+`)
)

// matcher returns a predicate for URIs that may come from a template. An invalid template matches nothing.
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

// templateOf returns the template that a URI comes from, of the named server or of any. The longest literal
// beginning counts, then the first template.
func (o *nonTools) templateOf(uri, server string) *template {
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

// Items returns all prompts, resources, templates or skills, in the order of the servers and their lists. Name is the
// exposed name, URI or template.
func (o *nonTools) Items(kind tool.Kind) []*tool.Tool { return o.items[kind] }

// Prompt finds a prompt by the name that clients see.
func (o *nonTools) Prompt(name string) (*tool.Tool, bool) {
	t, ok := o.byKey[index.Key(tool.KindPrompt, name)]
	return t, ok
}

// Resource finds a resource by a client's URI, compared in its normal form (RFC 3986, section 6.2). If several
// servers list the URI, the first counts. If none does, it belongs to the server with a matching template, else to
// the server that Unlisted selects; its Def then has only an ID. Reading, subscribing and completing all ask here.
func (o *nonTools) Resource(uri string) (*tool.Tool, bool) { return o.resource(uri, true) }

// Template finds the listed template that a client's URI comes from.
func (o *nonTools) Template(uri string) (*tool.Tool, bool) {
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
func (o *nonTools) TemplateOf(id tool.ID) (*tool.Tool, bool) {
	t := o.templateOf(id.Name, id.Server)
	if t == nil {
		return nil, false
	}
	return t.Tool, true
}

// resource is Resource. Only with guess may an unlisted URI belong to the only server that has resources.
func (o *nonTools) resource(uri string, guess bool) (*tool.Tool, bool) {
	if t, isSkill := o.skills.file(uri); isSkill {
		return t, t != nil
	}
	if t := o.listed(uri); t != nil {
		return t, true
	}
	id, ok := o.unlisted(uri, guess)
	if !ok {
		return nil, false
	}
	def := &tool.Def{ID: id}
	t := &tool.Tool{Name: uri, Def: def, Handler: o.handler(def)}
	return o.asSkillFile(t.With(tool.LayerNames, o.exposing(def)))
}

// asSkillFile returns a resource as it is, unless it is a file of a skill: then it is read and checked as that file. A
// file that no entry of a skill names is not found.
func (o *nonTools) asSkillFile(t *tool.Tool) (*tool.Tool, bool) {
	around := o.skillsAround(t.Def.ID)
	for _, id := range around {
		path, inside := strings.CutPrefix(t.Def.ID.Name, skillRoot(id.Name))
		if skill := o.byID[id]; skill != nil && inside {
			if file, _ := o.skills.file(skillRoot(skill.Name) + path); file != nil {
				return asResource(t, file), true
			}
		}
	}
	return t, len(around) == 0
}

// listed returns the listed resource of a URI; nil if none is.
func (o *nonTools) listed(uri string) *tool.Tool {
	if t := o.resources[uri]; t != nil {
		return t
	}
	return o.normal[normalURI(uri)]
}

// unlisted returns the ID of an unlisted resource; false if its URI must not be sent to any server.
func (o *nonTools) unlisted(uri string, guess bool) (id tool.ID, ok bool) {
	id = tool.ID{Name: uri, Kind: tool.KindResource}
	least := UnlistedOnly
	if server, own, named := splitSkillURI(uri); named && o.ofMissingSkill(tool.ID{Server: server, Name: own, Kind: tool.KindResource}) {
		return id, false
	}
	if server, own, named := splitURI(uri); named && o.server(server) != nil {
		id.Server, id.Name, least = server, own, UnlistedNamed
	}
	if t := o.templateOf(id.Name, id.Server); t != nil {
		id.Server, least = t.Def.ID.Server, UnlistedTemplate
	} else if only := o.resourceServers; id.Server == "" && guess && len(only) == 1 {
		id.Server = only[0]
	} else if id.Server == "" {
		return id, false
	}
	return id, o.server(id.Server).Unlisted <= least && !o.Excludes(id)
}

// Excludes reports whether the catalog leaves out a resource of a server, listed or not.
func (o *nonTools) Excludes(id tool.ID) bool {
	server := o.server(id.Server)
	return o.byID[id] == nil && (server == nil || o.ofMissingSkill(id) || server.Excluded != nil && server.Excluded(id) || o.isHeld != nil && o.isHeld(id))
}

// ofMissingSkill reports whether a server's resource lies in the directory of skills that the catalog does not have: a
// skill that is held, excluded or forbidden must not be read as resources.
func (o *nonTools) ofMissingSkill(id tool.ID) bool {
	around := o.skillsAround(id)
	return len(around) > 0 && !slices.ContainsFunc(around, func(skill tool.ID) bool { return o.byID[skill] != nil })
}

// skillsAround returns the skills of a server in whose directories a resource of it lies.
func (o *nonTools) skillsAround(id tool.ID) []tool.ID {
	if id.Kind != tool.KindResource {
		return nil
	}
	return o.directories[id.Server].around(id.Name)
}

// server returns the server of that name; nil if there is none.
func (o *nonTools) server(name string) *Server {
	if i := slices.IndexFunc(o.servers, func(s Server) bool { return s.Name == name }); i >= 0 {
		return &o.servers[i]
	}
	return nil
}

// Exposed returns the URI of a server's resource that clients know: its own, unless only the URI that names the
// server leads to it.
func (o *nonTools) Exposed(server, uri string) string {
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

// exposing replaces URIs in the contents of a resource by the URIs that clients know, if it is read by a URI other
// than its own. It is nil for prompts and templates.
func (o *nonTools) exposing(def *tool.Def) tool.Middleware {
	if def.ID.Kind != tool.KindResource {
		return nil
	}
	return func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			result, err := next(ctx, call)
			if err == nil && call.Name != def.ID.Name {
				result = withURIs(result, func(uri string) string { return o.Exposed(def.ID.Server, uri) })
			}
			return result, err
		}
	}
}

// CacheHint returns how long the list of a kind may be cached, and whether for everybody: the strictest hint of all
// servers that list the kind. A server without a hint counts as 5 s, not for everybody.
func (o *nonTools) CacheHint(kind tool.Kind) (ttl time.Duration, public bool) {
	all := CacheHint{Public: true}
	some := false
	for _, s := range o.servers {
		hint, said := s.Cache[kind]
		switch {
		case said: // of an empty list, too
		case !slices.ContainsFunc(s.Tools, func(t *tool.Tool) bool { return t.Def.ID.Kind == kind }):
			continue
		default:
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

func (o *nonTools) byForm() map[tool.ID][]*tool.Tool {
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
