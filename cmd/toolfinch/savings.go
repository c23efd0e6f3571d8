package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/proxy/savings"
	"toolfinch/store"
)

func newSavings(s *settings) *cobra.Command {
	var since string
	var reset bool
	cmd := &cobra.Command{
		Use:   "savings",
		Short: "Show how many tokens retrieval saves",
		Long: `Savings compares, by view, the tokens that the clients' models read with the tokens
that they would have read if every tool were listed. Days are in UTC.

An agent sends its whole conversation with each step, and providers cache it for some
minutes. So a token counts 1.25 when it is first read (and written to the provider's
cache) and 0.1 when it is read again. COST is this sum for lists and answers. LISTING
ALL is the sum for the same calls with every tool listed: a longer list, no searches.
A list that changes between two steps is read anew from the change on, with everything
after it.

STEPS are model steps: one before the first call, and one after each call. Overlapping
calls belong to one step. LISTED counts lists at the start, RELISTED later changes and
everything after them in the list, ANSWERS the answers of searches and other meta-tools
that a full list makes unnecessary, RESULTS the results of other calls, at four bytes a
token.

A proxy does not see the agent's own prompt and messages, which each step carries and
each changed list makes the provider read anew. The last lines say above which size
they make listing everything cheaper. It does not see steps without calls, images, or
how many calls a run_script replaces. After five minutes without a call everything
counts as read for the first time. Clients that never list tools are left out. A
2026-07-28 client has no sessions: clients of one name count as one session a day.
--reset deletes all counts.`,
		Example: `  toolfinch savings
  toolfinch savings --since 7d
  toolfinch savings --since 2026-11-01 --json
  toolfinch savings --reset`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := sinceDay(since, time.Now())
			switch {
			case err != nil:
				return &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
			case reset && cmd.Flags().Changed("since"):
				return &exitError{exitUsage, errors.New("--reset forgets every day: leave out --since")}
			}
			return s.withStore(cmd, reset, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
				if reset {
					return db.Usage().ResetSavings(ctx)
				}
				days, err := db.Usage().Savings(ctx, from)
				if err != nil {
					return err
				}
				return printSavings(cmd, days, from.Format(time.DateOnly))
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "30d", "start: a number of days, including today, or a `DAY` like 2026-11-01")
	cmd.Flags().BoolVar(&reset, "reset", false, "delete all counts")
	withJSON(cmd, "print one JSON object")
	return cmd
}

// maxSince bounds the days of --since: 100 years.
const maxSince = 36_500

// sinceDay returns the first day, in UTC, of the shown savings.
func sinceDay(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 1 && n <= maxSince {
			return now.UTC().AddDate(0, 0, 1-n).Truncate(24 * time.Hour), nil
		}
	} else if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a number of days like 30d nor a day like 2026-11-01", text)
}

// savingsRow has the tokens that models read. Costs are weighted: see savings.Weighed.
type savingsRow struct {
	View       string   `json:"view,omitempty"` // "" in a total
	Sessions   int64    `json:"sessions"`
	Retrievals int64    `json:"retrievals"`
	Starts     int64    `json:"starts"`
	Steps      int64    `json:"steps"`
	Appended   int64    `json:"appended"`
	Changed    int64    `json:"changed"`
	Listed     int64    `json:"listed"`
	Relisted   int64    `json:"relisted"`
	Answers    int64    `json:"answers"`
	Results    int64    `json:"results"`
	Reread     int64    `json:"reread"`
	Cached     int64    `json:"cached"`
	AllSteps   int64    `json:"all_steps"`
	AllListed  int64    `json:"all_listed"`
	AllCached  int64    `json:"all_cached"`
	Cost       int64    `json:"cost"`
	AllCost    int64    `json:"all_cost"`    // Cost if every tool were listed
	Changes    int64    `json:"change_cost"` // part of Cost that changed lists cause
	Saved      int64    `json:"saved"`
	Percent    *float64 `json:"percent"` // Saved as a part of AllCost; null if AllCost is 0
}

func savingsOf(s store.Savings) savingsRow {
	r := savingsRow{View: s.View, Sessions: s.Sessions, Retrievals: s.Retrievals, Starts: s.Starts, Steps: s.Steps, Appended: s.Appended, Changed: s.Changed,
		Listed: s.Listed, Relisted: s.Relisted, Answers: s.Answers, Results: s.Results, Reread: s.Reread, Cached: s.Cached,
		AllSteps: s.AllSteps, AllListed: s.AllListed, AllCached: s.AllCached,
		Changes: savings.Weighed(s.Relisted+s.Reread, -s.Reread)}
	r.Cost, r.AllCost = savings.Cost(s)
	r.Saved = r.AllCost - r.Cost
	if r.AllCost > 0 {
		percent := math.Round(1000*float64(r.Saved)/float64(r.AllCost)) / 10
		r.Percent = &percent
	}
	return r
}

