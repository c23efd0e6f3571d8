package store

import (
	"context"
	"database/sql"
	"fmt"
)

const (
	segmentColumns = `SELECT key, docs, data, seen_on FROM segments`
	selectSegments = `SELECT key, CASE WHEN substr(data, 1, $1) = $2 THEN data END FROM segments ORDER BY docs DESC, key`

	// segmentDays is how long an unused segment of a shared database is kept: its replica may be switched off.
	segmentDays = 7
)

// Segment is a stored part of an index.
type Segment struct {
	Key  [32]byte // of its contents
	Docs int      // number of documents
	Data []byte
}

// Segments calls do with the key and data of each stored segment, the largest first. If the data does not begin
// with begin, another version wrote it, and the data is nil.
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

// PutSegment stores or replaces a segment, in a transaction of its own, because segments are large.
func (s *Store) PutSegment(ctx context.Context, one Segment) error {
	_, err := run(ctx, s.write, `INSERT INTO segments (key, docs, data, seen_on) VALUES ($1, $2, $3, $4)
		ON CONFLICT (key) DO UPDATE SET docs = excluded.docs, data = excluded.data, seen_on = excluded.seen_on WHERE segments.data <> excluded.data`,
		one.Key[:], one.Docs, one.Data, day())
	return failed("put segment", err)
}

// KeepSegments records that the segments in used are used today, and deletes the segments in gone. In PostgreSQL,
// which other replicas may use, it also deletes segments unused for 7 days.
func (s *Store) KeepSegments(ctx context.Context, used, gone [][32]byte) error {
	err := s.write(ctx, func(ctx context.Context, tx *txn) error {
		for _, key := range gone {
			if _, err := tx.ExecContext(ctx, `DELETE FROM segments WHERE key = $1`, key[:]); err != nil {
				return err
			}
		}
		if !tx.postgres { // SQLite would write the whole segment again
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
