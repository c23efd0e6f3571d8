// Package store owns what was learned from upstreams and must outlive the
// process: servers, their tools, prompts and resources, token counts, the index of
// their words, clients, vectors, what was called after which queries, what clients have provisioned, what
// that saved, sealed secrets, and for a while large results. It is the only package of
// the proxy that speaks SQL. It never dials and never decides what is searched or shown:
// a lost store costs time, because nearly all of it can be learned again, and so no
// state of the disk but a newer version's database keeps the program from starting.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"toolfinch/internal/leeway"
)

const (
	fileName = "toolfinch.db"
	lockName = "toolfinch.lock"

	// patience bounds every wait for another process.
	patience = 5 * time.Second
)

// Store is an open database. Its methods are safe for concurrent use, from
// several processes too; each waits at most 5 s for another writer. A method
// that fails has changed nothing, and the store may be used on: a full disk or
// a lock held by another process can pass.
//
// Store itself has servers, what they listed, and what was computed or written of that. What
// else is stored has types of its own over the same database, which promise the same: Pins,
// Usage, Outputs, Keys, Sealed, Replicas and Sessions.
type Store struct{ *database }

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

// Open opens the store at a place: a folder, or the URL of a PostgreSQL database.
//
// The database is brought to the newest version of the schema. A database that a newer version of the
// program wrote, and with which this one does not work, is an error.
//
// A PostgreSQL database that cannot be reached is an error. Of several programs that bring it
// to the newest version at once, all but one wait. Methods return an error that wraps *Away while
// it does not answer, methods that write also while it stores nothing.
//
// In a folder Open opens toolfinch.db, which is created (mode 0700) when missing. A damaged
// database is an error: see OpenOrReplace. When no database can be had in the folder (no permission,
// no space, another process holds it for more than 5 s) the store lives in memory, which costs one
// warning in log. It knows what the folder says of approvals.
func Open(ctx context.Context, at string, log *slog.Logger) (*Store, error) {
	return openAt(ctx, at, log, false)
}

// OpenOrReplace is Open for a process that serves: a damaged database in a folder is renamed to
// toolfinch.db.corrupt-<time>, and a new one takes its place, which costs one warning in log. The
// new one has the approvals, secrets and keys that can still be read. Of a server whose
// approvals are lost the first list is held.
func OpenOrReplace(ctx context.Context, at string, log *slog.Logger) (*Store, error) {
	return openAt(ctx, at, log, true)
}

func openAt(ctx context.Context, at string, log *slog.Logger, replace bool) (*Store, error) {
	if InPostgres(at) {
		return openPostgres(ctx, at, log, everything)
	}
	s, err := openDir(ctx, at, log, replace)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, errNewer):
		return nil, fmt.Errorf("store: %w", err)
	case errors.Is(err, errDamaged) && !replace:
		return nil, fmt.Errorf("store: %w", replaceable(err))
	}
	if ctx.Err() == nil {
		log.Warn("the data directory cannot be used: what is learned or approved now is lost at exit, and what was approved before and cannot be read is held", "dir", at, "error", err)
	}
	return openBeside(ctx, at, log)
}

// replaceable says what to do about damage.
func replaceable(err error) error {
	if errors.Is(err, errDamaged) {
		return fmt.Errorf("%w (toolfinch serve moves it aside and makes a new one)", err)
	}
	return err
}

