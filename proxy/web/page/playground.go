package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/index"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

var searchScreen = &screen{Path: "search", title: "Search", Menu: "Search", file: "playground.html", show: showSearch}

// playground is the data of the template.
type playground struct {
	Query       string
	Tool        string // to explain why it is not first; "" for none
	Views       []string
	Kind, Kinds any
	Limit       int
	A, B        setting
	Compare     bool
	Results     []*ranked
	Embeds      bool
}

// setting is one way to search.
type setting struct {
	View  string
	Words bool // rank by words only, without vectors
}

// ranked are the hits of one setting.
type ranked struct {
	setting
	Label      string
	Hits       []hit
	Reason     string
	Confidence int // in per cent
	Doubtful   bool
	Lacks      string // what no tool mentions
	Absent     []retrieve.Absent
	Took       time.Duration
	Error      string
	Empty      bool
	WhyNot     *retrieve.Why // of the tool that is asked for; nil for none
}

// hit is a found definition with the parts of its score.
type hit struct {
	Place   int
	ID      tool.ID
	Name    string
	Summary string
	Score   string
	Link    string
	Beside  string // place with the other setting; "" without another setting
	Bars    []scoreBar
	Parts   []index.Part
}

// scoreBar is one part of a score's bar. The whole bar is up to barWidth wide.
type scoreBar struct {
	Class, What string
	X, Width    float64
}

const barWidth = 200

// scoreParts names the parts of a bar, in order, for the stylesheet and the page.
var scoreParts = []string{"words", "vectors", "name", "coverage", "use"}

// Key returns the names of the parts that occur in the results.
func (p playground) Key() (parts []string) {
	for _, name := range scoreParts {
		if slices.ContainsFunc(p.Results, func(r *ranked) bool {
			return slices.ContainsFunc(r.Hits, func(h hit) bool {
				return slices.ContainsFunc(h.Bars, func(b scoreBar) bool { return b.Class == name })
			})
		}) {
			parts = append(parts, name)
		}
	}
	return parts
}

var searchKinds = []struct {
	Name, Label string
	kinds       []tool.Kind
}{
	{"", "tools", nil},
	{"prompt", "prompts", []tool.Kind{tool.KindPrompt}},
	{"resource", "resources", []tool.Kind{tool.KindResource, tool.KindTemplate}},
	{"skill", "skills", []tool.Kind{tool.KindSkill}},
	{"any", "everything", tool.Kinds},
}

// kindsNamed returns the kinds that a search is for; nil for tools.
func kindsNamed(name string) []tool.Kind {
	for _, k := range searchKinds {
		if k.Name == name {
			return k.kinds
		}
	}
	return nil
}

// Default and bound of the hits, and bound of the query.
const (
	fewHits  = 10
	maxHits  = retrieve.MaxLimit
	maxQuery = 2000 // bytes
	maxTool  = 600  // bytes of a tool's name
)

func showSearch(q *request) (any, error) {
	in := q.URL.Query()
	catalogue, views, err := catalogueOf(q, in.Get("view"))
	if err != nil {
		return nil, err
	}
	p := playground{Query: rawjson.Clip(in.Get("q"), maxQuery), Tool: strings.TrimSpace(rawjson.Head(in.Get("tool"), maxTool)), Views: views, Kind: in.Get("kind"), Kinds: searchKinds, Embeds: catalogue.Embeds,
		A: setting{catalogue.View, in.Get("by") == "words"}, Compare: in.Get("compare") != ""}
	p.Limit, _ = strconv.Atoi(in.Get("limit"))
	p.Limit = min(max(cmp.Or(p.Limit, fewHits), 1), maxHits)
	kinds := kindsNamed(in.Get("kind"))
	all := []Catalogue{catalogue}
	other, _, err := catalogueOf(q, in.Get("view2"))
	if err != nil {
		return nil, err
	}
	p.B = setting{other.View, in.Get("by2") != "hybrid"}
	if p.Compare {
		all = append(all, other)
	}
	if strings.TrimSpace(p.Query) == "" {
		return p, nil
	}
	for i, s := range []setting{p.A, p.B}[:len(all)] {
		r := rank(q, all[i], s, retrieve.Query{Text: p.Query, Limit: p.Limit, Kinds: kinds})
		if p.Tool != "" && kinds == nil && r.Error == "" {
			why, err := q.server.Backend.WhyNot(q.Context(), s.View, p.Tool, retrieve.Query{Text: p.Query, Limit: p.Limit, Words: s.Words})
			if err != nil {
				return nil, err
			}
			r.WhyNot = &why
		}
		p.Results = append(p.Results, r)
	}
	if p.Compare {
		beside(p.Results[0], p.Results[1])
	}
	return p, nil
}

