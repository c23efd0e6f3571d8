package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"toolfinch/internal/leeway"
)

// remote is what a Store over PostgreSQL has beside its *sql.DB.
//
// Other types over the same database (of replicas, of sessions) are made of a *Store and
// use, as its own methods do:
//   - s.each and s.row to read, s.transact to write in a transaction that is tried again where that
//     may help; s.write instead where nobody else may write at the same time. Statements take the context
//     that either gives: it ends when the database goes away.
//   - Placeholders are $1, $2, in statements for both databases and in those for PostgreSQL alone.
//   - s.remote.connect for a connection of their own: LISTEN, and locks that last as long as the connection.
//     Names of locks become keys by s.remote.lockKey.
//   - tables of their own, by a migration of their own in migrations/postgres. It need
//     not be applied in the order of numbers.
//
// s.remote is nil with SQLite.
type remote struct {
	config *pgx.ConnConfig // never with a password in an error: pgconn prints none
	schema string          // where the tables are; "" until it was reached

	ended context.CancelFunc // of watch
	done  chan struct{}      // closed when watch has returned

	within time.Duration // maxMethod, but for tests
	member atomic.Int64  // the process of the server that serves the last Membership; 0 for none

	refused     atomic.Pointer[refusal] // the last time that it stored nothing; nil after it did
	toldRefused atomic.Int64            // when that was logged last, in ns; 0 for never
	away        atomic.Pointer[Away]    // nil while the database answers
	mu          sync.Mutex              // guards up and drop; never held over I/O
	up          context.Context         // done when the database goes away
	drop        context.CancelCauseFunc
}

// Away is the error of methods while PostgreSQL does not answer, and of those that write while it
// stores nothing.
type Away struct {
	Since   time.Time
	Err     error // the last attempt's
	Answers bool  // it does by now, but cannot be used: Err says why
	Refuses bool  // it answers and stores nothing; methods that read do not return this
}

func (a *Away) Error() string { return fmt.Sprintf("%s: %v", a.Brief(), a.Err) }

// Brief says it without the reason, which may name hosts.
func (a *Away) Brief() string {
	text := "PostgreSQL has not answered since "
	if a.Answers {
		text = "PostgreSQL answers, but could not be used since "
	}
	if a.Refuses {
		text = "PostgreSQL answers, but stores nothing since "
	}
	return text + a.Since.UTC().Format(time.RFC3339)
}

func (a *Away) Unwrap() error { return a.Err }

// InPostgres reports whether a place of a store is the URL of a PostgreSQL database, not
// a folder.
func InPostgres(at string) bool {
	return strings.HasPrefix(at, "postgres://") || strings.HasPrefix(at, "postgresql://")
}

const (
	// maxConnections of one process: calls need none, and the watch and each lock have
	// one beside.
	maxConnections = 8

	// A transaction whose program was stopped is ended, because others wait for it.
	maxIdle = 10 * time.Second

	// maxStatement bounds a statement whose program may be gone. Copying a large store takes
	// minutes, and so does waiting for another program that migrates.
	maxStatement = 10 * time.Minute

	// maxMethod bounds what methods do, but for copying whole stores: a connection may have been lost
	// without a word while that of the watch is well.
	maxMethod = time.Minute

	watchEvery  = time.Second     // while it answers
	watchWait   = 3 * time.Second // for an answer
	maxRetry    = 2 * time.Second // while it does not answer
	connectWait = 5 * time.Second // for each host of a URL that has no connect_timeout
)

// purpose is what a database is opened for.
type purpose int

const (
	everything purpose = iota
	reading
	sealedOnly // as reading, and the schema may be of any version, or not there
)

// unconnected says in one line, and what to do, why a database cannot be connected to: the driver
// has a line for each attempt, with TLS and without. Other errors stay as they are.
func unconnected(err error) error {
	failed, is := errors.AsType[*pgconn.ConnectError](err)
	if !is {
		return err
	}
	var all []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if host, _, is := strings.Cut(line, "): "); is && (strings.HasSuffix(line, ": context deadline exceeded") || strings.HasSuffix(line, ": i/o timeout")) {
			line = fmt.Sprintf("%s): no answer within %s", host, failed.Config.ConnectTimeout)
		}
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return &inWords{strings.Join(all, " ") + "; check that it runs, and that store is right", err}
}

// inWords is an error in other words.
type inWords struct {
	text string
	error
}

func (e *inWords) Error() string { return e.text }
func (e *inWords) Unwrap() error { return e.error }

