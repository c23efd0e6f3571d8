package telemetry

import (
	"context"
	"slices"

	"toolfinch/internal/rawjson"
)

// Search is what a search asked, and what it found. It is kept apart from its operation, so that logs, traces and
// status cannot repeat it.
type Search struct {
	Query  string
	Server string // only tools of this server; "" for all
	Kind   string // what was searched, as clients name it; "" for tools
	Limit  int
	Hits   []SearchHit // best first
}

// SearchHit is a found definition.
type SearchHit struct {
	ID   string // server.name
	Name string // the client's name of it
}

// Searches are the searches of one operation.
type Searches struct {
	N    int64 // number of the operation
	View string
	All  []Search
}

// Bounds of kept searches.
const (
	maxQuery    = 2000 // bytes
	maxHits     = 50   // of one search
	maxSearches = 16   // of one operation
)

// Keep sets for how many operations the feed keeps searches; 0 for none. Surplus searches are forgotten at once.
func (f *Feed) Keep(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep = n
	f.searches = slices.Clone(f.searches[max(0, len(f.searches)-n):])
}

// Searches returns the kept searches, the latest first.
func (f *Feed) Searches() []Searches {
	f.mu.Lock()
	all := slices.Clone(f.searches)
	f.mu.Unlock()
	slices.Reverse(all)
	return all
}

// SearchesOf returns the kept searches of the operation with a number.
func (f *Feed) SearchesOf(n int64) (found Searches, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.searches, func(s Searches) bool { return s.N == n })
	if i < 0 {
		return Searches{}, false
	}
	return f.searches[i], true
}

// keepSearches keeps the searches of a finished operation; the caller holds the lock.
func (f *Feed) keepSearches(r *Running) {
	asked := r.asked
	r.asked = nil // last keeps r longer than searches keep these
	if len(asked) == 0 || f.keep == 0 {
		return
	}
	f.searches = slices.Delete(f.searches, 0, max(0, len(f.searches)-f.keep+1))
	f.searches = append(f.searches, Searches{N: r.N, View: r.View, All: asked})
}

// keeps reports whether the feed keeps searches.
func (f *Feed) keeps() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keep > 0
}

// Asked notes a search in the operation of ctx. It calls search only if the feed keeps searches.
func Asked(ctx context.Context, search func() Search) {
	r := runningOf(ctx)
	if r == nil || !r.feed.keeps() {
		return
	}
	s := search()
	s.Query, s.Server = rawjson.Clip(s.Query, maxQuery), rawjson.Clip(s.Server, maxText)
	s.Hits = s.Hits[:min(len(s.Hits), maxHits)]
	for i := range s.Hits {
		s.Hits[i].ID, s.Hits[i].Name = rawjson.Clip(s.Hits[i].ID, maxText), rawjson.Clip(s.Hits[i].Name, maxText)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended && len(r.asked) < maxSearches {
		r.asked = append(r.asked, s)
	}
}
