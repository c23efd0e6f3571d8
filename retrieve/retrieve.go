package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"toolfinch/index"
	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

// Bounds of retrieve_tools' limit, and its default.
const (
	DefaultLimit = 5
	MaxLimit     = 50
)

// Health counts the upstreams by their state.
type Health struct {
	Ready, Pending, Failed int
	Absent                 []Absent // those that cannot be called now
}

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

// searcher finds what fits a query, and tells the memory.
type searcher struct {
	catalog *Catalog
	memory  *Memory // nil: nothing is learned
	vectors *QueryVectors
	timeout time.Duration // of the vectors of a query
	misfit  func(dim int) // nil: nobody hears
	health  func() Health // nil: every server is there

	saidBefore sync.Map // terms by text, of the servers of the catalog
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

// Query holds the arguments of retrieve_tools.
type Query struct {
	Text   string
	Limit  int    // 1 to MaxLimit
	Server string // "" for all
	Detail Detail
	Kinds  []tool.Kind // of what is searched; nil for tools

	// For people who compare, not for clients:
	Explain bool // explain each hit
	Words   bool // words decide alone
}

// queryKinds are the values of the argument kind.
var queryKinds = map[string][]tool.Kind{
	"tool":     nil,
	"prompt":   {tool.KindPrompt},
	"resource": {tool.KindResource, tool.KindTemplate},
	"any":      tool.Kinds,
}

// tools reports whether the query is for tools.
func (q Query) tools() bool { return q.Kinds == nil || slices.Contains(q.Kinds, tool.KindTool) }

// Detail selects how much an answer says about each tool.
type Detail string

// DetailName gives names only; DetailSummary, the default, what a call needs, as text:
// the first sentence and a line for each parameter, unless the client has been listed
// the tool. DetailFull gives the definition as the upstream sent it, as JSON.
const (
	DetailName    Detail = "name"
	DetailSummary Detail = "summary"
	DetailFull    Detail = "full"
)

// ParseQuery reads the arguments of retrieve_tools for a single query. Its errors are
// *args.Errors.
func (r *Retriever) ParseQuery(arguments json.RawMessage) (Query, error) {
	queries, err := r.parseQueries(arguments)
	if err != nil {
		return Query{}, err
	}
	return queries[0], nil
}

// CheckServer returns nil for the name of a server of the catalog, and for "". The
// error, for whoever sent the name, says which were perhaps meant.
func (s *searcher) CheckServer(name string) error {
	var names []string
	for _, s := range s.catalog.Servers() {
		names = append(names, s.Name)
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	return args.Unknown("server", name, names)
}

// registered registers the tools among the hits and reports which are registered. A
// gated view registers nothing: there it reports which can be called.
func (r *Retriever) registered(ctx context.Context, call *tool.Call, q Query, hits []Hit) Registration {
	if !q.tools() || r.settings.Register == nil && !r.gated() {
		return Registration{}
	}
	var tools []*tool.Tool
	for _, hit := range hits {
		if hit.Def.ID.Kind == tool.KindTool { // nothing else is registered
			tools = append(tools, hit.Tool)
		}
	}
	if !r.gated() {
		return r.settings.Register(ctx, call, tools)
	}
	registered := Registration{Names: map[string]bool{}}
	callable := r.callable(call)
	for _, t := range tools {
		registered.Names[t.Name] = callable(t)
	}
	return registered
}

// gated reports whether clients provision tools before they call them.
func (p *provisioner) gated() bool { return p.gate != nil && p.gate.Gated() }

// Found is the result of a search.
type Found struct {
	Hits   []Hit  // best first
	Hybrid bool   // vectors had a part in the ranking
	Reason string // why they had none, if they should have had one
	// Confidence is the probability that one of the hits is what the query asks for;
	// below Confident there are fewer hits.
	Confidence float64
	Absent     []Absent // servers that could not be searched, or whose tools cannot be called

	health Health // when it was searched
}

// Confident is the least confidence of an answer that is called confident.
const Confident = 0.27

// doubtful is the most confidence where an absent server may have the tool.
const doubtful = Confident / 2

// Below hopeless an answer has fewer hits; leastDoubted is the least share of them that it keeps.
const (
	hopeless     = Confident / 3
	leastDoubted = 0.4
)

// doubted returns how many of n hits an answer of this confidence keeps: where hardly any hit can
// fit, fewer tools fill the context.
func doubted(n int, confidence float64) int {
	return int(math.Ceil(float64(n) * min(1, max(leastDoubted, confidence/hopeless))))
}

// unknownConfidence is the Confidence of hits that no search has judged.
const unknownConfidence = -1

// confident reports whether the hits are confident, nil if that is not known.
func (f Found) confident() *bool {
	if f.Confidence == unknownConfidence {
		return nil
	}
	is := f.Confidence >= Confident
	return &is
}

// note tells who watches the operation of ctx.
func (f Found) note(ctx context.Context) {
	telemetry.Searched(ctx, len(f.Hits), f.Confidence >= Confident, f.Hybrid)
}

// Search finds what fits a query, as retrieve_tools does, and registers nothing.
func (s *searcher) Search(ctx context.Context, q Query) (Found, error) {
	query, reason, err := s.query(ctx, q)
	if err != nil {
		return Found{}, err
	}
	found, err := s.rank(ctx, query, reason)
	s.doubt(q, &found)
	found.note(ctx)
	return found, err
}

// doubt leaves out hits that are not likely enough. Hits are not likely where an
// absent server may have what is asked for.
func (s *searcher) doubt(q Query, found *Found) {
	found.health = s.state()
	found.Absent = slices.DeleteFunc(slices.Clone(found.health.Absent), func(a Absent) bool { return q.Server != "" && q.Server != a.Server })
	if len(found.Absent) > 0 {
		asked := index.Terms(q.Text)
		if slices.ContainsFunc(found.Absent, func(a Absent) bool { return s.mayHave(a, asked, found.Hits) }) {
			found.Confidence = min(found.Confidence, doubtful)
		}
	}
	found.Hits = found.Hits[:doubted(len(found.Hits), found.Confidence)]
}

// query returns the query for the index and, if it has no vectors, the reason.
func (s *searcher) query(ctx context.Context, q Query) (query index.Query, reason string, err error) {
	query = index.Query{Text: q.Text, Server: q.Server, Limit: q.Limit, Kinds: q.Kinds, Prior: s.prior(identity.NameOf(ctx), q.Text), Explain: q.Explain}
	if !q.Words {
		query.Vectors, reason = s.vectors.of(ctx, q.Text, s.timeout, s.catalog.Embedded() > 0)
	}
	return query, reason, ctx.Err()
}

// rank searches the catalog. If the query's vectors do not fit, it searches without.
func (s *searcher) rank(ctx context.Context, query index.Query, reason string) (Found, error) {
	found, err := s.catalog.Search(ctx, query)
	if errors.Is(err, index.ErrVector) {
		reason = reasonFailed
		if errors.Is(err, index.ErrDimension) {
			reason = reasonMisfits
			if s.misfit != nil {
				s.misfit(len(query.Vectors[0]))
			}
		}
		query.Vectors = nil
		found, err = s.catalog.Search(ctx, query)
	}
	found.Reason = reason
	return found, err
}

// asked tells the memory which tools a query found.
func (s *searcher) asked(call *tool.Call, query string, hits []Hit) {
	if s.memory == nil {
		return
	}
	var ids []tool.ID
	for _, hit := range hits {
		if hit.Def.ID.Kind == tool.KindTool { // nothing else is learned from
			ids = append(ids, hit.Def.ID)
		}
	}
	s.memory.Asked(call.Principal, call.Session, query, ids)
}

// prior returns the expectations that a principal's use has taught for a query, by exposed name.
func (s *searcher) prior(principal, query string) map[string]float64 {
	if s.memory == nil {
		return nil
	}
	learned := s.memory.Prior(principal, query)
	if len(learned) == 0 {
		return nil
	}
	out := make(map[string]float64, len(learned))
	for id, p := range learned {
		if t, ok := s.catalog.ByID(id); ok {
			out[t.Name] = p
		}
		for _, t := range s.catalog.also[id] {
			out[t.Name] = p
		}
	}
	return out
}

// Answer returns the answer of retrieve_tools with all details as JSON, for commands
// and measurements. It registers nothing.
func (r *Retriever) Answer(q Query, found Found) json.RawMessage {
	return json.RawMessage(r.answer(q, found, Registration{}))
}
