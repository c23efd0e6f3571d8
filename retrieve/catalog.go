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
	"sync/atomic"

	"toolfinch/index"
	"toolfinch/nearest"
	"toolfinch/register"
	"toolfinch/schema"
	"toolfinch/tool"
)

// Server is what one upstream brings to the catalog. A tool with a name is
// exposed under it; the others are named here.
type Server struct {
	Name         string
	Description  string
	Tools        []*tool.Tool            // of all kinds, of each in listed order; nil while never listed
	Prefix       *string                 // what exposed names begin with; nil for its name, "" for nothing
	Instructions string                  // how to use it, by its own word
	Capabilities json.RawMessage         // the object as the server sent it; nil while unknown
	Cache        map[tool.Kind]CacheHint // what it said of its lists
	// Excluded, if set, reports whether a resource that is not among Tools is left out
	// here.
	Excluded func(id tool.ID) bool
	Unlisted Unlisted // which URIs that it does not list are sent to it
}

// Contents are what a Catalog is made of.
type Contents struct {
	Servers  []Server
	Reserved []string // names that meta-tools have
	Pins     []string // globs over exposed names and "server.name" of tools that are listed from the start
}

// Catalog is a set of tools, prompts and resources that can be found and called. It
// never changes: With returns another one. Its methods are safe for concurrent use.
type Catalog struct {
	*kept
	*others
	contents Contents
	snapshot *index.Snapshot // nil of an empty catalog

	tools  map[string]*tool.Tool // by exposed name
	ids    map[string]*tool.Tool // by "server.name"
	byID   map[tool.ID]*tool.Tool
	names  []string // exposed, of the tools that models are offered, sorted
	apps   apps
	given  map[string]bool // names that tools came with
	pinned []*tool.Tool

	listing atomic.Int64 // tokens of all definitions, -1 while not counted
}

// kept is what a catalog shares with those that were made from it, and they with
// it: what was worked out from definitions, by their content.
type kept struct {
	index   *index.Index
	costs   costs
	words   words
	schemas schemas
}

