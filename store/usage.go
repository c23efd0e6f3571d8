package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"toolfinch/tool"
)

// Usage is data about clients: which of them list again, their last calls, what is learned from these, provisioned
// tools, and savings.
type Usage struct{ *database }

// Usage returns the data about clients.
func (s *Store) Usage() *Usage { return &Usage{s.database} }

const (
	selectClients = `SELECT client, relists, seen_at FROM clients`

	// Clients name themselves, so what they can make the store keep is bounded.
	maxClients    = 1000
	maxClientName = 256 // bytes
)

// Clients returns, by "name version", whether a client asks tools/list again
// after list_changed.
func (u *Usage) Clients(ctx context.Context) (map[string]tool.Relists, error) {
	out := map[string]tool.Relists{}
	err := u.each(ctx, func(rows *sql.Rows) error {
		var client string
		var relists tool.Relists
		var seen int64
		if err := rows.Scan(&client, &relists, &seen); err != nil {
			return err
		}
		out[client] = relists
		return nil
	}, selectClients)
	if err != nil {
		return nil, fmt.Errorf("store: read clients: %w", err)
	}
	return out, nil
}

// PutClient stores whether a client, "name version", asks tools/list again after list_changed. A name of more than
// 256 bytes is an error; above 1,000 clients the one stored longest ago is deleted.
func (u *Usage) PutClient(ctx context.Context, client string, relists tool.Relists) error {
	if len(client) > maxClientName {
		return fmt.Errorf("store: put client: its name has %d bytes, more than %d", len(client), maxClientName)
	}
	err := u.write(ctx, func(ctx context.Context, tx *txn) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO clients (client, relists, seen_at) VALUES ($1, $2, $3)
			ON CONFLICT (client) DO UPDATE SET relists = excluded.relists, seen_at = excluded.seen_at`,
			client, relists, time.Now().UnixMilli())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			DELETE FROM clients WHERE client IN (
				SELECT client FROM clients WHERE client <> $1 ORDER BY seen_at DESC`+after+`$2)`,
			client, maxClients-1)
		return err
	})
	return failed("put client "+client, err)
}
