package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

func (r *ranking) search(q Query) (Result, error) {
	if err := r.among(q.Kinds); err != nil {
		return Result{}, err
	}
	r.scores = borrow(r.x.end, r.x.end)
	defer func() { giveBack(r.scores, r.words) }()
	text := rawjson.Head(q.Text, maxText)
	a := newAnalyzer()
	asked := parse(a, text)
	if err := r.correct(&asked, a); err != nil {
		return Result{}, err
	}
	if err := r.lexical(asked); err != nil {
		return Result{}, err
	}
	if len(r.terms) == 0 {
		r.resembling(squeeze(text))
	}
	r.leaveOut()
	if err := r.demoteUnwanted(asked); err != nil {
		return Result{}, err
	}
	hybrid := len(q.Vectors) > 0 && r.x.index.vectors.len() > 0
	if hybrid || q.Explain || q.Place != "" {
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
	found.Hits = r.spread(best, q.Limit)
	if q.Explain {
		r.explain(found.Hits, best)
	}
	if q.Place != "" {
		found.Place = r.place(q.Place, found.Hits)
	}
	return found, nil
}

// only restricts the scores to the documents that the query is about.
func (r *ranking) only(q Query) error {
	if q.Server != "" {
		err := r.onlyThose(func(keep func(doc, _ int)) error { return r.x.postings([]string{fieldServer}, q.Server, keep) })
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
				if err := r.x.postings([]string{field}, term, keep); err != nil {
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

// Search returns the best hits; equal scores are in the order of names. Finding nothing is no error. A tool whose
// name is the query, in any case and with any separators, comes first. Query vectors that do not fit the documents'
// vectors are an error that wraps ErrVector. Once the Index is closed, the error is ErrClosed.
func (s *Snapshot) Search(ctx context.Context, q Query) (Result, error) {
	if s.index.closed.Load() {
		return Result{}, ErrClosed
	}
	if q.Limit < 1 || s.live == 0 {
		return Result{}, nil
	}
	r := &ranking{ctx: ctx, x: s, allowed: q.Among, rarities: map[string]float64{}}
	found, err := r.search(q)
	if err != nil {
		return Result{}, fmt.Errorf("index: search: %w", err)
	}
	return found, nil
}

// lower multiplies the scores of documents with a term, and returns these documents.
func (r *ranking) lower(field, term string, weight float64) (matches, error) {
	f, err := r.x.find(r.grouped(field), term)
	r.x.eachMatch(f, func(doc, _ int) {
		if r.scores[doc] > 0 {
			r.scores[doc] *= weight
		}
	})
	return f, err
}

// demote lowers the scores of deprecated tools.
func (r *ranking) demote() (err error) {
	r.old, err = r.lower(fieldDeprecated, deprecatedTerm, weightDeprecated)
	return err
}

// demoteUnwanted lowers the scores by words of tools that do what the words of the query do not ask for: that destroy, or
// change something although it only reads.
func (r *ranking) demoteUnwanted(q request) (err error) {
	if q.terms[destruction] != nil {
		return nil
	}
	if r.destroying, err = r.lower(fieldVerb, destroying, weightUnwanted); err != nil || !q.reads || slices.ContainsFunc(changes, func(c string) bool { return q.terms[c] != nil }) {
		return err
	}
	r.changing, err = r.lower(fieldVerb, changing, weightUnwanted)
	return err
}
