package retrieve

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"toolfinch/index"
	"toolfinch/tool"
)

// Use says that a tool was called after a query.
type Use struct {
	Principal string // the caller; "" for an unknown caller. Search results never reveal another principal's queries

	Query string  // as asked, without control characters; at most 500 bytes
	Tool  tool.ID // the upstream's tool
	Count float64 // weight at the time At: above 0; at most 4 for all uses together
	At    time.Time
}

// halfLife is the time after which a use counts half.
const halfLife = 30 * 24 * time.Hour

// Weight returns what u counts at a later time: half of Count after 30 days.
func (u Use) Weight(at time.Time) float64 {
	age := max(0, at.Sub(u.At)) // a clock that was set back must not raise the weight
	return u.Count * math.Exp2(-float64(age)/float64(halfLife))
}

// Bounds of a Memory.
const (
	maxUses      = 5000 // number of pairs of query and tool
	maxUseQuery  = 500  // bytes of a query
	maxCount     = 4.0  // of one pair: a wrong lesson fades within months
	maxSessions  = 1000
	maxAsked     = MaxNeeds // queries kept for a session
	recentEnough = 15 * time.Minute
)

// Constants that turn uses into a prior, chosen on averages.
const (
	leastSimilar = 0.5 // queries with a cosine up to this are unrelated
	enough       = 1.0 // count that makes a prior of 1 - 1/e for the same query
)

// Memory learns which tools were called after which queries, and raises them after similar queries. It is opt-in,
// because queries are what people say. Its methods are safe for concurrent use and do no I/O.
type Memory struct {
	save func(Use)

	// mu guards all below. It is not held while save runs.
	mu       sync.RWMutex
	sessions map[string]*sessionQueries
	queries  map[queryKey]int // indexes in learned
	learned  []*learnedQuery  // nil: a forgotten query
	free     []int            // indexes of nil in learned
	byTerm   map[string][]int // indexes in learned of the queries with a term
	size     int              // number of uses in learned
}

// queryKey is a query and the principal who asked it.
type queryKey struct{ principal, text string }

// learnedQuery is a query and the tools that were called after it.
type learnedQuery struct {
	queryKey
	terms []string // sorted, each once
	uses  []Use
}

// sessionQueries are the recent queries of a session, the latest last.
type sessionQueries struct {
	principal string
	queries   []askedQuery
	at        time.Time // of the latest
}

type askedQuery struct {
	text   string
	found  []tool.ID // best first
	called map[tool.ID]bool
	at     time.Time
}

// NewMemory returns a Memory with the 5,000 earlier uses that count most. save, which may be nil, is given every
// new use, which adds to the stored uses of the same query and tool; it must not block.
func NewMemory(known []Use, save func(Use)) *Memory {
	return newMemory(known, save, distinctTerms)
}

func newMemory(known []Use, save func(Use), terms func(query string) []string) *Memory {
	m := &Memory{
		save:     save,
		sessions: map[string]*sessionQueries{},
		queries:  map[queryKey]int{},
		byTerm:   map[string][]int{},
	}
	now := time.Now()
	known = slices.Clone(known)
	slices.SortStableFunc(known, func(a, b Use) int { return cmp.Compare(b.Weight(now), a.Weight(now)) })
	for _, use := range known {
		if m.size == maxUses {
			break
		}
		use.Query = normalize(use.Query)
		if use.Count > 0 { // false for NaN and for damaged counts
			m.add(use, terms)
		}
	}
	return m
}

// Recall replaces what is learned by known, which includes the uses of other processes. The queries of sessions
// stay.
func (m *Memory) Recall(known []Use) {
	before := m.terms() // few queries are new, and computing terms takes longest
	next := newMemory(known, nil, func(query string) []string {
		if terms := before[query]; terms != nil {
			return terms
		}
		return distinctTerms(query)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queries, m.learned, m.free, m.byTerm, m.size = next.queries, next.learned, next.free, next.byTerm, next.size
}

// terms returns the terms of all learned queries.
func (m *Memory) terms() map[string][]string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string][]string, len(m.queries))
	for by, at := range m.queries {
		all[by.text] = m.learned[at].terms
	}
	return all
}

