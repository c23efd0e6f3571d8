package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"

	"toolfinch/internal/leeway"
)

// The number at the start of a migration's name is the schema version that it makes. Migrations are only ever
// added.
//
//go:embed migrations
var migrations embed.FS

// errNewer says that this program is too old for the database.
var errNewer = errors.New("the database was written by a newer version of toolfinch: update this one, or name another data_dir or store")

// migrationsOf returns the migrations of a database, sqlite or postgres, and their number.
func migrationsOf(kind string) (fs.FS, int, error) {
	dir, err := fs.Sub(migrations, "migrations/"+kind)
	if err != nil {
		return nil, 0, err
	}
	names, err := fs.Glob(dir, "*.sql")
	return dir, len(names), err
}

// newProvider returns the provider that applies the migrations of dir. Each file is executed as a whole: goose's
// own reader takes 4 MB per line.
func newProvider(dialect goose.Dialect, db *sql.DB, dir fs.FS, options ...goose.ProviderOption) (*goose.Provider, error) {
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, err
		}
		run := func(ctx context.Context, tx *sql.Tx) error {
			statements, err := fs.ReadFile(dir, name)
			if err == nil {
				_, err = tx.ExecContext(ctx, string(statements))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		}
		options = append(options, goose.WithGoMigrations(goose.NewGoMigration(version, &goose.GoFunc{RunTx: run}, nil)))
	}
	return goose.NewProvider(dialect, db, nil, append(options, goose.WithDisableGlobalRegistry(true))...)
}

// migrate brings a SQLite database to the newest version. Two processes may migrate at once: the second to apply a
// migration fails, and reads the version again.
func migrate(ctx context.Context, db *sql.DB) error {
	dir, newest, err := migrationsOf("sqlite")
	if err != nil {
		return err
	}
	for last := -1; ; {
		version, err := userVersion(ctx, db)
		switch {
		case err != nil:
			return err
		case version > newest:
			return tooNew(version, newest)
		case version < 0:
			return fmt.Errorf("%w: schema version %d", errDamaged, version)
		case version == newest:
			return nil
		}
		provider, err := newProvider(goose.DialectCustom, db, dir, goose.WithStore(userVersions{}))
		if err != nil {
			return err
		}
		_, err = provider.Up(ctx)
		if err != nil && (version == last || ctx.Err() != nil) {
			return err // no other process has advanced it
		}
		last = version
	}
}

type rower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func userVersion(ctx context.Context, db rower) (version int, err error) {
	err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	return version, err
}

// userVersions stores the version of a SQLite database in PRAGMA user_version, for goose.
type userVersions struct{}

// Insert runs in the transaction of the migration. Its failure also undoes a migration that another process has
// applied.
func (userVersions) Insert(ctx context.Context, db goosedb.DBTxConn, req goosedb.InsertRequest) error {
	version, err := userVersion(ctx, db)
	if err == nil && int64(version) != req.Version-1 {
		err = fmt.Errorf("the database has the schema version %d already", version)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", req.Version))
	}
	return err
}

func (userVersions) GetLatestVersion(ctx context.Context, db goosedb.DBTxConn) (int64, error) {
	version, err := userVersion(ctx, db)
	return int64(version), err
}

func (v userVersions) ListMigrations(ctx context.Context, db goosedb.DBTxConn) ([]*goosedb.ListMigrationsResult, error) {
	version, err := v.GetLatestVersion(ctx, db)
	var all []*goosedb.ListMigrationsResult
	for ; version >= 0; version-- {
		all = append(all, &goosedb.ListMigrationsResult{Version: version, IsApplied: true})
	}
	return all, err
}

func (v userVersions) GetMigration(ctx context.Context, db goosedb.DBTxConn, version int64) (*goosedb.GetMigrationResult, error) {
	latest, err := v.GetLatestVersion(ctx, db)
	if err == nil && version > latest {
		err = goosedb.ErrVersionNotFound
	}
	return &goosedb.GetMigrationResult{IsApplied: err == nil}, err
}

