package retrieve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/tool"
	"toolfinch/tool/args"
)

// DiscoverQuery holds the arguments of discover_tools.
type DiscoverQuery struct {
	Text  string   // what the tool should do; "" lists tools by name
	Tags  []string // a tool must have all of them; see Catalog.Tagged
	Limit int      // 1 to MaxLimit; 0 for the default, Settings.TopK
}

// Discovered describes a tool that may be provisioned.
type Discovered struct {
	ToolID      string   `json:"tool_id"` // the name clients see
	Server      string   `json:"server"`
	Name        string   `json:"name"` // the upstream's own
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description"` // FirstSentence of it
	Tags        []string `json:"tags"`
	Tokens      int      `json:"tokens"` // of the definition
	Score       float64  `json:"score,omitempty"`
	Provisioned *bool    `json:"provisioned,omitempty"` // whether it can be called now; nil where views are not gated
	Signature   string   `json:"signature"`
}

// Discovery is the answer of discover_tools.
type Discovery struct {
	Tools     []Discovered `json:"tools"`
	Tokens    int          `json:"tokens"`              // of all these tools
	Confident *bool        `json:"confident,omitempty"` // of a query; false: perhaps none is what was asked for
	More      int          `json:"more,omitempty"`      // of a list: how many tools are not in it
	Missing   []string     `json:"missing,omitempty"`   // servers that are not there, and why
}

// Discover finds tools by what they do and by tags, best first, and states the cost
// of each. call is the caller's. The error is an *args.Error if the query is not
// valid.
func (p *provisioner) Discover(ctx context.Context, call *tool.Call, q DiscoverQuery) (Discovery, error) {
	if q.Limit == 0 {
		q.Limit = p.topK
	}
	if q.Limit < 1 || q.Limit > MaxLimit {
		return Discovery{}, args.Refuse("limit must be a whole number from 1 to %d", MaxLimit)
	}
	for _, tag := range q.Tags {
		if strings.TrimSpace(tag) == "" {
			return Discovery{}, args.Refuse("a tag is empty")
		}
	}
	out := Discovery{Tools: []Discovered{}}
	var hits []Hit
	if strings.TrimSpace(q.Text) == "" {
		hits, out.More = p.catalog.first(q.Limit, p.catalog.Tagged(q.Tags))
		out.Missing = described(p.search.absent())
	} else {
		found, err := p.search.searchTagged(ctx, Query{Text: q.Text, Limit: q.Limit}, q.Tags)
		if err != nil {
			return Discovery{}, err
		}
		p.search.asked(call, q.Text, found.Hits)
		hits, out.Confident, out.Missing = found.Hits, found.confident(), described(found.Absent)
	}
	for _, hit := range hits {
		one := p.Describe(call, hit.Tool)
		one.Score = hit.Score
		out.Tokens += one.Tokens
		out.Tools = append(out.Tools, one)
	}
	return out, nil
}

// Describe describes a tool to the maker of the call.
func (p *provisioner) Describe(call *tool.Call, t *tool.Tool) Discovered {
	def := t.Def
	d := Discovered{
		ToolID: t.Name, Server: def.ID.Server, Name: def.ID.Name, Title: def.Title, Description: FirstSentence(def.Description),
		Tags: p.catalog.words.tagsOf(t), Tokens: p.catalog.Tokens(t), Signature: Signature(def.InputSchema),
	}
	if p.gated() {
		is := p.callable(call)(t)
		d.Provisioned = &is
	}
	return d
}

// callable returns a predicate for the tools that the maker of the call has
// provisioned. The view must be gated.
func (p *provisioner) callable(call *tool.Call) func(*tool.Tool) bool {
	owner := call.Owner()
	return func(t *tool.Tool) bool { return p.gate.IsProvisioned(owner, t.Def.ID) }
}

// Bounds the hits that are filtered by tags: of a search with vectors, whose
// spreading takes the square of their number, and of a search by words.
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

// SearchAmong searches the tools that satisfy passes. It filters the best 30 by
// words and meaning and then, if these are too few, the best 500 by words.
func (s *searcher) SearchAmong(ctx context.Context, q Query, passes func(*tool.Tool) bool) (Found, error) {
	return s.among(ctx, q, q.Server, passes)
}

// among searches the server first ("" for all), filtered by passes. If that finds
// too few, it searches by words all that the query is for.
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
	defer func() { found.note(ctx) }()
	var best *tool.Tool
	if len(found.Hits) > 0 {
		best = found.Hits[0].Tool
	}
	seen := found.Hits
	found.Hits = having(passes, seen, nil, q.Limit)
	complete := len(seen) < query.Limit && query.Server == q.Server // nothing else exists
	if len(found.Hits) < q.Limit && !complete {
		query.Vectors, query.Server, query.Limit = nil, q.Server, wideWords
		more, err := s.catalog.Search(ctx, query)
		if err != nil {
			return Found{}, err
		}
		found.Hits = append(found.Hits, having(passes, more.Hits, seen, q.Limit-len(found.Hits))...)
	}
	if len(found.Hits) == 0 || found.Hits[0].Tool != best {
		found.Confidence, found.Absent = unknownConfidence, s.absent() // the known one is of a tool that is left out
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

// ParseDiscover reads the arguments of discover_tools. Its errors are
// *args.Errors.
func (p *provisioner) ParseDiscover(arguments json.RawMessage) (DiscoverQuery, error) {
	q := DiscoverQuery{Limit: p.topK}
	err := args.Read(DiscoverTools, arguments,
		args.Text("query", &q.Text), args.Texts("tags", &q.Tags), args.Int("limit", &q.Limit, 1, MaxLimit))
	return q, err
}
