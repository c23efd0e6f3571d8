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

// connect opens a database with one connection: in memory a second one would have its own data, and the single
// writer needs no more.
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

// fileURI returns the URI of a path, escaped.
func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // a drive letter
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// damage wraps errDamaged around SQLite's errors about the content of the database. Errors of its surroundings,
// which may pass, stay unchanged.
func damage(err error) error {
	switch code(err) {
	case 0, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
		sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return err
	}
	// SQLITE_READONLY counts as damage: a wrong byte in the header causes it as well as a file without permission,
	// and renaming cures both.
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
