package retrieve

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"toolfinch/index"
	"toolfinch/internal/nearest"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Catalog is an immutable set of tools, prompts and resources that can be found and called. With makes its
// successor. Its methods are safe for concurrent use.
type Catalog struct {
	*shared
	*nonTools
	contents Contents
	snapshot *index.Snapshot      // nil in an empty catalog
	among    func() *index.Subset // the part of the snapshot that this catalog may find; nil: all

	table
	apps
	names  []string        // exposed names of the tools that models are offered, sorted
	given  map[string]bool // names that views gave
	pinned []*tool.Tool
	held   *heldDefs // nil: nothing is held

	related map[string]*related // by server

	listing costOfAll
}

// shared is common to all catalogs that With makes from one another: the index, and results cached by content.
type shared struct {
	making sync.Mutex // guards latest; locked while a catalog is made
	latest *Catalog   // the catalog in the index; nil: none

	index   *index.Index
	costs   costs
	written written
	words   words
	schemas schemas
	told    told
}

// at returns the tool, prompt or resource with an index key.
func (c *Catalog) at(key string) *tool.Tool {
	if t := c.tools.get(key); t != nil {
		return t
	}
	return c.nonTools.byKey[key]
}

// keys returns the keys of everything in the index.
func (c *Catalog) keys() []string {
	if len(c.nonTools.keys) == 0 {
		return c.names
	}
	return slices.Concat(c.names, c.nonTools.keys)
}

// Recall gives the next With a stored index to reuse. If partly, a larger stored index follows.
func (k *shared) Recall(stored *index.Stored, partly bool) { k.index.Recall(stored, partly) }

// Segments returns the segments of the index.
func (k *shared) Segments() []index.Segment { return k.index.Segments() }

// fillRest makes the tables of prompts and resources, held definitions, and apps.
func (c *Catalog) fillRest(handler func(*tool.Def) tool.Handler) {
	c.nonTools = newNonTools(c.contents, prefixesOf(c.contents.Servers), handler)
	c.held = newHeldDefs(c.contents.Servers)
	c.nonTools.isHeld = func(id tool.ID) bool { return c.held.template(id) != nil }
	c.apps = newApps(c.contents.Servers, c.exact)
}

// offers reports whether models are offered a tool.
func (c *Catalog) offers(t *tool.Tool) bool {
	return !t.Def.App.NotModel && !c.contents.hidden[t.Def.ID]
}

// Globbed returns the tools that the configuration pins, in the order of its globs.
func (c *Catalog) Globbed() (pinned []*tool.Tool) {
	for _, glob := range c.contents.Pins {
		for _, name := range c.names {
			if t := c.tools.get(name); pins(glob, t) && !slices.Contains(pinned, t) {
				pinned = append(pinned, t)
			}
		}
	}
	return pinned
}

// pins returns the tools that are listed from the start: the pinned ones, then those of combined direct views.
func (c *Catalog) pins() []*tool.Tool {
	globbed := c.Globbed()
	if len(c.contents.listed) == 0 {
		return globbed
	}
	pinned := slices.Clip(globbed)
	for _, name := range c.names {
		if t := c.tools.get(name); c.contents.listed[name] && !slices.Contains(globbed, t) {
			pinned = append(pinned, t)
		}
	}
	return pinned
}

// pins reports whether a glob matches the tool's name or ID.
func pins(glob string, t *tool.Tool) bool {
	return matches(glob, t.Name) || matches(glob, t.Def.ID.String())
}

// matches reports whether the glob matches the whole name. A malformed glob matches nothing; the configuration
// refuses it.
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
	return Found{Hits: hits, Hybrid: found.Vectors, Confidence: found.Confidence, place: found.Place}, nil
}

// mentions reports whether a tool of the catalog mentions a thing.
func (c *Catalog) mentions(thing string, kinds []tool.Kind) (bool, error) {
	if c.snapshot == nil {
		return false, nil
	}
	var among *index.Subset
	if c.among != nil {
		among = c.among()
	}
	return c.snapshot.Mentions(thing, kinds, among)
}

// Close closes the index of all catalogs that share it. They find nothing afterwards.
func (c *Catalog) Close() error { return c.index.Close() }

// Lookup finds a tool by the name that clients see, or by its ShortName.
func (c *Catalog) Lookup(name string) (*tool.Tool, bool) {
	if t := c.tools.get(name); t != nil || len(name) > maxShort || len(name) < hashLength {
		return t, t != nil
	}
	begin := name[:len(name)-hashLength]
	for i, _ := slices.BinarySearch(c.names, begin); i < len(c.names) && strings.HasPrefix(c.names[i], begin); i++ {
		if t := c.tools.get(c.names[i]); len(t.Name) > maxShort && ShortName(t) == name {
			return t, true
		}
	}
	return nil, false
}

// Find finds a tool by the name that clients see, else by "server.name", else by
// "server:name".
func (c *Catalog) Find(name string) (*tool.Tool, error) {
	if t, ok := c.find(name); ok {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q%s", tool.ErrNotFound, name, c.held.because(name))
}

// ByID finds a tool by its ID, which never changes.
func (c *Catalog) ByID(id tool.ID) (*tool.Tool, bool) {
	t := c.exact.get(id)
	return t, t != nil
}

// Tools returns all tools that models are offered, sorted by exposed name.
func (c *Catalog) Tools() []*tool.Tool {
	tools := make([]*tool.Tool, len(c.names))
	for i, name := range c.names {
		tools[i] = c.tools.get(name)
	}
	return tools
}

// first returns the first n tools by name that satisfy passes, without scores, and the number of further ones.
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

// Pinned returns the tools that every client is listed from the start.
func (c *Catalog) Pinned() []*tool.Tool { return c.pinned }

// Servers returns the contents of the catalog by server.
func (c *Catalog) Servers() []Server { return c.contents.Servers }

// Nearest returns up to n exposed names similar to name.
func (c *Catalog) Nearest(name string, n int) []string {
	return nearest.Names(bare(name), c.names, n, nearest.Loose)
}

// HeldOf returns how many definitions of a server wait for approval. Rejected ones do not count.
func (c *Catalog) HeldOf(server string) int {
	if c.held == nil {
		return 0
	}
	return c.held.count[server]
}
