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

// OpenSealed opens what is at a place, see Open, for reading sealed rows alone, whichever
// version of the program wrote it. It changes nothing. Where there is no store, it has no
// rows.
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

// findSealed is OpenSealed; the error wraps os.ErrNotExist where no version of the program
// that has secrets has written.
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
