package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolfinch/index"
	"toolfinch/internal/telemetry"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// editing is the Backend of edits of tools in the configuration file. Edits wait a moment until they are served.
// Callers check that the owner asks.
type editing interface {
	// Hide hides a tool from all views, or shows it again.
	Hide(ctx context.Context, id tool.ID, hidden bool) error
	// AddWords adds words to the description of a tool, by which a search finds it, and returns the new ones.
	// RemoveWords removes such words.
	AddWords(ctx context.Context, id tool.ID, words []string) (added []string, err error)
	RemoveWords(ctx context.Context, id tool.ID, words []string) error
	// Words returns the added words of a tool.
	Words(id tool.ID) []string
}

// searched is a search of a client: what it found, and what it would find now.
type searched struct {
	telemetry.Search
	I       int // its place among the searches of its operation
	Then    []found
	Further []found // hits now that the client did not get
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

// searchesOf returns the kept searches of an operation, for the owner.
func (q *request) searchesOf(n int64) (all []searched) {
	if !q.owner() {
		return nil
	}
	kept, _ := q.server.Backend.Feed().SearchesOf(n)
	for i, s := range kept.All {
		all = append(all, q.searched(kept.View, i, s))
	}
	return all
}

func kindsNamed(name string) []tool.Kind {
	for _, k := range searchKinds {
		if k.Name == name {
			return k.kinds
		}
	}
	return nil
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

// correction is what came of the owner's saying that a search meant a tool.
type correction struct {
	N             int64 // number of the search's operation
	I             int   // index of the search in it
	Of            tool.ID
	Name          string
	Words         []string
	Before, After int // place for the query; 0 for none
	Others        int // number of other kept queries
	Moved         []moved
	Unsaid        bool // more queries moved than Moved has
	Partial       bool // vectors of the new description were not there yet
	Undone        bool
}

// moved is another kept query for which the tool has another place now, at least one of both among the first fewHits.
type moved struct {
	Query         string
	Before, After int
	Above         string // the tool that was first, if the meant one is first now; "" else
}

// place is where a search finds a tool.
type place struct {
	At    int // 0 for nowhere among the first maxHits
	First string
}

// Bounds of corrections and their measure.
const (
	maxCorrections = 50
	maxMeasured    = 100 // other queries
	maxMoved       = 10  // shown ones
	measureWithin  = 3 * time.Second
	embedWithin    = 5 * time.Second
)

// corrections are kept in memory, the latest last.
type corrections struct {
	mu  sync.Mutex // guards all and their Undone; held for look-ups only
	all []*correction
}

func (c *corrections) add(one *correction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(slices.Delete(c.all, 0, max(0, len(c.all)-maxCorrections+1)), one)
}

// of returns copies of the corrections of an operation, the latest first.
func (c *corrections) of(n int64) (all []correction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range slices.Backward(c.all) {
		if one.N == n {
			all = append(all, *one)
		}
	}
	return all
}

// undone marks the corrections that added a word which is removed now.
func (c *corrections) undone(id tool.ID, words []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.Of == id && slices.ContainsFunc(one.Words, func(word string) bool { return slices.Contains(words, word) }) {
			one.Undone = true
		}
	}
}

// doLive handles the forms of one search: a hit or another tool was meant, or is hidden.
func doLive(q *request) (answer, error) {
	to := answer{to: "live" + query(q)}
	if !q.owner() {
		return to, errOwner
	}
	n, _ := strconv.ParseInt(q.URL.Query().Get("n"), 10, 64)
	kept, ok := q.server.Backend.Feed().SearchesOf(n)
	if !ok {
		return to, errors.New("this search is not kept any more")
	}
	name := strings.TrimSpace(q.PostForm.Get("tool"))
	switch do := q.PostForm.Get("do"); do {
	case "meant":
		i, err := strconv.Atoi(q.PostForm.Get("search"))
		if err != nil || i < 0 || i >= len(kept.All) {
			return to, refusef(http.StatusBadRequest, "there is no such search")
		}
		return to, q.meant(kept, i, name)
	case "hide":
		catalogue, _, err := catalogueOf(q, kept.View)
		if err != nil {
			return to, err
		}
		return to, q.hide(catalogue, name)
	case "undo":
		server, words, _ := strings.Cut(q.PostForm.Get("words"), " ")
		return to, q.forget(tool.ID{Server: server, Name: name}, strings.Fields(words))
	default:
		return to, refusef(http.StatusBadRequest, "this page does not do %q", do)
	}
}

// hide hides a tool of a view from all views.
func (q *request) hide(c Catalogue, name string) error {
	t, err := c.Catalog.Find(name)
	if err != nil {
		return fmt.Errorf("there is no tool %q in the view %s", name, c.View)
	}
	if err := q.server.Backend.Hide(q.Context(), t.Def.ID, true); err != nil {
		return err
	}
	q.say(good, fmt.Sprintf("%s is hidden from all agents: the page of the server %s shows it again", t.Def.ID, t.Def.ID.Server))
	return nil
}

// edit handles the buttons that edit the shown tool in the configuration.
func (l listing) edit(q *request, do string) (answer, error) {
	to := answer{to: "catalogue" + query(q)}
	if !l.Edits() {
		return to, errOwner
	}
	if do == "forget" {
		return to, q.forget(l.One.Def.ID, l.One.Words)
	}
	err := q.hide(l.Catalogue, l.One.Def.ID.String())
	if err == nil {
		to.to = address("catalogue", "view", l.named(), "server", l.One.Def.ID.Server)
	}
	return to, err
}

// forget removes added words.
func (q *request) forget(id tool.ID, words []string) error {
	if len(words) == 0 {
		return refusef(http.StatusBadRequest, "no words are named")
	}
	if err := q.server.Backend.RemoveWords(q.Context(), id, words); err != nil {
		return err
	}
	q.server.corrections.undone(id, words)
	q.say(good, fmt.Sprintf("removed from the description of %s: %s", id, strings.Join(words, ", ")))
	return nil
}

// meant adds the words of a search that a tool lacks to its description, and measures what that changes for this and
// for the other kept searches.
func (q *request) meant(kept telemetry.Searches, i int, name string) error {
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
	others := q.others(kept.View, search)
	all := append([]telemetry.Search{search}, others...)
	before, embedded := q.places(catalogue, all, id), catalogue.Catalog.Embedded()
	added, err := q.server.Backend.AddWords(q.Context(), id, words)
	if err != nil {
		return err
	}
	if catalogue, _, err = catalogueOf(q, kept.View); err != nil {
		return err
	}
	one := &correction{N: kept.N, I: i, Of: id, Name: t.Name, Words: added, Partial: !q.embedded(catalogue, embedded)}
	after := q.places(catalogue, all, id)
	one.measured(all, before, after)
	q.server.corrections.add(one)
	return nil
}

// measured compares the places before and after; the first one is that of the search itself.
func (c *correction) measured(all []telemetry.Search, before, after []place) {
	n := min(len(before), len(after))
	for i := range n {
		b, a := before[i], after[i]
		if i == 0 {
			c.Before, c.After = b.At, a.At
			continue
		}
		c.Others++
		if b.At == a.At || !seenAt(b.At) && !seenAt(a.At) {
			continue
		}
		if len(c.Moved) == maxMoved {
			c.Unsaid = true
			continue
		}
		one := moved{Query: all[i].Query, Before: b.At, After: a.At}
		if a.At == 1 {
			one.Above = b.First
		}
		c.Moved = append(c.Moved, one)
	}
}

// seenAt reports whether clients see a hit at a place.
func seenAt(place int) bool { return place > 0 && place <= fewHits }

// others returns the other kept searches of a view, each query once, the latest first.
func (q *request) others(view string, than telemetry.Search) (all []telemetry.Search) {
	seen := map[string]bool{than.Query: true}
	for _, kept := range q.server.Backend.Feed().Searches() {
		for _, s := range kept.All {
			if kept.View == view && !seen[s.Query] && len(all) < maxMeasured {
				seen[s.Query] = true
				all = append(all, s)
			}
		}
	}
	return all
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
		if time.Now().After(end) {
			return false
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-q.Context().Done():
			return false
		}
	}
	return true
}