// openBeside returns a store in memory in place of the one in dir, which cannot be used. It has what
// is approved there, as far as that can be read.
func openBeside(ctx context.Context, dir string, log *slog.Logger) (*Store, error) {
	s, err := openMemory(ctx, log)
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(filepath.Join(dir, fileName))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err == nil {
		err = rescue(ctx, s.db, path, approvals)
	}
	s.firstHeld = err != nil && !errors.Is(err, fs.ErrNotExist) && !hasBaselines(dir)
	if err := s.restoreBaselines(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openMemory(ctx context.Context, log *slog.Logger) (*Store, error) {
	db, err := connect(ctx, ":memory:")
	if err == nil {
		err = migrate(ctx, db)
	}
	if err != nil {
		return nil, fmt.Errorf("store: open in memory: %w", err)
	}
	return &Store{&database{db: db, log: log}}, nil
}

// ErrReadOnly is wrapped by the error of a method that would write to a store that
// OpenReadOnly opened.
var ErrReadOnly = errors.New("the store is open for reading only")

// OpenReadOnly opens what is at a place, see Open, for reading: methods that write fail,
// and nothing is made or changed. The store is empty where there is none, and in a folder where
// there is one that cannot be read, which costs one warning in log; it knows what the folder says of
// approvals. A PostgreSQL database that cannot be read is an error, and so is a database of a newer version.
func OpenReadOnly(ctx context.Context, at string, log *slog.Logger) (*Store, error) {
	s, err := OpenExisting(ctx, at, log)
	switch {
	case err == nil || InPostgres(at) && !absent(at, err):
		return s, err
	case errors.Is(err, errNewer):
		return nil, fmt.Errorf("store: %w", err)
	case !absent(at, err):
		log.Warn("the store could not be read: what it knows is not used", "dir", at, "error", err)
	}
	if InPostgres(at) {
		s, err = openMemory(ctx, log)
	} else {
		s, err = openBeside(ctx, at, log)
	}
	if err == nil {
		s.readOnly = true
	}
	return s, err
}

// OpenExisting is OpenReadOnly, where that there is no store, and that it cannot be read, are errors.
func OpenExisting(ctx context.Context, at string, log *slog.Logger) (*Store, error) {
	if InPostgres(at) {
		return openPostgres(ctx, at, log, reading)
	}
	path, err := filepath.Abs(filepath.Join(at, fileName))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	db, err := openToRead(ctx, path)
	if err != nil {
		return nil, err
	}
	return &Store{&database{db: db, log: log, readOnly: true}}, nil
}

func openToRead(ctx context.Context, path string) (*sql.DB, error) {
	db, err := connect(ctx, fileURI(path)+"?mode=rw&_pragma=query_only(on)") // rw: what another process has not written back yet can be read
	if err != nil {
		return nil, damage(err)
	}
	_, newest, err := migrationsOf("sqlite")
	var version int
	if err == nil {
		version, err = userVersion(ctx, db)
	}
	switch {
	case err == nil && version > newest:
		err = tooNew(version, newest)
	case err == nil && version != newest:
		err = fmt.Errorf("its schema version is %d, not %d: toolfinch serve, and commands that write, bring it up to date", version, newest)
	}
	if err != nil {
		return nil, errors.Join(damage(err), db.Close())
	}
	return db, nil
}

// Check reports whether there is a store at a place, and why it cannot be used. It changes
// nothing.
func Check(ctx context.Context, at string) (known bool, err error) {
	s, err := OpenExisting(ctx, at, slog.New(slog.DiscardHandler))
	switch {
	case absent(at, err):
		return false, nil
	case err != nil:
		return true, replaceable(err)
	case s.remote == nil:
		err = replaceable(damage(check(ctx, s.db)))
	}
	return true, errors.Join(err, s.Close())
}

// Durable reports whether the store is a file or a PostgreSQL database that is open for
// writing. If not, what is written is forgotten at Close.
func (s *Store) Durable() bool { return s.path != "" || s.remote != nil && !s.readOnly }

// Close ends the use of the database. It may be called twice; every other
// method fails after it.
func (s *Store) Close() error {
	if s.remote != nil {
		s.remote.close()
	}
	err := s.db.Close()
	if s.path != "" && !s.readOnly && err == nil {
		noteChecked(s.path)
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return failed("close", err)
}

func openDir(ctx context.Context, dir string, log *slog.Logger, replace bool) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		log.Warn("other users can write to the data directory, and so approve what they like: chmod go-w", "dir", dir, "mode", info.Mode())
	}
	lock, err := openLock(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	s := &Store{&database{log: log, lock: lock, path: filepath.Join(dir, fileName)}}
	s.db, err = openShared(ctx, s.path, lock, leeway.Of(patience), replace, log)
	if err == nil {
		s.file, err = os.Stat(s.path)
	}
	if err == nil {
		err = s.restoreBaselines(ctx, dir)
	}
	if err != nil {
		if s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
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
