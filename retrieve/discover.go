package retrieve

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/rawjson/args"
	"toolfinch/tool"
)

// DiscoverQuery is what discover_tools is asked.
type DiscoverQuery struct {
	Text  string   // what the tool should do; "" lists tools by name
	Tags  []string // all of which a tool must have: see Catalog.Tagged
	Limit int      // 1 to MaxLimit; 0 for the default, Settings.TopK
}

// Discovered is what is told of a tool that may be provisioned.
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
}

// Discover finds tools by what they do and by tags, best first, and says what
// each costs. call says who asks. The error is a *args.Error for a query that
// is none.
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
	add := func(hit Hit) {
		one := p.Describe(call, hit.Tool)
		one.Score = hit.Score
		out.Tokens += one.Tokens
		out.Tools = append(out.Tools, one)
	}
	if strings.TrimSpace(q.Text) == "" {
		has := p.catalog.Tagged(q.Tags)
		for _, t := range p.catalog.Tools() {
			switch {
			case !has(t):
			case len(out.Tools) < q.Limit:
				add(Hit{Tool: t})
			default:
				out.More++
			}
		}
		return out, nil
	}
	found, err := p.search.searchTagged(ctx, Query{Text: q.Text, Limit: q.Limit}, q.Tags)
	if err != nil {
		return Discovery{}, err
	}
	p.search.asked(call.Session, q.Text, found.Hits)
	for _, hit := range found.Hits {
		add(hit)
	}
	out.Confident = found.confident()
	return out, nil
}

// Describe is what discovery says of a tool to whoever makes the call.
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

// callable returns what reports whether the maker of a call can call a tool, in a
// gated view.
func (p *provisioner) callable(call *tool.Call) func(*tool.Tool) bool {
	owner := call.Owner()
	return func(t *tool.Tool) bool { return p.gate.IsProvisioned(owner, t.Def.ID) }
}

// How many hits are looked through for tags: of a search with vectors, which
// takes the square of them to spread, and of one by words.
const (
	wideHybrid = 30
	wideWords  = 500
)

// searchTagged is Search among the tools that have all tags, first of the server
// that one of them names, if one does.
func (s *searcher) searchTagged(ctx context.Context, q Query, tags []string) (Found, error) {
	if len(tags) == 0 {
		return s.Search(ctx, q)
	}
	return s.among(ctx, q, s.serverAmong(tags), s.catalog.Tagged(tags))
}

// SearchAmong is Search among what passes holds for. It looks through the best 30
// by words and meaning and then, for more, through the best 500 by words.
func (s *searcher) SearchAmong(ctx context.Context, q Query, passes func(*tool.Tool) bool) (Found, error) {
	return s.among(ctx, q, q.Server, passes)
}

// among searches the server named first, "" for all, and then, where it found too
// few or looked at too few, all that the query is for by words.
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
	var best *tool.Tool
	if len(found.Hits) > 0 {
		best = found.Hits[0].Tool
	}
	seen := found.Hits
	found.Hits = having(passes, seen, nil, q.Limit)
	complete := len(seen) < query.Limit && query.Server == q.Server // there is nothing else
	if len(found.Hits) < q.Limit && !complete {
		query.Vectors, query.Server, query.Limit = nil, q.Server, wideWords
		more, err := s.catalog.Search(ctx, query)
		if err != nil {
			return Found{}, err
		}
		found.Hits = append(found.Hits, having(passes, more.Hits, seen, q.Limit-len(found.Hits))...)
	}
	if len(found.Hits) == 0 || found.Hits[0].Tool != best {
		found.Confidence = unknownConfidence // it was that of a tool which is left out
		return found, nil
	}
	found.Hits = found.Hits[:doubted(len(found.Hits), found.Confidence)]
	return found, nil
}

// having returns the first hits, at most limit, that has holds for and that are
// not among seen.
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

// serverAmong returns the server that one of the tags names, "" where none or
// several servers are named.
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
