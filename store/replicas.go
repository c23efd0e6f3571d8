package store

import (
	"cmp"
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

	"toolfinch/internal/leeway"
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

// Topic is something that changes in the store.
type Topic struct {
	Kind string // one of the constants
	Key  string // the server's name, of TopicServer and TopicRelist; the replica's ID, of TopicSession; else ""
}

// The kinds of topics.
const (
	TopicServer     = "server"     // its list and instructions, and what of them is approved
	TopicProvisions = "provisions" // what may be called in gated views; the detail is a JSON array of view and owner
	TopicKeys       = "keys"       // API keys that were made or revoked
	TopicVault      = "vault"      // sealed secrets, tokens among them; the detail is the name
	TopicLearned    = "learned"    // what was learned from use
	TopicCalled     = "called"     // what clients called in their last sessions
	TopicVectors    = "vectors"    // texts that were embedded
	TopicRelist     = "relist"     // a server says that its lists have changed

	// Nothing is stored of these.
	TopicLogin   = "login"   // a login has ended without a token; the detail is its ID
	TopicSession = "session" // another replica has taken a session of one, the key, over; the detail is its hash in hexadecimal
	// TopicCallback is that a browser has come back from an authorization server to a replica where its login did not
	// begin; the detail is the query.
	TopicCallback = "callback"
)

// Notice is what is notified.
type Notice struct {
	Topic
	Version int64  // of the topic; 0 for what is not stored, -1 where the database knows of no change any more
	Detail  string // what of the topic; "" for all of it
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

// presence is the name of the lock that a replica has while it is there.
func presence(id string) string { return "replica\x00" + id }

// channel is where triggers notify: its name has a bound that names of schemas reach.
func (r *Replicas) channel() string {
	sum := md5.Sum([]byte(r.remote.schema))
	return "toolfinch_" + hex.EncodeToString(sum[:])
}

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

	selectReplicas = `SELECT id, name, version, servers, policy, leads, started_at, seen_at, EXTRACT(EPOCH FROM clock_timestamp() - started_at)::DOUBLE PRECISION
		FROM replicas WHERE presence = ANY ($1) ORDER BY id`

	// A key of 64 bits is shown in two halves.
	selectLocks = `SELECT (classid::BIGINT << 32) | objid::BIGINT FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
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

// errNotLed is the error of a replica that writes what it has listed, and leads the server no more.
var errNotLed = errors.New("this replica does not lead the server now")

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

// heldLocks are the keys of all advisory locks of the database.
func heldLocks(ctx context.Context, conn *pgx.Conn) ([]int64, error) {
	rows, err := conn.Query(ctx, selectLocks)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
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

// Listener is a connection that hears of what is changed in the store. It is used by one
// goroutine at a time.
type Listener struct{ conn *pgx.Conn }

// Listen opens a Listener. What is changed from now on, it hears of.
func (r *Replicas) Listen(ctx context.Context) (*Listener, error) {
	conn, err := r.remote.connect(ctx)
	if err == nil {
		if _, err = conn.Exec(ctx, `LISTEN `+r.channel()); err != nil {
			closeSoon(conn)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store: listen for changes: %w", err)
	}
	return &Listener{conn}, nil
}

// Versions returns the version of each topic that was changed at any time. Another
// version is another state.
func (l *Listener) Versions(ctx context.Context) (map[Topic]int64, error) {
	rows, err := l.conn.Query(ctx, `SELECT kind, key, version FROM changes`)
	if err != nil {
		return nil, fmt.Errorf("store: read versions: %w", err)
	}
	all := map[Topic]int64{}
	var topic Topic
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&topic.Kind, &topic.Key, &version}, func() error {
		all[topic] = version
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: read versions: %w", err)
	}
	return all, nil
}

// notice is the payload of a notification.
type notice struct {
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Version int64  `json:"version,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// Next waits for the next notification. After ctx has ended it may be called again.
func (l *Listener) Next(ctx context.Context) (Notice, error) {
	for {
		got, err := l.conn.WaitForNotification(ctx)
		if err != nil {
			return Notice{}, fmt.Errorf("store: wait for changes: %w", err)
		}
		var n notice
		if json.Unmarshal([]byte(got.Payload), &n) == nil { // anybody can notify
			return Notice{Topic{n.Kind, n.Key}, n.Version, n.Detail}, nil
		}
	}
}

// Close ends it.
func (l *Listener) Close() error {
	closeSoon(l.conn)
	return nil
}
