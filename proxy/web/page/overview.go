package page

var overviewScreen = &screen{Path: "", title: "Overview", Menu: "Overview", file: "overview.html", show: showOverview}

// overview is the data of the template.
type overview struct {
	Sums
	Servers []Upstream
	Ready   int
	On      int // number of servers that are not disabled
	Held    int
	Needs   []need
	Clients []SeenClient
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

// Connected counts the connected clients.
func (o overview) Connected() (n int) {
	for _, c := range o.Clients {
		if c.Connected() {
			n++
		}
	}
	return n
}

// Called returns the client that called last; nil if none has.
func (o overview) Called() *SeenClient {
	at := -1
	for i, c := range o.Clients {
		if !c.Last.IsZero() && (at < 0 || c.Last.After(o.Clients[at].Last)) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	return &o.Clients[at]
}

func showOverview(q *request) (any, error) {
	backend := q.server.Backend
	o := overview{Sums: backend.Sums(q.Context()), Servers: backend.Servers(q.Context()), Clients: backend.Clients(q.Context()), Owner: q.owner(), Plot: plotOf(backend.Hour(q.Context()))}
	for _, s := range o.Servers {
		o.Held += s.Held
		if s.State == StateDisabled {
			continue
		}
		o.On++
		if s.State == "ready" {
			o.Ready++
		}
	}
	o.Needs = needsOf(o.Servers, o.Configuration, o.Owner)
	return o, nil
}
