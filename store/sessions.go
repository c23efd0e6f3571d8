package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Session is what is stored of a session of a client, so that another replica can go on with
// it.
type Session struct {
	Hash       [32]byte // of its ID, which is not stored
	Home       string   // ID of the replica where it lives; "" where any replica that is asked takes it
	Address    string   // of that replica
	View       string
	Principal  string // who opened it, "" for nobody
	Initialize []byte // the message that opened it
	State      []byte // what it has beside that
}

// Sessions are those of the clients of all replicas. Its methods are safe for concurrent use,
// by several processes too; they fail as those of a Store do. Replicas write rows of their own:
// none waits for the others, as writers of the rest do.
type Sessions struct{ *database }

// Sessions returns the sessions of replicas, and false for a store in SQLite, which has none.
func (s *Store) Sessions() (*Sessions, bool) { return &Sessions{s.database}, s.remote != nil }

// maxSessions bounds the rows: those of which nobody said for the longest time that they are
// there go.
const maxSessions = 1_000_000

const (
	putSession = `
		INSERT INTO sessions (hash, home, address, view, principal, initialize, state) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (hash) DO UPDATE SET address = excluded.address, state = excluded.state, seen = now() WHERE sessions.home = excluded.home`
	selectSession  = `SELECT home, address, view, principal, initialize, state FROM sessions WHERE hash = $1`
	moveSession    = `UPDATE sessions SET home = $3, address = $4, seen = now() WHERE hash = $1 AND home = $2`
	releaseSession = `UPDATE sessions SET state = $3, home = '', address = '', seen = now() WHERE hash = $1 AND home = $2`
	// What is locked here is locked in one order, so that no two replicas wait for each other.
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

// Put stores a session that was opened. One that is stored, and has another home by now, stays as it
// is: then it reports false.
func (all *Sessions) Put(ctx context.Context, one Session) (kept bool, err error) {
	n, err := run(ctx, all.transact, putSession, one.Hash[:], one.Home, one.Address, one.View, one.Principal, one.Initialize, one.State)
	return n > 0, failed("put a session", err)
}

// Find returns a session, and false where there is none.
func (all *Sessions) Find(ctx context.Context, hash [32]byte) (Session, bool, error) {
	one := Session{Hash: hash}
	err := all.readShared(ctx, func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, selectSession, hash[:]).Scan(&one.Home, &one.Address, &one.View, &one.Principal, &one.Initialize, &one.State)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Session{}, false, nil
	case err != nil:
		return Session{}, false, fmt.Errorf("store: find a session: %w", err)
	}
	return one, true, nil
}

// Move makes to, at an address, the home of a session whose home was from until now, and
// reports whether it was.
func (all *Sessions) Move(ctx context.Context, hash [32]byte, from, to, address string) (moved bool, err error) {
	n, err := run(ctx, all.transact, moveSession, hash[:], from, to, address)
	return n > 0, failed("move a session", err)
}

// Release stores the state of a session that had a home, and gives it none, at once. It reports
// whether that was its home.
func (all *Sessions) Release(ctx context.Context, hash [32]byte, home string, state []byte) (released bool, err error) {
	n, err := run(ctx, all.transact, releaseSession, hash[:], home, state)
	return n > 0, failed("release a session", err)
}

// Change stores the states of sessions that have a home, and returns those of them that have
// another one, or are not stored.
func (all *Sessions) Change(ctx context.Context, home string, states map[[32]byte][]byte) (lost [][32]byte, err error) {
	hashes, values := make([][]byte, 0, len(states)), make([][]byte, 0, len(states))
	var wanted [][32]byte
	for hash, state := range states {
		wanted = append(wanted, hash)
		hashes, values = append(hashes, hash[:]), append(values, state)
	}
	return all.without(ctx, "change sessions", wanted, changeSessions, home, hashes, values)
}

// Keep says that sessions with a home are there still, and returns those of them that have
// another one, or are not stored.
func (all *Sessions) Keep(ctx context.Context, home string, kept [][32]byte) (lost [][32]byte, err error) {
	return all.without(ctx, "keep sessions", kept, keepSessions, home, asBytes(kept))
}

// Drop removes sessions that have a home.
func (all *Sessions) Drop(ctx context.Context, home string, dropped [][32]byte) error {
	_, err := run(ctx, all.transact, dropSessions, home, asBytes(dropped))
	return failed("drop sessions", err)
}

// Sweep removes sessions that nobody has said of for so long that they are there, and those
// beyond a million.
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

// without runs a statement that returns hashes, and returns those wanted that are not among
// them.
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
