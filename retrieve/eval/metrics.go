package eval

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Outcome is the result of one query. Every metric is computed from it.
type Outcome struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind,omitempty"`
	NDCG10   *float64 `json:"ndcg@10"`  // nil when the limit is below 10
	Relevant int      `json:"relevant"` // how many tools are relevant
	Ranks    []int    `json:"ranks"`    // ranks of the found relevant tools, from 1
	// Producers counts the relevant tools that are named after the hits, as producers.
	Producers int `json:"producers"`
}

// found returns how many relevant tools are among the first k.
func found(o Outcome, k int) float64 {
	n := 0
	for _, rank := range o.Ranks {
		if rank <= k {
			n++
		}
	}
	return float64(n)
}

// recall returns the share of the relevant tools among the first k.
func recall(o Outcome, k int) float64 { return found(o, k) / float64(o.Relevant) }

// ndcg returns the gain of the first k, as a share of the gain of the best order; later tools gain less.
func ndcg(o Outcome, k int) float64 {
	var gain, ideal float64
	for _, rank := range o.Ranks {
		if rank <= k {
			gain += 1 / math.Log2(float64(rank+1))
		}
	}
	for rank := 1; rank <= min(k, o.Relevant); rank++ {
		ideal += 1 / math.Log2(float64(rank+1))
	}
	return gain / ideal
}

// reciprocal is 1 / rank of the first relevant tool among the first k, else 0.
func reciprocal(o Outcome, k int) float64 {
	if len(o.Ranks) == 0 || o.Ranks[0] > k {
		return 0
	}
	return 1 / float64(o.Ranks[0])
}

// complete is 1 if every relevant tool is among the first k, else 0.
func complete(o Outcome, k int) float64 {
	if found(o, k) < float64(o.Relevant) {
		return 0
	}
	return 1
}

// whole is complete for the whole answer, with the producers.
func whole(o Outcome, _ int) float64 {
	if len(o.Ranks)+o.Producers < o.Relevant {
		return 0
	}
	return 1
}

// metric is a number from 0 to 1 about the first k tools of an answer.
type metric struct {
	name string
	k    int
	of   func(o Outcome, k int) float64
}

// metrics in printed order; Scores has a field for each.
var metrics = [...]metric{
	{"recall@1", 1, recall}, {"recall@3", 3, recall}, {"recall@5", 5, recall}, {"recall@10", 10, recall},
	{"ndcg@5", 5, ndcg}, {"ndcg@10", 10, ndcg}, {"mrr@10", 10, reciprocal}, {"complete@10", 10, complete}, {"whole", 1, whole},
}

// row has a number for each of metrics; NaN if the metric needs longer answers.
type row [len(metrics)]float64

func rowOf(o Outcome, limit int) row {
	var r row
	for i, m := range metrics {
		r[i] = math.NaN()
		if m.k <= limit {
			r[i] = m.of(o, m.k)
		}
	}
	return r
}

func rowsOf(outcomes []Outcome, limit int) []row {
	rows := make([]row, len(outcomes))
	for i, o := range outcomes {
		rows[i] = rowOf(o, limit)
	}
	return rows
}

// mean returns the average of the averages of the strata, none of which is empty: each stratum counts the same.
func mean(strata [][]row) row {
	var out row
	for _, rows := range strata {
		for i := range out {
			sum := 0.0
			for _, r := range rows {
				sum += r[i]
			}
			out[i] += sum / float64(len(rows)) / float64(len(strata))
		}
	}
	return out
}

// Interval is a range that holds the true mean in 95 of 100 cases.
type Interval [2]float64

// resamples is the number of resamples of a bootstrap; 25 on either side are cut off.
const resamples = 1000

// bootstrap returns the percentile interval of mean, by metric: of resamples
// drawn with replacement within each stratum, the central 95 %. The same rows
// give the same intervals. It is nil when a stratum has fewer than two rows,
// which say nothing of their spread; metrics that were not measured are left out.
func bootstrap(strata [][]row) map[string]Interval {
	for _, rows := range strata {
		if len(rows) < 2 {
			return nil
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var means [len(metrics)][]float64
	drawn := make([][]row, len(strata))
	for i, rows := range strata {
		drawn[i] = make([]row, len(rows))
	}
	for range resamples {
		for i, rows := range strata {
			for j := range drawn[i] {
				drawn[i][j] = rows[random.IntN(len(rows))]
			}
		}
		for i, v := range mean(drawn) {
			means[i] = append(means[i], v)
		}
	}
	const cut = resamples / 40
	intervals := map[string]Interval{}
	for i, m := range metrics {
		if slices.ContainsFunc(means[i], math.IsNaN) {
			continue
		}
		slices.Sort(means[i])
		intervals[m.name] = Interval{means[i][cut], means[i][resamples-1-cut]}
	}
	return intervals
}

// Scores are means of the metrics, from 0 to 1; nil if the metric needs longer answers. In JSON they are members of
// the enclosing object.
type Scores struct {
	Recall1    *float64 `json:"recall@1"`
	Recall3    *float64 `json:"recall@3"`
	Recall5    *float64 `json:"recall@5"`
	Recall10   *float64 `json:"recall@10"`
	NDCG5      *float64 `json:"ndcg@5"`
	NDCG10     *float64 `json:"ndcg@10"`
	MRR10      *float64 `json:"mrr@10"`
	Complete10 *float64 `json:"complete@10"`
	Whole      *float64 `json:"whole"`
}

func scoresOf(r row) Scores {
	var at [len(metrics)]*float64
	for i, v := range r {
		if !math.IsNaN(v) {
			at[i] = &v
		}
	}
	return Scores{at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8]}
}

// all returns the scores in the order of metrics.
func (s Scores) all() [len(metrics)]*float64 {
	return [...]*float64{s.Recall1, s.Recall3, s.Recall5, s.Recall10, s.NDCG5, s.NDCG10, s.MRR10, s.Complete10, s.Whole}
}

// Group is a number of queries and their mean scores.
type Group struct {
	N int `json:"n"`
	Scores
	Intervals map[string]Interval `json:"intervals"` // by metric; empty for a single query
}

func groupOf(strata [][]row) Group {
	g := Group{Scores: scoresOf(mean(strata)), Intervals: bootstrap(strata)}
	for _, rows := range strata {
		g.N += len(rows)
	}
	if g.Intervals == nil {
		g.Intervals = map[string]Interval{}
	}
	return g
}