// rank searches with one setting. It registers no tools, and the ranking learns nothing from it.
func rank(q *request, s Catalogue, by setting, ask retrieve.Query) *ranked {
	r := &ranked{setting: by, Label: by.View + ", words and vectors"}
	if by.Words || !s.Embeds {
		r.Label = by.View + ", words"
	}
	ask.Explain, ask.Words = true, by.Words
	start := time.Now()
	found, err := s.Retriever.Search(q.Context(), ask)
	r.Took = time.Since(start)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Confidence, r.Doubtful, r.Absent = int(math.Round(100*found.Confidence)), found.Confidence < retrieve.Confident, found.Absent
	r.Empty, r.Lacks = len(found.Hits) == 0, found.NotMentioned()
	if s.Embeds && !by.Words && !found.Hybrid && !r.Empty {
		r.Reason = cmp.Or(found.Reason, "no embedder is at work")
	}
	named := s.View
	if s.Root {
		named = ""
	}
	most := 0.0
	for _, h := range found.Hits {
		most = max(most, gains(h.Why))
	}
	for i, h := range found.Hits {
		one := hit{Place: i + 1, ID: h.Def.ID, Name: h.Name, Summary: retrieve.FirstSentence(h.Def.Description), Score: fmt.Sprintf("%.3f", h.Score)}
		one.Link = address("catalogue", "view", named, "kind", kindNamed(h.Def.ID.Kind), "name", h.Name)
		if h.Why != nil {
			one.Bars, one.Parts = barsOf(h.Why, most), h.Why.Parts(found.Hybrid)
		}
		r.Hits = append(r.Hits, one)
	}
	return r
}

// Missing says in one line which servers cannot be searched or called now, and what is held; "" for none.
func (r ranked) Missing() string {
	var starting, failed, login, held []string
	for _, a := range r.Absent {
		to := &failed
		switch {
		case a.Held > 0:
			held = append(held, count(a.Held)+" of "+a.Server)
			continue
		case a.Starting > 0:
			to = &starting
		case a.Login != "":
			to = &login
		}
		*to = append(*to, a.Server)
	}
	var said []string
	for _, kind := range []struct {
		what    string
		servers []string
	}{{"Not there, still starting: ", starting}, {"Not there, failed: ", failed}, {"Not there, needs a login: ", login}, {"Held until you approve: ", held}} {
		if len(kind.servers) > 0 {
			said = append(said, kind.what+strings.Join(kind.servers, ", "))
		}
	}
	return strings.Join(said, ". ")
}

// gains is the sum of the positive parts of a score.
func gains(why *index.Explanation) (sum float64) {
	if why == nil {
		return 0
	}
	for _, value := range []float64{why.Words, why.Vectors, why.Exact, why.Coverage, why.Prior} {
		sum += max(value, 0)
	}
	return sum
}

func barsOf(why *index.Explanation, most float64) (bars []scoreBar) {
	if most <= 0 {
		return nil
	}
	x := 0.0
	for i, value := range []float64{why.Words, why.Vectors, why.Exact, why.Coverage, why.Prior} {
		if value > 0 {
			width := math.Round(barWidth*value/most*10) / 10
			bars = append(bars, scoreBar{scoreParts[i], fmt.Sprintf("%s %.3f", scoreParts[i], value), x, width})
			x += width
		}
	}
	return bars
}

// beside adds to each hit its place with the other setting.
func beside(a, b *ranked) {
	places := func(r *ranked) map[tool.ID]int {
		all := map[tool.ID]int{}
		for _, h := range r.Hits {
			all[h.ID] = h.Place
		}
		return all
	}
	inA, inB := places(a), places(b)
	for of, other := range map[*ranked]map[tool.ID]int{a: inB, b: inA} {
		for i, h := range of.Hits {
			switch place := other[h.ID]; {
			case place == 0:
				of.Hits[i].Beside = "not in the other"
			case place == h.Place:
				of.Hits[i].Beside = "same place"
			case place > h.Place:
				of.Hits[i].Beside = fmt.Sprintf("%s higher", plural(place-h.Place, "place"))
			default:
				of.Hits[i].Beside = fmt.Sprintf("%s lower", plural(h.Place-place, "place"))
			}
		}
	}
}
