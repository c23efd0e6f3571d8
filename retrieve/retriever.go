// Package retrieve owns the search for tools and the meta-tools that find, provision and call them. It reads no
// disk and dials nobody: it is given definitions and their handlers. Package gate keeps the provisioned tools.
package retrieve

import (
	"cmp"
	"context"
	"time"

	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// Settings of a Retriever.
type Settings struct {
	TopK int // tools in an answer, if the query names no limit; default DefaultLimit
	// Register registers the tools of an answer for the client that made the call; best are those that each
	// query most likely means.
	Register func(ctx context.Context, call *tool.Call, tools, best []*tool.Tool) Registration
	// Used, if set, is told of each tool that a meta-tool calls. It must not block.
	Used func(call *tool.Call, t *tool.Tool)
	// Health, if set, is asked for every answer and must not block.
	Health func() Health
	// Vectors gives queries their vectors; default a QueryVectors of its own.
	Vectors *QueryVectors
	// QueryTimeout bounds the wait for the vectors of a query; default DefaultQueryTimeout.
	QueryTimeout time.Duration
	// Misfit, if set, is told the dimension of a query's vectors if it differs from the tools' dimension. It must
	// not block.
	Misfit func(dim int)
	// Memory, if set, learns from use and raises tools that were used after similar queries.
	Memory *Memory
	// Validate reports whether call_tool checks arguments for a server's tools.
	Validate func(server string) bool
	// Refused, if set, is told of each refused call and the reason. If no tool has the name, t is nil.
	Refused func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error)
	// Unchecked, if set, is told once of a tool whose input schema cannot be used to check arguments. It must not
	// block.
	Unchecked func(id tool.ID, err error)
	// Gate is where clients provision tools before they call them; nil: every tool
	// can be called.
	Gate *gate.Gate
	// Offer selects the meta-tools that MetaTools returns. The zero value offers none.
	Offer Offer
	// MetaTool returns the meta-tool of a name that clients have, listed or not; nil for none.
	MetaTool func(name string) *tool.Tool
	// PlainSearch makes SearchTools answer a list of name, description and parameters.
	PlainSearch bool
	// SearchTool is the meta-tool that errors name for an unknown tool; default RetrieveTools, with a Gate
	// DiscoverTools.
	SearchTool string
}

// Registration says which found tools a client has in its list.
type Registration struct {
	Names map[string]bool // by tool name; true: registered
	// Relisted says that the client has asked for its list since, so its model has the definitions.
	Relisted bool
}

// Retriever answers the meta-tools over a catalog. Search, calls and provisioning each have an embedded type.
type Retriever struct {
	*searcher
	*caller
	*provisioner
	catalog  *Catalog
	settings Settings
}

// New makes a Retriever.
func New(catalog *Catalog, settings Settings) *Retriever {
	settings.TopK = cmp.Or(settings.TopK, DefaultLimit)
	settings.QueryTimeout = cmp.Or(settings.QueryTimeout, DefaultQueryTimeout)
	if settings.Vectors == nil {
		settings.Vectors = &QueryVectors{}
	}
	settings.SearchTool = cmp.Or(settings.SearchTool, RetrieveTools)
	if settings.Gate != nil && settings.SearchTool == RetrieveTools {
		settings.SearchTool = DiscoverTools // a gated view does not list RetrieveTools
	}
	search := &searcher{
		catalog: catalog, memory: settings.Memory, vectors: settings.Vectors,
		timeout: settings.QueryTimeout, misfit: settings.Misfit, health: settings.Health,
	}
	return &Retriever{
		searcher:    search,
		caller:      &caller{catalog, settings.Gate, settings.Validate, settings.Unchecked, settings.Refused, settings.Used, settings.SearchTool, search.absent, settings.MetaTool},
		provisioner: &provisioner{search, catalog, settings.Gate, settings.TopK},
		catalog:     catalog,
		settings:    settings,
	}
}

// provisioner discovers tools and, in a gated view, provisions them.
type provisioner struct {
	search  *searcher
	catalog *Catalog
	gate    *gate.Gate // nil: every tool can be called
	topK    int
}
