package retrieve

import (
	"context"
	"slices"
	"unique"

	"toolfinch/index"
	"toolfinch/tool"
)

// Bounds of the hits that are filtered by tags: of a search with vectors, whose time grows with their square, and
// of a search by words.
const (
	wideHybrid = 30
	wideWords  = 500
)

// searchTagged searches the tools that have all tags. If one of the tags names a
// server, the tools of that server come first.
func (s *searcher) searchTagged(ctx context.Context, q Query, tags []string) (Found, error) {
	if len(tags) == 0 {
		return s.Search(ctx, q)
	}
	return s.among(ctx, q, s.serverAmong(tags), s.catalog.Tagged(tags))
}

// SearchAmong searches the tools that satisfy passes. It filters the best 30 by words and meaning and then, if too
// few pass, the best 500 by words.
func (s *searcher) SearchAmong(ctx context.Context, q Query, passes func(*tool.Tool) bool) (Found, error) {
	return s.among(ctx, q, q.Server, passes)
}

// among searches the server first ("" for all), filtered by passes. If too few pass, it searches by words, in all
// servers of the query.
func (s *searcher) among(ctx context.Context, q Query, first string, passes func(*tool.Tool) bool) (Found, error) {
	query, reason, err := s.query(ctx, q)
	if err != nil {
		return Found{}, err
	}
	query.Server = first
	query.Limit = wideWords
	if query.Vectors != nil {
		query.Limit = max(q.Limit, wideHybrid)
	}
	found, err := s.rank(ctx, query, reason)
	if err != nil {
		return Found{}, err
	}
	defer func() { found.report(ctx, q) }()
	var best *tool.Tool
	if len(found.Hits) > 0 {
		best = found.Hits[0].Tool
	}
	seen := found.Hits
	found.Hits = having(passes, seen, nil, q.Limit)
	complete := len(seen) < query.Limit && query.Server == q.Server // there are no further hits
	if len(found.Hits) < q.Limit && !complete {
		query.Vectors, query.Server, query.Limit = nil, q.Server, wideWords
		more, err := s.catalog.Search(ctx, query)
		if err != nil {
			return Found{}, err
		}
		found.Hits = append(found.Hits, having(passes, more.Hits, seen, q.Limit-len(found.Hits))...)
	}
	if len(found.Hits) == 0 || found.Hits[0].Tool != best {
		found.Confidence, found.Absent = unknownConfidence, s.absent() // the confidence belongs to a tool that was filtered out
		return found, nil
	}
	s.doubt(q, &found)
	return found, nil
}

// having returns up to limit hits that satisfy has and are not in seen.
func having(has func(*tool.Tool) bool, hits, seen []Hit, limit int) []Hit {
	var out []Hit
	for _, hit := range hits {
		if len(out) == limit {
			break
		}
		if has(hit.Tool) && !slices.ContainsFunc(seen, func(h Hit) bool { return h.Tool == hit.Tool }) {
			out = append(out, hit)
		}
	}
	return out
}

// serverAmong returns the server that the tags name, "" if they name none or
// several.
func (s *searcher) serverAmong(tags []string) string {
	var named string
	for _, s := range s.catalog.Servers() {
		if plain := plainly(s.Name); plain != "" && slices.ContainsFunc(tags, func(tag string) bool { return plainly(tag) == plain }) {
			if named != "" {
				return ""
			}
			named = s.Name
		}
	}
	return named
}

// Tagged returns a predicate for tools, prompts and resources with all tags. One goroutine may use it. A tag is the
// name of the server or, for a tool, one of the hints of Tags, in any case and with any separators; an unset hint
// has its default. Any other tag is words: all must appear, in some form, in the names or descriptions of the tool
// and its server, or in the title.
func (c *Catalog) Tagged(tags []string) func(t *tool.Tool) bool {
	if len(tags) == 0 {
		return func(*tool.Tool) bool { return true }
	}
	texts := descriptions(c.Servers())
	about := map[string][]unique.Handle[string]{} // terms of server descriptions
	has := havingTags(tags)
	w := &c.words
	return func(t *tool.Tool) bool {
		return has(t, func(stem unique.Handle[string]) bool {
			own := remembered(w, &w.terms, keyOf(t), func() []unique.Handle[string] { return termsOf(t) })
			if slices.Contains(own, stem) {
				return true
			}
			server := t.Def.ID.Server
			terms, ok := about[server]
			if !ok && texts[server] != "" {
				terms = remembered(w, &w.terms, wordedKey{text: texts[server]}, func() []unique.Handle[string] { return handles(index.Terms(texts[server])) })
				about[server] = terms
			}
			return slices.Contains(terms, stem)
		})
	}
}
