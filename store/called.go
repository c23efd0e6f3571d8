package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"toolfinch/tool"
)

const (
	maxCallers     = 1000
	maxCallerBytes = 2048 // of principal and client name together
	calledFor      = 7 * 24 * time.Hour
)

const (
	selectCalled = `SELECT principal, client, names FROM called WHERE view = $1 AND at > $2`
	putCalled    = `INSERT INTO called (view, principal, client, names, at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (view, principal, client) DO UPDATE SET names = excluded.names, at = excluded.at`
	dropCalled  = `DELETE FROM called WHERE at <= $1`
	boundCalled = `DELETE FROM called WHERE (view, principal, client) IN (
		SELECT view, principal, client FROM called ORDER BY at DESC` + after + `$1)`
)

// Called returns the tools that each caller called last in the view, the latest first; only of callers that called
// something new in the last seven days.
func (u *Usage) Called(ctx context.Context, view string) (map[tool.Caller][]tool.Called, error) {
	out := map[tool.Caller][]tool.Called{}
	err := u.each(ctx, func(rows *sql.Rows) error {
		var by tool.Caller
		var text []byte
		var called []tool.Called
		err := rows.Scan(&by.Principal, &by.Client, &text)
		if err == nil {
			err = json.Unmarshal(text, &called)
		}
		out[by] = called
		return err
	}, selectCalled, view, time.Now().Add(-calledFor).UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("store: read what was called: %w", err)
	}
	return out, nil
}

// PutCalled stores or replaces the tools that a caller called last in the view. A caller with more than 2,048 bytes
// is an error; above 1,000 callers the one stored longest ago is deleted.
func (u *Usage) PutCalled(ctx context.Context, view string, by tool.Caller, called []tool.Called) error {
	if n := len(by.Principal) + len(by.Client); n > maxCallerBytes {
		return fmt.Errorf("store: put what was called: the caller has %d bytes, more than %d", n, maxCallerBytes)
	}
	text, err := json.Marshal(called)
	if err != nil {
		return fmt.Errorf("store: put what was called: %w", err)
	}
	now := time.Now()
	err = u.write(ctx, func(ctx context.Context, tx *txn) error {
		for _, statement := range []struct {
			text string
			args []any
		}{
			{putCalled, []any{view, by.Principal, by.Client, string(text), now.UnixMilli()}},
			{dropCalled, []any{now.Add(-calledFor).UnixMilli()}},
			{boundCalled, []any{maxCallers}},
		} {
			if _, err := tx.ExecContext(ctx, statement.text, statement.args...); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("put what was called", err)
}