// at returns what is in the index under key.
func (c *Catalog) at(key string) *tool.Tool {
	if t := c.tools[key]; t != nil {
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
	c := &Catalog{kept: &kept{index: index.New(), schemas: schemas{Cache: schema.NewCache()}}, others: &others{handler: handler}}
	c.listing.Store(-1)
	return c
}

// With returns a catalog of other contents, whatever those of c are. What was worked
// out from definitions that did not change is taken over. Calls of With of one
// family of catalogs wait for each other; the latest has what Embed embeds.
func (c *Catalog) With(ctx context.Context, contents Contents) (*Catalog, error) {
	next := &Catalog{kept: c.kept, contents: contents}
	next.listing.Store(-1)
	next.fill(c.handler)
	var err error
	if next.snapshot, err = c.index.Replace(ctx, next.documents()); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	most := 2*len(next.keys()) + len(contents.Servers)
	c.words.forget(most)
	c.schemas.forget(most)
	return next, nil
}

// documents are what is indexed: what clients see of each, its name too where it
// was given one.
func (c *Catalog) documents() []index.Document {
	about := descriptions(c.contents.Servers)
	keys := c.keys()
	docs := make([]index.Document, len(keys))
	for i, name := range keys {
		def := c.at(name).Def
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

// claims are the IDs of tools without a name, the names that others came with,
// and the prefixes of servers that have one.
func claims(servers []Server) (unnamed []tool.ID, given map[string]bool, prefix map[string]string) {
	given, prefix = map[string]bool{}, map[string]string{}
	for _, s := range servers {
		if s.Prefix != nil {
			prefix[s.Name] = *s.Prefix
		}
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
	return unnamed, given, prefix
}

// Clash is a name that a tool was given, and the tool that would have had it.
type Clash struct {
	Name string
	ID   tool.ID
}

// Clashes returns the names that tools come with, and those of meta-tools, that
// others would have had without being given any: those get another one.
func Clashes(servers []Server, meta ...string) []Clash {
	unnamed, given, prefix := claims(servers)
	for _, name := range meta {
		given[name] = true
	}
	var clashes []Clash
	names := register.Names(unnamed, nil, prefix)
	for _, id := range unnamed {
		if given[names[id]] {
			clashes = append(clashes, Clash{names[id], id})
		}
	}
	return clashes
}

// fill makes the tables of the catalog from its contents.
func (c *Catalog) fill(handler func(*tool.Def) tool.Handler) {
	servers := c.contents.Servers
	ids, given, prefix := claims(servers)
	names := register.Names(ids, slices.AppendSeq(slices.Clone(c.contents.Reserved), maps.Keys(given)), prefix)
	c.tools = make(map[string]*tool.Tool, len(ids)+len(given))
	c.ids = make(map[string]*tool.Tool, len(ids)+len(given))
	c.byID = make(map[tool.ID]*tool.Tool, len(ids)+len(given))
	c.given = given
	c.others = newOthers(servers, prefix, handler)
	for _, s := range servers {
		for _, t := range s.Tools {
			if t.Def.ID.Kind != tool.KindTool {
				continue
			}
			if t.Name == "" {
				t = &tool.Tool{Name: names[t.Def.ID], Def: t.Def, Handler: t.Handler}
			}
			c.tools[t.Name] = t
			c.ids[t.Def.ID.String()] = t
			c.byID[t.Def.ID] = t
		}
	}
	for name, t := range c.tools {
		if !t.Def.App.NotModel {
			c.names = append(c.names, name)
		}
	}
	slices.Sort(c.names)
	c.apps = newApps(c.contents.Servers, c.byID)
	for _, glob := range c.contents.Pins {
		for _, name := range c.names {
			t := c.tools[name]
			if (matches(glob, name) || matches(glob, t.Def.ID.String())) && !slices.Contains(c.pinned, t) {
				c.pinned = append(c.pinned, t)
			}
		}
	}
}

// matches reports whether the glob matches the whole name. A bad glob, which
// the configuration refuses, matches nothing.
func matches(glob, name string) bool {
	// path.Match keeps "*" from crossing "/", which is no separator here.
	ok, err := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// Search returns what fits the query best, at most q.Limit.
func (c *Catalog) Search(ctx context.Context, q index.Query) (Found, error) {
	if c.snapshot == nil {
		return Found{}, nil
	}
	found, err := c.snapshot.Search(ctx, q)
	if err != nil {
		return Found{}, fmt.Errorf("search: %w", err)
	}
	hits := make([]Hit, len(found.Hits))
	for i, hit := range found.Hits {
		hits[i] = Hit{c.at(hit.Name), hit.Score, hit.Why}
	}
	return Found{Hits: hits, Hybrid: found.Vectors, Confidence: found.Confidence}, nil
}

// Close ends the index of the catalog and of all that were made from it: they find
// nothing any more.
func (c *Catalog) Close() error { return c.index.Close() }

// Lookup finds a tool by the name clients see.
func (c *Catalog) Lookup(name string) (*tool.Tool, bool) {
	t, ok := c.tools[name]
	return t, ok
}

// Find finds a tool by the name clients see or by "server.name".
func (c *Catalog) Find(name string) (*tool.Tool, error) {
	if t, ok := c.tools[name]; ok {
		return t, nil
	}
	if t, ok := c.ids[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q", tool.ErrNotFound, name)
}

// ByID finds a tool by its ID, which stays when what clients call it changes.
func (c *Catalog) ByID(id tool.ID) (*tool.Tool, bool) {
	t, ok := c.byID[id]
	return t, ok
}

// Tools returns all tools that models are offered, sorted by exposed name.
func (c *Catalog) Tools() []*tool.Tool {
	tools := make([]*tool.Tool, len(c.names))
	for i, name := range c.names {
		tools[i] = c.tools[name]
	}
	return tools
}

// Len is the number of tools.
func (c *Catalog) Len() int { return len(c.names) }

// Pinned returns the tools that every client is listed from the start.
func (c *Catalog) Pinned() []*tool.Tool { return c.pinned }

// Servers returns what the catalog was made of.
func (c *Catalog) Servers() []Server { return c.contents.Servers }

// Nearest returns up to n exposed names that look most like name.
func (c *Catalog) Nearest(name string, n int) []string {
	return nearest.Names(name, c.names, n, nearest.Loose)
}
