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

	"toolfinch/internal/leeway"
)

// Open opens the store at a place: a folder, or the URL of a PostgreSQL database.
//
// It migrates the database to the newest schema. A database that only newer versions of the program can use is an
// error.
//
// A PostgreSQL database that cannot be reached is an error. If several processes migrate at once, all but one wait.
// Methods return an error that wraps *Away while the database does not answer; methods that write, also while it
// stores nothing.
//
// In a folder Open opens toolfinch.db, which is created (mode 0700) when missing. A damaged database is an error:
// see OpenOrReplace. If the folder cannot be used (no permission, no space, locked by another process for more than
// 5 s), the store lives in memory, with a warning in log. It has the approvals that the folder records.
func Open(ctx context.Context, at string, log *slog.Logger) (*Store, error) {
	return openAt(ctx, at, log, false)
}

// OpenOrReplace is Open for a process that serves: a damaged database in a folder is renamed to
// toolfinch.db.corrupt-<time> and replaced by a new one, with a warning in log. The new one gets the approvals,
// secrets and keys that can still be read. If a server's approvals are lost, its first list is held.
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
		log.Warn("the data directory cannot be used: new data and approvals are lost at exit, and definitions whose approvals cannot be read are held", "dir", at, "error", err)
	}
	return openBeside(ctx, at, log)
}

// replaceable adds to an error of damage what to do.
func replaceable(err error) error {
	if errors.Is(err, errDamaged) {
		return fmt.Errorf("%w (toolfinch serve moves it aside and makes a new one)", err)
	}
	return err
}

// openBeside returns a store in memory instead of the store in dir, which cannot be used. It gets the approvals in
// dir that can be read.
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

// OpenReadOnly opens the store at a place for reading: methods that write fail, and nothing is created or changed.
// A missing store is empty, and so is a store in a folder that cannot be read, with a warning in log; it has the
// approvals that the folder records. A PostgreSQL database that cannot be read is an error, and so is a database of
// a newer version.
func OpenReadOnly(ctx context.Context, at string, log *slog.Logger) (*Store, error) {
	s, err := OpenExisting(ctx, at, log)
	switch {
	case err == nil || InPostgres(at) && !absent(at, err):
		return s, err
	case errors.Is(err, errNewer):
		return nil, fmt.Errorf("store: %w", err)
	case !absent(at, err):
		log.Warn("the store cannot be read, and is not used", "dir", at, "error", err)
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

// OpenExisting is OpenReadOnly, but a missing or unreadable store is an error.
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
	db, err := connect(ctx, fileURI(path)+"?mode=rw&_pragma=query_only(on)") // rw: else the log of another process could not be read
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

// Check reports whether there is a store at a place, and why it cannot be used. It changes nothing.
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

func openDir(ctx context.Context, dir string, log *slog.Logger, replace bool) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		log.Warn("other users can write to the data directory, and so can approve definitions: chmod go-w", "dir", dir, "mode", info.Mode())
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

// Close closes the database. It may be called twice; every other method fails afterwards.
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

// OpenSealed opens the store at a place for reading sealed rows alone, whatever version of the program wrote it. It
// changes nothing. A missing store has no rows.
func OpenSealed(ctx context.Context, at string) (*Store, error) {
	s, err := findSealed(ctx, at)
	if !absent(at, err) {
		if err != nil {
			return nil, fmt.Errorf("store: read secrets: %w", err)
		}
		return s, nil
	}
	if s, err = openMemory(ctx, nil); err == nil {
		s.readOnly = true
	}
	return s, err
}

// findSealed is OpenSealed, but wraps os.ErrNotExist if no version with secrets has written there.
func findSealed(ctx context.Context, at string) (*Store, error) {
	if InPostgres(at) {
		return openPostgres(ctx, at, slog.New(slog.DiscardHandler), sealedOnly)
	}
	db, err := openSealed(ctx, at)
	if err != nil {
		return nil, err
	}
	return &Store{&database{db: db, readOnly: true}}, nil
}

func openSealed(ctx context.Context, dir string) (*sql.DB, error) {
	path, err := filepath.Abs(filepath.Join(dir, fileName))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	db, err := connect(ctx, fileURI(path)+"?mode=rw&_pragma=query_only(on)") // as in openToRead
	if err != nil {
		return nil, err
	}
	var tables int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE name = 'vault'`).Scan(&tables)
	if err == nil && tables == 1 {
		return db, nil
	}
	if err == nil {
		err = fmt.Errorf("its version has no secrets: %w", os.ErrNotExist)
	}
	return nil, errors.Join(err, db.Close())
}
