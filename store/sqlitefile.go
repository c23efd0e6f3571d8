package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// openShared opens the database at path and takes the lock shared. With replaces, a damaged
// database is set aside first. wait bounds how long it waits for other processes, not how long its
// own work takes.
//
// Every process that has the database open holds the lock shared. A process renames the database
// only while it holds the lock alone.
func openShared(ctx context.Context, path string, lock *lock, wait time.Duration, replaces bool, log *slog.Logger) (*sql.DB, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pause := 5 * time.Millisecond
	var last error // what was wrong with the database before time ran out
	because := func(err error) error {
		if err != nil && waiting.Err() != nil && last != nil {
			return fmt.Errorf("%w, and another process is using it", last)
		}
		return err
	}
	for {
		if err := lock.Share(ctx); err != nil {
			return nil, because(err)
		}
		db, err := openFile(ctx, path)
		damaged := errors.Is(err, errDamaged)
		if err == nil || !busy(err) && !(damaged && replaces) {
			return db, because(err)
		}
		last = err
		if lockErr := lock.Release(ctx); lockErr != nil {
			return nil, because(errors.Join(err, lockErr))
		}
		if damaged {
			alone, lockErr := lock.Alone(ctx)
			if lockErr != nil {
				return nil, errors.Join(err, lockErr)
			}
			if alone {
				return replace(ctx, path, lock, log)
			}
		}
		// Several processes found the damage or are making the database at once, or a process that
		// has it open has not noticed. The lock is free for other processes meanwhile.
		select {
		case <-waiting.Done():
			return nil, because(waiting.Err())
		case <-time.After(pause + rand.N(pause)):
			pause = min(2*pause, time.Second) // each try reads the whole database
		}
	}
}

// replace is called with the lock held alone and leaves it shared.
func replace(ctx context.Context, path string, lock *lock, log *slog.Logger) (*sql.DB, error) {
	db, err := openFile(ctx, path) // someone may have replaced it before the lock was ours
	if errors.Is(err, errDamaged) {
		db, err = anew(ctx, path, err, log)
	}
	if err != nil {
		return nil, err
	}
	// No process can find the new database damaged between the two.
	if err := errors.Join(lock.Release(ctx), lock.Share(ctx)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// anew makes a database in place of a damaged one. why says what the damage is.
func anew(ctx context.Context, path string, why error, log *slog.Logger) (*sql.DB, error) {
	aside, err := setAside(path, why)
	if err != nil {
		return nil, err
	}
	db, err := openFile(ctx, path)
	if err != nil {
		return nil, err
	}
	kept := "kept, if there were any"
	if rescue(ctx, db, aside, secrets) != nil {
		kept = "some are lost, if there were any: store them again"
	}
	approved := "kept, if there were any"
	if rescue(ctx, db, aside, approvals) != nil {
		approved = "lost: what servers list is held until you approve it: toolfinch pins"
		if dir := filepath.Dir(path); !hasBaselines(dir) {
			if err := noteBaselines(dir, anyServer); err != nil { // the next start would approve what is not known
				return nil, errors.Join(err, db.Close())
			}
		}
	}
	log.Warn("the database is damaged and was moved aside: a new one will be learned from the servers",
		"moved_to", aside, "error", why, "secrets_logins_and_keys", kept, "approvals", approved)
	return db, nil
}

// openFile opens the database, making it when it is missing, and brings it to
// the newest version. It wraps errDamaged and errNewer.
func openFile(ctx context.Context, path string) (*sql.DB, error) {
	// SQLite would make it readable for everyone; -wal and -shm follow its mode.
	if err := createPrivate(path); err != nil {
		return nil, err
	}
	checked := isChecked(path) // before SQLite makes files beside it
	db, err := connect(ctx, fileURI(path)+"?_journal_mode=WAL&_synchronous=NORMAL")
	if err != nil {
		return nil, damage(err)
	}
	steps := []func(context.Context, *sql.DB) error{migrate, check}
	if checked {
		steps = []func(context.Context, *sql.DB) error{migrate, checkSchema}
	}
	for _, step := range steps {
		if err := step(ctx, db); err != nil {
			return nil, errors.Join(damage(err), db.Close())
		}
	}
	return db, nil
}

// check finds the damage that opening a database does not: pages that do not
// fit together, a schema that is not ours.
func check(ctx context.Context, db *sql.DB) error {
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", errDamaged, verdict)
	}
	return checkSchema(ctx, db)
}

// checkSchema finds a schema that is not ours. It reads no rows.
func checkSchema(ctx context.Context, db *sql.DB) error {
	for _, query := range []string{
		selectServers, selectTools, selectTokens, selectClients, selectVectors, selectLearned, provisionColumns, savingsColumns, sealedColumns, selectUnpinned, selectInstructions, segmentColumns,
	} {
		rows, err := db.QueryContext(ctx, "EXPLAIN "+query)
		if err != nil {
			return err
		}
		if err := rows.Close(); err != nil {
			return err
		}
	}
	return nil
}

// setAside renames a damaged database with its -wal and -shm, so that the renamed database
// is whole, and returns its new path. why says what the damage is.
func setAside(path string, why error) (aside string, err error) {
	aside = path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	// The database goes last: as long as it has its name, it is tried again.
	for _, suffix := range []string{"-shm", "-wal", ""} {
		err := os.Rename(path+suffix, aside+suffix)
		if err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", fmt.Errorf("%w, and it could not be moved aside: %w", why, err)
		}
	}
	return aside, nil
}
