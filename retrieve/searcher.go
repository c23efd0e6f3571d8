package retrieve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"toolfinch/index"
	"toolfinch/internal/identity"
	"toolfinch/tool"
	"toolfinch/tool/args"
)

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

// state is how the servers are now.
func (s *searcher) state() Health {
	if s.health == nil {
		return Health{}
	}
	return s.health()
}

// absent are the servers that cannot be called now.
func (s *searcher) absent() []Absent { return s.state().Absent }

// mayHave reports whether a query, whose terms these are, may be for an absent server: it has
// a word of the server's name, or two of its description, or the best hit is a tool that the
// server had before.
func (s *searcher) mayHave(a Absent, asked []string, hits []Hit) bool {
	if a.Held > 0 {
		return false
	}
	if len(hits) > 0 && hits[0].Def.ID.Server == a.Server {
		return true
	}
	shared := func(text string) (n int) {
		for _, term := range s.said(text) {
			if slices.Contains(asked, term) {
				n++
			}
		}
		return n
	}
	return shared(apart(a.Server)) > 0 || shared(FirstSentence(a.Description)) > 1
}

// said are the terms of what a server is called or said to be. They are kept for the next query.
func (s *searcher) said(text string) []string {
	if known, ok := s.saidBefore.Load(text); ok {
		return known.([]string)
	}
	terms := index.Terms(text)
	s.saidBefore.Store(text, terms)
	return terms
}

// UseVectors is Use of the retriever's QueryVectors.
func (s *searcher) UseVectors(queries Queries, reason string) {
	s.vectors.Use(queries, reason)
}
