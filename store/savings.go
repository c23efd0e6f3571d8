package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Savings are the tokens that the sessions of a view received on one day, beside
// what they would have received without a choice of tools.
type Savings struct {
	Day        string // 2026-11-21, UTC
	View       string
	Sessions   int
	Retrievals int
	Full       int64 // tokens of listing everything
	Listed     int64 // tokens of the definitions that were listed
	Answers    int64 // tokens of the answers that find and describe tools
}

// Plus returns the sums of both, with the day and the view of s.
func (s Savings) Plus(other Savings) Savings {
	s.Sessions += other.Sessions
	s.Retrievals += other.Retrievals
	s.Full += other.Full
	s.Listed += other.Listed
	s.Answers += other.Answers
	return s
}

// savingsDays is how many days of savings are kept.
const savingsDays = 400

const (
	savingsColumns = `SELECT day, view, sessions, retrievals, full_tokens, listed_tokens, answer_tokens FROM savings`
	selectSavings  = savingsColumns + ` WHERE day >= ? ORDER BY day DESC, view`

	addSavings = `
		INSERT INTO savings (day, view, sessions, retrievals, full_tokens, listed_tokens, answer_tokens)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET
			sessions = sessions + excluded.sessions, retrievals = retrievals + excluded.retrievals,
			full_tokens = full_tokens + excluded.full_tokens, listed_tokens = listed_tokens + excluded.listed_tokens,
			answer_tokens = answer_tokens + excluded.answer_tokens`

	dropSavings = `DELETE FROM savings WHERE day <= ?`
)

// AddSavings adds each to what is stored of its view on a day, 2026-11-21 in UTC;
// all or, on an error, none. What is 400 days old is dropped.
func (s *Store) AddSavings(ctx context.Context, day string, all []Savings) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return fmt.Errorf("store: add savings: %q is no day: %w", day, err)
	}
	err := s.write(ctx, func(tx *sql.Tx) error {
		for _, one := range all {
			if _, err := tx.ExecContext(ctx, addSavings, day, one.View, one.Sessions, one.Retrievals, one.Full, one.Listed, one.Answers); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, dropSavings, time.Now().UTC().AddDate(0, 0, -savingsDays).Format(time.DateOnly))
		return err
	})
	if err != nil {
		return fmt.Errorf("store: add savings: %w", err)
	}
	return nil
}

// ResetSavings forgets all savings.
func (s *Store) ResetSavings(ctx context.Context) error {
	err := s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM savings`)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: reset savings: %w", err)
	}
	return nil
}

// Savings returns what is stored of the day of since, in UTC, and of later ones,
// the newest day first, then by view.
func (s *Store) Savings(ctx context.Context, since time.Time) ([]Savings, error) {
	var out []Savings
	err := each(ctx, s.db, func(rows *sql.Rows) error {
		var one Savings
		err := rows.Scan(&one.Day, &one.View, &one.Sessions, &one.Retrievals, &one.Full, &one.Listed, &one.Answers)
		out = append(out, one)
		return err
	}, selectSavings, since.UTC().Format(time.DateOnly))
	if err != nil {
		return nil, fmt.Errorf("store: read savings: %w", err)
	}
	return out, nil
}
