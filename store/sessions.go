package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"
)

// Session is the stored state of a client's session, so that another replica can take it over.
type Session struct {
	Hash       [32]byte // of its ID, which is not stored
	Replica    string   // ID of the replica that serves it
	View       string
	Principal  string // who opened it; "" if unknown
	Initialize []byte // the initialize message
	State      []byte // its further state, JSON
}

// Sessions are the sessions of all replicas' clients. Its methods are safe for concurrent use, also by several
// processes; they fail like a Store's. Replicas write only their own rows, so unlike other writers they do not wait
// for each other.
type Sessions struct{ *database }

// Sessions returns the sessions of replicas; false for a store in SQLite, which has none.
func (s *Store) Sessions() (*Sessions, bool) { return &Sessions{s.database}, s.remote != nil }

// maxSessions bounds the rows: the sessions that were confirmed longest ago are deleted.
const maxSessions = 1_000_000

const (
	putSession = `
		INSERT INTO sessions (hash, home, address, view, principal, initialize, state) VALUES ($1, $2, '', $3, $4, $5, $6)
		ON CONFLICT (hash) DO UPDATE SET state = excluded.state, seen = now() WHERE sessions.home = excluded.home`
	selectSession = `SELECT home, initialize, state FROM sessions WHERE hash = $1 AND view = $2 AND principal = $3 FOR UPDATE`
	takeSession   = `UPDATE sessions SET home = $2, seen = now() WHERE hash = $1`
	// Rows are locked in one order, so that two replicas do not wait for each other.
	changeSessions = `
		WITH changed AS (SELECT * FROM unnest($2::bytea[], $3::bytea[]) AS c (hash, state)),
		mine AS (SELECT hash FROM sessions WHERE home = $1 AND hash IN (SELECT hash FROM changed) ORDER BY hash FOR UPDATE)
		UPDATE sessions SET state = changed.state, seen = now() FROM changed, mine
		WHERE sessions.hash = mine.hash AND changed.hash = mine.hash RETURNING sessions.hash`
	keepSessions = `
		WITH mine AS (SELECT hash FROM sessions WHERE home = $1 AND hash = ANY ($2::bytea[]) ORDER BY hash FOR UPDATE)
		UPDATE sessions SET seen = now() FROM mine WHERE sessions.hash = mine.hash RETURNING sessions.hash`
	dropSessions  = `DELETE FROM sessions WHERE home = $1 AND hash = ANY ($2::bytea[])`
	sweepSessions = `DELETE FROM sessions WHERE seen < now() - make_interval(secs => $1)`
	boundSessions = `DELETE FROM sessions WHERE hash IN (SELECT hash FROM sessions ORDER BY seen DESC OFFSET $1)`
)

// Put stores an opened session. It reports false, and changes nothing, if another replica serves the session by
// now.
func (all *Sessions) Put(ctx context.Context, one Session) (kept bool, err error) {
	n, err := run(ctx, all.transact, putSession, one.Hash[:], one.Replica, one.View, one.Principal, one.Initialize, one.State)
	return n > 0, failed("put a session", err)
}

// Take makes replica the one that serves a session of a view and a principal, and notifies the one before. It
// returns false where there is no such session.
func (all *Sessions) Take(ctx context.Context, hash [32]byte, view, principal, replica string) (one Session, found bool, err error) {
	one = Session{Hash: hash, View: view, Principal: principal}
	err = all.transact(ctx, func(ctx context.Context, tx *txn) error {
		err := tx.QueryRowContext(ctx, selectSession, hash[:], view, principal).Scan(&one.Replica, &one.Initialize, &one.State)
		if found = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil || one.Replica == replica {
			return err
		}
		if _, err = tx.ExecContext(ctx, takeSession, hash[:], replica); err != nil {
			return err
		}
		return (&Replicas{all.database}).notify(ctx, tx, Topic{Kind: TopicSession, Key: one.Replica}, hex.EncodeToString(hash[:]))
	})
	return one, found, failed("take a session over", err)
}

// Change stores the states of sessions that a replica serves, and returns the sessions that it does not serve or
// that are not stored.
func (all *Sessions) Change(ctx context.Context, replica string, states map[[32]byte][]byte) (lost [][32]byte, err error) {
	hashes, values := make([][]byte, 0, len(states)), make([][]byte, 0, len(states))
	var wanted [][32]byte
	for hash, state := range states {
		wanted = append(wanted, hash)
		hashes, values = append(hashes, hash[:]), append(values, state)
	}
	return all.without(ctx, "change sessions", wanted, changeSessions, replica, hashes, values)
}

// Keep confirms that the sessions of a replica still exist, and returns the sessions that it does not serve or that
// are not stored.
func (all *Sessions) Keep(ctx context.Context, replica string, kept [][32]byte) (lost [][32]byte, err error) {
	return all.without(ctx, "keep sessions", kept, keepSessions, replica, asBytes(kept))
}

// Drop removes sessions that a replica serves.
func (all *Sessions) Drop(ctx context.Context, replica string, dropped [][32]byte) error {
	_, err := run(ctx, all.transact, dropSessions, replica, asBytes(dropped))
	return failed("drop sessions", err)
}

// Sweep deletes sessions that no replica has confirmed within idle, and sessions beyond a million.
func (all *Sessions) Sweep(ctx context.Context, idle time.Duration) error {
	err := all.transact(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, sweepSessions, idle.Seconds()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, boundSessions, maxSessions)
		return err
	})
	return failed("sweep sessions", err)
}

// without runs a statement that returns hashes, and returns the wanted hashes that are not among them.
func (all *Sessions) without(ctx context.Context, what string, wanted [][32]byte, statement string, args ...any) (lost [][32]byte, err error) {
	err = all.transact(ctx, func(ctx context.Context, tx *txn) error {
		lost = nil
		found := map[[32]byte]bool{}
		err := each(ctx, tx, func(rows *sql.Rows) error {
			var hash []byte
			err := rows.Scan(&hash)
			if err == nil && len(hash) == len([32]byte{}) {
				found[[32]byte(hash)] = true
			}
			return err
		}, statement, args...)
		for _, hash := range wanted {
			if !found[hash] {
				lost = append(lost, hash)
			}
		}
		return err
	})
	if err != nil {
		return nil, failed(what, err)
	}
	return lost, nil
}

func asBytes(hashes [][32]byte) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}
