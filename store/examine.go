package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/leeway"
)

// Examined is what a store is like.
type Examined struct {
	Database string `json:"database"` // and its version
	Known    bool   `json:"known"`    // false: no program has been there
	Rows     []Rows `json:"rows"`     // nil if there are none, or they cannot be read
	// Wrong are reasons why replicas cannot share the store, or nobody can use it.
	Wrong []string `json:"wrong,omitempty"`
}

// Examine looks at the store at a place, see Open. It changes nothing. An error means
// that it cannot be reached.
func Examine(ctx context.Context, at string) (Examined, error) {
	var e Examined
	var err error
	if InPostgres(at) {
		e, err = examinePostgres(ctx, at)
	} else {
		e.Database = "SQLite"
		e.Known, err = Check(ctx, at)
		if err != nil {
			e.Wrong, err = []string{err.Error()}, nil
		}
	}
	if errors.Is(err, errPooled) {
		return e, nil
	}
	if err != nil || !e.Known || len(e.Wrong) > 0 && !InPostgres(at) {
		return e, err
	}
	s, err := OpenReadOnly(ctx, at, slog.New(slog.DiscardHandler))
	if err != nil {
		e.Wrong = append(e.Wrong, err.Error())
		return e, nil
	}
	if e.Rows, err = s.count(ctx); err != nil {
		e.Wrong = append(e.Wrong, err.Error())
	}
	return e, s.Close()
}

func examinePostgres(ctx context.Context, at string) (e Examined, err error) {
	config, err := configOf(at)
	if err != nil {
		return e, err
	}
	one, other, err := two(ctx, config)
	if err != nil {
		return e, fmt.Errorf("store: PostgreSQL: %w", unconnected(err))
	}
	defer closeSoon(one)
	defer closeSoon(other)
	var version, encoding string
	if err := one.QueryRow(ctx, `SELECT version(), current_setting('server_encoding')`).Scan(&version, &encoding); err != nil {
		return e, fmt.Errorf("store: PostgreSQL: %w", unconnected(err))
	}
	e.Database, _, _ = strings.Cut(version, " on ")
	if err := storesText(encoding); err != nil {
		e.Wrong = append(e.Wrong, err.Error())
	}
	if err := one.QueryRow(ctx, `SELECT to_regclass('`+versionTable+`') IS NOT NULL`).Scan(&e.Known); err != nil {
		e.Wrong = append(e.Wrong, err.Error())
	}
	for _, look := range []func(context.Context, *pgx.Conn, *pgx.Conn) error{ownSession, sessionLocks, notifies} {
		if err := look(ctx, one, other); err != nil {
			e.Wrong = append(e.Wrong, err.Error())
			if errors.Is(err, errPooled) {
				return e, errPooled // which is why all else would fail
			}
		}
	}
	return e, nil
}

// notifies says that notifications do not arrive.
func notifies(ctx context.Context, one, other *pgx.Conn) error {
	channel := fmt.Sprintf("toolfinch_check_%d", time.Now().UnixNano())
	if _, err := one.Exec(ctx, `LISTEN `+channel); err != nil {
		return fmt.Errorf("%s: %w", forChanges, err)
	}
	if _, err := other.Exec(ctx, `NOTIFY `+channel); err != nil {
		return fmt.Errorf("%s: %w", forChanges, err)
	}
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(watchWait))
	defer cancel()
	if _, err := one.WaitForNotification(ctx); err != nil {
		return fmt.Errorf("%s: nothing arrives: %w", forChanges, err)
	}
	return nil
}