func (userVersions) Tablename() string                                          { return "user_version" }
func (userVersions) CreateVersionTable(context.Context, goosedb.DBTxConn) error { return nil }
func (userVersions) Delete(context.Context, goosedb.DBTxConn, int64) error {
	return errors.ErrUnsupported
}

// versionTable is where goose records the migrations of a PostgreSQL database.
const versionTable = "schema_versions"

// migrate brings the database to the newest version. If several processes start at once, one migrates and the
// others wait.
func (p *remote) migrate(ctx context.Context) (err error) {
	dir, _, err := migrationsOf("postgres")
	if err != nil {
		return err
	}
	db := p.pool(func(ctx context.Context, conn *pgx.Conn) error {
		err := prepare(ctx, conn, false)
		if err == nil { // new tables go to the schema of the old ones
			_, err = conn.Exec(ctx, `SET search_path = `+pgx.Identifier{p.schema}.Sanitize())
		}
		return err
	})
	defer func() { err = errors.Join(err, db.Close()) }()
	provider, err := newProvider(goose.DialectPostgres, db, dir, goose.WithTableName(versionTable),
		goose.WithSessionLocker(migrationLock{p}), goose.WithAllowOutofOrder(true))
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		_, err := provider.Up(ctx)
		refused, is := errors.AsType[*pgconn.PgError](err)
		if !is || refused.Code != lockTimeout || try == maxTries || ctx.Err() != nil {
			return err
		}
	}
}

// current reports whether the database has every migration. If only newer programs can use it, the error wraps
// errNewer.
func (p *remote) current(ctx context.Context, db *sql.DB) (bool, error) {
	_, newest, err := migrationsOf("postgres")
	if err != nil {
		return false, err
	}
	var known bool
	err = db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL`, versionTable, "compatible").Scan(&known)
	if err != nil || !known {
		return false, err
	}
	var applied, since int
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM `+versionTable+` WHERE version_id BETWEEN 1 AND $1`, newest).Scan(&applied)
	if err == nil {
		err = db.QueryRowContext(ctx, selectSince).Scan(&since)
	}
	if err == nil && since > newest {
		err = tooNew(since, newest)
	}
	return applied == newest, err
}

const selectSince = `SELECT since FROM compatible`

func tooNew(since, newest int) error {
	return fmt.Errorf("%w (programs that know its schema version %d can use it, this one knows %d)", errNewer, since, newest)
}

// checkVersion fails if a newer program has migrated the database beyond this program.
func (p *remote) checkVersion(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(watchWait))
	defer cancel()
	_, newest, err := migrationsOf("postgres")
	var since int
	if err == nil {
		err = conn.QueryRow(ctx, selectSince).Scan(&since)
	}
	if err == nil && since > newest {
		return tooNew(since, newest)
	}
	return nil // methods report other errors
}

// usable fails if this program cannot read the database; with fs.ErrNotExist if no program has written there.
func (p *remote) usable(ctx context.Context, db *sql.DB) error {
	ready, err := p.current(ctx, db)
	if err == nil && !ready {
		if err := p.sealable(ctx, db); err != nil {
			return err
		}
		err = errors.New("its schema is not that of this program: toolfinch serve, and commands that write, make it so")
	}
	return err
}

// sealable fails if the sealed rows cannot be read; with fs.ErrNotExist if no program has written there.
func (p *remote) sealable(ctx context.Context, db *sql.DB) error {
	var known bool
	err := db.QueryRowContext(ctx, `SELECT to_regclass('vault') IS NOT NULL`).Scan(&known)
	if err == nil && !known {
		err = fs.ErrNotExist
	}
	return err
}

// migrationLock is held while migrations are applied.
type migrationLock struct{ p *remote }

// SessionLock waits for other processes as long as a migration may take. A migration changes tables that running
// replicas use: it waits for their locks like any writer, so that they do not wait for it.
func (m migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, fmt.Sprintf(`SET lock_timeout = %d`, maxStatement.Milliseconds())); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, m.p.lockKey("migrate"))
	if err == nil {
		_, err = conn.ExecContext(ctx, fmt.Sprintf(`SET lock_timeout = %d`, patience.Milliseconds()))
	}
	return err
}

func (m migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1)`, m.p.lockKey("migrate"))
	return err
}