func printSavings(cmd *cobra.Command, days []store.Savings, since string) error {
	byView, total := map[string]store.Savings{}, store.Savings{}
	for _, day := range days {
		byView[day.View] = day.Plus(byView[day.View])
		total = total.Plus(day)
	}
	rows := []savingsRow{}
	for _, name := range slices.Sorted(maps.Keys(byView)) {
		rows = append(rows, savingsOf(byView[name]))
	}
	switch {
	case asJSON(cmd):
		return printJSON(cmd.OutOrStdout(), struct {
			Since   string       `json:"since"`
			Savings []savingsRow `json:"savings"`
			Total   savingsRow   `json:"total"`
		}{since, rows, savingsOf(total)})
	case len(rows) == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "no session has been counted since", since)
		return nil
	}
	return printSavingsTable(cmd.OutOrStdout(), rows, savingsOf(total))
}

func printSavingsTable(w io.Writer, rows []savingsRow, total savingsRow) error {
	t := table{head: []string{"VIEW", "SESSIONS", "STEPS", "SEARCHES", "LISTED", "RELISTED", "ANSWERS", "RESULTS", "COST", "LISTING ALL", "SAVED"}}
	for _, r := range rows {
		cells := []string{r.View}
		for _, n := range []int64{r.Sessions, r.Steps, r.Retrievals, r.Listed, r.Relisted, r.Answers, r.Results, r.Cost, r.AllCost} {
			cells = append(cells, humanize.Comma(n))
		}
		t.add(append(cells, r.percent())...)
	}
	if err := t.print(w); err != nil {
		return err
	}
	lines := total.lines()
	for _, r := range rows {
		if advice := r.advice(); advice != "" {
			lines = append(lines, advice)
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	return err
}

// percent returns Percent as text; "-" if AllCost is 0.
func (r savingsRow) percent() string {
	if r.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*r.Percent, 'f', 1, 64) + " %"
}

// lines describes the savings, the cost of changed lists, and unseen costs.
func (r savingsRow) lines() []string {
	if r.Starts == 0 {
		return []string{"no session has called a tool yet: there is nothing to compare"}
	}
	lines := []string{fmt.Sprintf("saved %s (%s of %s in %s)", r.percent(), humanize.Comma(r.Saved), humanize.Comma(r.AllCost), plural(r.Sessions, "session"))}
	if changes := r.Appended + r.Changed; changes > 0 {
		lines = append(lines, fmt.Sprintf("lists changed %s in mid-session (%d at the end, %d inside), which cost at least %s",
			plural(changes, "time"), r.Appended, r.Changed, humanize.Comma(r.Changes)))
	}
	if unseen := r.unseen(); unseen > 0 && r.Saved > 0 {
		most := int64(float64(r.Saved) / unseen)
		line := fmt.Sprintf("not seen: an agent's own prompt and messages, which %s more and each changed list carry. "+
			"If they have more than %s tokens, listing every tool would have been cheaper", plural(max(0, r.Steps-r.AllSteps), "step"), humanize.Comma(most))
		if most < usualPrompt {
			line += fmt.Sprintf(": the prompt of Claude Code has %s. Then %s", humanize.Comma(usualPrompt), r.remedy())
		}
		lines = append(lines, line)
	}
	return lines
}

// usualPrompt is the length of Claude Code's own prompt in each step, in tokens.
const usualPrompt = 18_000

// unseen returns the additional cost of each token of the agent's own prompt and messages, compared with listing every
// tool: the model reads it in more steps, and again after each change of the list.
func (r savingsRow) unseen() float64 {
	return savings.Cached*float64(r.Steps-r.AllSteps) + (savings.Written-savings.Cached)*float64(r.Appended+r.Changed)
}

// advice says what to do if listing every tool is cheaper in a view; "" if it is not cheaper.
func (r savingsRow) advice() string {
	if r.Saved >= 0 || r.Starts == 0 {
		return ""
	}
	return fmt.Sprintf("view %s cost %s more than listing every tool would have: %s", r.View, humanize.Comma(-r.Saved), r.remedy())
}

// remedy says what to do if listing every tool is cheaper.
func (r savingsRow) remedy() string {
	const thousand = 1000
	switch {
	case r.Listed >= r.AllListed:
		return "it lists them all, and the rest is meta-tools beside them and their answers"
	case r.Changes > 0 && r.Cost-r.Changes <= r.AllCost:
		return "`routing_type: CALL_TOOL` helps, with which a list does not change in mid-session"
	}
	return fmt.Sprintf("let it list them, with `direct_below: %d` (and `routing_type: AUTO`)", (r.AllListed/r.Starts/thousand+1)*thousand)
}
