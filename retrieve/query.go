package retrieve

import (
	"context"
	"math"
	"slices"

	"toolfinch/index"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Bounds of retrieve_tools' limit, and its default.
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
	Kinds  []tool.Kind // of what is searched; nil for tools

	// For people who compare, not for clients:
	Explain bool // explain each hit
	Words   bool // words decide alone
}

// MaxNeeds is how many needs one call of retrieve_tools may name.
const MaxNeeds = 8

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

// Hit is a tool, prompt, resource or template found, best first.
type Hit struct {
	*tool.Tool
	Score float64
	Why   *index.Explanation // nil unless asked for
}

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

// Health counts the upstreams by their state.
type Health struct {
	Ready, Pending, Failed int
	Absent                 []Absent // those that cannot be called now
}
