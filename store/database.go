package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// database is what all of them have.
type database struct {
	db  *sql.DB
	log *slog.Logger

	// Of SQLite; without them it is in memory.
	lock *lock
	path string
	file os.FileInfo // what path was when it was opened

	remote *remote // nil with SQLite

	readOnly  bool
	unhurried bool // see maxMethod
	firstHeld bool // no first list is approved: it is not known whose lists were approved before
}

// txn is a transaction that writes.
type txn struct {
	*sql.Tx
	conn     *sql.Conn // on which it is
	postgres bool
}

// write runs do in one transaction, alone among all writers of the store. See transact.
func (d *database) write(ctx context.Context, do func(context.Context, *txn) error) error {
	if d.remote == nil { // which is what its transactions are
		return d.transact(ctx, do)
	}
	// One lock for all: what is written here is little, decides by what others wrote, and
	// bounds whole tables.
	return d.transact(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, d.remote.lockKey("write")); err != nil {
			return err
		}
		return do(ctx, tx)
	})
}

// writeErasable is write, with zeros where text was deleted from a page or moved
// within it. That text is moved is why it does not suffice to delete with it.
func (d *database) writeErasable(ctx context.Context, do func(context.Context, *txn) error) error {
	if d.remote != nil {
		return d.write(ctx, do)
	}
	if _, err := d.db.ExecContext(ctx, "PRAGMA secure_delete = on"); err != nil {
		return err
	}
	return d.write(ctx, do)
}

// run runs a statement with what writes, one of the above or transact, and returns how many
// rows it changed.
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

// failed says what failed; nil is nil.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store: %s: %w", what, err)
}

// once runs do in one transaction.
func (d *database) once(ctx context.Context, do func(context.Context, *txn) error) error {
	// SQLite would go on writing into a file that has no name any more.
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

// querier is a database or a transaction of one. Placeholders are $1, $2: both databases
// know them.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// after leaves out the first rows of a query; how many follows. SQLite has no OFFSET
// without a LIMIT, PostgreSQL none that is negative.
const after = ` LIMIT 9223372036854775807 OFFSET `

// each calls do with every row of a query. do must not use the store: with SQLite its one
// connection is taken.
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

// each calls do with every row of a query, like the function of that name.
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

// row reads the one row of a query into dest; without one the error is sql.ErrNoRows.
func (d *database) row(ctx context.Context, dest []any, query string, args ...any) error {
	return d.read(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, query, args...).Scan(dest...)
	})
}

// read runs do with the database. With PostgreSQL it ends when that goes away.
func (d *database) read(ctx context.Context, do func(context.Context, *sql.DB) error) error {
	if d.remote == nil {
		return do(ctx, d.db)
	}
	ctx, cancel, err := d.bounded(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return because(ctx, do(ctx, d.db))
}

// transact runs do in one transaction. It runs again when the transaction failed because
// of another one, or its connection was lost before the end: do must not keep what it
// found in an earlier run. It is given a context that ends when the database goes away.
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
		if err == nil || try == maxTries || ctx.Err() != nil || !again(err) {
			return because(ctx, d.noted(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try*try) * 10 * time.Millisecond):
		}
	}
}

// maxTries bounds how often a transaction is tried.
const maxTries = 4

// bounded returns a context that ends when the database goes away, or after within; the error says so
// when it is away already.
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
	if d.unhurried {
		return ctx, ended, nil
	}
	ctx, late := context.WithTimeoutCause(ctx, p.within, errSilent)
	return ctx, func() { late(); ended() }, nil
}

// because says that the database went away, or was silent, where that is why a method failed.
func because(ctx context.Context, err error) error {
	var away *Away
	if cause := context.Cause(ctx); err != nil && (errors.As(cause, &away) || errors.Is(cause, errSilent)) {
		return cause
	}
	return err
}

// committed says what the failure of a commit means.
func (d *database) committed(err error) error {
	var refused *pgconn.PgError
	if d.remote == nil || err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// noted notes whether the database stores what it is given, and logs when that changes. It returns
// err, as a *Away if the database refuses.
func (d *database) noted(err error) error {
	p := d.remote
	was := p.refused.Load()
	if storesNothing(err) {
		now := time.Now()
		next := &refusal{since: now, last: now, err: err}
		if was != nil {
			next.since, next.told = was.since, was.told
		}
		// What finds room in a full database is stored between what does not.
		last := p.toldRefused.Load()
		if was == nil && now.UnixNano()-last > int64(refusedFor) {
			next.told = p.toldRefused.CompareAndSwap(last, now.UnixNano())
		}
		if p.refused.CompareAndSwap(was, next) && was == nil && next.told {
			d.log.Warn("PostgreSQL answers, and stores nothing: what is known is served on, and what must be stored is refused", "error", err)
		}
		return &Away{Since: next.since, Err: err, Refuses: true}
	}
	if err == nil && was != nil && p.refused.CompareAndSwap(was, nil) && was.told {
		d.log.Info("PostgreSQL stores again", "after", time.Since(was.since).Round(time.Millisecond))
	}
	return err
}

// ErrReadOnly is wrapped by the error of a method that would write to a store that
// OpenReadOnly opened.
var ErrReadOnly = errors.New("the store is open for reading only")
