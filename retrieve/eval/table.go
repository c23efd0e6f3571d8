package eval

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable prints a report for people: quality by set and kind, then the cost.
func (r *Report) WriteTable(w io.Writer) error {
	if len(r.Sets) == 0 {
		return nil
	}
	quality := newTable(w, append([]string{"set", "kind", "    n"}, metricNames()...)...)
	for _, s := range r.Sets {
		quality.row(groupCells(s.Name, "all", s.Group)...)
		if len(s.Kinds) == 1 && s.Kinds[slices.Collect(maps.Keys(s.Kinds))[0]].N == s.N {
			continue // the same numbers again
		}
		for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
			quality.row(groupCells("", kind, s.Kinds[kind])...)
		}
	}
	if r.Macro != nil {
		quality.row(groupCells("macro", "all", *r.Macro)...)
	}
	if err := quality.flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	cost := newTable(w, "set", "tools", "build ms", "embed ms", "p50 ms", "p95 ms", "memory MB")
	for _, s := range r.Sets {
		memory := "-"
		if s.RSS != nil {
			memory = fmt.Sprintf("%9.0f", *s.RSS)
		}
		cost.row(s.Name, fmt.Sprintf("%5d", s.Tools), fmt.Sprintf("%8.0f", s.Build), fmt.Sprintf("%8.0f", s.Embed),
			fmt.Sprintf("%6.2f", s.P50), fmt.Sprintf("%6.2f", s.P95), memory)
	}
	if err := cost.flush(); err != nil {
		return err
	}

	first := r.Sets[0]
	_, err := fmt.Fprintf(w, `
Embedder %s, %s in an answer. ± is half the 95 %% interval (%d bootstrap resamples).
Build is of the whole index, embed of all vectors, p50 and p95 of the retrieval of one
query; memory is that of the whole process.
`, first.Embedder, plural(first.Limit, "tool"), resamples)
	return err
}

func metricNames() []string {
	var names []string
	for _, m := range metrics {
		names = append(names, m.name)
	}
	return names
}

func groupCells(set, kind string, g Group) []string {
	cells := []string{set, kind, fmt.Sprintf("%5d", g.N)}
	for i, score := range g.all() {
		interval, known := g.Intervals[metrics[i].name]
		switch {
		case score == nil:
			cells = append(cells, "-")
		case !known:
			cells = append(cells, fmt.Sprintf("%.3f", *score))
		default:
			cells = append(cells, fmt.Sprintf("%.3f %s", *score, interval.half()))
		}
	}
	return cells
}

// half is half the width of the interval, as "±.012".
func (i Interval) half() string {
	return "±" + strings.TrimPrefix(fmt.Sprintf("%.3f", (i[1]-i[0])/2), "0")
}

func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ie"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// table aligns columns, with no blanks at the ends of lines.
type table struct {
	w      io.Writer
	buffer strings.Builder
	tabs   *tabwriter.Writer
}

func newTable(w io.Writer, header ...string) *table {
	t := &table{w: w}
	t.tabs = tabwriter.NewWriter(&t.buffer, 0, 0, 2, ' ', 0)
	t.row(header...)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.tabs, strings.Join(cells, "\t")) }

func (t *table) flush() error {
	if err := t.tabs.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(t.buffer.String()) {
		if _, err := fmt.Fprintln(t.w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