// Asked records that a principal's session asked a query and which tools it was shown, best first. The session ""
// is ignored.
func (m *Memory) Asked(principal, session, query string, found []tool.ID) {
	if session == "" || len(found) == 0 {
		return
	}
	text := normalize(query)
	asked := askedQuery{text: text, found: slices.Clone(found), called: map[tool.ID]bool{}, at: time.Now()}

	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		if len(m.sessions) >= maxSessions {
			m.forgetSession()
		}
		s = &sessionQueries{principal: principal}
		m.sessions[session] = s
	}
	s.at = asked.at
	// A repeated query continues the earlier one: a loop of one query and one call is one use.
	if i := slices.IndexFunc(s.queries, func(q askedQuery) bool { return q.text == text }); i >= 0 {
		if asked.at.Sub(s.queries[i].at) <= recentEnough {
			asked.called = s.queries[i].called
		}
		s.queries = slices.Delete(s.queries, i, i+1)
	}
	if len(s.queries) == maxAsked {
		s.queries = slices.Delete(s.queries, 0, 1)
	}
	s.queries = append(s.queries, asked)
}

// forgetSession removes the session whose latest query is oldest.
func (m *Memory) forgetSession() {
	var oldest string
	for name, s := range m.sessions {
		if oldest == "" || s.at.Before(m.sessions[oldest].at) {
			oldest = name
		}
	}
	delete(m.sessions, oldest)
}

// Called records that a session called a tool with success. It is a use of the latest query of the last 15 minutes
// that found the tool, once per query.
func (m *Memory) Called(session string, id tool.ID) {
	use, ok := m.called(session, id)
	if ok && m.save != nil {
		m.save(use)
	}
}

func (m *Memory) called(session string, id tool.ID) (Use, bool) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[session]
	if s == nil {
		return Use{}, false
	}
	for _, q := range slices.Backward(s.queries) {
		rank := slices.Index(q.found, id)
		if rank < 0 || now.Sub(q.at) > recentEnough {
			continue
		}
		if q.called[id] {
			return Use{}, false
		}
		q.called[id] = true
		use := Use{Principal: s.principal, Query: q.text, Tool: id, Count: surprise(rank), At: now}
		return use, m.add(use, distinctTerms)
	}
	return Use{}, false
}

// surprise returns how much a call says about a tool at a rank, 0 for the first. The first tool is called because
// it is first; if that counted fully, a prior would feed on itself.
func surprise(rank int) float64 { return min(1, 0.25*float64(rank+1)) }

// add learns a use. It reports false for a query without terms.
func (m *Memory) add(use Use, termsOf func(query string) []string) bool {
	by := queryKey{use.Principal, use.Query}
	at, known := m.queries[by]
	if !known {
		terms := termsOf(use.Query)
		if len(terms) == 0 {
			return false
		}
		at = m.addQuery(&learnedQuery{queryKey: by, terms: terms})
	}
	q := m.learned[at]
	use.Count = min(use.Count, maxCount)
	if i := slices.IndexFunc(q.uses, func(u Use) bool { return u.Tool == use.Tool }); i >= 0 {
		use.Count = min(maxCount, use.Count+q.uses[i].Weight(use.At))
		q.uses[i] = use
		return true
	}
	if m.size == maxUses {
		m.forgetUse(q, use.At)
	}
	q.uses = append(q.uses, use)
	m.size++
	return true
}

// addQuery adds a query.
func (m *Memory) addQuery(q *learnedQuery) int {
	at := len(m.learned)
	if n := len(m.free); n > 0 {
		at, m.free = m.free[n-1], m.free[:n-1]
		m.learned[at] = q
	} else {
		m.learned = append(m.learned, q)
	}
	m.queries[q.queryKey] = at
	for _, term := range q.terms {
		m.byTerm[term] = append(m.byTerm[term], at)
	}
	return at
}

