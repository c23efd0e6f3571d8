package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"toolfinch/internal/leeway"

	"github.com/jackc/pgx/v5/pgconn"
)

// database is common to Store and the further types over it.
type database struct {
	db  *sql.DB
	log *slog.Logger

	// Only of SQLite; empty for a store in memory.
	lock *lock
	path string
	file os.FileInfo // identity of path when it was opened

	remote *remote // nil with SQLite

	readOnly  bool
	noTimeout bool // see maxMethod
	firstHeld bool // no first list is approved, because earlier approvals may be lost
}

// txn is a writing transaction.
type txn struct {
	*sql.Tx
	conn     *sql.Conn // the transaction's connection
	postgres bool
}

// write runs do in one transaction, alone among all writers of the store. See transact.
func (d *database) write(ctx context.Context, do func(context.Context, *txn) error) error {
	if d.remote == nil { // SQLite has one writer at a time
		return d.transact(ctx, do)
	}
	// One lock for all writers: they write little, depend on rows of other writers, and bound whole tables.
	return d.transact(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, d.remote.lockKey("write")); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// writeErasable is write, and overwrites deleted text with zeros. It does so for every write, because SQLite also
// moves text within pages.
func (d *database) writeErasable(ctx context.Context, do func(context.Context, *txn) error) error {
	if d.remote != nil {
		return d.write(ctx, do)
	}
	if _, err := d.db.ExecContext(ctx, "PRAGMA secure_delete = on"); err != nil {
		return err
	}
	return d.write(ctx, do)
}

// run runs a statement by write, writeErasable or transact, and returns the number of changed rows.
func run(ctx context.Context, write func(context.Context, func(context.Context, *txn) error) error, statement string, args ...any) (n int64, err error) {
	err = write(ctx, func(ctx context.Context, tx *txn) error {
		result, err := tx.ExecContext(ctx, statement, args...)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// failed wraps an error with the operation; nil stays nil.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store: %s: %w", what, err)
}

// once runs do in one transaction.
func (d *database) once(ctx context.Context, do func(context.Context, *txn) error) error {
	// SQLite would keep writing into a deleted file.
	if d.path != "" {
		now, err := os.Stat(d.path)
		if err != nil {
			return fmt.Errorf("the database file is gone, restart to make a new one: %w", err)
		}
		if !os.SameFile(d.file, now) {
			return fmt.Errorf("%s was replaced, restart to use the new one", d.path)
		}
	}
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := do(ctx, &txn{tx, conn, d.remote != nil}); err != nil {
		return err
	}
	return d.committed(tx.Commit())
}

// querier is a database or a transaction. Placeholders are $1, $2, which both databases accept.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// after skips the first rows of a query; their number follows. SQLite has no OFFSET without a LIMIT, PostgreSQL no
// negative LIMIT.
const after = ` LIMIT 9223372036854775807 OFFSET `

// each calls do with every row of a query. do must not use the store: SQLite has one connection, which the query
// uses.
func each(ctx context.Context, in querier, do func(*sql.Rows) error, query string, args ...any) error {
	rows, err := in.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// each is the function each on the database.
func (d *database) each(ctx context.Context, do func(*sql.Rows) error, query string, args ...any) error {
	return d.read(ctx, func(ctx context.Context, db *sql.DB) error { return each(ctx, db, do, query, args...) })
}

// collect reads every row of a query with scan.
func collect[T any](ctx context.Context, d *database, scan func(*sql.Rows, *T) error, query string, args ...any) (all []T, err error) {
	err = d.read(ctx, func(ctx context.Context, db *sql.DB) error {
		all = nil
		return each(ctx, db, func(rows *sql.Rows) error {
			var one T
			err := scan(rows, &one)
			all = append(all, one)
			return err
		}, query, args...)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// row reads the only row of a query into dest; if there is none, the error is sql.ErrNoRows.
func (d *database) row(ctx context.Context, dest []any, query string, args ...any) error {
	return d.read(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, query, args...).Scan(dest...)
	})
}

// read runs do with the database. With PostgreSQL, ctx ends when the database goes away.
func (d *database) read(ctx context.Context, do func(context.Context, *sql.DB) error) error {
	if d.remote == nil {
		return do(ctx, d.db)
	}
	ctx, cancel, err := d.bounded(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return orAway(ctx, do(ctx, d.db))
}

// transact runs do in one transaction, again if another transaction or a lost connection made it fail: do must not
// keep results of an earlier run. The context of do ends when the database goes away.
func (d *database) transact(ctx context.Context, do func(context.Context, *txn) error) error {
	if d.readOnly {
		return ErrReadOnly
	}
	if d.remote == nil {
		return d.once(ctx, do)
	}
	ctx, cancel, err := d.bounded(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	for try := 1; ; try++ {
		err := d.once(ctx, do)
		if err == nil || try == maxTries || ctx.Err() != nil || !retriable(err) {
			return orAway(ctx, d.noteRefusal(err))
		}
		leeway.Wait(ctx, time.Duration(try*try)*10*time.Millisecond)
	}
}

// maxTries bounds the tries of a transaction.
const maxTries = 4

// bounded returns a context that ends when the database goes away, or after within. It fails while the database is
// away.
func (d *database) bounded(ctx context.Context) (context.Context, context.CancelFunc, error) {
	p := d.remote
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	if away := p.away.Load(); away != nil {
		return nil, nil, away
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(up, func() { cancel(context.Cause(up)) })
	ended := func() { stop(); cancel(nil) }
	if d.noTimeout {
		return ctx, ended, nil
	}
	ctx, late := context.WithTimeoutCause(ctx, p.within, errSilent)
	return ctx, func() { late(); ended() }, nil
}

// orAway replaces the error of a method by its cause, if the database went away or was silent.
func orAway(ctx context.Context, err error) error {
	var away *Away
	if cause := context.Cause(ctx); err != nil && (errors.As(cause, &away) || errors.Is(cause, errSilent)) {
		return cause
	}
	return err
}

// committed interprets the failure of a commit.
func (d *database) committed(err error) error {
	var refused *pgconn.PgError
	if d.remote == nil || err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// noteRefusal records whether the database stores data, and logs changes. It returns err, as a *Away if the
// database refuses to store.
func (d *database) noteRefusal(err error) error {
	p := d.remote
	was := p.refused.Load()
	if storesNothing(err) {
		now := time.Now()
		next := &refusal{since: now, last: now, err: err}
		if was != nil {
			next.since, next.logged = was.since, was.logged
		}
		// A full database still stores some rows between refusals: one warning each minute suffices.
		last := p.toldRefused.Load()
		if was == nil && now.UnixNano()-last > int64(refusedFor) {
			next.logged = p.toldRefused.CompareAndSwap(last, now.UnixNano())
		}
		if p.refused.CompareAndSwap(was, next) && was == nil && next.logged {
			d.log.Warn("PostgreSQL answers, but stores nothing: known data is still served, and changes are refused", "error", err)
		}
		return &Away{Since: next.since, Err: err, Refuses: true}
	}
	if err == nil && was != nil && p.refused.CompareAndSwap(was, nil) && was.logged {
		d.log.Info("PostgreSQL stores again", "after", time.Since(was.since).Round(time.Millisecond))
	}
	return err
}

// ErrReadOnly is wrapped by the error of a method that would write to a store that
// OpenReadOnly opened.
var ErrReadOnly = errors.New("the store is open for reading only")
