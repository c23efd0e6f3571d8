package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"toolfinch/embed"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// MaxLimit is the most tools that one answer can have.
const MaxLimit = retrieve.MaxLimit

// Embedders are the kinds of Settings.Embed.
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

// system is what is measured: the retrieval of retrieve_tools over one set.
// Nothing else in this package knows how tools are found.
type system struct {
	catalog             *retrieve.Catalog
	retriever           *retrieve.Retriever
	embedder            string // which one it became
	building, embedding time.Duration
}

// openSystem indexes the tools of a set. The caller closes the system.
func openSystem(ctx context.Context, set *Set, settings embed.Settings) (*system, error) {
	if kind := settings.Kind; kind == embed.KindHF || kind == embed.KindOpenAI {
		return nil, fmt.Errorf("embedder %s: retrieval has no vectors yet; measure BM25", kind)
	}
	began := time.Now()
	catalog := retrieve.NewCatalog(func(*tool.Def) tool.Handler { return nil }, retrieve.Reserved(), nil)
	if err := catalog.Swap(ctx, serversOf(set)); err != nil {
		return nil, err
	}
	return &system{
		catalog:   catalog,
		retriever: retrieve.New(catalog, retrieve.Settings{}),
		embedder:  embed.KindBM25,
		building:  time.Since(began),
	}, nil
}

// serversOf groups the tools of a set as upstreams bring them.
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
		servers[i].Defs = append(servers[i].Defs, def)
	}
	return servers
}

// search asks as a client of retrieve_tools does, and returns how long the
// retrieval took.
func (s *system) search(ctx context.Context, text string, limit int) ([]hit, time.Duration, error) {
	arguments, err := json.Marshal(map[string]any{"query": text, "limit": limit})
	if err != nil {
		return nil, 0, err
	}
	q, err := s.retriever.ParseQuery(arguments)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	found, err := s.retriever.Search(ctx, q)
	took := time.Since(began)
	if err != nil {
		return nil, 0, err
	}
	hits := make([]hit, len(found))
	for i, h := range found {
		hits[i] = hit{label(h.Def), h.Score}
	}
	return hits, took, nil
}

func (s *system) close() error { return s.catalog.Close() }
