package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// passing are the tables that no snapshot has: what was asked, called and answered is not to lie
// on other disks than the database's.
var passing = []string{"learned", "called", "outputs", "savings"}

// Snapshot writes what OpenOr needs into a file of SQLite, in place of the one before, which
// stays if that fails. Its folder is made where it is missing; nobody else may read the file.
func (s *Store) Snapshot(ctx context.Context, path string) error {
	return failed("write a snapshot", s.snapshot(ctx, path))
}

func (s *Store) snapshot(ctx context.Context, path string) (err error) {
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	removeUnfinished(path)
	file, err := os.CreateTemp(dir, name+unfinished)
	if err != nil {
		return err
	}
	beside := file.Name()
	defer os.Remove(beside) // does nothing once it is renamed
	if err := file.Close(); err != nil {
		return err
	}
	db, err := connect(ctx, fileURI(beside)+"?_journal_mode=MEMORY") // nobody reads it before it is whole
	if err != nil {
		return err
	}
	if err = migrate(ctx, db); err == nil {
		tables := slices.DeleteFunc(slices.Clone(stored), func(table string) bool { return slices.Contains(passing, table) })
		_, err = copyTables(ctx, s.database, &database{db: db}, tables, false, true)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return os.Rename(beside, path)
}

// unfinished is the end of the names of snapshots that are being written, as a pattern.
const unfinished = ".*.new"

// removeUnfinished removes what processes left that were killed while they wrote.
func removeUnfinished(path string) {
	left, _ := filepath.Glob(path + unfinished)
	for _, one := range left {
		if info, err := os.Stat(one); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(one) // it is tried again
		}
	}
}

// standIn has a snapshot read in the place of the database, which cannot be reached.
func (p *remote) standIn(ctx context.Context, path string, why error, log *slog.Logger) error {
	db, written, err := openSnapshot(ctx, path)
	if err != nil {
		return fmt.Errorf("%w; and the snapshot %s cannot be used: %w", why, path, err)
	}
	p.snapshot.Store(db)
	p.gone(&Away{Since: time.Now(), Snapshot: written, Err: why})
	log.Warn("PostgreSQL cannot be reached: what is known is read from the snapshot, and what must be stored is refused",
		"snapshot", path, "written", written.UTC().Format(time.RFC3339), "error", why)
	return nil
}

// openSnapshot brings a snapshot to the newest version and opens it for reading.
func openSnapshot(ctx context.Context, path string) (_ *sql.DB, written time.Time, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, written, err
	}
	db, err := connect(ctx, fileURI(path)+"?mode=rw")
	if err != nil {
		return nil, written, err
	}
	if err = migrate(ctx, db); err == nil {
		err = check(ctx, db)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "PRAGMA query_only = on")
	}
	if err != nil {
		return nil, written, errors.Join(err, db.Close())
	}
	return db, info.ModTime(), nil
}

// leaveSnapshot ends the use of the snapshot. What is being read of it is read to its end.
func (p *remote) leaveSnapshot() {
	if db := p.snapshot.Swap(nil); db != nil {
		_ = db.Close() // it was only read
	}
}
