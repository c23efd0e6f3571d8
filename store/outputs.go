package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Outputs are large results, kept for a while.
type Outputs struct{ *database }

// Outputs returns the large results.
func (s *Store) Outputs() *Outputs { return &Outputs{s.database} }

// Bounds of the kept results, per owner and in all. The number of rows is bounded too, because each Put reads all
// of them.
const (
	maxOwnOutputs    = 64 << 20  // bytes
	maxOutputs       = 512 << 20 // bytes
	maxOwnOutputRows = 1000
	maxOutputRows    = 10_000
	dropAtOnce       = 10 // overwriting a megabyte takes 10 ms, and other writers wait
)

// roomLock is the lock of the writer that makes room in PostgreSQL.
const roomLock = "outputs"

const (
	dropOutputs       = `DELETE FROM outputs WHERE id IN (SELECT id FROM outputs WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`
	addOutput         = `INSERT INTO outputs (token, owner, expires_at, size, content) VALUES ($1, $2, $3, $4, $5)`
	selectOutput      = `SELECT content FROM outputs WHERE token = $1 AND owner = $2 AND expires_at > $3`
	boundOwnedOutputs = `
		DELETE FROM outputs WHERE id IN (
			SELECT id FROM (
				SELECT id, sum(size) OVER newest AS bytes, row_number() OVER newest AS place
				FROM outputs WHERE owner = $3 WINDOW newest AS (ORDER BY id DESC)) AS own
			WHERE bytes > $1 OR place > $2)`
	boundOutputs = `
		DELETE FROM outputs WHERE id IN (
			SELECT id FROM (
				SELECT id, sum(size) OVER newest AS bytes, row_number() OVER newest AS place
				FROM outputs WINDOW newest AS (ORDER BY id DESC)) AS every
			WHERE bytes > $1 OR place > $2)`
)

// Put stores content for its owner until it expires; token and owner are SHA-256 hashes. It drops some expired
// outputs, and the oldest outputs of an owner above 64 MB or 1,000 outputs, or of all owners above 512 MB or
// 10,000. In PostgreSQL, outputs put at the same moment may be dropped by the next Put. Content of more than 64 MB
// is an error.
func (o *Outputs) Put(ctx context.Context, token, owner [32]byte, content []byte, now, expires time.Time) error {
	if len(content) > maxOwnOutputs {
		return fmt.Errorf("store: put output: it has %d bytes, more than %d", len(content), maxOwnOutputs)
	}
	if content == nil {
		content = []byte{} // nil would be NULL
	}
	put := func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, addOutput, token[:], owner[:], expires.UnixMilli(), len(content), content); err != nil {
			return err
		}
		if tx.postgres {
			// A call waits for this, so it waits for no other writer: the one with the lock makes room.
			var mine bool
			err := tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock($1)`, o.remote.lockKey(roomLock)).Scan(&mine)
			if err != nil || !mine {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, dropOutputs, now.UnixMilli(), dropAtOnce); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, boundOwnedOutputs, maxOwnOutputs, maxOwnOutputRows, owner[:])
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, boundOutputs, maxOutputs, maxOutputRows)
		return err
	}
	write := o.writeErasable
	if o.remote != nil {
		write = o.transact
	}
	err := write(ctx, put)
	return failed("put output", err)
}

// Find returns the content of token and owner; nil if there is none or it has expired at now. The caller owns the
// bytes.
func (o *Outputs) Find(ctx context.Context, token, owner [32]byte, now time.Time) ([]byte, error) {
	var content []byte
	err := o.row(ctx, []any{&content}, selectOutput, token[:], owner[:], now.UnixMilli())
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("store: read output: %w", err)
	}
	return content, nil
}

// Drop deletes the outputs that have expired at now, and returns their number. On an error some may be deleted.
func (o *Outputs) Drop(ctx context.Context, now time.Time) (dropped int, err error) {
	for {
		var n int64
		err := o.writeErasable(ctx, func(ctx context.Context, tx *txn) error {
			if tx.postgres { // else two writers that make room could wait for each other's rows
				if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, o.remote.lockKey(roomLock)); err != nil {
					return err
				}
			}
			result, err := tx.ExecContext(ctx, dropOutputs, now.UnixMilli(), dropAtOnce)
			if err == nil {
				n, err = result.RowsAffected()
			}
			return err
		})
		if err != nil {
			n = 0
		}
		dropped += int(n)
		if err != nil || n < dropAtOnce {
			return dropped, failed("drop outputs", err)
		}
	}
}
