package page

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Sums are what the overview shows beside the servers.
type Sums struct {
	Tools         int    // of those that who asks may use
	Store         string // why nothing can be stored now
	Configuration string // base name of the file; "" for others than the owner
	Saved         int64  // weighed tokens that models did not read since the start
	Percent       int    // of what they would have read
	Replicas      []Replica
	Differ        []string // what differs between the replicas that should not for long
}

// Replica is one of the processes that share the store; there is none where one has it
// for itself, and for others than the owner.
type Replica struct {
	ID            string // unique; replicas may have the same name
	Name, Version string
	Since         time.Time
	Leads         []string // servers that it lists for all, sorted
	This          bool     // which shows the page
	Sessions      int      // that live there, of this one
}

// Minute counts the calls that ended within a minute.
type Minute struct {
	Start       time.Time
	All, Failed int
}

// Backend of the overview.
type summing interface {
	Sums(ctx context.Context) Sums
	// Hour are the calls of the last 60 minutes, the oldest first; nil for others than the
	// owner.
	Hour(ctx context.Context) []Minute
}

var overviewScreen = &screen{Path: "", title: "Overview", Menu: "Overview", file: "overview.html", show: showOverview}

// overview is what the template shows.
type overview struct {
	Sums
	Servers []Upstream
	Ready   int
	On      int // servers that are not disabled
	Held    int
	Trouble []Upstream // those that need somebody, the worst first
	Owner   bool
	Plot    plot
}

// plot is a bar for each minute, as SVG has it: y grows downwards.
type plot struct {
	Bars        []bar
	All, Failed int
	Most        int // the calls of the fullest minute
}

type bar struct {
	X, Y, Height float64 // of all calls
	BadY, Bad    float64 // of those that failed
	Minute
}

// Sizes of the plot. It grows with the page.
const (
	plotHeight = 64
	barEvery   = 10
)

func plotOf(hour []Minute) (p plot) {
	for _, m := range hour {
		p.All, p.Failed, p.Most = p.All+m.All, p.Failed+m.Failed, max(p.Most, m.All)
	}
	for i, m := range hour {
		if m.All == 0 {
			continue
		}
		scale := float64(plotHeight) / float64(p.Most)
		one := bar{X: float64(i * barEvery), Height: max(1.5, scale*float64(m.All)), Minute: m}
		if m.Failed > 0 {
			one.Bad = max(1.5, scale*float64(m.Failed))
		}
		one.Y, one.BadY = plotHeight-one.Height, plotHeight-one.Bad
		p.Bars = append(p.Bars, one)
	}
	return p
}

func showOverview(q *request) (any, error) {
	backend := q.server.Backend
	o := overview{Sums: backend.Sums(q.Context()), Servers: backend.Servers(q.Context()), Owner: q.owner(), Plot: plotOf(backend.Hour(q.Context()))}
	for _, s := range o.Servers {
		o.Held += s.Held
		if s.State == StateDisabled {
			continue
		}
		o.On++
		if s.State == "ready" {
			o.Ready++
		}
		if s.State != "ready" || s.Held > 0 {
			o.Trouble = append(o.Trouble, s)
		}
	}
	order := []string{"failed", "needs_login", "pending", "ready"}
	slices.SortStableFunc(o.Trouble, func(a, b Upstream) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	return o, nil
}
