package index

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// Query asks for tools, prompts or resources. Text is natural language or a name, never a syntax.
type Query struct {
	Text   string // the first 16 KiB are read
	Server string // only this upstream's tools; "" for all
	Limit  int    // bound on the hits; below 1: none
	// Kinds are the kinds to search; nil for tools. Words are as rare as they are among tools if tools are
	// searched, and among prompts and resources if these are.
	Kinds []tool.Kind
	// Among, if set, restricts the hits to a part of the snapshot. The rest is removed before ranking, but words
	// count as rare as they are in the whole snapshot.
	Among *Subset

	// Vectors are the vectors of QueryTexts(Text), in order. Without them words decide alone.
	Vectors [][]float32
	// Prior says how much earlier use raises each tool, by exposed name, from 0 to 1. It raises found tools by at
	// most 15 % of the best score.
	Prior map[string]float64

	Explain bool // explain each hit's score
}

// Result is the answer to a Query.
type Result struct {
	Hits []Hit // best first
	// Vectors reports whether vectors took part in the ranking.
	Vectors bool
	// Confidence is the probability, from 0 to 1, that a hit is the right tool and not just the nearest.
	Confidence float64
}

// Hit is a found document.
type Hit struct {
	Name  string  // of the document; a tool's is its exposed name
	Score float64 // above 0; comparable within one answer only
	Why   *Explanation
}

// Weights of a query, tuned on averages like the weights of texts.
const (
	saturation    = 1.8 // BM25's k1: how soon repeating a word adds nothing
	weightWritten = 0.4 // of the written form, relative to the stem
	weightConcept = 0.7 // of a word with about the same meaning, relative to the word
	weightClauses = 0.6 // of the clauses of a query, relative to the whole
	maxTerms      = 256 // different terms in a query
	maxClauses    = 8   // the last clause takes the rest
	resemblance   = 12  // of a name that another name contains; about the weight of a rare word
)

// Levels of an exact match; the first two are frequencies in fieldNames. The names of two tools may differ only by
// case or separators: the exact spelling comes first.
const (
	exactName   = 1 // the upstream's own name of the tool, in some spelling
	exactID     = 2 // the exposed name, or "server.name", in some spelling
	spelledName = 3 // the upstream's own name
	spelledID   = 4 // the exposed name, or "server.name"
)

// QueryTexts returns the texts of a query that are embedded: the whole and, if there are several, its clauses.
func QueryTexts(text string) []string {
	text = rawjson.Head(text, maxText)
	if parts := clauses(text); len(parts) > 1 {
		return append([]string{text}, parts...)
	}
	return []string{text}
}

// Terms returns the stems of the telling words of a query, each once, in order.
func Terms(text string) []string {
	var out, others []string // others: stems of request words
	a := newAnalyzer()
	a.each(rawjson.Head(text, maxText), func(w word) {
		to := &out
		if w.request {
			to = &others
		}
		if stem := a.terms[w.stem]; !slices.Contains(*to, stem) {
			*to = append(*to, stem)
		}
	})
	if len(out) == 0 {
		return others
	}
	return out
}

// ranking is one search. Documents are numbered as in the snapshot.
type ranking struct {
	ctx      context.Context
	x        *Snapshot
	groups   []string // of the searched documents
	allowed  *Subset  // the documents that may be found; nil: all
	total    int      // number of documents in groups
	terms    []term
	concepts int                // in terms
	rarities map[string]float64 // of the query's terms that documents have

	scores             []float64     // by document; with vectors, inexact by slack
	slack              float64       // 0 without vectors
	exactDocs          map[int]bool  // documents with an exact score
	old                matches       // deprecated documents
	levels             map[int]int   // of exact matches, by document
	similar            *similarities // nil without vectors
	words              []float64     // scores by words alone; nil if not needed
	similarityPerPoint float64       // estimated similarity of documents without a vector, for each

	// Scores that were added, for explanations.
	priors, lifts map[int]float64 // by document
	spreads       map[string]added
}

// added is the score that a hit gained or lost by its rank.
type added struct{ coverage, twins float64 }

