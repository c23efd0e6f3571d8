package retrieve

import (
	"cmp"
	"context"
	"encoding/json"
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
	Description string   `json:"description"` // the first sentence
	Tags        []string `json:"tags"`
	Tokens      int      `json:"tokens"` // of the definition
	Score       float64  `json:"score,omitempty"`
	Provisioned *bool    `json:"provisioned,omitempty"` // whether it can be called now; nil if the view is not gated
	Signature   string   `json:"signature"`
}

// Discovery is the answer of discover_tools.
type Discovery struct {
	Tools     []Discovered `json:"tools"`
	Tokens    int          `json:"tokens"`              // of all tools in the answer
	Confident *bool        `json:"confident,omitempty"` // of a query; false: perhaps no tool is right
	// Unmentioned are things that the query names and no tool mentions.
	Unmentioned []string `json:"unmentioned,omitempty"`
	More        int      `json:"more,omitempty"`    // of a list: number of tools left out
	Missing     []string `json:"missing,omitempty"` // absent servers, and why
}

// Discover finds tools for the maker of the call by purpose and tags, best first, with the cost of each. The error
// is an *args.Error for an invalid query.
func (p *provisioner) Discover(ctx context.Context, call *tool.Call, q DiscoverQuery) (Discovery, error) {
	q.Limit = cmp.Or(q.Limit, p.topK)
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
		p.search.noteFound(call, q.Text, found.Hits)
		hits, out.Confident, out.Missing = found.Hits, found.confident(), described(found.Absent)
		out.Unmentioned = found.Unmentioned
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

// ParseDiscover reads the arguments of discover_tools. Its errors are
// *args.Errors.
func (p *provisioner) ParseDiscover(arguments json.RawMessage) (DiscoverQuery, error) {
	q := DiscoverQuery{Limit: p.topK}
	err := args.Read(DiscoverTools, arguments,
		args.Text("query", &q.Text), args.Texts("tags", &q.Tags), args.Int("limit", &q.Limit, 1, MaxLimit))
	return q, err
}
