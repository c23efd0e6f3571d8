package index

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"

	"toolfinch/rawjson"
	"toolfinch/telemetry"
	"toolfinch/tool"
)

// Query asks for tools, or for what else there is. Text is natural language or a name, never a syntax.
type Query struct {
	Text   string // the first 16 KiB are read
	Server string // only this upstream's tools; "" for all
	Limit  int    // at most so many hits; below 1 means none
	// Kinds are the kinds to search; nil for tools. A word's rarity is counted among
	// tools if tools are searched, and among prompts and resources if these are.
	Kinds []tool.Kind
	// Among, if set, is what may be found, a part of the snapshot that is searched. Words
	// count as rare as they are in the whole.
	Among *Subset

	// Vectors are those of QueryTexts(Text), in order. Without them words
	// decide alone.
	Vectors [][]float32
	// Prior is, by exposed name of tools, what was learned from use, from 0 to 1. It
	// lifts tools that were found, by at most 15 % of the best score.
	Prior map[string]float64

	Explain bool // say of each hit why it is one
}

// Result is the answer to a Query.
type Result struct {
	Hits []Hit // best first
	// Vectors reports whether vectors had a part in the ranking.
	Vectors bool
	// Confidence is the probability, from 0 to 1, that a hit is the right tool and not
	// merely the nearest one.
	Confidence float64
}

// Hit is a document found.
type Hit struct {
	Name  string  // of the document: of a tool its exposed name
	Score float64 // above 0; comparable within one answer only
	Why   *Explanation
}

// How a query is weighed. Tuned, like the parts of a document, on averages.
const (
	saturation    = 1.8 // BM25's k1: how soon saying a word again adds nothing
	weightWritten = 0.4 // of a word as it was written, against its stem
	weightConcept = 0.7 // of a word that means about the same, against the word
	weightClauses = 0.6 // of the clauses of a query, against the whole
	maxTerms      = 256 // different ones in a query
	maxClauses    = 8   // the last takes what remains
	resemblance   = 12  // of a name that is contained whole in another; about what a rare word gives
)

// Levels of an exact match; the first two are frequencies in fieldNames. The names
// of two tools may differ only by case or separators: the one that the query spells
// exactly comes first.
const (
	exactName   = 1 // the upstream's own name of the tool, in some spelling
	exactID     = 2 // the exposed name, or "server.name", in some spelling
	spelledName = 3 // the upstream's own name
	spelledID   = 4 // the exposed name, or "server.name"
)

// QueryTexts returns what of a query is to be embedded: all of it and, where
// it has several, its clauses.
func QueryTexts(text string) []string {
	text = rawjson.Head(text, maxText)
	if parts := clauses(text); len(parts) > 1 {
		return append([]string{text}, parts...)
	}
	return []string{text}
}

// Terms returns the stems of the words of a query that say what it is for,
// each once, in their order.
func Terms(text string) []string {
	var out, others []string // others are request words
	a := newAnalyzer()
	a.each(rawjson.Head(text, maxText), func(word termPair) {
		to := &out
		if requestWords[a.terms[word.written][len(written):]] {
			to = &others
		}
		if stem := a.terms[word.stem]; !slices.Contains(*to, stem) {
			*to = append(*to, stem)
		}
	})
	if len(out) == 0 {
		return others
	}
	return out
}

// ranking is one search. Its slices are indexed by the numbers of documents and are as
// long as the highest one met.
type ranking struct {
	ctx    context.Context
	x      *Snapshot
	fields map[string][]dictionary
	groups []string // of the documents that are looked for
	total  int      // number of documents in groups
	scores []float64

	levels  map[int]int   // of exact matches, by document
	slots   []int         // by document, -1 for none; with vectors only
	similar *similarities // nil without vectors

	words    []float64          // the scores by words alone
	rarities map[string]float64 // of the terms of the query that documents have

	// What was added on the way, for an explanation.
	priors, lifts map[int]float64 // by document
	demoted       map[int]float64 // what deprecated documents lost
	spreads       map[string]added
}

// added is what a hit's score gained or lost by its place in the answer.
type added struct{ coverage, twins float64 }

func (r *ranking) search(q Query) (Result, error) {
	if err := r.among(q.Kinds); err != nil {
		return Result{}, err
	}
	defer func() { giveBack(r.scores, r.words) }()
	text := rawjson.Head(q.Text, maxText)
	name := squeeze(text)
	asked := parse(text)
	if err := r.lexical(asked); err != nil {
		return Result{}, err
	}
	if err := r.resembling(name); err != nil {
		return Result{}, err
	}
	r.words = append(borrow(), r.scores...)
	if len(q.Vectors) > 0 && r.x.index.vectors.len() > 0 {
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
	if err := r.onlyServer(q.Server); err != nil {
		return Result{}, err
	}
	if err := r.onlyKinds(q.Kinds); err != nil {
		return Result{}, err
	}
	if q.Among != nil {
		r.scores = q.Among.keep(r.scores)
	}
	// More hits than wanted: spread chooses among them, and confidence looks at how far
	// the first stands out.
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
		err = r.explain(found.Hits, best, asked)
	}
	return found, err
}

