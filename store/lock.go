package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"

	sqlite3 "modernc.org/sqlite/lib"

	"toolfinch/internal/leeway"
)

// lock says across processes who has the database open. It is held shared as
// long as a Store is open, and alone while the database is moved aside. It is an
// empty SQLite database, whose locks work wherever SQLite does; the database
// itself cannot be the lock, because nobody can lock a damaged one.
type lock struct {
	db   *sql.DB
	conn *sql.Conn // its transaction is what holds the lock
}

// openLock returns the lock at path, not held.
func openLock(ctx context.Context, path string) (*lock, error) {
	l, err := tryLock(ctx, path)
	if c := code(err); c == sqlite3.SQLITE_NOTADB || c == sqlite3.SQLITE_CORRUPT {
		// Something else was written into it. It has no content to lose.
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		l, err = tryLock(ctx, path)
	}
	return l, err
}

func tryLock(ctx context.Context, path string) (*lock, error) {
	if err := createPrivate(path); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", fileURI(path))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l := &lock{db, conn}
	if err := errors.Join(l.Share(ctx), l.Release(ctx)); err != nil { // the content is first read here
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// createPrivate makes an empty file that only its owner may read, unless there
// is a file. It never opens an existing one: closing that would drop the locks
// that SQLite has on it for another connection of this process.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Share takes the lock shared. It waits while someone is alone, which takes
// milliseconds.
func (l *lock) Share(ctx context.Context) error {
	return l.exec(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", leeway.Of(patience).Milliseconds()),
		"BEGIN", "SELECT count(*) FROM sqlite_schema") // a transaction locks when it first reads
}

// Alone takes the lock exclusively. It does not wait: ok is false, and nothing
// is held, when someone else has it.
func (l *lock) Alone(ctx context.Context) (ok bool, err error) {
	err = l.exec(ctx, "PRAGMA busy_timeout = 0", "BEGIN EXCLUSIVE")
	if busy(err) {
		return false, nil
	}
	return err == nil, err
}

// Release gives up what Share or Alone took.
func (l *lock) Release(ctx context.Context) error { return l.exec(ctx, "COMMIT") }

func (l *lock) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := l.conn.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the lock for good. It may be called twice.
func (l *lock) Close() error {
	err := l.conn.Close()
	if errors.Is(err, sql.ErrConnDone) {
		err = nil
	}
	return errors.Join(err, l.db.Close())
}
