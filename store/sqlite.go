package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"toolfinch/internal/leeway"
)

// patience bounds every wait for another process.
const patience = 5 * time.Second

// errDamaged says that no program can use the database.
var errDamaged = errors.New("the database is damaged")

// connect opens a database with one connection: a second one would have a
// memory of its own, and the one writer needs no more.
func connect(ctx context.Context, uri string) (*sql.DB, error) {
	sep := "?"
	if u, err := url.Parse(uri); err == nil && u.RawQuery != "" {
		sep = "&"
	}
	uri += sep + "_txlock=immediate&_foreign_keys=on&_defensive=1&_dqs=0&_error_rc=1" +
		fmt.Sprintf("&_busy_timeout=%d", leeway.Of(patience).Milliseconds()) +
		"&_pragma=trusted_schema(off)&_pragma=cell_size_check(on)"
	db, err := sql.Open("sqlite", uri)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// fileURI escapes what has a meaning in an URI and may be in a path.
func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // a drive letter
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// damage wraps errDamaged around what SQLite says of the database's content,
// and leaves alone what is the fault of its surroundings and may pass.
func damage(err error) error {
	switch code(err) {
	case 0, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return err
	}
	// SQLITE_READONLY is here: a wrong byte in the header causes it as well as a
	// file without permission, and renaming cures both.
	return fmt.Errorf("%w: %w", errDamaged, err)
}

func busy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED || c == sqlite3.SQLITE_PROTOCOL
}

// code returns SQLite's primary result code, 0 when err is not SQLite's.
func code(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}