// among makes the search one of the groups that have documents of these kinds.
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
	r.total = int(found.count)
	return err
}

// request is a query's terms.
type request struct {
	clauses  int
	terms    map[string][]int  // the clauses each term occurs in
	concepts map[string]string // by stem
}

// parse reads a query. Request words count only where there are no others.
func parse(text string) request {
	out := request{terms: make(map[string][]int), concepts: make(map[string]string)}
	a := newAnalyzer()
	for _, clause := range clauses(text) {
		n := out.clauses
		a.each(clause, func(word termPair) {
			if requestWords[a.terms[word.written][len(written):]] {
				return
			}
			out.addWord(a, word, n)
		})
		out.clauses++
	}
	if len(out.terms) == 0 {
		out.clauses = 1
		a.each(text, func(word termPair) {
			out.addWord(a, word, 0)
		})
	}
	return out
}

func (r request) addWord(a *analyzer, word termPair, clause int) {
	r.add(a.terms[word.stem], clause)
	r.add(a.terms[word.written], clause)
	if word.concept >= 0 {
		r.concepts[a.terms[word.stem]] = a.terms[word.concept]
		r.add(a.terms[word.concept], clause)
	}
}

func (r request) add(term string, clause int) {
	in, ok := r.terms[term]
	if !ok && len(r.terms) >= maxTerms || slices.Contains(in, clause) {
		return
	}
	r.terms[term] = append(in, clause)
}

// clauses cuts a query at the ends of clauses: people ask for several things at
// once, and want a tool that does one of them well.
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

// lexical adds up BM25 over the terms, with the lengths of documents already
// in the counts. The sum is the library's postings and our own arithmetic: its
// scorer takes the root of frequencies, its average length is the number of
// different terms, and its disjunction multiplies by the share of terms found,
// which together cost 0.03 nDCG@10 and make scores depend on deletions.
func (r *ranking) lexical(q request) error {
	r.scores = borrow()
	clauses := make([][]float64, q.clauses)
	defer func() { giveBack(clauses...) }()
	several := q.clauses > 1
	for c := range clauses {
		if several {
			clauses[c] = borrow()
		}
	}
	err := r.eachTerm(q, func(term string, doc int, score float64) {
		r.scores = add(r.scores, doc, score)
		if several {
			for _, c := range q.terms[term] {
				clauses[c] = add(clauses[c], doc, score)
			}
		}
	})
	if err != nil {
		return err
	}
	if !several { // the one clause is the whole
		for doc := range r.scores {
			r.scores[doc] *= 1 + weightClauses
		}
		return nil
	}
	for doc := range r.scores {
		var squares float64
		for _, c := range clauses {
			if doc < len(c) {
				squares += c[doc] * c[doc]
			}
		}
		r.scores[doc] += weightClauses * math.Sqrt(squares)
	}
	return nil
}

// term calls do with what a term is worth in each document that has it.
func (r *ranking) term(term string, do func(doc int, score float64)) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	weight := 1.0
	switch {
	case strings.HasPrefix(term, written):
		weight = weightWritten
	case isConcept(term):
		weight = weightConcept
	}
	f, err := r.find(r.grouped(fieldTerms), term)
	if err != nil {
		return err
	}
	rarity := rarity(r.total, int(f.count))
	if f.count > 0 {
		r.rarities[term] = rarity
	}
	return f.each(func(doc int, freq uint64) {
		times := float64(freq) / scale
		do(doc, weight*rarity*times/(times+saturation))
	})
}

// exact lifts the documents that have this name above all others.
func (r *ranking) exact(text string) error {
	name := squeeze(text)
	if name == "" {
		return nil
	}
	var top float64
	for _, s := range r.scores {
		top = max(top, s)
	}
	r.levels, r.lifts = make(map[int]int), make(map[int]float64)
	err := r.postings(r.grouped(fieldNames), name, func(_ uint64, doc int, level uint64) { r.levels[doc] = int(level) })
	if err != nil {
		return err
	}
	for doc, level := range r.levels {
		level = r.spelled(doc, level, strings.TrimSpace(text))
		if _, old := r.demoted[doc]; old && level < spelledName && strings.Contains(strings.TrimSpace(text), " ") {
			delete(r.levels, doc) // "read file" need not mean the old read_file; readFile does
			continue
		}
		r.levels[doc] = level
		r.lifts[doc] = float64(level)*(1+top) + max(0, -at(r.scores, doc))
		r.scores = add(r.scores, doc, r.lifts[doc])
	}
	return nil
}

