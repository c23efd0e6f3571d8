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
	Principal string // who called, "" for nobody known: others' queries are not shown by what is found

	Query string  // as it was asked, without control characters; at most 500 bytes
	Tool  tool.ID // the upstream's tool
	Count float64 // how much it counted at At: above 0, and at most 4 for all uses together
	At    time.Time
}

// halfLife is how long it takes until a use counts half.
const halfLife = 30 * 24 * time.Hour

// Weight is what u counts at a later time: half of Count after 30 days.
func (u Use) Weight(at time.Time) float64 {
	age := max(0, at.Sub(u.At)) // a clock that was set back must not make it count more
	return u.Count * math.Exp2(-float64(age)/float64(halfLife))
}

// Bounds of a Memory.
const (
	maxUses      = 5000 // pairs of a query and a tool
	maxUseQuery  = 500  // bytes of a query
	maxCount     = 4.0  // of one pair: what is learned in error is unlearned within months
	maxSessions  = 1000
	maxAsked     = MaxNeeds // queries of a session
	recentEnough = 15 * time.Minute
)

// How uses become a prior, chosen on averages.
const (
	leastSimilar = 0.5 // cosine up to which two queries say nothing about each other
	enough       = 1.0 // count that makes a prior of 1 - 1/e for the same query
)

// Memory knows which tools were called after which queries, and expects them
// again after similar ones. It is for those who asked for it: queries are what
// people say. Its methods are safe for concurrent use and do no I/O.
type Memory struct {
	save func(Use)

	// mu guards all below. It is not held while save runs.
	mu       sync.RWMutex
	sessions map[string]*sessionQueries
	queries  map[queryKey]int // places in learned
	learned  []*learnedQuery  // nil where a query was forgotten
	free     []int            // places of nil in learned
	byTerm   map[string][]int // places in learned of the queries with a term
	size     int              // uses in learned
}

// asker is a query and who asked it.
type queryKey struct{ principal, text string }

// learnedQuery is a query and the tools that were called after it.
type learnedQuery struct {
	queryKey
	terms []string // sorted, each once
	uses  []Use
}

// asking is what a session has asked of late, the latest last.
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

// NewMemory returns a Memory that knows what was learned earlier, the 5,000
// uses that count most. save, which may be nil, is given every new use, to be
// added to what is known of the same query and tool; it must not block.
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
		if use.Count > 0 { // neither damage nor a number that is none
			m.add(use, terms)
		}
	}
	return m
}

// Recall makes what others have learned, too, what is known. What sessions asked stays.
func (m *Memory) Recall(known []Use) {
	before := m.terms() // few queries are new: working out their terms takes longest
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

// terms are those of the queries that are known.
func (m *Memory) terms() map[string][]string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make(map[string][]string, len(m.queries))
	for by, at := range m.queries {
		all[by.text] = m.learned[at].terms
	}
	return all
}

// Asked notes that a session, of a principal, asked a query and was shown the tools found,
// best first. The session "" is nobody's.
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
	// Who asks the same again goes on with it: a loop of one question and one
	// call is one use.
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

// forgetSession makes room: the session that has asked nothing for the longest.
func (m *Memory) forgetSession() {
	var oldest string
	for name, s := range m.sessions {
		if oldest == "" || s.at.Before(m.sessions[oldest].at) {
			oldest = name
		}
	}
	delete(m.sessions, oldest)
}

// Called notes that a session called a tool with success. It is a use of the
// latest query of the last 15 minutes that found the tool, once for each query.
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

// surprise is how much a call says about a tool that stood at rank, 0 the
// first. What stands first is called because it stands there; if that counted
// fully, a prior would feed on itself.
func surprise(rank int) float64 { return min(1, 0.25*float64(rank+1)) }

// add learns a use. It reports false for a query with no word to know it by.
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

// place makes a query known.
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

// forgetUse makes room: what counts least. It leaves the query keep known.
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

// Prior returns how much the tools that a principal called after similar queries are expected,
// above 0 and at most 1. It is nil when no similar query is known. Queries are
// similar by the stems they share, rare ones counting more.
func (m *Memory) Prior(principal, query string) map[tool.ID]float64 {
	terms := distinctTerms(normalize(query))
	now := time.Now()
	m.mu.RLock()
	defer m.mu.RUnlock()
	var prior map[tool.ID]float64
	for _, near := range m.similar(principal, terms) {
		for _, use := range near.uses {
			// The chance that this query or one before it means the tool: calls
			// after a query never outweigh how little similar it is.
			p := near.similarity * -math.Expm1(-use.Weight(now)/enough)
			if p <= 0 { // faded away
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
	similarity float64 // above 0, 1 for the same
}

// similar returns the learned queries of a principal near terms, in no order.
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
		// A query's squared norm is at least what it shares, so this bounds the
		// cosine without looking at its terms.
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

// weight is the squared inverse document frequency of a term.
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

// normalize is how a query is remembered: spaces for control characters, one at
// a time, and no more than the bound. Case stays, because it parts words.
func normalize(query string) string {
	if len(query) > 8*maxUseQuery { // no need to look at all of what is cut
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
