package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Savings are the tokens that the models of a view's clients read on one day, as far as a proxy sees them, and the
// tokens that they would have read with every tool listed. A model step reads the input of earlier steps again; a
// provider caches it while its order is unchanged.
type Savings struct {
	Day        string // 2026-11-21, UTC
	View       string
	Sessions   int64 // sessions with a list of tools
	Retrievals int64 // searches
	Starts     int64 // first steps of sessions, or after a long pause
	Steps      int64 // model steps, including starts

	// How often a list changed between two steps of a session: at its end, or before it.
	Appended, Changed int64

	// Read for the first time, or again because an earlier list changed.
	Listed   int64 // lists at a start
	Relisted int64 // later additions to a list, and the definitions after them
	Answers  int64 // of meta-tools that are superfluous with every tool listed
	Results  int64 // of other calls
	Reread   int64 // answers and results that a changed list removed from the cache

	Cached int64 // read again from the cache

	// The same with every tool listed: steps without those that read an answer, lists at a start, and repeated
	// reading. Results are equal.
	AllSteps, AllListed, AllCached int64
}

// counts returns the numbers of s in the order of savingsCounts.
func (s *Savings) counts() []*int64 {
	return []*int64{&s.Sessions, &s.Retrievals, &s.Starts, &s.Steps, &s.Appended, &s.Changed, &s.Listed, &s.Relisted, &s.Answers, &s.Results,
		&s.Reread, &s.Cached, &s.AllSteps, &s.AllListed, &s.AllCached}
}

// savingsCounts are the columns of the numbers.
var savingsCounts = []string{"sessions", "retrievals", "starts", "steps", "appended", "changed", "listed", "relisted", "answers", "results",
	"reread", "cached", "all_steps", "all_listed", "all_cached"}

// Plus returns the sums of both, with the day and view of s.
func (s Savings) Plus(other Savings) Savings {
	more := other.counts()
	for i, n := range s.counts() {
		*n += *more[i]
	}
	return s
}

// savingsDays is how many days of savings are kept.
const savingsDays = 400

var (
	savingsColumns = `SELECT day, view, ` + strings.Join(savingsCounts, ", ") + ` FROM savings`
	selectSavings  = savingsColumns + ` WHERE day >= $1 ORDER BY day DESC, view`
	addSavings     = addSavingsStatement()
)

const dropSavings = `DELETE FROM savings WHERE day <= $1`

func addSavingsStatement() string {
	var sums, values []string
	for i, column := range savingsCounts {
		values = append(values, fmt.Sprintf("$%d", i+3))
		sums = append(sums, column+" = savings."+column+" + excluded."+column)
	}
	return `INSERT INTO savings (day, view, ` + strings.Join(savingsCounts, ", ") + `) VALUES ($1, $2, ` +
		strings.Join(values, ", ") + `) ON CONFLICT (day, view) DO UPDATE SET ` + strings.Join(sums, ", ")
}

// AddSavings adds each to the stored savings of its view on a day, 2026-11-21 in UTC; all or, on an error, none. It
// deletes savings older than 400 days.
func (u *Usage) AddSavings(ctx context.Context, day string, all []Savings) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return fmt.Errorf("store: add savings: %q is no day: %w", day, err)
	}
	err := u.write(ctx, func(ctx context.Context, tx *txn) error {
		for _, one := range all {
			values := []any{day, one.View}
			for _, n := range one.counts() {
				values = append(values, *n)
			}
			if _, err := tx.ExecContext(ctx, addSavings, values...); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, dropSavings, time.Now().UTC().AddDate(0, 0, -savingsDays).Format(time.DateOnly))
		return err
	})
	return failed("add savings", err)
}

// ResetSavings deletes all savings.
func (u *Usage) ResetSavings(ctx context.Context) error {
	_, err := run(ctx, u.write, `DELETE FROM savings`)
	return failed("reset savings", err)
}

// Savings returns the savings from the day of since, in UTC, the newest day first, then by view.
func (u *Usage) Savings(ctx context.Context, since time.Time) ([]Savings, error) {
	all, err := collect(ctx, u.database, func(rows *sql.Rows, one *Savings) error {
		values := []any{&one.Day, &one.View}
		for _, n := range one.counts() {
			values = append(values, n)
		}
		return rows.Scan(values...)
	}, selectSavings, since.UTC().Format(time.DateOnly))
	return all, failed("read savings", err)
}