// forgetUse removes the use that counts least. The query keep stays known.
func (m *Memory) forgetUse(keep *learnedQuery, now time.Time) {
	at, use, least := -1, -1, math.Inf(1)
	for i, q := range m.learned {
		if q == nil {
			continue
		}
		for j, u := range q.uses {
			if w := u.Weight(now); w < least {
				at, use, least = i, j, w
			}
		}
	}
	q := m.learned[at]
	q.uses = slices.Delete(q.uses, use, use+1)
	m.size--
	if len(q.uses) > 0 || q == keep {
		return
	}
	delete(m.queries, q.queryKey)
	for _, term := range q.terms {
		places := m.byTerm[term]
		i := slices.Index(places, at)
		if places = slices.Delete(places, i, i+1); len(places) == 0 {
			delete(m.byTerm, term)
		} else {
			m.byTerm[term] = places
		}
	}
	m.learned[at] = nil
	m.free = append(m.free, at)
}

// Prior returns, for each tool that the principal called after similar queries, how much to expect it: above 0, at
// most 1. It is nil without similar queries. Queries are similar by shared stems; rare stems count more.
func (m *Memory) Prior(principal, query string) map[tool.ID]float64 {
	terms := distinctTerms(normalize(query))
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	var prior map[tool.ID]float64
	for _, near := range m.similar(principal, terms) {
		for _, use := range near.uses {
			// The chance that this query or an earlier one means the tool: many calls never outweigh a low
			// similarity.
			p := near.similarity * -math.Expm1(-use.Weight(now)/enough)
			if p <= 0 { // the use has faded
				continue
			}
			if prior == nil {
				prior = map[tool.ID]float64{}
			}
			prior[use.Tool] += p * (1 - prior[use.Tool])
		}
	}
	return prior
}

type similarQuery struct {
	*learnedQuery
	similarity float64 // above 0; 1 for the same query
}

// similar returns the learned queries of a principal that are similar to terms, in no order.
func (m *Memory) similar(principal string, terms []string) []similarQuery {
	shared := make([]float64, len(m.learned))
	var norm float64 // squared
	var touched bool
	for _, term := range terms {
		weight := m.weight(term)
		norm += weight
		for _, at := range m.byTerm[term] {
			shared[at] += weight
			touched = true
		}
	}
	if !touched {
		return nil
	}
	var out []similarQuery
	for at, dot := range shared {
		// A query's squared norm is at least its shared part, so this bounds the cosine without reading its terms.
		if dot < leastSimilar*leastSimilar*norm {
			continue
		}
		q := m.learned[at]
		if q == nil || q.principal != principal {
			continue
		}
		var other float64
		for _, term := range q.terms {
			other += m.weight(term)
		}
		cosine := min(1, dot/math.Sqrt(norm*other))
		if cosine > leastSimilar {
			out = append(out, similarQuery{q, (cosine - leastSimilar) / (1 - leastSimilar)})
		}
	}
	return out
}

// weight returns the squared inverse document frequency of a term.
func (m *Memory) weight(term string) float64 {
	found := max(1, len(m.byTerm[term]))
	idf := math.Log1p(float64(len(m.queries)) / float64(found))
	return idf * idf
}

func distinctTerms(text string) []string {
	all := index.Terms(text)
	slices.Sort(all)
	return slices.Compact(all)
}

// normalize returns a query as it is remembered: single spaces for control characters, at most the bound. Case
// stays, because terms split at changes of case.
func normalize(query string) string {
	if len(query) > 8*maxUseQuery { // the rest would be cut anyway
		query = query[:8*maxUseQuery]
	}
	query = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(query, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if len(query) > maxUseQuery {
		query = strings.TrimSpace(strings.ToValidUTF8(query[:maxUseQuery], ""))
	}
	return query
}
