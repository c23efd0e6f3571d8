package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"toolfinch/internal/identity"
)

// Bounds of a feed.
const (
	kept        = 1000 // finished operations
	maxInFlight = 1000 // of shown running operations
	minutes     = 60   // counted minutes
)

// Feed has the running operations, the last 1,000 finished ones, and counts of the last hour. Its
// methods are safe for concurrent use and never wait.
type Feed struct {
	mu       sync.Mutex // guards all below; held for look-ups and copies of pointers only
	last     [kept]*Operation
	next     int // index in last of the next one
	inFlight map[*Running]struct{}
	begun    int64 // operations, since the start
	running  int   // running operations, also those missing in inFlight
	counts   [minutes]Minute
	searches []Searches // the latest last
	searched int        // bytes of searches
	keep     int        // bound on searches
}

// Minute counts the operations that finished within one minute, without nested ones (Depth above 0).
type Minute struct {
	Start    time.Time // of the minute
	All      int
	Outcomes map[string]int // other than identity.Success, by outcome; may be nil
}

// Failed counts the failed operations.
func (m Minute) Failed() (n int) {
	for _, of := range m.Outcomes {
		n += of
	}
	return n
}

// NewFeed returns an empty feed.
func NewFeed() *Feed {
	return &Feed{inFlight: map[*Running]struct{}{}}
}

// Begin begins an operation; its Time is now unless it is set. Stages started with the returned context
// belong to it.
func (f *Feed) Begin(ctx context.Context, o Operation) (context.Context, *Running) {
	if o.Time.IsZero() {
		o.Time = time.Now()
	}
	o.bound()
	r := &Running{feed: f, parent: runningOf(ctx), Operation: o}
	ctx = r.beginSpan(ctx)
	f.mu.Lock()
	f.begun++
	r.N = f.begun
	f.running++
	if len(f.inFlight) < maxInFlight {
		f.inFlight[r] = struct{}{}
	}
	f.mu.Unlock()
	return context.WithValue(ctx, runningKey{}, r), r
}

// finished takes a finished operation.
func (f *Feed) finished(r *Running) {
	o := &r.Operation
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	delete(f.inFlight, r)
	f.last[f.next] = o
	f.next = (f.next + 1) % kept
	f.keepSearches(r)
	if o.Depth == 0 {
		f.count(o.Time.Add(o.Duration), o.Outcome)
	}
}

// count counts one operation; the caller holds the lock.
func (f *Feed) count(at time.Time, outcome string) {
	at = at.Truncate(time.Minute)
	m := &f.counts[at.Unix()/60%minutes]
	if !m.Start.Equal(at) {
		*m = Minute{Start: at}
	}
	m.All++
	if outcome != identity.Success {
		if m.Outcomes == nil {
			m.Outcomes = map[string]int{}
		}
		m.Outcomes[outcome]++
	}
}

// Keep sets for how many operations at most the feed keeps searches; 0 for none. Surplus searches are forgotten at once.
func (f *Feed) Keep(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep = n
	f.forgetSearches()
	f.searches = slices.Clone(f.searches)
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
	one := Searches{N: r.N, View: r.View, All: asked}
	f.searches, f.searched = append(f.searches, one), f.searched+one.size()
	f.forgetSearches()
}

// forgetSearches forgets the oldest searches that are too many or hold too much; the caller holds the lock.
func (f *Feed) forgetSearches() {
	n := 0
	for ; len(f.searches)-n > f.keep || f.searched > maxSearched; n++ {
		f.searched -= f.searches[n].size()
	}
	f.searches = slices.Delete(f.searches, 0, n)
}

// keeps reports whether the feed keeps searches.
func (f *Feed) keeps() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keep > 0
}

// Recent returns up to n finished operations that keep accepts (nil: all), the latest first.
func (f *Feed) Recent(n int, keep func(*Operation) bool) []*Operation {
	var all []*Operation
	f.mu.Lock()
	for i := range kept {
		if o := f.last[(f.next-1-i+2*kept)%kept]; o != nil {
			all = append(all, o)
		}
	}
	f.mu.Unlock()
	if keep != nil {
		all = slices.DeleteFunc(all, func(o *Operation) bool { return !keep(o) })
	}
	return all[:min(n, len(all))]
}

// InFlight returns the running operations, the oldest first, at most 1,000 of them, and their number.
// Their stages have begun, maybe not ended.
func (f *Feed) InFlight() (shown []Operation, all int) {
	f.mu.Lock()
	running := make([]*Running, 0, len(f.inFlight))
	for r := range f.inFlight {
		running = append(running, r)
	}
	all = f.running
	f.mu.Unlock()
	shown = make([]Operation, len(running))
	for i, r := range running {
		shown[i] = r.snapshot()
	}
	sort.Slice(shown, func(i, j int) bool {
		a, b := &shown[i], &shown[j]
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Depth, b.Depth)) < 0
	})
	return shown, all
}

// Hour returns the counts of the last 60 minutes, the oldest first. The last one is the present minute.
func (f *Feed) Hour(now time.Time) []Minute {
	all := make([]Minute, minutes)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range all {
		at := now.Add(time.Duration(i-minutes+1) * time.Minute).Truncate(time.Minute)
		all[i].Start = at
		if m := f.counts[at.Unix()/60%minutes]; m.Start.Equal(at) {
			all[i].All = m.All
			for outcome, n := range m.Outcomes {
				if all[i].Outcomes == nil {
					all[i].Outcomes = map[string]int{}
				}
				all[i].Outcomes[outcome] = n
			}
		}
	}
	return all
}
