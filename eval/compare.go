package eval

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Comparison is the difference of two reports, B less A, over the queries that
// both have. Its JSON has the sets by name.
type Comparison struct {
	A, B  Side
	Macro *Difference // the average over Sets, each counting the same; nil for one set
	Sets  []*Difference
}

// Side is one of two reports.
type Side struct {
	Name     string   `json:"name"`
	Embedder string   `json:"embedder"`
	Limit    int      `json:"limit"`
	Only     []string `json:"only"` // sets that the other one lacks
}

// Difference is what changed on one set.
type Difference struct {
	Name    string           `json:"set"`
	N       int              `json:"n"`      // queries that were compared
	OnlyA   int              `json:"only_a"` // queries that B lacks
	OnlyB   int              `json:"only_b"` // queries that A lacks
	Metrics map[string]Delta `json:"metrics"`

	a, b []Outcome // the pairs
}

// Delta is the change of one metric.
type Delta struct {
	A          float64   `json:"a"`
	B          float64   `json:"b"`
	Difference float64   `json:"difference"` // B - A
	Interval   *Interval `json:"interval"`   // of Difference; nil for a single query
	Distinct   bool      `json:"distinct"`   // the interval excludes 0
}

// Compare pairs the queries of two reports by set and ID; of two reports of one
// set each the sets are paired whatever their names. It fails when the
// reports have no set in common, or a pair of sets no query.
func Compare(nameA string, a *Report, nameB string, b *Report) (*Comparison, error) {
	c := &Comparison{A: sideOf(nameA, a), B: sideOf(nameB, b)}
	var before, after [][]row
	paired := map[*SetReport]bool{}
	for _, x := range a.Sets {
		y := find(b.Sets, x.Name)
		if len(a.Sets) == 1 && len(b.Sets) == 1 {
			y = b.Sets[0]
		}
		if y == nil {
			c.A.Only = append(c.A.Only, x.Name)
			continue
		}
		paired[y] = true
		d := pair(x, y)
		if d.N == 0 {
			return nil, fmt.Errorf("set %s: %s and %s have no query in common", x.Name, nameA, nameB)
		}
		before = append(before, rowsOf(d.a, x.Limit))
		after = append(after, rowsOf(d.b, y.Limit))
		d.Metrics = deltas(before[len(before)-1:], after[len(after)-1:])
		c.Sets = append(c.Sets, d)
	}
	if len(c.Sets) == 0 {
		return nil, fmt.Errorf("%s and %s have no set in common", nameA, nameB)
	}
	for _, y := range b.Sets {
		if !paired[y] {
			c.B.Only = append(c.B.Only, y.Name)
		}
	}
	if len(c.Sets) > 1 {
		c.Macro = &Difference{Name: "macro", Metrics: deltas(before, after)}
		for _, d := range c.Sets {
			c.Macro.N += d.N
			c.Macro.OnlyA += d.OnlyA
			c.Macro.OnlyB += d.OnlyB
		}
	}
	return c, nil
}

func sideOf(name string, r *Report) Side {
	side := Side{Name: name, Only: []string{}}
	if len(r.Sets) > 0 {
		side.Embedder, side.Limit = r.Sets[0].Embedder, r.Sets[0].Limit
	}
	return side
}

func find(sets []*SetReport, name string) *SetReport {
	if i := slices.IndexFunc(sets, func(s *SetReport) bool { return s.Name == name }); i >= 0 {
		return sets[i]
	}
	return nil
}

// pair finds the queries that both sets have.
func pair(x, y *SetReport) *Difference {
	d := &Difference{Name: x.Name}
	inY := map[string]Outcome{}
	for _, o := range y.Queries {
		inY[o.ID] = o
	}
	for _, o := range x.Queries {
		if other, ok := inY[o.ID]; ok {
			d.a, d.b = append(d.a, o), append(d.b, other)
		}
	}
	d.N = len(d.a)
	d.OnlyA, d.OnlyB = len(x.Queries)-d.N, len(y.Queries)-d.N
	return d
}

// deltas compares rows in pairs: the same place in a and b is the same query.
func deltas(a, b [][]row) map[string]Delta {
	changes := make([][]row, len(a))
	for i := range a {
		changes[i] = make([]row, len(a[i]))
		for j := range a[i] {
			for m := range metrics {
				changes[i][j][m] = b[i][j][m] - a[i][j][m]
			}
		}
	}
	before, after, change := mean(a), mean(b), mean(changes)
	intervals := bootstrap(changes)
	out := map[string]Delta{}
	for i, m := range metrics {
		if math.IsNaN(change[i]) {
			continue
		}
		d := Delta{A: before[i], B: after[i], Difference: change[i]}
		if interval, ok := intervals[m.name]; ok {
			d.Interval = &interval
			d.Distinct = interval[0] > 0 || interval[1] < 0
		}
		out[m.name] = d
	}
	return out
}

// MarshalJSON implements json.Marshaler.
func (c *Comparison) MarshalJSON() ([]byte, error) {
	sets := map[string]*Difference{}
	for _, d := range c.Sets {
		sets[d.Name] = d
	}
	return json.Marshal(struct {
		A     Side                   `json:"a"`
		B     Side                   `json:"b"`
		Macro *Difference            `json:"macro,omitempty"`
		Sets  map[string]*Difference `json:"sets"`
	}{c.A, c.B, c.Macro, sets})
}
