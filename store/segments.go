package store

import (
	"context"
	"database/sql"
	"fmt"
)

const (
	segmentColumns = `SELECT key, docs, data, seen_on FROM segments`
	selectSegments = `SELECT key, CASE WHEN substr(data, 1, $1) = $2 THEN data END FROM segments ORDER BY docs DESC, key`

	// segmentDays is how long a segment of a shared database is kept that nobody uses: the
	// replica that had it may be switched off.
	segmentDays = 7
)

// Segment is a part of an index in the form in which it is stored.
type Segment struct {
	Key  [32]byte // of its contents
	Docs int      // how many documents it has
	Data []byte
}

// Segments calls do with the key and the data of each stored segment, the largest first. Of one
// that begins otherwise, as what another version stored, the data is nil.
func (s *Store) Segments(ctx context.Context, begin []byte, do func(Segment)) error {
	err := s.each(ctx, func(rows *sql.Rows) error {
		var one Segment
		var key []byte
		if err := rows.Scan(&key, &one.Data); err != nil {
			return err
		}
		copy(one.Key[:], key)
		do(one)
		return nil
	}, selectSegments, len(begin), begin)
	if err != nil {
		return fmt.Errorf("store: read segments: %w", err)
	}
	return nil
}

// PutSegment stores a segment, in place of one with its key, in a transaction of its own:
// segments are large.
func (s *Store) PutSegment(ctx context.Context, one Segment) error {
	_, err := run(ctx, s.write, `INSERT INTO segments (key, docs, data, seen_on) VALUES ($1, $2, $3, $4)
		ON CONFLICT (key) DO UPDATE SET docs = excluded.docs, data = excluded.data, seen_on = excluded.seen_on WHERE segments.data <> excluded.data`,
		one.Key[:], one.Docs, one.Data, day())
	return failed("put segment", err)
}

// KeepSegments notes that the segments with the keys used are used today, and forgets those
// with the keys gone. In PostgreSQL, which others may use, too, it also forgets what nobody
// has used for 7 days.
func (s *Store) KeepSegments(ctx context.Context, used, gone [][32]byte) error {
	err := s.write(ctx, func(ctx context.Context, tx *txn) error {
		for _, key := range gone {
			if _, err := tx.ExecContext(ctx, `DELETE FROM segments WHERE key = $1`, key[:]); err != nil {
				return err
			}
		}
		if !tx.postgres { // it would write the whole segment again
			return nil
		}
		today := day()
		for _, key := range used {
			if _, err := tx.ExecContext(ctx, `UPDATE segments SET seen_on = $1 WHERE key = $2 AND seen_on < $1`, today, key[:]); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM segments WHERE seen_on < $1`, today-segmentDays)
		return err
	})
	if err != nil {
		return fmt.Errorf("store: forget segments: %w", err)
	}
	return nil
}
