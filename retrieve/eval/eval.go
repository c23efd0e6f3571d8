// Package eval owns the measure of retrieval: it asks the queries of annotated sets like retrieve_tools, and
// reports how many relevant tools were found, and the cost. It changes and tunes nothing.
package eval

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"toolfinch/internal/rawjson"
)

// warmUps is how many queries run before the measurement.
const warmUps = 50

// Run measures the sets one after the other; their names must differ. It fails if a catalogue cannot be built, a
// search or a write to Misses fails, or ctx ends.
func Run(ctx context.Context, sets []*Set, options Options) (*Report, error) {
	if options.Limit < 1 || options.Limit > MaxLimit {
		return nil, fmt.Errorf("limit must be from 1 to %d, not %d", MaxLimit, options.Limit)
	}
	report := &Report{}
	for _, set := range sets {
		measured, err := runSet(ctx, set, options)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", set.Name, err)
		}
		report.Sets = append(report.Sets, measured)
	}
	report.average()
	return report, nil
}

func runSet(ctx context.Context, set *Set, options Options) (_ *SetReport, err error) {
	debug.FreeOSMemory() // frees the memory of the previous set
	s, err := openSystem(ctx, set, options)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := s.close(); err == nil {
			err = closing
		}
	}()
	for _, q := range set.Queries[:min(warmUps, len(set.Queries))] {
		if _, _, _, err := s.search(ctx, q.Text, options.Limit); err != nil {
			return nil, fmt.Errorf("%s: %w", q.Place, err)
		}
	}
	outcomes := make([]Outcome, len(set.Queries))
	answers := make([][]hit, len(set.Queries))
	times := make([]time.Duration, len(set.Queries))
	for i, q := range set.Queries {
		var producers []string
		answers[i], producers, times[i], err = s.search(ctx, q.Text, options.Limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Place, err)
		}
		outcomes[i] = outcomeOf(q, answers[i], producers, options.Limit)
	}
	memory := residentMB()
	for i, q := range set.Queries {
		if options.Misses == nil || len(outcomes[i].Ranks) == len(q.Relevant) {
			continue
		}
		if err := writeMiss(ctx, s, options.Misses, set.Name, q, answers[i]); err != nil {
			return nil, fmt.Errorf("%s: write what was missed: %w", q.Place, err)
		}
	}

	unknown, _ := set.Unknown()
	out := &SetReport{
		Name: set.Name, Tools: len(set.Defs), Unknown: unknown,
		Embedder: s.embedder, Limit: options.Limit,
		P50: quantile(times, 0.50), P95: quantile(times, 0.95),
		Build: milliseconds(s.building), Embed: milliseconds(s.embedding), RSS: memory,
		Queries: outcomes,
	}
	out.summarize()
	return out, nil
}

// outcomeOf looks up the relevant tools in an answer.
func outcomeOf(q Query, hits []hit, producers []string, limit int) Outcome {
	out := Outcome{ID: q.ID, Kind: q.Kind, Relevant: len(q.Relevant), Ranks: []int{}}
	for i, h := range hits {
		if slices.Contains(q.Relevant, h.ID) {
			out.Ranks = append(out.Ranks, i+1)
		}
	}
	for _, p := range producers {
		if slices.Contains(q.Relevant, p) {
			out.Producers++
		}
	}
	if limit >= 10 {
		v := ndcg(out, 10)
		out.NDCG10 = &v
	}
	return out
}

// writeMiss lists the relevant tools that an answer lacks, with their rank in the longest possible answer.
func writeMiss(ctx context.Context, s *system, w io.Writer, set string, q Query, hits []hit) error {
	type missing struct {
		ID   string `json:"id"`
		Rank *int   `json:"rank"` // null: not among the first MaxLimit
	}
	line := struct {
		Set      string    `json:"set"`
		ID       string    `json:"id"`
		Query    string    `json:"query"`
		Kind     string    `json:"kind,omitempty"`
		Relevant []string  `json:"relevant"`
		Missing  []missing `json:"missing"`
		Hits     []hit     `json:"hits"`
	}{Set: set, ID: q.ID, Query: q.Text, Kind: q.Kind, Relevant: q.Relevant, Hits: append([]hit{}, hits...)}

	deep, _, _, err := s.search(ctx, q.Text, MaxLimit)
	if err != nil {
		return err
	}
	for _, relevant := range q.Relevant {
		is := func(h hit) bool { return h.ID == relevant }
		if slices.ContainsFunc(hits, is) {
			continue
		}
		m := missing{ID: relevant}
		if at := slices.IndexFunc(deep, is); at >= 0 {
			rank := at + 1
			m.Rank = &rank
		}
		line.Missing = append(line.Missing, m)
	}
	return rawjson.Write(w, line, "")
}

// quantile returns the time, in milliseconds, that the share q of times does not exceed.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return milliseconds(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

// milliseconds rounds to three digits; more is noise.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
