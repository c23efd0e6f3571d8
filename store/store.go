// Package store owns what was learned from upstreams and must outlive the
// process: servers, their tools, prompts and resources, token counts, clients,
// vectors, what was called after which queries, what clients have provisioned, what
// that saved, sealed secrets, and for a while large results. It is the only package of
// the proxy that speaks SQL. It never dials and never decides what is searched or shown:
// a lost store costs time, because nearly all of it can be learned again, and so no
// state of the disk keeps the program from starting.
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
	"time"
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
type Store struct {
	db   *sql.DB
	log  *slog.Logger
	lock *lock       // nil in memory
	path string      // "" in memory
	file os.FileInfo // what path was when it was opened

	readOnly bool
}

// Open opens toolfinch.db in dir, which is created (mode 0700) when missing.
// A database that is damaged, or was written by a newer version of the program,
// is renamed to toolfinch.db.corrupt-<time> or toolfinch.db.newer-<time>, and a
// new one takes its place. When no database can be had in dir (no permission,
// no space, another process holds it for more than 5 s) the store lives in
// memory. Either costs one warning in log. The error is not nil only when
// memory fails as well, which a ctx that is done also causes.
func Open(ctx context.Context, dir string, log *slog.Logger) (*Store, error) {
	s, err := openDir(ctx, dir, log)
	if err == nil {
		return s, nil
	}
	if ctx.Err() == nil {
		log.Warn("the data directory cannot be used: what is learned is kept in memory and lost at exit", "dir", dir, "error", err)
	}
	return openMemory(ctx, log)
}

func openMemory(ctx context.Context, log *slog.Logger) (*Store, error) {
	db, err := connect(ctx, ":memory:")
	if err == nil {
		err = migrate(ctx, db)
	}
	if err != nil {
		return nil, fmt.Errorf("store: open in memory: %w", err)
	}
	return &Store{db: db, log: log}, nil
}

// ErrReadOnly is wrapped by the error of a method that would write to a store that
// OpenReadOnly opened.
var ErrReadOnly = errors.New("the store is open for reading only")

// OpenReadOnly opens what is in dir for reading: methods that write fail, and no
// file is made or changed. The store is empty where there is none, or one that
// cannot be read; the latter costs one warning in log.
func OpenReadOnly(ctx context.Context, dir string, log *slog.Logger) (*Store, error) {
	path, err := filepath.Abs(filepath.Join(dir, fileName))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err == nil {
		var db *sql.DB
		if db, err = openToRead(ctx, path); err == nil {
			return &Store{db: db, log: log, readOnly: true}, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the store could not be read: what it knows is not used", "dir", dir, "error", err)
	}
	s, err := openMemory(ctx, log)
	if err == nil {
		s.readOnly = true
	}
	return s, err
}

func openToRead(ctx context.Context, path string) (*sql.DB, error) {
	db, err := connect(ctx, fileURI(path)+"?mode=rw&_pragma=query_only(on)") // rw: what another process has not written back yet can be read
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	var version int
	if err == nil {
		err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	}
	if err == nil && version != len(names) {
		err = fmt.Errorf("schema version %d, this one knows %d", version, len(names))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Check reports whether there is a store in dir, and why it cannot be used. It changes
// no file.
func Check(ctx context.Context, dir string) (known bool, err error) {
	path, err := filepath.Abs(filepath.Join(dir, fileName))
	if err == nil {
		_, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	db, err := openToRead(ctx, path)
	if err != nil {
		return true, err
	}
	return true, errors.Join(check(ctx, db), db.Close())
}

// Durable reports whether the store is a file. If not, it is empty at start and
// forgotten at Close.
func (s *Store) Durable() bool { return s.path != "" }

// Close ends the use of the database. It may be called twice; every other
// method fails after it.
func (s *Store) Close() error {
	err := s.db.Close()
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

func openDir(ctx context.Context, dir string, log *slog.Logger) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := openLock(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	s := &Store{log: log, lock: lock, path: filepath.Join(dir, fileName)}
	s.db, err = openOrReplace(ctx, s.path, lock, log)
	if err == nil {
		s.file, err = os.Stat(s.path)
	}
	if err != nil {
		if s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// write runs do in one transaction, alone among all writers.
func (s *Store) write(ctx context.Context, do func(*sql.Tx) error) error {
	if s.readOnly {
		return ErrReadOnly
	}
	// SQLite would go on writing into a file that has no name any more.
	if s.path != "" {
		now, err := os.Stat(s.path)
		if err != nil {
			return fmt.Errorf("the database file is gone, restart to make a new one: %w", err)
		}
		if !os.SameFile(s.file, now) {
			return fmt.Errorf("%s was replaced, restart to use the new one", s.path)
		}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
