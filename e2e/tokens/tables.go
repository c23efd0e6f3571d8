package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"toolfinch/e2e/agents"
)

// task is a cell without what it is measured with.
type task struct{ tools, needs int }

// way is how a task is done.
type way struct {
	strategy, plan string
	own            bool // the agent's own tool search is on
}

func (w way) String() string {
	switch {
	case w.own && w.strategy == direct:
		return "own search, " + w.plan
	case w.strategy == direct:
		return direct
	}
	return w.strategy + ", " + w.plan
}

// tables reads the results for the document: of runs of the same way the last counts.
type tables struct {
	runs map[string]map[task]map[way]outcome // by agent
}

func newTables(all []outcome) *tables {
	t := &tables{runs: map[string]map[task]map[way]outcome{}}
	for _, o := range all {
		if t.runs[o.Agent] == nil {
			t.runs[o.Agent] = map[task]map[way]outcome{}
		}
		now := task{o.Tools, o.Needs}
		if t.runs[o.Agent][now] == nil {
			t.runs[o.Agent][now] = map[way]outcome{}
		}
		t.runs[o.Agent][now][way{o.Strategy, o.Plan, o.Own}] = o
	}
	return t
}

// get is a run that came to its end. Where one tool is needed the plans are the same.
func (t *tables) get(agent string, k task, w way) (outcome, bool) {
	if w.strategy == direct && !w.own {
		w.plan = ""
	} else if k.needs == 1 && w.plan == foresees {
		w.plan = stepwise
	}
	o, ok := t.runs[agent][k][w]
	return o, ok && o.Error == "" && o.Failed == 0
}

// mean is the mean over n agents of a number of the runs, beside that of direct listing
// if relative.
func (t *tables) mean(k task, w way, relative bool, of func(outcome) float64) (mean float64, n int) {
	for agent := range t.runs {
		o, ok := t.get(agent, k, w)
		base, based := t.get(agent, k, way{strategy: direct})
		switch {
		case !ok || relative && !based:
		case relative:
			mean += of(o) / of(base)
			n++
		default:
			mean += of(o)
			n++
		}
	}
	return mean / float64(max(1, n)), n
}

func cost(o outcome) float64    { return o.Cost }
func total(o outcome) float64   { return float64(o.Total) }
func steps(o outcome) float64   { return float64(o.Steps) }
func seconds(o outcome) float64 { return o.Seconds }

// share prints a ratio; more than direct listing is bold.
func share(value float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case value >= 1.005:
		return fmt.Sprintf("**%.2f**", value)
	}
	return fmt.Sprintf("%.2f", value)
}

func number(format string) func(float64, bool) string {
	return func(value float64, ok bool) string {
		if !ok {
			return "-"
		}
		return fmt.Sprintf(format, value)
	}
}

// tasks are those with a run of direct listing.
func (t *tables) tasks() (all []task) {
	seen := map[task]bool{}
	for _, runs := range t.runs {
		for k := range runs {
			seen[k] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b task) int {
		return cmp.Or(cmp.Compare(a.tools, b.tools), cmp.Compare(a.needs, b.needs))
	})
}

var (
	auto      = []way{{"AUTO", stepwise, false}, {"AUTO", foresees, false}}
	otherWays = []way{{"DYNAMIC", stepwise, false}, {"CALL_TOOL", stepwise, false}, {"CALL_TOOL", foresees, false}, {"hot", stepwise, false},
		{"view", stepwise, false}, {"gated", stepwise, false}, {"gated", foresees, false}, {"code", foresees, false}}
	// ownWays begin with the one that the others are compared with.
	ownWays = []way{{direct, stepwise, true}, {direct, byName, true}, {"CALL_TOOL", stepwise, true}, {"AUTO", stepwise, true}}
)

// byTools returns a table with a row for each size of the catalogue. A cell has a value for each
// number of tools needed, with slashes between them.
func (t *tables) byTools(columns []way, relative bool, of func(outcome) float64, print func(float64, bool) string) string {
	cells := []string{"tools", "needed", "agents"}
	for _, w := range columns {
		cells = append(cells, w.String())
	}
	out := row(cells...) + "\n" + strings.Repeat("|---", len(cells)) + "|\n"
	tasks := t.tasks()
	for len(tasks) > 0 {
		tools := tasks[0].tools
		var needs, agents []string
		values := make([][]string, len(columns))
		for ; len(tasks) > 0 && tasks[0].tools == tools; tasks = tasks[1:] {
			var printed []string
			most := 0
			for _, w := range columns {
				value, n := t.mean(tasks[0], w, relative, of)
				printed = append(printed, print(value, n > 0))
				most = max(most, n)
			}
			if most == 0 {
				continue
			}
			needs, agents = append(needs, fmt.Sprint(tasks[0].needs)), append(agents, fmt.Sprint(most))
			for i := range columns {
				values[i] = append(values[i], printed[i])
			}
		}
		if needs == nil {
			continue
		}
		if len(slices.Compact(slices.Clone(agents))) == 1 {
			agents = agents[:1]
		}
		cells := []string{fmt.Sprint(tools), strings.Join(needs, "/"), strings.Join(agents, "/")}
		for _, v := range values {
			cells = append(cells, strings.Join(v, "/"))
		}
		out += row(cells...) + "\n"
	}
	return out
}

