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
	"sync/atomic"

	"toolfinch/index"
	"toolfinch/nearest"
	"toolfinch/register"
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
	// Excluded, if set, reports whether a resource that the server has is left out
	// here, listed or not.
	Excluded func(id tool.ID) bool
}

// Catalog is the set of tools, prompts and resources that can be found and
// called now. It is what a register.Live serves. Its methods
// are safe for concurrent use; Swap is for one caller at a time.
type Catalog struct {
	handler  func(*tool.Def) tool.Handler
	reserved []string // this and pins are Swap's own
	pins     []string

	mu    sync.RWMutex // guards state and index; read-held during a search, never over other I/O
	state state
	index *index.Index

	costs   costs
	words   words
	version atomic.Int64 // counts swaps
	listing atomic.Int64 // tokens of all definitions, -1 while not counted
}

// state is replaced, never edited.
type state struct {
	servers []Server
	tools   map[string]*tool.Tool // by exposed name
	ids     map[string]*tool.Tool // by "server.name"
	byID    map[tool.ID]*tool.Tool
	names   []string        // exposed, sorted
	given   map[string]bool // names that tools came with
	pinned  []*tool.Tool
	others  others
}

// at returns what is in the index under key.
func (s state) at(key string) *tool.Tool {
	if t := s.tools[key]; t != nil {
		return t
	}
	return s.others.byKey[key]
}

// keys are those of everything in the index.
func (s state) keys() []string {
	if len(s.others.keys) == 0 {
		return s.names
	}
	return slices.Concat(s.names, s.others.keys)
}

// Hit is a tool, prompt, resource or template found, best first.
type Hit struct {
	*tool.Tool
	Score float64
	Why   *index.Explanation // nil unless asked for
}

// NewCatalog returns an empty catalog. handler makes the handler of a resource
// that is not listed; for the rest see Arrange.
func NewCatalog(handler func(*tool.Def) tool.Handler, reserved, pins []string) *Catalog {
	c := &Catalog{handler: handler}
	c.Arrange(reserved, pins)
	c.listing.Store(-1)
	return c
}

// Arrange says, for the Swaps to come, which names are taken by meta-tools, and
// the globs, over exposed names and "server.name", of the tools listed from the
// start. It is for the caller of Swap.
func (c *Catalog) Arrange(reserved, pins []string) { c.reserved, c.pins = reserved, pins }

// Swap makes servers the content of the catalog. Tools that did not change
// keep their place in the index; an error leaves the catalog as it was.
func (c *Catalog) Swap(ctx context.Context, servers []Server) error {
	next := c.build(servers)
	c.mu.RLock()
	before, ix := c.state, c.index
	c.mu.RUnlock()

	var changed []index.Document
	var removed []string
	about := descriptions(servers)
	aboutBefore := descriptions(before.servers)
	for _, name := range next.keys() {
		t, old := next.at(name), before.at(name)
		if old == nil || old.Def.ID != t.Def.ID || old.Def.Hash != t.Def.Hash || about[t.Def.ID.Server] != aboutBefore[t.Def.ID.Server] {
			changed = append(changed, next.document(name, about))
		}
	}
	for _, name := range before.keys() {
		if next.at(name) == nil {
			removed = append(removed, name)
		}
	}
	var outdated *index.Index
	var err error
	switch {
	case ix == nil:
		ix, err = index.Build(ctx, changed)
	case len(changed) > rebuildFrom*ix.Len():
		outdated = ix
		ix, err = index.Build(ctx, documents(next, about))
	case len(changed)+len(removed) > 0:
		err = ix.Apply(ctx, changed, removed)
	}
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	c.mu.Lock()
	c.state, c.index = next, ix
	c.mu.Unlock()
	c.words.forget(2*len(next.keys()) + len(servers))
	c.version.Add(1)
	c.listing.Store(-1)
	if outdated != nil { // no search has it any more: they hold the lock
		return outdated.Close()
	}
	return nil
}

// rebuildFrom is how many times more tools than there are make a new index
// faster than a change of the old one: it is built on all processors.
const rebuildFrom = 4

func documents(s state, about map[string]string) []index.Document {
	keys := s.keys()
	docs := make([]index.Document, len(keys))
	for i, name := range keys {
		docs[i] = s.document(name, about)
	}
	return docs
}

