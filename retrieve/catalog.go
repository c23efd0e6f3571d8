// Package retrieve owns what can be found now, and the meta-tools that find,
// provision and call it. It reads no disk and dials nobody: definitions are
// given to it, calls go to the handlers it was given, and what is provisioned is
// kept by package register.
package retrieve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"toolfinch/index"
	"toolfinch/internal/nearest"
	"toolfinch/internal/schema"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Server is what one upstream contributes to the catalog. A tool with a name is
// exposed under that name; the catalog names the others.
type Server struct {
	Name         string
	Description  string
	Tools        []*tool.Tool            // of all kinds, of each in listed order; nil while never listed
	Prefix       *string                 // what exposed names begin with; nil for its name, "" for nothing
	Instructions string                  // its own instructions for use
	Capabilities json.RawMessage         // the object as the server sent it; nil while unknown
	Cache        map[tool.Kind]CacheHint // the hints that it gave with its lists
	// Excluded, if set, reports whether a resource that Tools does not list is left
	// out.
	Excluded func(id tool.ID) bool
	Unlisted Unlisted // which URIs that it does not list are sent to it
	Held     []Held   // what of it waits for approval

	has *has // of Tools, once a catalog looked
}

// Contents are what a Catalog is made of.
type Contents struct {
	Servers  []Server
	Reserved []string // names that meta-tools have
	Pins     []string // globs over exposed names and "server.name" of tools that are listed from the start

	listed map[string]bool  // names of further tools that are listed from the start
	hidden map[tool.ID]bool // may be called, and is neither listed nor found
	plain  map[string]bool  // names in Servers that another catalog made: they are not searched as given ones are
}

// Catalog is an immutable set of tools, prompts and resources that can be found and
// called. With makes another one. Its methods are safe for concurrent use.
type Catalog struct {
	*kept
	*others
	contents Contents
	snapshot *index.Snapshot      // nil of an empty catalog
	among    func() *index.Subset // what of the snapshot is in the catalog; nil: all

	table
	names  []string // exposed, of the tools that models are offered, sorted
	apps   apps
	given  map[string]bool // names that the views gave to tools
	pinned []*tool.Tool
	held   *withheld // nil while nothing is

	listing costOfAll
}

// kept is shared by all catalogs that With makes from one another: results that
// follow from definitions, by content.
type kept struct {
	making sync.Mutex // guards latest; held while a catalog is made
	latest *Catalog   // what is in the index; nil: nothing is

	index   *index.Index
	costs   costs
	written written
	words   words
	schemas schemas
}

// at returns the tool, prompt or resource that the index has under key.
func (c *Catalog) at(key string) *tool.Tool {
	if t := c.tools.get(key); t != nil {
		return t
	}
	return c.others.byKey[key]
}

// keys are those of everything in the index.
func (c *Catalog) keys() []string {
	if len(c.others.keys) == 0 {
		return c.names
	}
	return slices.Concat(c.names, c.others.keys)
}

// Hit is a tool, prompt, resource or template found, best first.
type Hit struct {
	*tool.Tool
	Score float64
	Why   *index.Explanation // nil unless asked for
}

// NewCatalog returns an empty catalog. handler makes the handler of a resource that
// is not listed. The caller closes it or one that was made from it.
func NewCatalog(handler func(*tool.Def) tool.Handler) *Catalog {
	return &Catalog{kept: &kept{index: index.New(), schemas: schemas{Cache: schema.NewCache()}}, others: &others{handler: handler}}
}

