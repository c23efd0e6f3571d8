package store

import (
	"context"
	"database/sql"
	"fmt"
)

const selectTokens = `SELECT hash, count FROM tokens`

// Tokens returns the stored token counts by tool.Def.Hash.
func (s *Store) Tokens(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	err := s.each(ctx, func(rows *sql.Rows) error {
		var hash string
		var count int
		if err := rows.Scan(&hash, &count); err != nil {
			return err
		}
		out[hash] = count
		return nil
	}, selectTokens)
	if err != nil {
		return nil, fmt.Errorf("store: read token counts: %w", err)
	}
	return out, nil
}

// PutTokens adds token counts of stored tools by tool.Def.Hash. A count stays while a tool has the hash:
// KeepServers and PutServer delete the counts of deleted and changed tools.
func (s *Store) PutTokens(ctx context.Context, counts map[string]int) error {
	if len(counts) == 0 {
		return nil
	}
	err := s.write(ctx, func(ctx context.Context, tx *txn) error {
		if tx.postgres {
			hashes, values := make([]string, 0, len(counts)), make([]int64, 0, len(counts))
			for hash, count := range counts {
				hashes, values = append(hashes, hash), append(values, int64(count))
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO tokens (hash, count) SELECT c.hash, c.count FROM unnest($1::text[], $2::bigint[]) AS c (hash, count)
				WHERE EXISTS (SELECT 1 FROM tools WHERE tools.hash = c.hash) ON CONFLICT (hash) DO UPDATE SET count = excluded.count`, hashes, values)
			return err
		}
		put, err := tx.PrepareContext(ctx, `INSERT INTO tokens (hash, count) SELECT $1, $2 WHERE EXISTS (SELECT 1 FROM tools WHERE hash = $1) ON CONFLICT (hash) DO UPDATE SET count = excluded.count`)
		if err != nil {
			return err
		}
		defer put.Close()
		for hash, count := range counts {
			if _, err := put.ExecContext(ctx, hash, count); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("put token counts", err)
}

// dropTokens deletes the counts that no tool has any more, of all hashes or of the given ones.
func dropTokens(ctx context.Context, tx *txn, hashes ...string) error {
	if len(hashes) == 0 {
		_, err := tx.ExecContext(ctx, `DELETE FROM tokens WHERE NOT EXISTS (SELECT 1 FROM tools WHERE tools.hash = tokens.hash)`)
		return err
	}
	drop, err := tx.PrepareContext(ctx, `DELETE FROM tokens WHERE hash = $1 AND NOT EXISTS (SELECT 1 FROM tools WHERE hash = $1)`)
	if err != nil {
		return err
	}
	defer drop.Close()
	for _, hash := range hashes {
		if _, err := drop.ExecContext(ctx, hash); err != nil {
			return err
		}
	}
	return nil
}
