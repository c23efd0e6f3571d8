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

	"toolfinch/internal/leeway"
)

// openShared opens the database at path and takes the lock shared. With replaces, it first sets a damaged database
// aside. wait bounds the wait for other processes, not its own work.
//
// Every process that has the database open holds the lock shared. A process renames the database only while it
// holds the lock alone.
func openShared(ctx context.Context, path string, lock *lock, wait time.Duration, replaces bool, log *slog.Logger) (*sql.DB, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pause := 5 * time.Millisecond
	var last error // the last error before the time ran out
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
		// Several processes may have found the damage or create the database at once, or a process with the
		// database open has not noticed the damage. Meanwhile other processes may take the lock.
		if !leeway.Wait(waiting, pause+rand.N(pause)) {
			return nil, because(waiting.Err())
		}
		pause = min(2*pause, time.Second) // each try reads the whole database
	}
}

// replace replaces a damaged database. The caller holds the lock alone; afterwards it is shared.
func replace(ctx context.Context, path string, lock *lock, log *slog.Logger) (*sql.DB, error) {
	db, err := openFile(ctx, path) // another process may have replaced it before
	if errors.Is(err, errDamaged) {
		db, err = replaceDamaged(ctx, path, err, log)
	}
	if err != nil {
		return nil, err
	}
	// Between the two, no process can find damage in the new database.
	if err := errors.Join(lock.Release(ctx), lock.Share(ctx)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// replaceDamaged makes a new database in place of a damaged one. why is the damage.
func replaceDamaged(ctx context.Context, path string, why error, log *slog.Logger) (*sql.DB, error) {
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
		approved = "lost: the servers' lists are held until you approve them: toolfinch pins"
		if dir := filepath.Dir(path); !hasBaselines(dir) {
			if err := noteBaselines(dir, anyServer); err != nil { // else the next start would approve first lists
				return nil, errors.Join(err, db.Close())
			}
		}
	}
	log.Warn("the database is damaged and was moved aside: a new one is filled from the servers' lists",
		"moved_to", aside, "error", why, "secrets_logins_and_keys", kept, "approvals", approved)
	return db, nil
}

// openFile opens the database, creates it if missing, and migrates it. It wraps errDamaged and errNewer.
func openFile(ctx context.Context, path string) (*sql.DB, error) {
	// SQLite would create a file that everybody can read; -wal and -shm get its mode.
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

// check finds damage that opening does not: inconsistent pages, a foreign schema.
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

// checkSchema finds a foreign schema. It reads no rows.
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

// setAside renames a damaged database with its -wal and -shm, so that the copy is whole, and returns its new path.
// why is the damage.
func setAside(path string, why error) (aside string, err error) {
	aside = path + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000Z")
	// The database goes last: under its old name it would be tried again.
	for _, suffix := range []string{"-shm", "-wal", ""} {
		err := os.Rename(path+suffix, aside+suffix)
		if err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return "", fmt.Errorf("%w, and it could not be moved aside: %w", why, err)
		}
	}
	return aside, nil
}
