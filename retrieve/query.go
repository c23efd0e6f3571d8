package retrieve

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"toolfinch/index"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Bounds of the limit of retrieve_tools, and its default.
const (
	DefaultLimit = 5
	MaxLimit     = 50
)

// Query holds the arguments of retrieve_tools.
type Query struct {
	Text   string
	Limit  int    // 1 to MaxLimit
	Server string // "" for all
	Detail Detail
	Kinds  []tool.Kind // kinds to search; nil for tools

	// For people who compare rankings, not for clients:
	Explain bool // explain the score of each hit
	Words   bool // rank by words alone, without vectors
}

// MaxNeeds bounds the needs of one call of retrieve_tools.
const MaxNeeds = 8

// queryKinds maps the values of the argument "kind".
var queryKinds = map[string][]tool.Kind{
	"tool":     nil,
	"prompt":   {tool.KindPrompt},
	"resource": {tool.KindResource, tool.KindTemplate},
	"skill":    {tool.KindSkill},
	"any":      tool.Kinds,
}

// tools reports whether the query searches tools.
func (q Query) tools() bool { return q.Kinds == nil || slices.Contains(q.Kinds, tool.KindTool) }

// Detail selects how much an answer says about each tool.
type Detail string

// DetailName gives names only. DetailSummary, the default, gives text that suffices for a call: the first sentence,
// and a line for each parameter unless the client has the tool in its list. DetailFull gives the upstream's
// definition as JSON.
const (
	DetailName    Detail = "name"
	DetailSummary Detail = "summary"
	DetailFull    Detail = "full"
)

// Hit is a found tool, prompt, resource or template.
type Hit struct {
	*tool.Tool
	Score float64
	Why   *index.Explanation // nil unless the query asks for it
}

// Found is the result of a search.
type Found struct {
	Hits   []Hit  // best first
	Hybrid bool   // vectors took part in the ranking
	Reason string // why vectors took no part although there is an embedder
	// Confidence is the probability that one of the hits is the right tool. Below Confident there are fewer hits.
	Confidence float64
	Absent     []Absent // servers that were not searched, or whose tools cannot be called
	// Unmentioned are things that the query names and no tool mentions. It is nil if the answer is confident.
	Unmentioned []string

	health Health // at the time of the search
	place  index.Place
}

// Confident is the lowest confidence of an answer that counts as confident.
const Confident = 0.27

// doubtful is the highest confidence while an absent server may have the right tool.
const doubtful = Confident / 2

// hopeless is the confidence below which an answer loses hits; leastDoubted is the share of hits that always stays.
const (
	hopeless     = Confident / 3
	leastDoubted = 0.4
)

// doubted returns how many of n hits an answer keeps: at a low confidence, fewer tools fill the context.
func doubted(n int, confidence float64) int {
	return int(math.Ceil(float64(n) * min(1, max(leastDoubted, confidence/hopeless))))
}

// unknownConfidence marks hits that no search has ranked.
const unknownConfidence = -1

// confident reports whether the hits are confident; nil: unknown.
func (f Found) confident() *bool {
	if f.Confidence == unknownConfidence {
		return nil
	}
	is := f.Confidence >= Confident
	return &is
}

// NotMentioned names the unmentioned things in a sentence; "" for none.
func (f Found) NotMentioned() string {
	if len(f.Unmentioned) == 0 {
		return ""
	}
	return fmt.Sprintf(`No tool here mentions "%s".`, strings.Join(f.Unmentioned, `", "`))
}

// report adds the search and its result to the operation's telemetry.
func (f Found) report(ctx context.Context, q Query) {
	telemetry.Searched(ctx, len(f.Hits), f.Confidence >= Confident, f.Hybrid)
	telemetry.Asked(ctx, func() telemetry.Search {
		s := telemetry.Search{Query: q.Text, Server: q.Server, Limit: q.Limit, Hits: make([]telemetry.SearchHit, len(f.Hits))}
		for kind, kinds := range queryKinds {
			if kinds != nil && slices.Equal(kinds, q.Kinds) {
				s.Kind = kind
			}
		}
		for i, h := range f.Hits {
			s.Hits[i] = telemetry.SearchHit{ID: h.Def.ID.String(), Name: h.Name}
		}
		return s
	})
}

// Health counts the upstreams by their state.
type Health struct {
	Ready, Pending, Failed int
	Absent                 []Absent // servers that cannot be called now
}
