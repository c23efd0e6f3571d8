package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/leeway"
)

func openPostgres(ctx context.Context, at string, log *slog.Logger, to purpose) (*Store, error) {
	s, err := dialPostgres(ctx, at, log, to)
	if err != nil {
		return nil, fmt.Errorf("store: open PostgreSQL: %w", unconnected(err))
	}
	return s, nil
}

func dialPostgres(ctx context.Context, at string, log *slog.Logger, to purpose) (_ *Store, err error) {
	config, err := configOf(at)
	if err != nil {
		return nil, err
	}
	p := &remote{config: config, within: maxMethod}
	db := p.pool(func(ctx context.Context, conn *pgx.Conn) error { return prepare(ctx, conn, to != everything) })
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	p.up, p.drop = context.WithCancelCause(context.Background())
	if err := p.checkServer(ctx); err != nil {
		return nil, err
	}
	if err := p.begin(ctx, db, to); err != nil {
		return nil, err
	}
	watching, ended := context.WithCancel(context.Background())
	p.ended, p.done = ended, make(chan struct{})
	go func() {
		defer close(p.done)
		p.watch(watching, to, log)
	}()
	return &Store{&database{db: db, log: log, readOnly: to != everything, remote: p}}, nil
}

// begin finds the schema of the tables, and migrates them if the purpose needs it.
func (p *remote) begin(ctx context.Context, db *sql.DB, to purpose) error {
	asking, cancel := context.WithTimeout(ctx, leeway.Of(connectWait)) // migrations have a longer bound
	defer cancel()
	var schema sql.NullString
	var encoding string
	if err := db.QueryRowContext(asking, whereTablesAre).Scan(&schema, &encoding); err != nil {
		return err
	}
	if err := storesText(encoding); err != nil {
		return err
	}
	if !schema.Valid {
		return errors.New("there is no schema to put tables into: the first of search_path must exist")
	}
	p.schema = schema.String
	switch to {
	case everything:
		if ready, err := p.current(asking, db); ready || err != nil {
			return err
		}
		return p.migrate(ctx)
	case reading:
		return p.usable(asking, db)
	default:
		return p.sealable(asking, db)
	}
}

// watch checks whether the database answers, and wakes all that wait for it when it goes away: no method waits
// longer than watch does. It also notices when a newer program has migrated the database beyond this one.
func (p *remote) watch(ctx context.Context, to purpose, log *slog.Logger) {
	var conn *pgx.Conn
	pause := watchEvery
	for ctx.Err() == nil {
		err := p.ping(ctx, &conn)
		answers := err == nil
		if answers && to != sealedOnly {
			err = p.checkVersion(ctx, conn)
		}
		switch away := p.away.Load(); {
		case ctx.Err() != nil:
		case err == nil && away != nil:
			p.setUp()
			log.Info("PostgreSQL answers again", "after", time.Since(away.Since).Round(time.Millisecond))
		case err != nil && away == nil:
			pause = 0 // the database may be back soon
			p.setAway(&Away{Since: time.Now(), Err: err, Answers: answers})
			what := "PostgreSQL does not answer"
			if answers {
				what = unusable
			}
			log.Warn(what+": known data is still served, and changes are refused", "error", err)
		case err != nil:
			if answers && err.Error() != away.Err.Error() {
				log.Warn(unusable+": known data is still served, and changes are refused", "error", err)
			}
			p.away.Store(&Away{Since: away.Since, Err: err, Answers: answers})
		}
		if err == nil {
			pause = watchEvery
		} else {
			pause = min(max(2*pause, watchEvery/5), maxRetry)
		}
		leeway.Wait(ctx, pause)
	}
	if conn != nil {
		closeSoon(conn)
	}
}

const unusable = "PostgreSQL answers, but cannot be used"

func (p *remote) close() {
	p.ended()
	<-p.done
	p.drop(errors.New("the store is closed"))
}
