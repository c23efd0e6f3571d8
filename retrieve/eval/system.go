package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"toolfinch/embed"
	"toolfinch/index"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// MaxLimit bounds the tools of one answer.
const MaxLimit = retrieve.MaxLimit

// Embedders are the kinds of embedder that eval accepts.
var Embedders = []string{embed.KindBM25, embed.KindHF, embed.KindOpenAI, embed.KindAuto}

// ParseEmbedder returns the kind that text names in upper or lower case.
func ParseEmbedder(text string) (string, error) {
	if kind := strings.ToUpper(strings.TrimSpace(text)); slices.Contains(Embedders, kind) {
		return kind, nil
	}
	return "", fmt.Errorf("unknown embedder %q; there are %s", text, strings.Join(Embedders, ", "))
}

// hit is a tool of an answer.
type hit struct {
	ID    string  `json:"id"` // label
	Score float64 `json:"score"`
}

// system is the measured retrieval: that of retrieve_tools over one set. Only this type knows how tools are found.
type system struct {
	catalog             *retrieve.Catalog
	retriever           *retrieve.Retriever
	embedder            string // the selected kind
	building, embedding time.Duration
}

// openSystem indexes the tools of a set and embeds them. The caller closes the
// system.
func openSystem(ctx context.Context, set *Set, options Options) (*system, error) {
	began := time.Now()
	catalog, err := retrieve.NewCatalog(func(*tool.Def) tool.Handler { return nil }).
		With(ctx, retrieve.Contents{Servers: serversOf(set), Reserved: retrieve.Reserved()})
	if err != nil {
		return nil, err
	}
	s := &system{
		catalog:   catalog,
		retriever: retrieve.New(catalog, retrieve.Settings{QueryTimeout: queryTimeout}),
		embedder:  embed.KindBM25,
		building:  time.Since(began),
	}
	if options.Embedder == nil {
		return s, nil
	}
	began = time.Now()
	s.embedder = options.Embedder.ID()
	cache := embed.NewCache(options.Embedder, index.TextVersion, options.Vectors)
	var progress func(done, total int)
	if options.Progress != nil {
		progress = func(done, total int) { options.Progress(set.Name, done, total) }
	}
	if err := catalog.Embed(ctx, cache, progress); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.retriever.UseVectors(queries{options.Embedder}, "")
	s.embedding = time.Since(began)
	return s, nil
}

// queryTimeout is far above working embedders: a measurement must not depend on the load of the machine.
const queryTimeout = 5 * time.Minute

// queries embeds each query without a cache, so that its time is measured.
type queries struct{ embedder embed.Embedder }

func (q queries) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return q.embedder.Embed(ctx, embed.Query, texts)
}

// serversOf groups the tools of a set by server.
func serversOf(set *Set) []retrieve.Server {
	var servers []retrieve.Server
	at := map[string]int{}
	for _, def := range set.Defs {
		name := def.ID.Server
		i, known := at[name]
		if !known {
			i = len(servers)
			at[name] = i
			servers = append(servers, retrieve.Server{Name: name, Description: set.About[name]})
		}
		servers[i].Tools = append(servers[i].Tools, &tool.Tool{Def: def})
	}
	return servers
}

// search asks like a client of retrieve_tools. It returns the hits, the labels of the producers that the answer names after
// them, and the time of the retrieval.
func (s *system) search(ctx context.Context, text string, limit int) (hits []hit, producers []string, took time.Duration, err error) {
	arguments, err := json.Marshal(map[string]any{"query": text, "limit": limit})
	if err != nil {
		return nil, nil, 0, err
	}
	q, err := s.retriever.ParseQuery(arguments)
	if err != nil {
		return nil, nil, 0, err
	}
	began := time.Now()
	found, err := s.retriever.Search(ctx, q)
	needed := s.catalog.Needed(found.Hits)
	took = time.Since(began)
	if err != nil {
		return nil, nil, 0, err
	}
	if s.embedder != embed.KindBM25 && !found.Hybrid {
		return nil, nil, 0, fmt.Errorf("the query was answered by words alone: %s", found.Reason)
	}
	hits = make([]hit, len(found.Hits))
	for i, h := range found.Hits {
		hits[i] = hit{label(h.Def), h.Score}
	}
	for _, n := range needed {
		producers = append(producers, label(n.Def))
	}
	return hits, producers, took, nil
}

func (s *system) close() error { return s.catalog.Close() }

// Options of Run.
type Options struct {
	Embedder embed.Embedder // nil for words alone
	Vectors  embed.Vectors  // stores the tools' vectors
	Limit    int            // tools in an answer, 1 to MaxLimit
	Misses   io.Writer      // gets a JSON line for
	// Progress, if not nil, is told how many tools of a set have a vector.
	Progress func(set string, done, total int)
}