// With returns a catalog of other contents. It reuses what c has derived from
// definitions that did not change. Calls of With on catalogs that share an index
// wait for each other; Embed embeds the contents of the latest.
func (c *Catalog) With(ctx context.Context, contents Contents) (*Catalog, error) {
	c.making.Lock()
	defer c.making.Unlock()
	next := &Catalog{kept: c.kept, contents: contents}
	var err error
	if change, few := c.latest.changeTo(contents); few {
		next.take(c.latest, change)
		put, out := change.keys(c.latest, next)
		next.snapshot, err = c.index.Update(ctx, next.documents(put), out)
	} else {
		next.fill(c.handler)
		next.snapshot, err = c.index.Replace(ctx, next.documents(next.keys()))
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	c.latest = next
	most := 2*(len(next.names)+len(next.others.keys)) + len(contents.Servers)
	c.words.forget(most)
	c.schemas.forget(most)
	c.costs.hold(2 * most) // of a tool: the definition, two names, and what an answer has of it
	return next, nil
}

// Recall has the next With take over what is stored of its index. Partly says that one with
// much more follows.
func (k *kept) Recall(stored *index.Stored, partly bool) { k.index.Recall(stored, partly) }

// Segments returns what the index is made of now.
func (k *kept) Segments() []index.Segment { return k.index.Segments() }

// documents returns what is indexed under keys: each definition as clients see it, under
// the name that the view gives it.
func (c *Catalog) documents(keys []string) []index.Document {
	about := descriptions(c.contents.Servers)
	docs := make([]index.Document, len(keys))
	for i, name := range keys {
		def := c.at(name).Def.Full()
		if c.given[name] {
			renamed := *def
			renamed.ID.Name = name
			def = &renamed
		}
		docs[i] = index.Document{Name: name, Def: def, ServerDescription: about[def.ID.Server]}
	}
	return docs
}

func descriptions(servers []Server) map[string]string {
	about := make(map[string]string, len(servers))
	for _, s := range servers {
		about[s.Name] = s.Description
	}
	return about
}

// claims returns the IDs of tools without a name, the names of the others, and the
// prefixes of servers that have one.
func claims(servers []Server) (unnamed []tool.ID, given map[string]bool, prefix map[string]string) {
	given = map[string]bool{}
	for _, s := range servers {
		for _, t := range s.Tools {
			switch {
			case t.Def.ID.Kind != tool.KindTool:
			case t.Name != "":
				given[t.Name] = true
			default:
				unnamed = append(unnamed, t.Def.ID)
			}
		}
	}
	return unnamed, given, prefixesOf(servers)
}

// prefixesOf are those of the servers that have one.
func prefixesOf(servers []Server) map[string]string {
	prefix := map[string]string{}
	for _, s := range servers {
		if s.Prefix != nil {
			prefix[s.Name] = *s.Prefix
		}
	}
	return prefix
}

// Clash is a configured name that displaces another tool's default name, and the ID
// of that other tool.
type Clash struct {
	Name string
	ID   tool.ID
}

// Clashes returns the configured names, and the names of meta-tools, that displace
// the default names of other tools.
func Clashes(servers []Server, meta ...string) []Clash {
	named := slices.ContainsFunc(meta, func(name string) bool { return name != "" })
	for i := range servers {
		named = servers[i].look().named || named
	}
	if !named {
		return nil
	}
	unnamed, given, prefix := claims(servers)
	for _, name := range meta {
		if name != "" {
			given[name] = true
		}
	}
	var clashes []Clash
	names, _ := namesOf(unnamed, nil, prefix)
	for i, name := range names {
		if given[name] {
			clashes = append(clashes, Clash{name, unnamed[i]})
		}
	}
	return clashes
}

// fill makes the tables of the catalog from its contents.
func (c *Catalog) fill(handler func(*tool.Def) tool.Handler) {
	_, given, _ := claims(c.contents.Servers)
	c.table, c.given = newTable(c.contents.Servers, c.contents.Reserved), given
	maps.DeleteFunc(given, func(name string, _ bool) bool { return c.contents.plain[name] })
	c.fillRest(handler)
	for name, t := range c.tools.all {
		if c.offers(t) {
			c.names = append(c.names, name)
		}
	}
	slices.Sort(c.names)
	c.pinned = c.pins()
}

// fillRest makes the tables of what is no tool, is held, or is for apps.
func (c *Catalog) fillRest(handler func(*tool.Def) tool.Handler) {
	c.others = newOthers(c.contents, prefixesOf(c.contents.Servers), handler)
	c.held = newWithheld(c.contents.Servers)
	c.others.held = c.held
	c.apps = newApps(c.contents.Servers, c.exact)
}

// offers reports whether a tool is offered to models.
func (c *Catalog) offers(t *tool.Tool) bool {
	return !t.Def.App.NotModel && !c.contents.hidden[t.Def.ID]
}

// pins returns the tools that are listed from the start, in the order of the globs.
func (c *Catalog) pins() (pinned []*tool.Tool) {
	for _, glob := range c.contents.Pins {
		for _, name := range c.names {
			if t := c.tools.get(name); pins(glob, t) && !slices.Contains(pinned, t) {
				pinned = append(pinned, t)
			}
		}
	}
	if len(c.contents.listed) == 0 {
		return pinned
	}
	globbed := pinned
	for _, name := range c.names {
		if t := c.tools.get(name); c.contents.listed[name] && !slices.Contains(globbed, t) {
			pinned = append(pinned, t)
		}
	}
	return pinned
}

// pins reports whether a glob is for the tool.
func pins(glob string, t *tool.Tool) bool {
	return matches(glob, t.Name) || matches(glob, t.Def.ID.String())
}

// matches reports whether the glob matches the whole name. A bad glob, which
// the configuration refuses, matches nothing.
func matches(glob, name string) bool {
	// path.Match keeps "*" from crossing "/", which is no separator here.
	ok, err := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// Search returns the best hits, at most q.Limit.
func (c *Catalog) Search(ctx context.Context, q index.Query) (Found, error) {
	if c.snapshot == nil {
		return Found{}, nil
	}
	if c.among != nil {
		q.Among = c.among()
	}
	ctx, searched := telemetry.Start(ctx, telemetry.StageSearch, "")
	found, err := c.snapshot.Search(ctx, q)
	searched(err)
	if err != nil {
		return Found{}, fmt.Errorf("search: %w", err)
	}
	hits := make([]Hit, len(found.Hits))
	for i, hit := range found.Hits {
		hits[i] = Hit{c.at(hit.Name), hit.Score, hit.Why}
	}
	return Found{Hits: hits, Hybrid: found.Vectors, Confidence: found.Confidence}, nil
}

// Close closes the index of the catalog and of all that share it. They find nothing
// afterwards.
func (c *Catalog) Close() error { return c.index.Close() }

// Lookup finds a tool by the name that clients see.
func (c *Catalog) Lookup(name string) (*tool.Tool, bool) {
	t := c.tools.get(name)
	return t, t != nil
}

// Find finds a tool by the name that clients see, else by "server.name", else by
// "server:name".
func (c *Catalog) Find(name string) (*tool.Tool, error) {
	if t, ok := c.find(name); ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q%s", tool.ErrNotFound, name, c.held.because(name))
}

// ByID finds a tool by its ID, which stays the same when its name changes.
func (c *Catalog) ByID(id tool.ID) (*tool.Tool, bool) {
	t := c.exact.get(id)
	return t, t != nil
}

// Tools returns all tools that are offered to models, sorted by exposed name.
func (c *Catalog) Tools() []*tool.Tool {
	tools := make([]*tool.Tool, len(c.names))
	for i, name := range c.names {
		tools[i] = c.tools.get(name)
	}
	return tools
}

// first returns the first n tools by name that satisfy passes, without scores, and
// how many more there are.
func (c *Catalog) first(n int, passes func(*tool.Tool) bool) (hits []Hit, more int) {
	for _, name := range c.names {
		switch t := c.tools.get(name); {
		case !passes(t):
		case len(hits) < n:
			hits = append(hits, Hit{Tool: t})
		default:
			more++
		}
	}
	return hits, more
}

// Len is the number of tools.
func (c *Catalog) Len() int { return len(c.names) }

// Pinned returns the tools that are listed to every client from the start.
func (c *Catalog) Pinned() []*tool.Tool { return c.pinned }

// Servers returns the contents of the catalog by server.
func (c *Catalog) Servers() []Server { return c.contents.Servers }

// Nearest returns up to n exposed names that look most like name.
func (c *Catalog) Nearest(name string, n int) []string {
	return nearest.Names(name, c.names, n, nearest.Loose)
}