func (r *ranking) search(q Query) (Result, error) {
	if err := r.among(q.Kinds); err != nil {
		return Result{}, err
	}
	r.scores = borrow(r.x.end, r.x.end)
	defer func() { giveBack(r.scores, r.words) }()
	text := rawjson.Head(q.Text, maxText)
	asked := parse(text)
	if err := r.lexical(asked); err != nil {
		return Result{}, err
	}
	if len(r.terms) == 0 {
		r.resembling(squeeze(text))
	}
	r.leaveOut()
	hybrid := len(q.Vectors) > 0 && r.x.index.vectors.len() > 0
	if hybrid || q.Explain {
		r.words = append(room(r.x.end), r.scores...)
	}
	if hybrid {
		_, fused := telemetry.Start(r.ctx, telemetry.StageFuse, "")
		err := r.fuse(q.Vectors)
		if fused(err); err != nil {
			return Result{}, err
		}
		defer r.similar.release()
	}
	if err := r.demote(); err != nil {
		return Result{}, err
	}
	if err := r.prefer(q.Prior); err != nil {
		return Result{}, err
	}
	if err := r.exact(text); err != nil {
		return Result{}, err
	}
	if err := r.only(q); err != nil {
		return Result{}, err
	}
	// More hits than wanted: spread chooses among them, and confidence measures how far the first stands out.
	best := r.best(max(2*q.Limit+10, 1+rivals))
	confidence, err := r.confidence(best, asked)
	if err != nil {
		return Result{}, err
	}
	found := Result{Vectors: r.similar != nil, Confidence: confidence}
	if r.similar != nil {
		found.Hits = r.spread(best, q.Limit)
	} else {
		for _, c := range best[:min(q.Limit, len(best))] {
			found.Hits = append(found.Hits, c.Hit)
		}
	}
	if q.Explain {
		r.explain(found.Hits, best)
	}
	return found, nil
}

// among restricts the search to the groups of these kinds.
func (r *ranking) among(kinds []tool.Kind) error {
	if kinds == nil {
		r.groups = []string{groupTools}
	}
	for _, kind := range kinds {
		if group := groupOf(kind); !slices.Contains(r.groups, group) {
			r.groups = append(r.groups, group)
		}
	}
	slices.Sort(r.groups)
	found, err := r.find(r.grouped(fieldGroup), groupTerm)
	r.total = found.count
	return err
}

// request has the terms of a query.
type request struct {
	clauses  int
	terms    map[string][]int  // the clauses each term occurs in
	concepts map[string]string // by stem
}

// parse analyses a query. Request words count only if there are no other words.
func parse(text string) request {
	out := request{terms: make(map[string][]int), concepts: make(map[string]string)}
	a := newAnalyzer()
	for _, clause := range clauses(text) {
		n := out.clauses
		a.each(clause, func(w word) {
			if w.request {
				return
			}
			out.addWord(a, w, n)
		})
		out.clauses++
	}
	if len(out.terms) == 0 {
		out.clauses = 1
		a.each(text, func(w word) {
			out.addWord(a, w, 0)
		})
	}
	return out
}

func (r request) addWord(a *analyzer, w word, clause int) {
	r.add(a.terms[w.stem], clause)
	r.add(a.terms[w.written], clause)
	if w.concept >= 0 {
		r.concepts[a.terms[w.stem]] = a.terms[w.concept]
		r.add(a.terms[w.concept], clause)
	}
}

func (r request) add(term string, clause int) {
	in, ok := r.terms[term]
	if !ok && len(r.terms) >= maxTerms || slices.Contains(in, clause) {
		return
	}
	r.terms[term] = append(in, clause)
}

// clauses cuts a query into its clauses: people ask for several things at once, and want a tool for each.
func clauses(text string) []string {
	var out []string
	var clause []string
	end := func() {
		if len(clause) > 1 && len(out) < maxClauses-1 {
			out = append(out, strings.Join(clause, " "))
			clause = nil
		}
	}
	for _, word := range strings.Fields(text) {
		switch strings.ToLower(word) {
		case "and", "then", "also":
			end()
			continue
		}
		clause = append(clause, word)
		if strings.ContainsRune(".,;:!?", rune(word[len(word)-1])) {
			end()
		}
	}
	if len(clause) > 0 {
		out = append(out, strings.Join(clause, " "))
	}
	return out
}

