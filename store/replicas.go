package store

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Replica is one of several processes that serve the same clients over one store.
type Replica struct {
	ID      string   // unique, chosen at its start
	Name    string   // what people call it
	Version string   // of the program
	Servers string   // a hash of the names of its servers
	Policy  string   // a hash of what its configuration has in common with others, and its policies
	Leads   []string // the servers that it lists, sorted
	Started time.Time
	Seen    time.Time     // when it last said that it was there
	Up      time.Duration // how long it has been there, by the database's clock
}

// LeadsServers are Leads without the name "", which is for what is no server's.
func (r Replica) LeadsServers() []string {
	return slices.DeleteFunc(append([]string{}, r.Leads...), func(server string) bool { return server == "" })
}

// Replicas are the processes that serve the same clients over a database of PostgreSQL.
type Replicas struct{ *database }

// Replicas returns nil for a store that is not in PostgreSQL: nobody shares its clients.
func (s *Store) Replicas() *Replicas {
	if s.remote == nil {
		return nil
	}
	return &Replicas{s.database}
}

const (
	selectReplicas = `SELECT id, name, version, servers, policy, leads, started_at, seen_at, EXTRACT(EPOCH FROM clock_timestamp() - started_at)::DOUBLE PRECISION
		FROM replicas WHERE presence = ANY ($1) ORDER BY id`

	// A key of 64 bits is shown in two halves.
	selectLocks = `SELECT (classid::BIGINT << 32) | objid::BIGINT FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
)

// All returns the replicas that are there, by ID.
func (r *Replicas) All(ctx context.Context) ([]Replica, error) {
	conn, err := r.remote.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: read replicas: %w", err)
	}
	defer closeSoon(conn)
	held, err := heldLocks(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("store: read replicas: %w", err)
	}
	return present(ctx, conn, held)
}

// Relist notifies all replicas that the lists of a server have changed. Who does not hear it finds its version.
func (r *Replicas) Relist(ctx context.Context, server string) error {
	return failed("ask for a list", r.transact(ctx, func(ctx context.Context, tx *txn) error {
		_, err := tx.ExecContext(ctx, `SELECT toolfinch_changed($1, $2, $3, '')`, r.remote.schema, TopicRelist, server)
		return err
	}))
}

// Notify tells all replicas of something that is not stored. detail has at most some 7,000 bytes.
func (r *Replicas) Notify(ctx context.Context, topic Topic, detail string) error {
	return failed("notify replicas", r.transact(ctx, func(ctx context.Context, tx *txn) error { return r.notify(ctx, tx, topic, detail) }))
}

func (r *Replicas) notify(ctx context.Context, tx *txn, topic Topic, detail string) error {
	payload, err := json.Marshal(notice{Kind: topic.Kind, Key: topic.Key, Detail: detail})
	if err == nil {
		_, err = tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, r.channel(), string(payload))
	}
	return err
}

// StateKey is the key of what clients carry from one call to the next, whichever replica answers. The first replica
// makes it.
func (r *Replicas) StateKey(ctx context.Context) (key [32]byte, err error) {
	_, _ = rand.Read(key[:]) // never fails
	err = r.transact(ctx, func(ctx context.Context, tx *txn) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO state_key (key) VALUES ($1) ON CONFLICT (one) DO NOTHING`, key[:]); err != nil {
			return err
		}
		var stored []byte
		if err := tx.QueryRowContext(ctx, `SELECT key FROM state_key`).Scan(&stored); err != nil {
			return err
		}
		if len(stored) != len(key) {
			return errors.New("the key in the table state_key does not have 32 bytes: delete it, and another one is made")
		}
		key = [32]byte(stored)
		return nil
	})
	return key, failed("read the key of states", err)
}

// present are the replicas that hold one of the locks.
func present(ctx context.Context, conn *pgx.Conn, locks []int64) ([]Replica, error) {
	rows, err := conn.Query(ctx, selectReplicas, locks)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Replica, err error) {
		var leads string
		var up float64
		if err = row.Scan(&r.ID, &r.Name, &r.Version, &r.Servers, &r.Policy, &leads, &r.Started, &r.Seen, &up); err == nil {
			err = json.Unmarshal([]byte(leads), &r.Leads)
		}
		r.Up = time.Duration(up * float64(time.Second))
		return r, err
	})
}

// heldLocks are the keys of all advisory locks of the database.
func heldLocks(ctx context.Context, conn *pgx.Conn) ([]int64, error) {
	rows, err := conn.Query(ctx, selectLocks)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// channel is where triggers notify: its name has a bound that names of schemas reach.
func (r *Replicas) channel() string {
	sum := md5.Sum([]byte(r.remote.schema))
	return "toolfinch_" + hex.EncodeToString(sum[:])
}
