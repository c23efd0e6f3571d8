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

// Membership is a connection that a replica is there by, and leads servers. It is used by
// one goroutine at a time.
type Membership struct {
	*remote
	conn  *pgx.Conn
	there bool // its presence is locked
	told  Replica
	since time.Time // when it was told
}

const (
	// tellEvery is how often a replica says that it is there, when nothing has changed.
	tellEvery = 5 * time.Second
	// goneAfter is how long the row of a replica stays that did not end as it should.
	goneAfter = time.Minute
)

// Join opens one. A process that is stopped without a word, with its machine or its
// network, is there for some 15 s more.
func (r *Replicas) Join(ctx context.Context) (*Membership, error) {
	conn, err := r.remote.connect(ctx)
	var process int64
	var standby bool
	if err == nil {
		_, err = conn.Exec(ctx, `SET statement_timeout = 10000`)
		if err == nil {
			err = conn.QueryRow(ctx, `SELECT pg_backend_pid(), pg_is_in_recovery()`).Scan(&process, &standby) // the process of a pooler is another
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

	// bumped is the version that the transaction has made that of a topic, or 0.
	bumped = `SELECT coalesce(max(version), 0) FROM changes WHERE kind = $1 AND key = $2 AND version = txid_current()`

	isLed     = `SELECT $1 IN (` + selectLocks + ` AND pid = $2)`
	takeLocks = `SELECT name FROM unnest($1::TEXT[], $2::BIGINT[]) AS wanted (name, key) WHERE pg_try_advisory_lock(key)`
	freeLocks = `SELECT pg_advisory_unlock(key) FROM unnest($1::BIGINT[]) AS held (key)`
)

// Tell writes down that a replica is there, and returns all that are, by ID. Where the database answers and
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
	// Its row may be another, or none, where it could not be written.
	at, there := slices.BinarySearchFunc(all, me.ID, func(r Replica, id string) int { return cmp.Compare(r.ID, id) })
	if !there {
		all = slices.Insert(all, at, me)
	}
	all[at].Leads = me.Leads
	return all, nil
}

// tell locks the presence of a replica, and writes its row. A database that stores nothing at present,
// because its disk is full or it may not be written to, knows by its locks who is there and what is led.
func (s *Membership) tell(ctx context.Context, me Replica) error {
	presence := s.lockKey(presence(me.ID))
	if !s.there {
		if _, err := s.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, presence); err != nil {
			return err
		}
		s.there = true
	}
	if err := s.write(ctx, me, presence); !storesNothing(err) {
		return err
	}
	return nil
}

func (s *Membership) write(ctx context.Context, me Replica, presence int64) error {
	same := s.told.ID == me.ID && s.told.Servers == me.Servers && s.told.Policy == me.Policy && slices.Equal(s.told.Leads, me.Leads)
	if same && time.Since(s.since) < tellEvery {
		return nil
	}
	leads, err := json.Marshal(append([]string{}, me.Leads...))
	if err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, tellReplica, me.ID, presence, me.Name, me.Version, me.Servers, me.Policy, string(leads)); err != nil {
		return err
	}
	s.told, s.since = me, time.Now()
	s.told.Leads = slices.Clone(me.Leads)
	held, err := heldLocks(ctx, s.conn)
	if err == nil {
		_, err = s.conn.Exec(ctx, dropReplicas, goneAfter.Seconds(), held)
	}
	return err
}

// lead is the key of the lock of whoever leads a server.
func (s *Membership) lead(server string) int64 { return s.lockKey(leadOf(server)) }

func leadOf(server string) string { return "lead\x00" + server }

// led fails where a replica writes the list of a server that it leads no more: it may have been
// stopped for a while, and what it has is older than what another one has written meanwhile. What
// is no replica, as are commands, leads without that.
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

// Lead tries to lead servers, and returns those that nobody else leads.
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

// Leave leads servers no more.
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

// Close ends it, and the replica is not there any more.
func (s *Membership) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(time.Second))
	defer cancel()
	_, err := s.conn.Exec(ctx, dropReplica, s.told.ID) // else it goes with time
	return cmp.Or(err, s.conn.Close(ctx))
}

// presence is the name of the lock that a replica has while it is there.
func presence(id string) string { return "replica\x00" + id }
