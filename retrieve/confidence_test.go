package retrieve

import (
	"testing"

	"toolfinch/tool"
)

// An answer is not confident where an absent server may have the tool, and never more confident for that.
func TestAbsenceLowersConfidence(t *testing.T) {
	const linear, slack = "linear", "slack"
	hits := make([]Hit, 10)
	for i := range hits {
		hits[i] = Hit{Tool: &tool.Tool{Def: &tool.Def{ID: tool.ID{Server: "github"}}}}
	}
	hits[0].Def = &tool.Def{ID: tool.ID{Server: slack}}
	for name, test := range map[string]struct {
		query      Query
		absent     Absent
		confidence float64
		want       float64
		hits       int
		named      bool // the answer names the server
	}{
		"nobody is absent":           {Query{Text: "linear issue"}, Absent{}, .9, .9, 10, false},
		"the server is named":        {Query{Text: "linear issue"}, Absent{Server: linear}, .9, doubtful, 10, true},
		"another one is":             {Query{Text: "github issue"}, Absent{Server: linear}, .9, .9, 10, true},
		"two words of what it is":    {Query{Text: "track an issue"}, Absent{Server: linear, Description: "Issue tracking. More."}, .9, doubtful, 10, true},
		"one word of what it is":     {Query{Text: "an issue"}, Absent{Server: linear, Description: "Issue tracking. More."}, .9, .9, 10, true},
		"the best hit is of it":      {Query{Text: "send"}, Absent{Server: slack}, .9, doubtful, 10, true},
		"it is there but for some":   {Query{Text: "linear issue"}, Absent{Server: linear, Held: 1}, .9, .9, 10, true},
		"other servers are excluded": {Query{Text: "linear issue", Server: "github"}, Absent{Server: linear}, .9, .9, 10, false},
		"it is hardly likely anyway": {Query{Text: "linear issue"}, Absent{Server: linear}, hopeless / 2, hopeless / 2, 5, true},
		"it is hopeless anyway":      {Query{Text: "linear issue"}, Absent{Server: linear}, 0, 0, 4, true},
		"at the end of hopeless":     {Query{Text: "github issue"}, Absent{}, hopeless, hopeless, 10, false},
	} {
		r, _ := newRetriever(t, Settings{Health: func() Health {
			if test.absent.Server == "" {
				return Health{}
			}
			return Health{Absent: []Absent{test.absent}}
		}})
		found := Found{Hits: hits, Confidence: test.confidence}
		r.doubt(test.query, &found)
		if found.Confidence != test.want || len(found.Hits) != test.hits || (len(found.Absent) == 1) != test.named {
			t.Errorf("%s: confidence %v, %d hits, absent %v; want %v, %d, %v", name, found.Confidence, len(found.Hits), found.Absent, test.want, test.hits, test.named)
		}
	}
}