func row(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |" }

// byAgent is a table with a row an agent: what AUTO costs beside direct listing, for one,
// three and eight tools needed.
func (t *tables) byAgent() string {
	sizes := t.sizes()
	cells := []string{"agent", "plan"}
	for _, size := range sizes {
		cells = append(cells, fmt.Sprintf("%d tools", size))
	}
	out := row(cells...) + "\n" + strings.Repeat("|---", len(cells)) + "|\n"
	for _, a := range agents.All {
		for _, w := range auto {
			cells := []string{a.Name, w.plan}
			for _, size := range sizes {
				var parts []string
				for _, needs := range []int{1, 3, 8} {
					o, ok := t.get(a.Name, task{size, needs}, w)
					base, based := t.get(a.Name, task{size, needs}, way{strategy: direct})
					parts = append(parts, share(o.Cost/base.Cost, ok && based))
				}
				cells = append(cells, strings.Join(parts, "/"))
			}
			out += row(cells...) + "\n"
		}
	}
	return out
}

// beside is a table of costs relative to those with the agent's own tool search.
func (t *tables) beside() string {
	cells := []string{"tools", "needed"}
	for _, w := range ownWays {
		cells = append(cells, w.String())
	}
	out := row(cells...) + "\n" + strings.Repeat("|---", len(cells)) + "|\n"
	for _, k := range t.tasks() {
		base, based := t.get("claude-code", k, ownWays[0])
		if !based {
			continue
		}
		cells := []string{fmt.Sprint(k.tools), fmt.Sprint(k.needs)}
		for _, w := range ownWays {
			o, ok := t.get("claude-code", k, w)
			cells = append(cells, share(o.Cost/base.Cost, ok))
		}
		out += row(cells...) + "\n"
	}
	return out
}

// sizes are the catalogues that most agents had.
func (t *tables) sizes() []int {
	count := map[int]int{}
	for agent := range t.runs {
		for size := range sets {
			if _, ok := t.get(agent, task{size, 1}, way{strategy: direct}); ok {
				count[size]++
			}
		}
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	maps.DeleteFunc(count, func(_, n int) bool { return 2*n <= most })
	return slices.Sorted(maps.Keys(count))
}

// account says how many runs there are, of which versions, and which failed; the results have the reasons.
func (t *tables) account() string {
	runs, missed, versions, revisions := 0, 0, map[string]bool{}, map[string]bool{}
	var wrong []string
	for agent, tasks := range t.runs {
		for k, ways := range tasks {
			for w, o := range ways {
				runs, missed = runs+1, missed+o.Missed
				versions[agent+" "+o.Version] = true
				if o.Revision != "" {
					revisions[o.Revision] = true
				}
				if _, ok := t.get(agent, k, w); !ok {
					wrong = append(wrong, fmt.Sprintf("* %s, %d tools, %d needed, %s: %d not called", agent, k.tools, k.needs, w, o.Failed))
				}
			}
		}
	}
	list := func(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
	out := fmt.Sprintf("%d runs of %s; toolfinch %s. %d retrievals did not find what was asked for and were asked again. %d runs did not call everything and are in no table",
		runs, list(versions), list(revisions), missed, len(wrong))
	if len(wrong) == 0 {
		return out + ".\n"
	}
	slices.Sort(wrong)
	return out + ":\n\n" + strings.Join(wrong, "\n") + "\n"
}

// writeDocument writes the tables between their marks.
func writeDocument(file string, all []outcome) error {
	t := newTables(all)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	columns := append([]way{{strategy: direct}}, auto...)
	for name, table := range map[string]string{
		"cost":    t.byTools(auto, true, cost, share),
		"agents":  t.byAgent(),
		"beside":  t.beside(),
		"others":  t.byTools(otherWays, true, cost, share),
		"totals":  t.byTools(auto, true, total, share),
		"steps":   t.byTools(columns, false, steps, number("%.1f")),
		"seconds": t.byTools(columns, false, seconds, number("%.1f")),
		"account": t.account(),
	} {
		begin := []byte("<!-- " + name + " -->\n")
		_, after, found := bytes.Cut(text, begin)
		_, _, ended := bytes.Cut(after, []byte("<!-- end -->"))
		if !found || !ended {
			return fmt.Errorf("%s has no place for the table %q", file, name)
		}
		at := bytes.Index(text, begin) + len(begin)
		text = slices.Concat(text[:at], []byte(table), text[at+bytes.Index(text[at:], []byte("<!-- end -->")):])
	}
	return os.WriteFile(file, text, 0o644)
}
