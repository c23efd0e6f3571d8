// Package eval owns the measure of retrieval: it asks the queries of annotated
// sets as retrieve_tools would be asked, and reports how much of what is
// relevant was found and what it cost. It changes nothing and tunes nothing;
// how tools are found is for the packages below.
package eval

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"toolfinch/embed"
	"toolfinch/internal/rawjson"
	"toolfinch/retrieve"
	"toolfinch/tool"
)

// Set is a catalogue and the queries that are asked of it.
type Set struct {
	Name    string
	Defs    []*tool.Def
	About   map[string]string // descriptions of servers by name; may be nil
	Names   map[string]string // labels of tools by names that clients see, beside server_name; may be nil
	Queries []Query
}

// Query is what somebody wants, and the tools that would do. A label is
// "server:name", the upstream's name and the tool's own; Resolve takes other names.
type Query struct {
	ID       string
	Text     string
	Kind     string   // "" for none
	Relevant []string // labels, at least one, each once
	Place    string   // "file:line", for messages
}

// Unknown counts the relevant labels that no tool of the set has, and names the
// place and the label of the first. They count as missed.
func (s *Set) Unknown() (count int, first string) {
	known := make(map[string]bool, len(s.Defs))
	for _, def := range s.Defs {
		known[label(def)] = true
	}
	for _, q := range s.Queries {
		for _, relevant := range q.Relevant {
			if known[relevant] {
				continue
			}
			if count == 0 {
				first = q.Place + ": " + relevant
			}
			count++
		}
	}
	return count, first
}

// Resolve makes labels of the relevant tools that are named by ID ("server.name") or as
// clients see them, and returns how many of the relevant tools are in the set. What
// no tool or several tools are called stays.
func (s *Set) Resolve() (known int) {
	find := retrieve.Finder(serversOf(s))
	for i, q := range s.Queries {
		relevant := make([]string, len(q.Relevant))
		for j, name := range q.Relevant {
			relevant[j] = name
			found, ok := find(name)
			if !ok {
				found, ok = find(s.Names[name])
			}
			if ok {
				relevant[j] = label(found.Def)
				known++
			}
		}
		s.Queries[i].Relevant = unique(relevant)
	}
	return known
}

// Labels are those of the tools, in their order.
func (s *Set) Labels() []string {
	labels := make([]string, len(s.Defs))
	for i, def := range s.Defs {
		labels[i] = label(def)
	}
	return labels
}

func label(def *tool.Def) string { return def.ID.Server + ":" + def.ID.Name }

// Options of Run.
type Options struct {
	Embedder embed.Embedder // nil for words alone
	Vectors  embed.Vectors  // keeps the tools' vectors; needed with an Embedder
	Limit    int            // tools in an answer, 1 to MaxLimit
	Misses   io.Writer      // takes a JSON line for every query that was not fully answered; may be nil
	// Progress, if not nil, hears how many tools of a set have a vector.
	Progress func(set string, done, total int)
}

// warmUps is how many queries are asked before the clock runs.
const warmUps = 50

// Run measures the sets one after the other; their names must differ. Its error
// is that of a catalogue that cannot be built, a search that failed, Misses, or
// ctx.
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
	debug.FreeOSMemory() // what the set before this one took is not this one's
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
		if _, _, err := s.search(ctx, q.Text, options.Limit); err != nil {
			return nil, fmt.Errorf("%s: %w", q.Place, err)
		}
	}
	outcomes := make([]Outcome, len(set.Queries))
	answers := make([][]hit, len(set.Queries))
	times := make([]time.Duration, len(set.Queries))
	for i, q := range set.Queries {
		answers[i], times[i], err = s.search(ctx, q.Text, options.Limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Place, err)
		}
		outcomes[i] = outcomeOf(q, answers[i], options.Limit)
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
func outcomeOf(q Query, hits []hit, limit int) Outcome {
	out := Outcome{ID: q.ID, Kind: q.Kind, Relevant: len(q.Relevant), Ranks: []int{}}
	for i, h := range hits {
		if slices.Contains(q.Relevant, h.ID) {
			out.Ranks = append(out.Ranks, i+1)
		}
	}
	if limit >= 10 {
		v := ndcg(out, 10)
		out.NDCG10 = &v
	}
	return out
}

// writeMiss says which relevant tools an answer lacks, and at which rank they
// stand in the longest answer there is.
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

	deep, _, err := s.search(ctx, q.Text, MaxLimit)
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

// quantile is the smallest of times, in milliseconds, that the share q of them
// does not exceed.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return milliseconds(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

// milliseconds with three digits: finer than that is noise.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
