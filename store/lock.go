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

// lock tells other processes that the database is open. It is shared while a Store is open, and exclusive while the
// database is set aside. It is an empty SQLite database, whose locks work wherever SQLite does; a damaged database
// itself cannot be locked.
type lock struct {
	db   *sql.DB
	conn *sql.Conn // its transaction holds the lock
}

// openLock returns the lock at path, not held.
func openLock(ctx context.Context, path string) (*lock, error) {
	l, err := tryLock(ctx, path)
	if c := code(err); c == sqlite3.SQLITE_NOTADB || c == sqlite3.SQLITE_CORRUPT {
		// The file was overwritten. It has no content to lose.
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
	if err := errors.Join(l.Share(ctx), l.Release(ctx)); err != nil { // this is the first read of the file
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// createPrivate creates an empty file that only its owner may read, unless the file exists. It never opens an
// existing file: closing it would drop the locks that SQLite has on it in this process.
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

// Share takes the lock shared. It waits while another process holds it alone, which takes milliseconds.
func (l *lock) Share(ctx context.Context) error {
	return l.exec(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", leeway.Of(patience).Milliseconds()),
		"BEGIN", "SELECT count(*) FROM sqlite_schema") // a transaction locks when it first reads
}

// Alone takes the lock exclusively. It does not wait: if another process has the lock, ok is false.
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
