package page

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Sums is the data of the overview, except the servers.
type Sums struct {
	Tools         int    // number of tools that the user may use
	Store         string // why the store cannot store now
	Configuration string // base name of the file; "" unless the owner asks
	Saved         int64  // weighted tokens saved since the start
	Percent       int    // Saved, in per cent
	Replicas      []Replica
	Differ        []string // differences between the replicas; a problem only if they last
}

// Replica is one of the processes that share the store. Only the owner sees replicas.
type Replica struct {
	ID            string // unique; replicas may have the same name
	Name, Version string
	Since         time.Time
	Leads         []string // servers that it lists for all replicas, sorted
	This          bool     // this replica serves the page
	Sessions      int      // sessions; only of this replica
}

// Minute counts the calls that ended in one minute.
type Minute struct {
	Start       time.Time
	All, Failed int
}

// summing is the Backend of the overview.
type summing interface {
	Sums(ctx context.Context) Sums
	// Hour counts the calls of the last 60 minutes, oldest minute first. It is nil unless the owner asks.
	Hour(ctx context.Context) []Minute
}

var overviewScreen = &screen{Path: "", title: "Overview", Menu: "Overview", file: "overview.html", show: showOverview}

// overview is the data of the template.
type overview struct {
	Sums
	Servers []Upstream
	Ready   int
	On      int // number of servers that are not disabled
	Held    int
	Trouble []Upstream // servers that need attention, worst first
	Owner   bool
	Plot    plot
}

// plot has a bar for each minute with calls. In SVG, y grows downwards.
type plot struct {
	Bars        []bar
	All, Failed int
	Most        int // calls in the busiest minute
}

type bar struct {
	X, Y, Height float64 // the bar of all calls
	BadY, Bad    float64 // the part for failed calls
	Minute
}

// Sizes in the SVG, which the browser scales to the page.
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
	order := []string{"failed", "needs_login", "pending", "downloading", "ready"}
	slices.SortStableFunc(o.Trouble, func(a, b Upstream) int {
		return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State))
	})
	return o, nil
}