// configOf reads a URL.
func configOf(at string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(at)
	if misread(at) && (err != nil || strings.Contains(config.Database, "@") || slices.ContainsFunc(hosts(config), func(host string) bool { return strings.Contains(host, "@") })) {
		return nil, errors.New("its URL cannot be read: write %40 for @, and %2F for /, in a user or password")
	}
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // without the URL, which has a password
		}
		return nil, fmt.Errorf("its URL cannot be read: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = leeway.Of(connectWait)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "toolfinch"
	}
	config.RuntimeParams["client_encoding"] = "UTF8" // whatever the database's is
	return config, nil
}

// misread reports whether the user or password of a URL may have an @ or a /. The driver would
// take what follows for a host or database, and print it.
func misread(at string) bool {
	_, rest, _ := strings.Cut(at, "://")
	user, rest, _ := strings.Cut(rest, "@")
	return strings.Contains(user, "/") || strings.Contains(rest, "@")
}

func hosts(config *pgx.ConnConfig) []string {
	all := []string{config.Host}
	for _, next := range config.Fallbacks { // for each host, with TLS and without
		if !slices.Contains(all, next.Host) {
			all = append(all, next.Host)
		}
	}
	return all
}

// pool makes connections as they are needed, and has each prepared.
func (p *remote) pool(prepare func(context.Context, *pgx.Conn) error) *sql.DB {
	return sql.OpenDB(connector{stdlib.GetConnector(*p.config, stdlib.OptionAfterConnect(prepare))})
}

// outlived has the database end a session within some 15 s of its program's machine or network
// going away without a word: others wait for the locks of the session. The system would take two hours.
const outlived = `SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 15000; `

// whereTablesAre is their schema, which need not be the first of search_path: another one may have
// been made since.
const whereTablesAre = `SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('compatible')), current_schema()),
	current_setting('server_encoding')`

// storesText says that a database cannot store any text: tests never ran with another encoding.
func storesText(encoding string) error {
	if encoding != "UTF8" {
		return fmt.Errorf("its encoding is %s: toolfinch needs a database with the encoding UTF8 (CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0)", encoding)
	}
	return nil
}

// prepare bounds what a connection waits for. Startup parameters would do it, too, but
// poolers refuse them.
func prepare(ctx context.Context, conn *pgx.Conn, readOnly bool) error {
	_, err := conn.Exec(ctx, outlived+fmt.Sprintf(`SET lock_timeout = %d; SET idle_in_transaction_session_timeout = %d; SET statement_timeout = %d; SET default_transaction_read_only = %t`,
		leeway.Of(patience).Milliseconds(), leeway.Of(maxIdle).Milliseconds(), maxStatement.Milliseconds(), readOnly))
	return err
}

// connect returns a connection of its own, which is not watched: its owner finds out when
// it breaks, and closes it.
func (p *remote) connect(ctx context.Context) (*pgx.Conn, error) {
	if away := p.away.Load(); away != nil { // nobody waits for it, or reads by one connection what others cannot yet
		return nil, away
	}
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, outlived+fmt.Sprintf(`SET statement_timeout = %d; SET default_transaction_read_only = false`, maxStatement.Milliseconds())); err != nil {
		closeSoon(conn)
		return nil, err
	}
	return conn, nil
}

// lock locks a name for all processes. It holds a connection of its own meanwhile: when
// that is lost, so is the lock.
func (p *remote) lock(ctx context.Context, name string) (release func(), err error) {
	conn, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, p.lockKey("vault\x00"+name)); err != nil {
		closeSoon(conn)
		return nil, err
	}
	return func() { closeSoon(conn) }, nil
}

// lockKey returns the key of an advisory lock. Two stores in schemas of one database do
// not lock each other out.
func (p *remote) lockKey(name string) int64 {
	sum := sha256.Sum256([]byte("toolfinch\x00" + p.schema + "\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// errSilent passes, as what took too long does.
var errSilent = fmt.Errorf("PostgreSQL did not answer in time: %w", context.DeadlineExceeded)

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the other side notices in any case
}

// ping asks over a connection that it keeps in conn.
func (p *remote) ping(ctx context.Context, conn **pgx.Conn) (err error) {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(watchWait))
	defer cancel()
	if *conn == nil {
		if *conn, err = pgx.ConnectConfig(ctx, p.config); err != nil {
			*conn = nil
			return err
		}
	}
	if err := (*conn).Ping(ctx); err != nil {
		closeSoon(*conn)
		*conn = nil
		return err
	}
	return nil
}

func (p *remote) gone(away *Away) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away.Store(away)
	p.drop(away)
}

func (p *remote) back() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.drop = context.WithCancelCause(context.Background())
	p.away.Store(nil)
}

// refusal is that the database answers and stores nothing: its disk is full, or it is a standby.
type refusal struct {
	since, last time.Time
	err         error
	told        bool // in the log
}

// refusedFor is how long a refusal counts that nobody has repeated.
const refusedFor = time.Minute
