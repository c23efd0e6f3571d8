package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"toolfinch/store/vault"
)

// Sealed are the rows of the vault: secrets and logins.
type Sealed struct{ *database }

// Sealed returns the rows of the vault.
func (s *Store) Sealed() *Sealed { return &Sealed{s.database} }

const (
	// maxSealed bounds the rows of the vault: one per login, perhaps of each user.
	maxSealed = 100_000

	lockDirName = "locks"
)

const (
	sealedColumns = `SELECT name, sealed, at FROM vault`
	selectSealed  = sealedColumns + ` WHERE name = $1`
	sealedNames   = `SELECT name, at FROM vault WHERE substr(name, 1, length($1)) = $1 ORDER BY name`
	countSealed   = `SELECT count(*) FROM vault`
	putSealed     = `INSERT INTO vault (name, sealed, at) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, at = excluded.at`
	dropSealed    = `DELETE FROM vault WHERE name = $1 OR $1 = ''`
)

// Locks says how processes with this store lock names for each other. A store in memory, or open for reading only,
// has no locks.
func (s *Sealed) Locks() vault.Locks {
	switch {
	case s.remote != nil:
		return vault.Locks{Take: s.remote.lock}
	case s.path != "":
		return LocksIn(filepath.Dir(s.path))
	}
	return vault.Locks{}
}

// LocksIn returns the locks of the store in a folder.
func LocksIn(dir string) vault.Locks { return vault.Locks{Dir: filepath.Join(dir, lockDirName)} }

// Find returns the sealed row of that name; nil if there is none.
func (s *Sealed) Find(ctx context.Context, name string) (*vault.Row, error) {
	var row vault.Row
	var at int64
	err := s.row(ctx, []any{&row.Name, &row.Sealed, &at}, selectSealed, name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: read a sealed row: %w", err)
	}
	row.At = time.UnixMilli(at).UTC()
	return &row, nil
}

// Names returns the sealed rows whose names begin with prefix, by name, without their content.
func (s *Sealed) Names(ctx context.Context, prefix string) ([]vault.Row, error) {
	all, err := collect(ctx, s.database, func(rows *sql.Rows, row *vault.Row) error {
		var at int64
		err := rows.Scan(&row.Name, &at)
		row.At = time.UnixMilli(at).UTC()
		return err
	}, sealedNames, prefix)
	return all, failed("read the names of sealed rows", err)
}

// Put stores or replaces a row. A new row above 100,000 is an error: a sealed row cannot be learned again. The time
// is stored in milliseconds.
func (s *Sealed) Put(ctx context.Context, row vault.Row) error {
	err := s.writeErasable(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, putSealed, row.Name, row.Sealed, row.At.UnixMilli()); err != nil {
			return err
		}
		var count int
		if err := tx.QueryRowContext(ctx, countSealed).Scan(&count); err != nil {
			return err
		}
		if count > maxSealed {
			return fmt.Errorf("%d secrets and logins are stored, which is the most: remove some", maxSealed)
		}
		return nil
	})
	return failed("put a sealed row", err)
}

// Drop deletes the sealed row of that name; "" for all.
func (s *Sealed) Drop(ctx context.Context, name string) error {
	_, err := run(ctx, s.writeErasable, dropSealed, name)
	return failed("drop sealed rows", err)
}

// secrets and approvals list, by table, the columns of data that no server can provide again.
var (
	secrets = map[string]string{
		"vault": "name, sealed, at",
		"keys":  "name, id, hash, view, scopes, groups, created, expires, used",
	}
	approvals = map[string]string{
		"pins":      "server, kind, name, hash, raw, rejected",
		"baselines": "server, kind",
	}
)

// rescue copies the readable rows of tables out of a damaged SQLite database, which it does not change.
func rescue(ctx context.Context, db *sql.DB, aside string, tables map[string]string) error {
	if _, err := db.ExecContext(ctx, `ATTACH DATABASE $1 AS aside`, fileURI(aside)+"?mode=rw"); err != nil { // as in openToRead
		return err
	}
	var errs []error
	for table, columns := range tables {
		var found int
		err := db.QueryRowContext(ctx, `SELECT count(*) FROM aside.sqlite_schema WHERE name = $1`, table).Scan(&found)
		if err == nil && found > 0 {
			_, err = db.ExecContext(ctx, fmt.Sprintf(`INSERT OR IGNORE INTO main.%s (%s) SELECT %s FROM aside.%s`, table, columns, columns, table))
		}
		errs = append(errs, err)
	}
	_, err := db.ExecContext(ctx, `DETACH DATABASE aside`)
	return errors.Join(append(errs, err)...)
}
