package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	selectVectors = `SELECT space, key, seen_on, vector FROM vectors LIMIT 1`

	// keepDays is how long an unused vector is kept: a server that was switched off may come back, a changed text
	// rarely does.
	keepDays = 30

	// keysAtOnce is how many vectors one statement reads.
	keysAtOnce = 256
)

// Key is the SHA-256 of a text.
type Key = [32]byte

// Vectors returns the stored vectors of a space by the SHA-256 of their text. The caller owns the map and its
// vectors. They count as used today: see ForgetVectors.
func (s *Store) Vectors(ctx context.Context, space string, keys []Key) (map[Key][]float32, error) {
	out := make(map[Key][]float32, len(keys))
	today := day()
	stale := false
	for chunk := range slices.Chunk(keys, keysAtOnce) {
		oldest, err := s.vectors(ctx, space, chunk, out)
		if err != nil {
			return nil, fmt.Errorf("store: read vectors: %w", err)
		}
		stale = stale || oldest < today
	}
	if stale {
		if err := s.markSeen(ctx, space, keys, today); err != nil && ctx.Err() == nil {
			s.log.Debug("vectors not marked as used", "error", err)
		}
	}
	return out, nil
}

// vectors adds the vectors of keys to out, and returns the oldest day on which one of them was used.
func (s *Store) vectors(ctx context.Context, space string, keys []Key, out map[Key][]float32) (oldest int64, err error) {
	args := make([]any, 0, 1+len(keys))
	args = append(args, space)
	var in strings.Builder
	for i := range keys {
		args = append(args, keys[i][:])
		fmt.Fprintf(&in, ", $%d", i+2)
	}
	oldest = math.MaxInt64
	err = s.each(ctx, func(rows *sql.Rows) error {
		var key, vector sql.RawBytes
		var seen int64
		if err := rows.Scan(&key, &seen, &vector); err != nil {
			return err
		}
		if len(key) != len(Key{}) || len(vector)%4 != 0 {
			return nil // damaged; it is embedded again
		}
		numbers := make([]float32, len(vector)/4)
		for i := range numbers {
			numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(vector[4*i:]))
		}
		out[Key(key)] = numbers
		oldest = min(oldest, seen)
		return nil
	}, `SELECT key, seen_on, vector FROM vectors
		WHERE space = (SELECT id FROM spaces WHERE name = $1) AND key IN (`+in.String()[2:]+`)`, args...)
	return oldest, err
}

// PutVectors stores or replaces vectors of a space by the SHA-256 of their text; all or, on an error, none.
func (s *Store) PutVectors(ctx context.Context, space string, vectors map[Key][]float32) error {
	if len(vectors) == 0 {
		return nil
	}
	err := s.write(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO spaces (name) VALUES ($1) ON CONFLICT DO NOTHING`, space); err != nil {
			return err
		}
		var id int64
		if err := tx.QueryRowContext(ctx, `SELECT id FROM spaces WHERE name = $1`, space).Scan(&id); err != nil {
			return err
		}
		today := day()
		if tx.postgres { // a round trip for each vector would
			keys, values := make([][]byte, 0, len(vectors)), make([][]byte, 0, len(vectors))
			for key, vector := range vectors {
				keys, values = append(keys, key[:]), append(values, bytesOf(vector, []byte{}))
			}
			_, err := tx.ExecContext(ctx, putVectors, id, today, keys, values)
			return err
		}
		put, err := tx.PrepareContext(ctx, `INSERT INTO vectors (space, key, seen_on, vector) VALUES ($1, $2, $3, $4)
			ON CONFLICT (space, key) DO UPDATE SET seen_on = excluded.seen_on, vector = excluded.vector`)
		if err != nil {
			return err
		}
		defer put.Close()
		bytes := []byte{} // nil would be NULL
		for key, vector := range vectors {
			bytes = bytesOf(vector, bytes[:0])
			if _, err := put.ExecContext(ctx, id, key[:], today, bytes); err != nil {
				return err
			}
		}
		return nil
	})
	return failed("put vectors", err)
}

// putVectors is for PostgreSQL.
const putVectors = `INSERT INTO vectors (space, key, seen_on, vector) SELECT $1, t.key, $2, t.vector FROM unnest($3::bytea[], $4::bytea[]) AS t (key, vector)
	ON CONFLICT (space, key) DO UPDATE SET seen_on = excluded.seen_on, vector = excluded.vector`

// bytesOf appends a vector as it is stored.
func bytesOf(vector []float32, to []byte) []byte {
	for _, v := range vector {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
	}
	return to
}

// markSeen records that keys were used today. It happens once a day.
func (s *Store) markSeen(ctx context.Context, space string, keys []Key, today int64) error {
	return s.write(ctx, func(ctx context.Context, tx *txn) error {
		var id int64
		err := tx.QueryRowContext(ctx, `SELECT id FROM spaces WHERE name = $1`, space).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if tx.postgres {
			all := make([][]byte, len(keys))
			for i := range keys {
				all[i] = keys[i][:]
			}
			if _, err := tx.ExecContext(ctx, `UPDATE vectors SET seen_on = $1 WHERE space = $2 AND key = ANY($3::bytea[]) AND seen_on < $1`, today, id, all); err != nil {
				return err
			}
			keys = nil
		}
		seen, err := tx.PrepareContext(ctx, `UPDATE vectors SET seen_on = $1 WHERE space = $2 AND key = $3 AND seen_on < $4`)
		if err != nil {
			return err
		}
		defer seen.Close()
		for i := range keys {
			if _, err := seen.ExecContext(ctx, today, id, keys[i][:], today); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetVectors deletes the vectors unused for 30 days. Callers read all their vectors first, because a process that
// runs for long does not read them again.
func (s *Store) ForgetVectors(ctx context.Context) error {
	_, err := run(ctx, s.write, `DELETE FROM vectors WHERE seen_on < $1`, day()-keepDays)
	return failed("forget vectors", err)
}

func day() int64 { return time.Now().Unix() / (24 * 60 * 60) }