// spelled returns the level of a document one of whose names is text in some
// spelling.
func (r *ranking) spelled(doc, level int, text string) int {
	switch d := r.x.at(doc).Document; text {
	case d.exposed(), d.Def.ID.String():
		return spelledID
	case d.Def.ID.Name:
		return max(level, spelledName)
	}
	return level
}

// resembling finds, if nothing else was found, names that contain the query: a
// half-typed word, or one that never stands alone.
func (r *ranking) resembling(name string) error {
	if len(r.scores) > 0 || len(name) < 2 || stopWords[name] {
		return nil
	}
	for _, field := range r.grouped(fieldNames) {
		if err := r.resemblingIn(field, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *ranking) resemblingIn(field, name string) error {
	all, err := r.dictionaries(field)
	if err != nil {
		return err
	}
	for _, in := range all {
		for terms := in.AutomatonIterator(nil, nil, nil); ; {
			next, err := terms.Next()
			if err != nil {
				return err
			}
			if next == nil {
				break
			}
			if !strings.Contains(next.Term, name) {
				continue
			}
			var f found
			if err := f.add(in, next.Term); err != nil {
				return err
			}
			err = f.each(func(doc int, _ uint64) {
				r.scores = add(r.scores, doc, resemblance*float64(len(name))/float64(len(next.Term)))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// onlyServer leaves the documents of one server, "" for all.
func (r *ranking) onlyServer(server string) error {
	if server == "" {
		return nil
	}
	kept := make([]float64, len(r.scores))
	err := r.keep(kept, fieldServer, server)
	r.scores = kept
	return err
}

// onlyKinds leaves the documents of these kinds among those of their groups.
func (r *ranking) onlyKinds(kinds []tool.Kind) error {
	if !slices.Contains(r.groups, groupOthers) {
		return nil
	}
	kept := make([]float64, len(r.scores))
	for _, kind := range kinds {
		field, term := fieldKind, string(kind)
		if kind == tool.KindTool {
			field, term = fieldGroup+groupTools, groupTerm
		}
		if err := r.keep(kept, field, term); err != nil {
			return err
		}
	}
	r.scores = kept
	return nil
}

// keep copies the scores of the documents that have term in field.
func (r *ranking) keep(to []float64, field, term string) error {
	return r.postings([]string{field}, term, func(_ uint64, doc int, _ uint64) {
		if doc < len(to) {
			to[doc] = r.scores[doc]
		}
	})
}

// best returns the limit best candidates, best first.
func (r *ranking) best(limit int) []candidate {
	top := make([]float64, 0, limit+1) // best first
	for i, s := range r.scores {
		s = round(s)
		r.scores[i] = s
		if s <= 0 || len(top) == limit && s <= top[limit-1] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, s, func(a, b float64) int { return cmp.Compare(b, a) })
		top = slices.Insert(top, at, s)
		top = top[:min(limit, len(top))]
	}
	if len(top) == 0 {
		return nil
	}
	var found []candidate
	for doc, s := range r.scores {
		if s < top[len(top)-1] {
			continue
		}
		// All that tie with the last are named, so that the cut is by name, too.
		found = append(found, candidate{Hit{Name: r.x.at(doc).Name, Score: s}, doc, r.levels[doc]})
	}
	slices.SortFunc(found, byScore)
	return found[:min(limit, len(found))]
}

// grouped are the fields of this name in the groups that are looked for.
func (r *ranking) grouped(field string) []string {
	fields := make([]string, len(r.groups))
	for i, group := range r.groups {
		fields[i] = field + group
	}
	return fields
}

func add(to []float64, i int, n float64) []float64 {
	if old := len(to); i >= old {
		to = slices.Grow(to, i+1-old)[:i+1]
		clear(to[old:])
	}
	to[i] += n
	return to
}

// scratch has slices as long as the index has documents, of which a search needs several.
var scratch sync.Pool

func borrow() []float64 {
	if b, ok := scratch.Get().(*[]float64); ok {
		return (*b)[:0]
	}
	return nil
}

func giveBack(all ...[]float64) {
	for _, b := range all {
		if cap(b) > 0 {
			scratch.Put(&b)
		}
	}
}

// squeeze reduces a name to its letters and digits: search_code, "Search code"
// and searchCode are the same name.
func squeeze(name string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, fold(rawjson.Head(name, 4*maxWord))))
}
