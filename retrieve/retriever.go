// Package retrieve owns what can be found now, and the meta-tools that find, provision and call it. It reads no disk and
// dials nobody: it is given definitions and their handlers. Package gate keeps the provisioned tools.
package retrieve

import (
	"context"
	"time"

	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// Settings of a Retriever.
type Settings struct {
	TopK int // tools in an answer when the query names no limit; default DefaultLimit
	// Register registers the tools of an answer for the client that made the call.
	Register func(ctx context.Context, call *tool.Call, tools []*tool.Tool) Registration
	// Used, if set, hears of tools that are called through a meta-tool. It must not block.
	Used func(call *tool.Call, t *tool.Tool)
	// Health, if set, is asked for every answer and must not block.
	Health func() Health
	// Vectors gives queries their vectors; default a QueryVectors of its own.
	Vectors *QueryVectors
	// QueryTimeout bounds the wait for the vectors of a query; default
	// DefaultQueryTimeout.
	QueryTimeout time.Duration
	// Misfit, if set, hears the dimension of a query's vectors when those of the
	// tools have another one. It must not block.
	Misfit func(dim int)
	// Memory, if set, learns from use and is asked for what it learned.
	Memory *Memory
	// Validate reports whether call_tool checks arguments for a server's tools.
	Validate func(server string) bool
	// Refused, if set, hears of a call that is not made, and why: of one of name, which
	// nothing has (t is nil then), or of t.
	Refused func(ctx context.Context, call *tool.Call, name string, t *tool.Tool, reason error)
	// Unchecked, if set, hears once of a tool whose arguments could not be checked
	// against its input schema, and why. It must not block.
	Unchecked func(id tool.ID, err error)
	// Gate is where clients provision tools before they call them; nil: every tool
	// can be called.
	Gate *gate.Gate
	// Offer is what MetaTools returns. The zero value is for views whose clients find
	// tools by others.
	Offer Offer
	// Offers reports whether clients have the meta-tool of a name, listed or not.
	Offers func(name string) bool
	// PlainSearch has SearchTools find tools as a list of name, description and parameters.
	PlainSearch bool
	// SearchTool is the name of the meta-tool that answers send clients to when a
	// tool is unknown; default RetrieveTools, with a Gate DiscoverTools.
	SearchTool string
}

// Registration is what a client is listed once tools were found for it.
type Registration struct {
	Names map[string]bool // by name: registered
	// Relisted says that the client has asked for its list since, so that its model
	// has the definitions.
	Relisted bool
}

// Retriever answers the meta-tools over a catalog: it searches, calls, discovers and
// provisions, each with a part of its own, and writes the answers.
type Retriever struct {
	*searcher
	*caller
	*provisioner
	catalog  *Catalog
	settings Settings
}

// New makes a Retriever.
func New(catalog *Catalog, settings Settings) *Retriever {
	if settings.TopK == 0 {
		settings.TopK = DefaultLimit
	}
	if settings.QueryTimeout == 0 {
		settings.QueryTimeout = DefaultQueryTimeout
	}
	if settings.Vectors == nil {
		settings.Vectors = &QueryVectors{}
	}
	if settings.SearchTool == "" {
		settings.SearchTool = RetrieveTools
	}
	if settings.Gate != nil && settings.SearchTool == RetrieveTools {
		settings.SearchTool = DiscoverTools // the other is not listed then
	}
	search := &searcher{
		catalog: catalog, memory: settings.Memory, vectors: settings.Vectors,
		timeout: settings.QueryTimeout, misfit: settings.Misfit, health: settings.Health,
	}
	return &Retriever{
		searcher:    search,
		caller:      &caller{catalog, settings.Gate, settings.Validate, settings.Unchecked, settings.Refused, settings.Used, settings.SearchTool, search.absent, settings.Offers},
		provisioner: &provisioner{search, catalog, settings.Gate, settings.TopK},
		catalog:     catalog,
		settings:    settings,
	}
}