// document is what is indexed of a tool: what clients see of it, its name too
// where it was given one.
func (s state) document(name string, about map[string]string) index.Document {
	def := s.at(name).Def
	if s.given[name] {
		renamed := *def
		renamed.ID.Name = name
		def = &renamed
	}
	return index.Document{Name: name, Def: def, ServerDescription: about[def.ID.Server]}
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

// Clashes returns the names that tools come with and that others would have had
// without being given any: those get another one.
func Clashes(servers []Server) []Clash {
	unnamed, given, prefix := claims(servers)
	if len(given) == 0 {
		return nil
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

func (c *Catalog) build(servers []Server) state {
	ids, given, prefix := claims(servers)
	names := register.Names(ids, slices.AppendSeq(slices.Clone(c.reserved), maps.Keys(given)), prefix)
	next := state{
		servers: slices.Clone(servers),
		tools:   make(map[string]*tool.Tool, len(ids)+len(given)),
		ids:     make(map[string]*tool.Tool, len(ids)+len(given)),
		byID:    make(map[tool.ID]*tool.Tool, len(ids)+len(given)),
		given:   given,
		others:  newOthers(servers, prefix, c.exposing),
	}
	for _, s := range servers {
		for _, t := range s.Tools {
			if t.Def.ID.Kind != tool.KindTool {
				continue
			}
			if t.Name == "" {
				t = &tool.Tool{Name: names[t.Def.ID], Def: t.Def, Handler: t.Handler}
			}
			next.tools[t.Name] = t
			next.ids[t.Def.ID.String()] = t
			next.byID[t.Def.ID] = t
		}
	}
	next.names = slices.Sorted(maps.Keys(next.tools))
	for _, glob := range c.pins {
		for _, name := range next.names {
			t := next.tools[name]
			if (matches(glob, name) || matches(glob, t.Def.ID.String())) && !slices.Contains(next.pinned, t) {
				next.pinned = append(next.pinned, t)
			}
		}
	}
	return next
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
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.index == nil {
		return Found{}, nil
	}
	found, err := c.index.Search(ctx, q)
	if err != nil {
		return Found{}, fmt.Errorf("search: %w", err)
	}
	hits := make([]Hit, 0, len(found.Hits))
	for _, hit := range found.Hits {
		// The index runs ahead of the state while Swap is under way.
		if t := c.state.at(hit.Name); t != nil {
			hits = append(hits, Hit{t, hit.Score, hit.Why})
		}
	}
	return Found{Hits: hits, Hybrid: found.Vectors, Confidence: found.Confidence}, nil
}

// Close ends the index. The catalog finds nothing afterwards.
func (c *Catalog) Close() error {
	c.mu.Lock()
	ix := c.index
	c.index, c.state = nil, state{}
	c.mu.Unlock()
	if ix == nil {
		return nil
	}
	return ix.Close()
}

func (c *Catalog) now() state {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.state
}

// Lookup finds a tool by the name clients see.
func (c *Catalog) Lookup(name string) (*tool.Tool, bool) {
	t, ok := c.now().tools[name]
	return t, ok
}

// Find finds a tool by the name clients see or by "server.name".
func (c *Catalog) Find(name string) (*tool.Tool, error) {
	now := c.now()
	if t, ok := now.tools[name]; ok {
		return t, nil
	}
	if t, ok := now.ids[name]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q", tool.ErrNotFound, name)
}

// ByID finds a tool by its ID, which stays when what clients call it changes.
func (c *Catalog) ByID(id tool.ID) (*tool.Tool, bool) {
	t, ok := c.now().byID[id]
	return t, ok
}

// Tools returns all tools, sorted by exposed name.
func (c *Catalog) Tools() []*tool.Tool {
	now := c.now()
	tools := make([]*tool.Tool, len(now.names))
	for i, name := range now.names {
		tools[i] = now.tools[name]
	}
	return tools
}

// Len is the number of tools.
func (c *Catalog) Len() int { return len(c.now().names) }

// Pinned returns the tools that every client is listed from the start.
func (c *Catalog) Pinned() []*tool.Tool { return c.now().pinned }

// Servers returns what the catalog was made of.
func (c *Catalog) Servers() []Server { return c.now().servers }

// Nearest returns up to n exposed names that look most like name.
func (c *Catalog) Nearest(name string, n int) []string {
	return nearest.Names(name, c.now().names, n, nearest.Loose)
}
