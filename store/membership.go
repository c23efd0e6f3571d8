package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/leeway"
)

// Membership is the connection by which a replica is present and leads servers. One goroutine uses it at a time.
type Membership struct {
	*remote
	conn      *pgx.Conn
	isPresent bool // holds the lock of its presence
	lastRow   Replica
	writtenAt time.Time // when lastRow was written
}

const (
	// tellEvery is how often a replica updates its unchanged row.
	tellEvery = 5 * time.Second
	// goneAfter is how long the row of a crashed replica stays.
	goneAfter = time.Minute
)

// Join opens a Membership. A process that stops silently, with its machine or network, stays present for some 15 s
// more.
func (r *Replicas) Join(ctx context.Context) (*Membership, error) {
	conn, err := r.remote.connect(ctx)
	var process int64
	var standby bool
	if err == nil {
		_, err = conn.Exec(ctx, `SET statement_timeout = 10000`)
		if err == nil {
			err = conn.QueryRow(ctx, `SELECT pg_backend_pid(), pg_is_in_recovery()`).Scan(&process, &standby) // behind a pooler this is another process
		}
		if err == nil && standby {
			err = errors.New("it is a standby, whose locks no other machine knows of")
		}
		if err != nil {
			closeSoon(conn)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: join the replicas: %w", err)
	}
	r.remote.member.Store(process)
	return &Membership{remote: r.remote, conn: conn}, nil
}

const (
	tellReplica = `INSERT INTO replicas AS r (id, presence, name, address, version, servers, policy, leads) VALUES ($1, $2, $3, '', $4, $5, $6, $7)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, servers = excluded.servers, policy = excluded.policy,
			leads = excluded.leads, seen_at = clock_timestamp()`
	dropReplicas = `DELETE FROM replicas WHERE seen_at < clock_timestamp() - make_interval(secs => $1) AND presence <> ALL ($2)`
	dropReplica  = `DELETE FROM replicas WHERE id = $1`

	// bumped returns the version that this transaction gave a topic, or 0.
	bumped = `SELECT coalesce(max(version), 0) FROM changes WHERE kind = $1 AND key = $2 AND version = txid_current()`

	isLed     = `SELECT $1 IN (` + selectLocks + ` AND pid = $2)`
	takeLocks = `SELECT name FROM unnest($1::TEXT[], $2::BIGINT[]) AS wanted (name, key) WHERE pg_try_advisory_lock(key)`
	freeLocks = `SELECT pg_advisory_unlock(key) FROM unnest($1::BIGINT[]) AS held (key)`
)

// Tell records that a replica is present, and returns all present replicas, by ID. If the database answers but
// cannot be used, the error is a *Away: another replica should lead.
func (s *Membership) Tell(ctx context.Context, me Replica) (all []Replica, err error) {
	if away := s.away.Load(); away != nil && away.Answers {
		return nil, away
	}
	if err := s.tell(ctx, me); err != nil {
		return nil, fmt.Errorf("store: tell replicas: %w", err)
	}
	held, err := heldLocks(ctx, s.conn)
	if err == nil {
		all, err = present(ctx, s.conn, held)
	}
	if err != nil {
		return nil, fmt.Errorf("store: read replicas: %w", err)
	}
	// Its own row may be old or missing if it could not be written.
	at, there := slices.BinarySearchFunc(all, me.ID, func(r Replica, id string) int { return cmp.Compare(r.ID, id) })
	if !there {
		all = slices.Insert(all, at, me)
	}
	all[at].Leads = me.Leads
	return all, nil
}

// tell locks the presence of a replica, and writes its row. A database that stores nothing still knows by its locks
// which replicas are present and what they lead.
func (s *Membership) tell(ctx context.Context, me Replica) error {
	presence := s.lockKey(presence(me.ID))
	if !s.isPresent {
		if _, err := s.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, presence); err != nil {
			return err
		}
		s.isPresent = true
	}
	if err := s.write(ctx, me, presence); !storesNothing(err) {
		return err
	}
	return nil
}

func (s *Membership) write(ctx context.Context, me Replica, presence int64) error {
	same := s.lastRow.ID == me.ID && s.lastRow.Servers == me.Servers && s.lastRow.Policy == me.Policy && slices.Equal(s.lastRow.Leads, me.Leads)
	if same && time.Since(s.writtenAt) < tellEvery {
		return nil
	}
	leads, err := json.Marshal(append([]string{}, me.Leads...))
	if err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, tellReplica, me.ID, presence, me.Name, me.Version, me.Servers, me.Policy, string(leads)); err != nil {
		return err
	}
	s.lastRow, s.writtenAt = me, time.Now()
	s.lastRow.Leads = slices.Clone(me.Leads)
	held, err := heldLocks(ctx, s.conn)
	if err == nil {
		_, err = s.conn.Exec(ctx, dropReplicas, goneAfter.Seconds(), held)
	}
	return err
}

// lead returns the lock key of a server's leader.
func (s *Membership) lead(server string) int64 { return s.lockKey(leadOf(server)) }

func leadOf(server string) string { return "lead\x00" + server }

// led fails if a replica stores the list of a server that it no longer leads: it may have been suspended, and its
// list be older than the stored one. A process that is no replica, like a command, needs no lead.
func (d *database) led(ctx context.Context, tx *txn, server string) error {
	if d.remote == nil || d.remote.member.Load() == 0 {
		return nil
	}
	var leads bool
	err := tx.QueryRowContext(ctx, isLed, d.remote.lockKey(leadOf(server)), d.remote.member.Load()).Scan(&leads)
	if err == nil && !leads {
		err = errNotLed
	}
	return err
}

// Lead tries to lead servers, and returns the servers that it now leads.
func (s *Membership) Lead(ctx context.Context, servers []string) (leads []string, err error) {
	rows, err := s.conn.Query(ctx, takeLocks, servers, s.keys(servers))
	if err == nil {
		leads, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("store: lead servers: %w", err)
	}
	return leads, nil
}

// Leave gives up the lead of servers.
func (s *Membership) Leave(ctx context.Context, servers []string) error {
	if _, err := s.conn.Exec(ctx, freeLocks, s.keys(servers)); err != nil {
		return fmt.Errorf("store: lead servers no more: %w", err)
	}
	return nil
}

func (s *Membership) keys(servers []string) []int64 {
	keys := make([]int64, len(servers))
	for i, server := range servers {
		keys[i] = s.lead(server)
	}
	return keys
}

// Close ends the membership; the replica is then absent.
func (s *Membership) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(time.Second))
	defer cancel()
	_, err := s.conn.Exec(ctx, dropReplica, s.lastRow.ID) // without this, goneAfter removes the row
	return cmp.Or(err, s.conn.Close(ctx))
}

// presence returns the name of the lock that a present replica holds.
func presence(id string) string { return "replica\x00" + id }
