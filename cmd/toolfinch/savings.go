package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/store"
)

func newSavings(s *settings) *cobra.Command {
	var since, recorded string
	var queries []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "savings",
		Short: "Show how many tokens retrieval has saved, or saves on recorded servers",
		Long: `Savings prints, by view and client, how many tokens models have read less because
they were not listed every tool. Days are those of UTC.

FULL is what listing every tool of the view would have cost, once a session.
LISTED is what the definitions cost that tools/list sent, each once a session.
RETRIEVALS are searches for tools, and ANSWERS is what the answers of
retrieve_tools and the other meta-tools cost that find and describe tools. Saved
is FULL without LISTED and ANSWERS; below zero, listing everything would have been
cheaper. Results of called tools and answers that failed are not counted.

A 2026-07-28 client has no sessions: it counts as in one until half an hour after
its last list or answer. Clients of a view that have the same name and version
are in the same one then, whoever their users are.

With --recorded, nothing of that is read: the tools of recorded servers are put
behind a toolfinch of their own, a client connects, lists tools, asks for five
things, lists again whenever the list has changed, and its savings are printed.
FOLDER has a JSON file for each server, an object with its "tools" as tools/list
sent them. No server is started, and words alone decide what is found.`,
		Example: `  toolfinch savings
  toolfinch savings --since 7d
  toolfinch savings --since 2026-11-01 --json
  toolfinch savings --recorded ./servers --query "create an issue" --query "read a page"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if recorded == "" {
				if cmd.Flags().Changed("query") {
					return &exitError{exitUsage, errors.New("--query says what to ask of recorded servers: it needs --recorded")}
				}
				return s.accountedSavings(cmd, since, asJSON)
			}
			if cmd.Flags().Changed("since") {
				return &exitError{exitUsage, errors.New("--since is of sessions that were accounted: leave it out with --recorded")}
			}
			if !cmd.Flags().Changed("query") {
				queries = typicalQueries
			}
			played, err := playRecorded(cmd.Context(), recorded, queries, cmd.ErrOrStderr())
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), played)
			}
			return played.print(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&since, "since", "30d", "from when on: a number of days, today's counted, or a `DAY` like 2026-11-01")
	cmd.Flags().StringVar(&recorded, "recorded", "", "measure a session over the servers recorded in `FOLDER`")
	cmd.Flags().StringArrayVar(&queries, "query", nil, "with --recorded: ask for `TEXT`; repeat it for more (default: five typical tasks)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// accountedSavings prints what the store has of savings.
func (s *settings) accountedSavings(cmd *cobra.Command, since string, asJSON bool) error {
	from, err := sinceDay(since, time.Now())
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
	}
	return s.withStore(cmd, func(ctx context.Context, _ *configs.Config, db *store.Store) error {
		days, err := db.Savings(ctx, from)
		if err != nil {
			return err
		}
		all := summed(days)
		day := from.Format(time.DateOnly)
		switch {
		case asJSON:
			return printJSON(cmd.OutOrStdout(), struct {
				Since   string       `json:"since"`
				Savings []savingsRow `json:"savings"`
				Total   savingsRow   `json:"total"`
			}{day, all, totalOf(all)})
		case len(all) == 0:
			fmt.Fprintln(cmd.ErrOrStderr(), "no session has been accounted since", day)
			return nil
		}
		return printSavings(cmd.OutOrStdout(), all)
	})
}

// maxSince is how many days --since may reach back: more than any store has.
const maxSince = 36_500

// sinceDay is the day, in UTC, from which on savings are shown.
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

// savingsRow is what was saved, in tokens.
type savingsRow struct {
	View       string   `json:"view,omitempty"` // "" in a total
	Client     string   `json:"client,omitempty"`
	Sessions   int      `json:"sessions"`
	Retrievals int      `json:"retrievals"`
	Full       int64    `json:"full"`    // listing every tool
	Listed     int64    `json:"listed"`  // definitions that were listed
	Answers    int64    `json:"answers"` // of meta-tools that find and describe tools
	Saved      int64    `json:"saved"`
	Percent    *float64 `json:"percent"` // of Full; null where that is 0
}

// add adds what was accounted to the row.
func (r *savingsRow) add(s store.Savings) {
	r.Sessions += s.Sessions
	r.Retrievals += s.Retrievals
	r.Full += s.Full
	r.Listed += s.Listed
	r.Answers += s.Answers
	r.Saved = r.Full - r.Listed - r.Answers
	if r.Full > 0 {
		percent := math.Round(1000*float64(r.Saved)/float64(r.Full)) / 10
		r.Percent = &percent
	}
}

// summed are the rows of views and clients, in their order, over all days.
func summed(days []store.Savings) []savingsRow {
	all := []savingsRow{}
	for _, day := range days {
		i := slices.IndexFunc(all, func(r savingsRow) bool { return r.View == day.View && r.Client == day.Client })
		if i < 0 {
			i = len(all)
			all = append(all, savingsRow{View: day.View, Client: day.Client})
		}
		all[i].add(day)
	}
	slices.SortFunc(all, func(a, b savingsRow) int {
		return slices.Compare([]string{a.View, a.Client}, []string{b.View, b.Client})
	})
	return all
}

func totalOf(rows []savingsRow) savingsRow {
	var total savingsRow
	for _, r := range rows {
		total.add(store.Savings{Sessions: r.Sessions, Retrievals: r.Retrievals, Full: r.Full, Listed: r.Listed, Answers: r.Answers})
	}
	return total
}

func printSavings(w io.Writer, rows []savingsRow) error {
	t := table{head: []string{"VIEW", "CLIENT", "SESSIONS", "RETRIEVALS", "FULL", "LISTED", "ANSWERS", "SAVED"}}
	for _, r := range rows {
		client := r.Client
		if client == "" {
			client = "-"
		}
		t.add(r.View, client, grouped(int64(r.Sessions)), grouped(int64(r.Retrievals)), grouped(r.Full), grouped(r.Listed), grouped(r.Answers), r.percent())
	}
	if err := t.print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", totalOf(rows))
	return err
}

// percent is the share that was saved, "-" where there was nothing to save.
func (r savingsRow) percent() string {
	if r.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*r.Percent, 'f', 1, 64) + " %"
}

// String says in a line what was saved.
func (r savingsRow) String() string {
	sessions := grouped(int64(r.Sessions)) + " sessions"
	if r.Sessions == 1 {
		sessions = "1 session"
	}
	share := "nothing"
	if r.Percent != nil {
		share = r.percent()
	}
	line := fmt.Sprintf("saved %s (%s of %s tokens in %s)", share, grouped(r.Saved), grouped(r.Full), sessions)
	if r.Saved < 0 {
		line += ": listing every tool would have been cheaper"
	}
	return line
}

// grouped is a number with its digits in threes: 412,000.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
