package eval

import "encoding/json"

// SetReport is the measurement of one set.
type SetReport struct {
	Name string `json:"set"`
	Group
	P50      float64          `json:"p50_ms"`   // of the retrieval of one query
	P95      float64          `json:"p95_ms"`   // the same
	Build    float64          `json:"build_ms"` // of the whole index, without Embed
	Embed    float64          `json:"embed_ms"` // of the vectors of all tools
	RSS      *float64         `json:"rss_mb"`   // of the process after the queries; nil when unknown
	Tools    int              `json:"tools"`
	Unknown  int              `json:"unknown_relevant"` // relevant labels that no tool has
	Embedder string           `json:"embedder"`
	Limit    int              `json:"limit"`
	Kinds    map[string]Group `json:"kinds"`
	Queries  []Outcome        `json:"queries"`
}

// summarize fills in the members that follow from Queries and Limit.
func (s *SetReport) summarize() {
	s.Group = groupOf([][]row{rowsOf(s.Queries, s.Limit)})
	byKind := map[string][]row{}
	for _, o := range s.Queries {
		if o.Kind != "" {
			byKind[o.Kind] = append(byKind[o.Kind], rowOf(o, s.Limit))
		}
	}
	s.Kinds = map[string]Group{}
	for kind, rows := range byKind {
		s.Kinds[kind] = groupOf([][]row{rows})
	}
}

// Report is the measurement of one or several sets. Its JSON is the object of its only set, or {"macro": {...},
// "sets": {NAME: {...}, ...}}.
type Report struct {
	Macro *Group // the average over the sets, each counting the same; nil for one set
	Sets  []*SetReport
}

// average fills in Macro.
func (r *Report) average() {
	if len(r.Sets) < 2 {
		return
	}
	var strata [][]row
	for _, s := range r.Sets {
		strata = append(strata, rowsOf(s.Queries, s.Limit))
	}
	macro := groupOf(strata)
	r.Macro = &macro
}

type manySets struct {
	Macro *Group                `json:"macro"`
	Sets  map[string]*SetReport `json:"sets"`
}

// MarshalJSON implements json.Marshaler.
func (r *Report) MarshalJSON() ([]byte, error) {
	if len(r.Sets) == 1 {
		return json.Marshal(r.Sets[0])
	}
	out := manySets{Macro: r.Macro, Sets: map[string]*SetReport{}}
	for _, s := range r.Sets {
		out.Sets[s.Name] = s
	}
	return json.Marshal(out)
}
