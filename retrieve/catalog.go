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

// Catalog is an immutable set of tools, prompts and resources that can be found and
// called. With makes another one. Its methods are safe for concurrent use.
type Catalog struct {
	*kept
	*others
	contents Contents
	snapshot *index.Snapshot      // nil of an empty catalog
	among    func() *index.Subset // what of the snapshot is in the catalog; nil: all

	table
	apps
	names  []string        // exposed, of the tools that models are offered, sorted
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

// Recall has the next With take over what is stored of its index. Partly says that one with
// much more follows.
func (k *kept) Recall(stored *index.Stored, partly bool) { k.index.Recall(stored, partly) }

// Segments returns what the index is made of now.
func (k *kept) Segments() []index.Segment { return k.index.Segments() }

// fillRest makes the tables of what is no tool, is held, or is for apps.
func (c *Catalog) fillRest(handler func(*tool.Def) tool.Handler) {
	c.others = newOthers(c.contents, prefixesOf(c.contents.Servers), handler)
	c.held = newWithheld(c.contents.Servers)
	c.others.isHeld = func(id tool.ID) bool { return c.held.template(id) != nil }
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

// HeldOf returns how many definitions of a server are held and were not rejected.
func (c *Catalog) HeldOf(server string) int {
	if c.held == nil {
		return 0
	}
	return c.held.count[server]
}
