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
	if err := p.suits(ctx); err != nil {
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

// begin finds where the tables are, and makes them what the purpose needs.
func (p *remote) begin(ctx context.Context, db *sql.DB, to purpose) error {
	asking, cancel := context.WithTimeout(ctx, leeway.Of(connectWait)) // making tables may take longer
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

// watch notices that the database does not answer, and that it does again. Whoever waits
// for it is told then: no method waits longer than watch does. It notices, too, that a newer program
// has made the database one of its own.
func (p *remote) watch(ctx context.Context, to purpose, log *slog.Logger) {
	var conn *pgx.Conn
	pause := watchEvery
	for ctx.Err() == nil {
		err := p.ping(ctx, &conn)
		answers := err == nil
		if answers && to != sealedOnly {
			err = p.outgrown(ctx, conn)
		}
		switch away := p.away.Load(); {
		case ctx.Err() != nil:
		case err == nil && away != nil:
			p.back()
			log.Info("PostgreSQL answers again", "after", time.Since(away.Since).Round(time.Millisecond))
		case err != nil && away == nil:
			pause = 0 // a restart is short
			p.gone(&Away{Since: time.Now(), Err: err, Answers: answers})
			what := "PostgreSQL does not answer"
			if answers {
				what = unusable
			}
			log.Warn(what+": what is known is served on, and what must be stored is refused", "error", err)
		case err != nil:
			if answers && err.Error() != away.Err.Error() {
				log.Warn(unusable+": what is known is served on, and what must be stored is refused", "error", err)
			}
			p.away.Store(&Away{Since: away.Since, Err: err, Answers: answers})
		}
		if err == nil {
			pause = watchEvery
		} else {
			pause = min(max(2*pause, watchEvery/5), maxRetry)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if conn != nil {
		closeSoon(conn)
	}
}

const unusable = "PostgreSQL answers, and cannot be used"

func (p *remote) close() {
	p.ended()
	<-p.done
	p.drop(errors.New("the store is closed"))
}
