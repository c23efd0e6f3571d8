package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// suits says what the database lacks that replicas need, or that a pooler is in front that gives each transaction
// another session. Whether notifications arrive, Examine says: a slow one is no reason not to start.
func (p *remote) suits(ctx context.Context) error {
	one, other, err := two(ctx, p.config)
	if err != nil {
		return err
	}
	defer closeSoon(one)
	defer closeSoon(other)
	if err := ownSession(ctx, one, other); err != nil {
		return err
	}
	if err := sessionLocks(ctx, one, other); err != nil {
		return err
	}
	_, err = one.Exec(ctx, `LISTEN toolfinch_check; UNLISTEN toolfinch_check`)
	if storesNothing(err) {
		return nil // a standby, of which more is said elsewhere
	}
	if err != nil {
		return fmt.Errorf("%s: %w", forChanges, err)
	}
	return nil
}

// two returns two connections that prepare no statements: a pooler would mix them up.
func two(ctx context.Context, config *pgx.ConnConfig) (one, other *pgx.Conn, err error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	if one, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, nil, err
	}
	if other, err = pgx.ConnectConfig(ctx, config); err != nil {
		closeSoon(one)
		return nil, nil, fmt.Errorf("a second connection: %w", err)
	}
	return one, other, nil
}

// ownSession says that a connection is not one session of the database.
func ownSession(ctx context.Context, one, other *pgx.Conn) error {
	const which = `SELECT pg_backend_pid()`
	var first, second, third int
	if err := one.QueryRow(ctx, which).Scan(&first); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	tx, err := other.Begin(ctx)                                                            // takes the session that a pooler has free
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == "08P01" { // PgBouncer's, in statement mode
		return errPooled
	}
	if err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	defer tx.Rollback(ctx) // nothing was written
	if err := tx.QueryRow(ctx, which).Scan(&second); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	if err := one.QueryRow(ctx, which).Scan(&third); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	if first == second || first != third {
		return errPooled
	}
	return nil
}

// sessionLocks says that advisory locks do not keep others out.
func sessionLocks(ctx context.Context, one, other *pgx.Conn) error {
	const lock, unlock = `SELECT pg_try_advisory_lock($1)`, `SELECT pg_advisory_unlock($1)`
	key := time.Now().UnixNano()
	var mine, theirs bool
	err := one.QueryRow(ctx, lock, key).Scan(&mine)
	if err == nil {
		err = other.QueryRow(ctx, lock, key).Scan(&theirs)
	}
	if err != nil {
		return fmt.Errorf("advisory locks, by which replicas agree who does what: %w", err)
	}
	if _, err := one.Exec(ctx, unlock, key); err != nil {
		return fmt.Errorf("advisory locks, by which replicas agree who does what: %w", err)
	}
	if !mine || theirs {
		return fmt.Errorf("advisory locks do not keep other sessions out: this database only speaks PostgreSQL's protocol")
	}
	return nil
}

var errPooled = errors.New("transactions of one connection run in several sessions: a pooler such as PgBouncer is in front, in transaction or statement mode. " +
	"toolfinch needs its session mode, or PostgreSQL itself: see store in the configuration")

const forChanges = "LISTEN and NOTIFY, by which replicas hear of each other's changes"
