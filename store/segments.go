package store

import (
	"context"
	"database/sql"
	"fmt"
)

const selectSegments = `SELECT key, data FROM segments ORDER BY docs DESC, key`

// Segment is a part of an index in the form in which it is stored.
type Segment struct {
	Key  [32]byte // of its contents
	Docs int      // how many documents it has
	Data []byte
}

// Segments returns the keys and the data of the stored segments, the largest first.
func (s *Store) Segments(ctx context.Context) (all []Segment, err error) {
	err = s.each(ctx, func(rows *sql.Rows) error {
		var one Segment
		var key []byte
		if err := rows.Scan(&key, &one.Data); err != nil {
			return err
		}
		copy(one.Key[:], key)
		all = append(all, one)
		return nil
	}, selectSegments)
	if err != nil {
		return nil, fmt.Errorf("store: read segments: %w", err)
	}
	return all, nil
}

// PutSegment stores a segment, in place of one with its key, in a transaction of its own:
// segments are large.
func (s *Store) PutSegment(ctx context.Context, one Segment) error {
	err := s.write(ctx, func(tx *txn) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO segments (key, docs, data) VALUES ($1, $2, $3)
			ON CONFLICT (key) DO UPDATE SET docs = excluded.docs, data = excluded.data WHERE segments.data <> excluded.data`, one.Key[:], one.Docs, one.Data)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: put segment: %w", err)
	}
	return nil
}

// KeepSegments forgets the segments without one of the keys.
func (s *Store) KeepSegments(ctx context.Context, keys [][32]byte) error {
	kept := make(map[string]bool, len(keys))
	for _, key := range keys {
		kept[string(key[:])] = true
	}
	err := s.write(ctx, func(tx *txn) error {
		var gone [][]byte
		err := each(ctx, tx, func(rows *sql.Rows) error {
			var key []byte
			err := rows.Scan(&key)
			if !kept[string(key)] {
				gone = append(gone, key)
			}
			return err
		}, `SELECT key FROM segments`)
		for _, key := range gone {
			if err != nil {
				break
			}
			_, err = tx.ExecContext(ctx, `DELETE FROM segments WHERE key = $1`, key)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("store: forget segments: %w", err)
	}
	return nil
}
