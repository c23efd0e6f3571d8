package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// SetReport is what was measured on one set.
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

// summarize fills in what follows from Queries and Limit.
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

// check refuses what summarize could not have come from.
func (s *SetReport) check() error {
	if s.Limit < 1 || s.Limit > MaxLimit || len(s.Queries) == 0 {
		return errors.New("no limit or no queries")
	}
	ids := map[string]bool{}
	for _, o := range s.Queries {
		sound := o.Relevant >= 1 && len(o.Ranks) <= o.Relevant && !ids[o.ID]
		last := 0
		for _, rank := range o.Ranks {
			sound = sound && rank > last && rank <= s.Limit
			last = rank
		}
		if !sound {
			return fmt.Errorf("query %q makes no sense", o.ID)
		}
		ids[o.ID] = true
	}
	return nil
}

// Report is what was measured on one set or several. Its JSON is the object of
// its only set, or {"macro": {...}, "sets": {NAME: {...}, ...}}.
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

// ReadReport reads the JSON of a Report from a file. Its sets are in the order
// of their names; what can be computed is computed anew.
func ReadReport(path string) (*Report, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r, err := parseReport(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: not a report of this program's eval: %w", path, err)
	}
	return r, nil
}

func parseReport(raw []byte) (*Report, error) {
	r := &Report{}
	var many manySets
	if err := json.Unmarshal(bytes.TrimPrefix(raw, []byte("\ufeff")), &many); err != nil {
		return nil, err
	}
	for name, s := range many.Sets {
		if s == nil {
			return nil, fmt.Errorf("set %s is null", name)
		}
		s.Name = name
		r.Sets = append(r.Sets, s)
	}
	if many.Sets == nil {
		one := &SetReport{}
		if err := json.Unmarshal(bytes.TrimPrefix(raw, []byte("\ufeff")), one); err != nil {
			return nil, err
		}
		r.Sets = append(r.Sets, one)
	}
	for _, s := range r.Sets {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("set %s: %w", s.Name, err)
		}
		s.summarize()
	}
	slices.SortFunc(r.Sets, func(a, b *SetReport) int { return strings.Compare(a.Name, b.Name) })
	r.average()
	return r, nil
}
