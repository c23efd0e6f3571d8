package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"toolfinch/tool"
)

// LearnedUse says how often a tool was called after a query.
type LearnedUse struct {
	Principal string // the principal; "" if unknown; at most 1,024 bytes

	Query string    // at most 500 bytes
	Tool  tool.ID   // the upstream's tool; it need not exist any more
	Count float64   // weight of its uses at the time At, above 0; it halves in 30 days
	At    time.Time // of the latest use, in milliseconds
}

// The bounds of the table are those of the memory that reads it: fewer rows would lose data, more would be useless.
const (
	maxLearned      = 5000     // pairs of a query and a tool
	maxLearnedQuery = 500      // bytes
	maxLearnedBy    = 1024     // bytes of a principal
	maxLearnedCount = 4.0      // of a pair
	minLearnedCount = 1.0 / 64 // less has faded away
)

const (
	selectLearned = `SELECT principal, query, server, tool, count, used_at FROM learned ORDER BY principal, query, server, tool`

	// The weight of a row at the time $1. A clock that was set back must not raise it. PostgreSQL refuses powers
	// too small for a number, so ages end at 100 half-lives of 2,592,000 seconds.
	learnedNow = `learned.count * pow(0.5, CAST(CASE WHEN $1 <= learned.used_at THEN 0 WHEN $1 - learned.used_at > 259200000000 THEN 259200000000
		ELSE $1 - learned.used_at END AS DOUBLE PRECISION) / 2592000000)`

	addLearned = `
		INSERT INTO learned (used_at, principal, query, server, tool, count) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (principal, query, server, tool) DO UPDATE SET used_at = excluded.used_at,
			count = CASE WHEN excluded.count + ` + learnedNow + ` < $7 THEN excluded.count + ` + learnedNow + ` ELSE $7 END`

	fadeLearned = `DELETE FROM learned WHERE ` + learnedNow + ` < $2`

	// The row just added stays, else a full table would learn nothing new.
	boundLearned = `
		DELETE FROM learned WHERE (principal, query, server, tool) IN (
			SELECT principal, query, server, tool FROM learned
			ORDER BY (principal, query, server, tool) = ($2, $3, $4, $5) DESC, ` + learnedNow + ` DESC, principal, query, server, tool
			` + after + `$6)`

	// $1 is in lower case already: lower of a parameter depends on the locale of the database.
	forgetLearned = `
		DELETE FROM learned
		WHERE ($1 = '' OR replace(lower(query), $1, '') <> lower(query)) AND ($2 = '' OR server || '.' || tool = $2)`
)

// Learned returns what was learned from use, in the order of principals, queries and tools.
func (u *Usage) Learned(ctx context.Context) ([]LearnedUse, error) {
	all, err := collect(ctx, u.database, func(rows *sql.Rows, use *LearnedUse) error {
		var at int64
		err := rows.Scan(&use.Principal, &use.Query, &use.Tool.Server, &use.Tool.Name, &use.Count, &at)
		use.At = time.UnixMilli(at)
		return err
	}, selectLearned)
	return all, failed("read what was learned", err)
}

// PutLearned adds a use to the stored use of its principal, query and tool: weights add up, after fading, to at
// most 4. Rows below 1/64 are deleted, and above 5,000 rows the weakest. A query of more than 500 bytes and a
// weight that is not above 0 are errors.
func (u *Usage) PutLearned(ctx context.Context, use LearnedUse) error {
	if len(use.Query) > maxLearnedQuery {
		return fmt.Errorf("store: put learned use: its query has %d bytes, more than %d", len(use.Query), maxLearnedQuery)
	}
	if len(use.Principal) > maxLearnedBy {
		return fmt.Errorf("store: put learned use: its principal has %d bytes, more than %d", len(use.Principal), maxLearnedBy)
	}
	if !(use.Count > 0) { // also refuses NaN
		return fmt.Errorf("store: put learned use: its count is %v, not above 0", use.Count)
	}
	row := []any{use.At.UnixMilli(), use.Principal, use.Query, use.Tool.Server, use.Tool.Name}
	err := u.writeErasable(ctx, func(ctx context.Context, tx *txn) error {
		_, err := tx.ExecContext(ctx, addLearned, append(slices.Clip(row), min(use.Count, maxLearnedCount), maxLearnedCount)...)
		if err == nil {
			_, err = tx.ExecContext(ctx, fadeLearned, row[0], minLearnedCount)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, boundLearned, append(slices.Clip(row), maxLearned)...)
		}
		return err
	})
	return failed("put learned use", err)
}

// ForgetLearned deletes uses whose query contains query, in any case of English letters, and whose tool is
// "server.name". "" matches any query or tool, so both together delete everything. It returns the number of deleted
// rows. Their text is overwritten in the file, too; while another process reads, a copy stays in its log, and the
// store's log says so. PostgreSQL overwrites nothing: it reuses the space later.
func (u *Usage) ForgetLearned(ctx context.Context, query, tool string) (int, error) {
	n, err := run(ctx, u.writeErasable, forgetLearned, lower(query), tool)
	if err != nil || u.remote != nil {
		return int(n), failed("forget what was learned", err)
	}
	var busy, pages, moved int
	err = u.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
	if err != nil || busy != 0 {
		u.log.Warn("forgotten text stays in the database's log until the log is reused", "error", err)
	}
	return int(n), nil
}

// lower converts English letters only, as both databases do for the column.
func lower(text string) string {
	out := []byte(text)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out)
}
