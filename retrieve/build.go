package retrieve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"toolfinch/index"
	"toolfinch/internal/schema"
	"toolfinch/tool"
)

// NewCatalog returns an empty catalog. handler makes the handler of an unlisted resource. The caller closes the
// catalog or a successor.
func NewCatalog(handler func(*tool.Def) tool.Handler) *Catalog {
	return &Catalog{shared: &shared{index: index.New(), schemas: schemas{Cache: schema.NewCache()}}, nonTools: &nonTools{handler: handler}}
}

// With returns a catalog with other contents. It reuses what is cached for unchanged definitions. Calls of With on
// catalogs that share an index wait for each other; Embed embeds the contents of the latest.
func (c *Catalog) With(ctx context.Context, contents Contents) (*Catalog, error) {
	c.making.Lock()
	defer c.making.Unlock()
	next := &Catalog{shared: c.shared, contents: contents}
	var err error
	if change, few := c.latest.deltaTo(contents); few {
		next.apply(c.latest, change)
		put, out := change.keys(c.latest, next)
		next.snapshot, err = c.index.Update(ctx, next.documents(put), out)
	} else {
		next.fill(c.handler)
		next.snapshot, err = c.index.Replace(ctx, next.documents(next.keys()))
	}
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	next.relate(c.latest)
	c.latest = next
	most := 2*(len(next.names)+len(next.nonTools.keys)) + len(contents.Servers)
	c.words.forget(most)
	c.schemas.forget(most)
	c.costs.reserve(2 * most) // for each tool: its definition, two names, and its text in an answer
	return next, nil
}

// documents returns the documents of these keys, as clients see the definitions: under the names that views give.
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
		docs[i] = index.Document{Name: name, Def: def, ServerDescription: aboutOf(def, about[def.ID.Server])}
	}
	return docs
}

// aboutOf adds the groups of a definition to the description of its server.
func aboutOf(def *tool.Def, server string) string {
	if def.Group == "" {
		return server
	}
	return strings.TrimPrefix(server+"\n"+def.Group, "\n")
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