// top returns the best score.
func (r *ranking) top() float64 {
	var about, top float64
	for _, s := range r.scores {
		about = max(about, s)
	}
	if r.slack == 0 {
		return about
	}
	for doc, s := range r.scores {
		if s >= about-2*r.slack {
			r.sharpen(doc)
			top = max(top, r.scores[doc])
		}
	}
	return top
}

// only restricts the scores to the documents that the query is about.
func (r *ranking) only(q Query) error {
	if q.Server != "" {
		err := r.onlyThose(func(keep func(doc, _ int)) error { return r.postings([]string{fieldServer}, q.Server, keep) })
		if err != nil {
			return err
		}
	}
	if slices.Contains(r.groups, groupOthers) {
		err := r.onlyThose(func(keep func(doc, _ int)) error {
			for _, kind := range q.Kinds {
				field, term := fieldKind, string(kind)
				if kind == tool.KindTool {
					field, term = fieldGroup+groupTools, groupTerm
				}
				if err := r.postings([]string{field}, term, keep); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// allows reports whether a document may be found.
func (r *ranking) allows(doc int) bool { return r.allowed == nil || r.allowed.has[doc] }

// leaveOut removes forbidden documents before any score is relative to theirs.
func (r *ranking) leaveOut() {
	if r.allowed == nil {
		return
	}
	for doc, has := range r.allowed.has {
		if !has {
			r.scores[doc] = 0
		}
	}
}

// onlyThose keeps the scores of the documents that keep is called with.
func (r *ranking) onlyThose(those func(keep func(doc, _ int)) error) error {
	kept := borrow(r.x.end, r.x.end)
	err := those(func(doc, _ int) { kept[doc] = r.scores[doc] })
	giveBack(r.scores)
	r.scores = kept
	return err
}

// best returns the limit best candidates, best first.
func (r *ranking) best(limit int) []candidate {
	var near []int                     // candidates for the best documents
	top := make([]float64, 0, limit+1) // best first
	least := -r.slack                  // least score of a candidate
	for doc, s := range r.scores {
		if s < least || s == 0 {
			continue
		}
		near = append(near, doc)
		if len(top) == limit && s <= top[limit-1] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, s, func(a, b float64) int { return cmp.Compare(b, a) })
		top = slices.Insert(top, at, s)
		top = top[:min(limit, len(top))]
		if len(top) == limit {
			// Scores that differ by rounding only are equal; names decide.
			least = max(least, top[limit-1]-2*r.slack-rounding)
		}
	}
	var found []candidate
	for _, doc := range near {
		if r.scores[doc] < least {
			continue
		}
		r.sharpen(doc)
		if s := round(r.scores[doc]); s > 0 {
			found = append(found, candidate{Hit{Score: s}, doc, r.levels[doc]})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(b.Score, a.Score) })
	if len(found) > limit {
		last := found[limit-1].Score
		n, _ := slices.BinarySearchFunc(found, last, func(c candidate, last float64) int {
			if c.Score >= last {
				return -1
			}
			return 1
		})
		found = found[:n] // documents that tie with the last one stay, so that names decide the cut
	}
	for i := range found {
		found[i].Name = r.x.at(found[i].doc).Name
	}
	slices.SortFunc(found, byScore)
	return found[:min(limit, len(found))]
}

// grouped returns the fields of this name in the searched groups.
func (r *ranking) grouped(field string) []string {
	fields := make([]string, len(r.groups))
	for i, group := range r.groups {
		fields[i] = field + group
	}
	return fields
}

// scratch pools slices as long as the index has documents; a search needs several.
var scratch sync.Pool

// room returns an empty slice with room for n numbers.
func room(n int) []float64 {
	if b, ok := scratch.Get().(*[]float64); ok && cap(*b) >= n {
		return (*b)[:0]
	}
	return make([]float64, 0, n)
}

// borrow returns n zeros with room for more.
func borrow(more, n int) []float64 {
	zeros := room(more)[:n]
	clear(zeros)
	return zeros
}

func giveBack(all ...[]float64) {
	for _, b := range all {
		if cap(b) > 0 {
			scratch.Put(&b)
		}
	}
}
