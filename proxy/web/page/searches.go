package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/index"
	"toolfinch/internal/leeway"
	"toolfinch/internal/telemetry"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// searched is a search of a client: what it found, and what it would find now.
type searched struct {
	telemetry.Search
	I       int // its place among the searches of its operation
	Then    []found
	Further []found // hits now that are not in Then
	Explain string  // link to the search with its settings
	Problem string  // why it cannot be searched now
}

// found is a hit of a client's search.
type found struct {
	Place int // in the client's answer; 0 for none
	Now   int // in an answer now; 0 for none
	Name  string
	ID    string
	Link  string
	Parts []index.Part
	Words []string // words that would be added to its description if it was meant; nil for none
	Tool  bool     // a tool of a view now, and not a prompt or a resource
}

// maxFurther bounds the hits that follow those of the client.
const maxFurther = 10

// searchedAgain repeats the kept searches of an operation, to explain them.
func (q *request) searchedAgain(kept telemetry.Searches) (all []searched) {
	for i, s := range kept.All {
		all = append(all, q.searched(kept.View, i, s))
	}
	return all
}

// searched repeats a search, to explain it.
func (q *request) searched(view string, i int, s telemetry.Search) searched {
	a := searched{Search: s, I: i, Explain: address("search", "q", s.Query, "view", view, "kind", s.Kind, "limit", strconv.Itoa(max(s.Limit, fewHits)))}
	catalogue, _, err := catalogueOf(q, view)
	now := &ranked{}
	if err == nil {
		now = rank(q, catalogue, setting{View: view}, retrieve.Query{Text: s.Query, Server: s.Server, Limit: min(len(s.Hits)+maxFurther, maxHits), Kinds: kindsNamed(s.Kind)})
	}
	if a.Problem = now.Error; err != nil {
		a.Problem = err.Error()
	}
	for i, h := range s.Hits {
		one := found{Place: i + 1, Name: h.Name, ID: h.ID}
		if at := slices.IndexFunc(now.Hits, func(n hit) bool { return n.ID.String() == h.ID }); at >= 0 {
			one.of(now.Hits[at])
		}
		a.Then = append(a.Then, one)
	}
	for _, n := range now.Hits {
		if len(a.Further) < maxFurther && !slices.ContainsFunc(s.Hits, func(h telemetry.SearchHit) bool { return h.ID == n.ID.String() }) {
			one := found{Name: n.Name, ID: n.ID.String()}
			one.of(n)
			a.Further = append(a.Further, one)
		}
	}
	for _, list := range [][]found{a.Then, a.Further} {
		for i := range list {
			list[i].tell(catalogue, s.Query)
		}
	}
	return a
}

// of takes what a hit says now.
func (f *found) of(now hit) { f.Now, f.Link, f.Parts = now.Place, now.Link, now.Parts }

// tell says what can be done with the hit.
func (f *found) tell(c Catalogue, query string) {
	if c.Catalog == nil {
		return
	}
	t, err := c.Catalog.Find(f.ID)
	if f.Tool = err == nil && t.Def.ID.String() == f.ID; !f.Tool {
		return
	}
	f.Words = retrieve.MissingWords(query, t)
	if f.Link == "" {
		named := c.View
		if c.Root {
			named = ""
		}
		f.Link = address("catalogue", "view", named, "kind", "tool", "name", t.Name)
	}
}

// Bounds of the measure of a correction.
const (
	maxMeasured   = 100 // other queries
	measureWithin = 3 * time.Second
	embedWithin   = 5 * time.Second
)

// meant adds the words of a search that a tool lacks to its description, and measures what that changes for this and
// for the other kept searches.
func (q *request) meant(kept telemetry.Searches, i int, name string, all []telemetry.Searches) error {
	catalogue, _, err := catalogueOf(q, kept.View)
	if err != nil {
		return err
	}
	t, err := catalogue.Catalog.Find(name)
	if err != nil {
		near := strings.Join(catalogue.Catalog.Nearest(name, 3), ", ")
		return fmt.Errorf("there is no tool %q in the view %s; nearest: %s", name, kept.View, near)
	}
	search, id := kept.All[i], t.Def.ID
	words := retrieve.MissingWords(search.Query, t)
	if len(words) == 0 {
		return fmt.Errorf("%s has every word of this query already: Why shows what the others have more of", t.Name)
	}
	asked := append([]telemetry.Search{search}, others(all, kept.View, search)...)
	before, embedded := q.places(catalogue, asked, id), catalogue.Catalog.Embedded()
	added, err := q.server.Backend.AddWords(q.Context(), id, words)
	switch {
	case err != nil:
		return err
	case len(added) == 0:
		return fmt.Errorf("%s has these words under its server, but the view %s describes it without {original}: add them there", t.Name, kept.View)
	}
	if catalogue, _, err = catalogueOf(q, kept.View); err != nil {
		return err
	}
	one := &correction{N: kept.N, I: i, Of: id, Name: t.Name, Words: added, Partial: !q.embedded(catalogue, embedded)}
	after := q.places(catalogue, asked, id)
	one.measured(asked, before, after)
	q.server.corrections.add(one)
	return nil
}

// others returns the other kept searches of a view, each query once, the latest first.
func others(all []telemetry.Searches, view string, than telemetry.Search) (other []telemetry.Search) {
	seen := map[string]bool{than.Query: true}
	for _, kept := range all {
		for _, s := range kept.All {
			if kept.View == view && !seen[s.Query] && len(other) < maxMeasured {
				seen[s.Query] = true
				other = append(other, s)
			}
		}
	}
	return other
}

// places returns where searches find a tool. It leaves out the last ones if they take too long.
func (q *request) places(c Catalogue, all []telemetry.Search, id tool.ID) (found []place) {
	end := time.Now().Add(measureWithin)
	for i, s := range all {
		if i > 0 && time.Now().After(end) {
			break
		}
		got, err := c.Retriever.Search(q.Context(), retrieve.Query{Text: s.Query, Server: s.Server, Limit: maxHits, Kinds: kindsNamed(s.Kind)})
		if err != nil {
			break
		}
		one := place{At: 1 + slices.IndexFunc(got.Hits, func(h retrieve.Hit) bool { return h.Def.ID == id })}
		if len(got.Hits) > 0 {
			one.First = got.Hits[0].Name
		}
		found = append(found, one)
	}
	return found
}

// embedded waits until as many tools have vectors as before, and reports whether they do.
func (q *request) embedded(c Catalogue, before int) bool {
	end := time.Now().Add(embedWithin)
	for c.Catalog.Embedded() < before {
		if time.Now().After(end) || !leeway.Wait(q.Context(), 20*time.Millisecond) {
			return false
		}
	}
	return true
}
