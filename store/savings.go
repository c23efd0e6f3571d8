package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Savings are the tokens that the sessions of a client in a view received on one
// day, beside what they would have received without a choice of tools.
type Savings struct {
	Day        string // 2026-11-21, UTC
	View       string
	Client     string // as it names itself; "" for clients that are not told apart
	Sessions   int
	Retrievals int
	Full       int64 // tokens of listing everything
	Listed     int64 // tokens of the definitions that were listed
	Answers    int64 // tokens of the answers to retrievals
}

// Clients name themselves, so what they can make the store keep is bounded.
const (
	savingsDays      = 400
	maxSavingsRows   = 1000 // of named clients, a day
	maxSavingsClient = 256  // bytes
)

const (
	savingsColumns = `SELECT day, view, client, sessions, retrievals, full_tokens, listed_tokens, answer_tokens FROM savings`
	selectSavings  = savingsColumns + ` WHERE day >= ? ORDER BY day DESC, view, client`

	addSavings = `
		INSERT INTO savings (day, view, client, sessions, retrievals, full_tokens, listed_tokens, answer_tokens)
		VALUES (:day, :view,
			CASE WHEN EXISTS (SELECT 1 FROM savings WHERE day = :day AND view = :view AND client = :client)
				OR (SELECT count(*) FROM savings WHERE day = :day AND client <> '') < :rows
			THEN :client ELSE '' END,
			:sessions, :retrievals, :full, :listed, :answers)
		ON CONFLICT DO UPDATE SET
			sessions = sessions + excluded.sessions, retrievals = retrievals + excluded.retrievals,
			full_tokens = full_tokens + excluded.full_tokens, listed_tokens = listed_tokens + excluded.listed_tokens,
			answer_tokens = answer_tokens + excluded.answer_tokens`

	dropSavings = `DELETE FROM savings WHERE day <= ?`
)

// AddSavings adds each to what is stored of its day, view and client; all or,
// on an error, none. The name of a client is cut at 256 bytes. Of a day, 1,000
// rows of named clients are kept; those of the clients that come later are
// added up under the name "", one a view. What is 400 days old is dropped. A Day
// that is none is an error.
func (s *Store) AddSavings(ctx context.Context, all []Savings) error {
	for _, one := range all {
		if _, err := time.Parse(time.DateOnly, one.Day); err != nil {
			return fmt.Errorf("store: add savings: %q is no day: %w", one.Day, err)
		}
	}
	err := s.write(ctx, func(tx *sql.Tx) error {
		for _, one := range all {
			_, err := tx.ExecContext(ctx, addSavings,
				sql.Named("day", one.Day), sql.Named("view", one.View), sql.Named("client", clip(one.Client)),
				sql.Named("sessions", one.Sessions), sql.Named("retrievals", one.Retrievals),
				sql.Named("full", one.Full), sql.Named("listed", one.Listed), sql.Named("answers", one.Answers),
				sql.Named("rows", maxSavingsRows))
			if err != nil {
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

// clip is a client's name as it is stored: text, and not too long.
func clip(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if len(name) > maxSavingsClient {
		name = strings.ToValidUTF8(name[:maxSavingsClient], "")
	}
	return name
}

// Savings returns what is stored of the day of since, in UTC, and of later ones,
// the newest day first, then by view and client.
func (s *Store) Savings(ctx context.Context, since time.Time) ([]Savings, error) {
	rows, err := s.db.QueryContext(ctx, selectSavings, since.UTC().Format(time.DateOnly))
	if err != nil {
		return nil, fmt.Errorf("store: read savings: %w", err)
	}
	defer rows.Close()
	var out []Savings
	for rows.Next() {
		var one Savings
		err := rows.Scan(&one.Day, &one.View, &one.Client, &one.Sessions, &one.Retrievals, &one.Full, &one.Listed, &one.Answers)
		if err != nil {
			return nil, fmt.Errorf("store: read savings: %w", err)
		}
		out = append(out, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("store: read savings: %w", err)
	}
	return out, nil
}
