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

// searcher searches the catalog and tells the memory what was found.
type searcher struct {
	catalog *Catalog
	memory  *Memory // nil: nothing is learned
	vectors *QueryVectors
	timeout time.Duration // bounds the wait for a query's vectors
	misfit  func(dim int) // may be nil
	health  func() Health // nil: every server is there

	termCache sync.Map // terms of server names and descriptions, by text
}

// CheckServer returns nil for "" and for a server of the catalog. The error suggests similar names to the caller.
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

// Search searches like retrieve_tools, and registers nothing.
func (s *searcher) Search(ctx context.Context, q Query) (Found, error) {
	query, reason, err := s.query(ctx, q)
	if err != nil {
		return Found{}, err
	}
	found, err := s.rank(ctx, query, reason)
	s.doubt(q, &found)
	if err == nil {
		err = s.missThings(q, &found)
	}
	found.report(ctx, q)
	return found, err
}

// doubt removes hits that are unlikely to be right, and lowers the confidence if an absent server may have the
// right tool.
func (s *searcher) doubt(q Query, found *Found) {
	found.health = s.state()
	found.Absent = slices.DeleteFunc(slices.Clone(found.health.Absent), func(a Absent) bool { return q.Server != "" && q.Server != a.Server })
	if len(found.Absent) > 0 {
		asked := index.Terms(q.Text)
		if slices.ContainsFunc(found.Absent, func(a Absent) bool { return s.mayBeFor(a, asked, found.Hits) }) {
			found.Confidence = min(found.Confidence, doubtful)
		}
	}
	found.Hits = found.Hits[:doubted(len(found.Hits), found.Confidence)]
}

// In a request of few telling words each one matters. A request with many unmentioned things is prose, or in another
// language.
const (
	fewTelling     = 4
	maxUnmentioned = 3
)

// missThings doubts the answer to a short query with a thing that no tool mentions, and names such things if the answer
// is in doubt. Of annotated queries whose first hit is right this doubts 1 % and names something for 3 %.
func (s *searcher) missThings(q Query, found *Found) error {
	if !q.tools() || found.Confidence == 1 { // 1: the query is a name
		return nil
	}
	things, telling := index.Things(q.Text)
	if found.Confidence >= Confident && telling > fewTelling {
		return nil
	}
	var missed []string
	for _, thing := range things {
		has, err := s.catalog.mentions(thing, q.Kinds)
		switch {
		case err != nil:
			return err
		case !has && !s.named(thing, found.Absent):
			missed = append(missed, thing)
		}
		if len(missed) > maxUnmentioned {
			break
		}
	}
	if len(missed) > 0 && telling <= fewTelling {
		found.Confidence = min(found.Confidence, doubtful)
	}
	if len(missed) <= maxUnmentioned {
		found.Unmentioned = missed
	}
	return nil
}

// named reports whether one of the servers is named or described by a word: answers name it as absent.
func (s *searcher) named(word string, absent []Absent) bool {
	return slices.ContainsFunc(absent, func(a Absent) bool {
		return subset(index.Terms(word), slices.Concat(s.serverTerms(apart(a.Server)), s.serverTerms(a.Description)))
	})
}

// query returns the query for the index and, if it has no vectors, the reason.
func (s *searcher) query(ctx context.Context, q Query) (query index.Query, reason string, err error) {
	query = index.Query{Text: q.Text, Server: q.Server, Limit: q.Limit, Kinds: q.Kinds, Prior: s.prior(identity.NameOf(ctx), q.Text), Explain: q.Explain}
	if !q.Words {
		query.Vectors, reason = s.vectors.of(ctx, q.Text, s.timeout, s.catalog.Embedded() > 0)
	}
	return query, reason, ctx.Err()
}

// rank searches the catalog. If the query's vectors do not fit, it searches by words.
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

// noteFound tells the memory which tools a query found.
func (s *searcher) noteFound(call *tool.Call, query string, hits []Hit) {
	if s.memory == nil {
		return
	}
	var ids []tool.ID
	for _, hit := range hits {
		if hit.Def.ID.Kind == tool.KindTool { // the memory learns tools only
			ids = append(ids, hit.Def.ID)
		}
	}
	s.memory.Asked(call.Principal, call.Session, query, ids)
}

// prior returns how much a principal's earlier use raises each tool for a query, by exposed name.
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

// state returns the present health of the servers.
func (s *searcher) state() Health {
	if s.health == nil {
		return Health{}
	}
	return s.health()
}

// absent returns the servers that cannot be called now.
func (s *searcher) absent() []Absent { return s.state().Absent }

// mayBeFor reports whether a query, given as terms, may be for an absent server. It shares a word with the server's
// name or two with its description, or the best hit is a tool that the server listed before.
func (s *searcher) mayBeFor(a Absent, asked []string, hits []Hit) bool {
	if a.Held > 0 {
		return false
	}
	if len(hits) > 0 && hits[0].Def.ID.Server == a.Server {
		return true
	}
	shared := func(text string) (n int) {
		for _, term := range s.serverTerms(text) {
			if slices.Contains(asked, term) {
				n++
			}
		}
		return n
	}
	return shared(apart(a.Server)) > 0 || shared(FirstSentence(a.Description)) > 1
}

// serverTerms returns the terms of a server's name or description, and caches them.
func (s *searcher) serverTerms(text string) []string {
	if known, ok := s.termCache.Load(text); ok {
		return known.([]string)
	}
	terms := index.Terms(text)
	s.termCache.Store(text, terms)
	return terms
}

// UseVectors calls Use of the retriever's QueryVectors.
func (s *searcher) UseVectors(queries Queries, reason string) {
	s.vectors.Use(queries, reason)
}
