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

// remote is the PostgreSQL side of a database; nil with SQLite.
//
// Types over the database (of replicas, of sessions) use, like Store itself:
//
// - each and row to read; transact to write, with retries; write to write alone among all writers. Statements take
// the context that transact and write pass: it ends when the database goes away.
//
// - Placeholders $1, $2, also in statements for PostgreSQL alone.
//
// - remote.connect for a connection of their own: for LISTEN, and for locks that last as long as the connection.
// remote.lockKey makes the keys of locks.
//
// - tables of their own, by migrations in migrations/postgres, which need not be applied in order.
type remote struct {
	config *pgx.ConnConfig // never with a password in an error: pgconn prints none
	schema string          // schema of the tables; "" until the first connection

	ended context.CancelFunc // of watch
	done  chan struct{}      // closed when watch has returned

	within time.Duration // maxMethod, except in tests
	member atomic.Int64  // the server process of the last Membership; 0: none

	refused     atomic.Pointer[refusal] // the last refusal to store; nil after a success
	toldRefused atomic.Int64            // when a refusal was last logged, in ns; 0: never
	away        atomic.Pointer[Away]    // nil while the database answers
	mu          sync.Mutex              // guards up and drop; never held over I/O
	up          context.Context         // done when the database goes away
	drop        context.CancelCauseFunc
}

// Away is the error of methods while PostgreSQL does not answer, and of writing methods while it stores nothing.
type Away struct {
	Since   time.Time
	Err     error // of the last attempt
	Answers bool  // it answers, but cannot be used: Err says why
	Refuses bool  // it answers, but stores nothing; reading methods work
}

func (a *Away) Error() string { return fmt.Sprintf("%s: %v", a.Brief(), a.Err) }

// Brief is Error without the reason, which may name hosts.
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

// InPostgres reports whether the place of a store is the URL of a PostgreSQL database.
func InPostgres(at string) bool {
	return strings.HasPrefix(at, "postgres://") || strings.HasPrefix(at, "postgresql://")
}

const (
	// maxConnections bounds the pool of one process. The watch and each lock have a connection of their own.
	maxConnections = 8

	// maxIdle ends a transaction whose process was suspended: other processes wait for it.
	maxIdle = 10 * time.Second

	// maxStatement bounds a statement whose process may be gone. Copying a large store and waiting for a migration
	// take minutes.
	maxStatement = 10 * time.Minute

	// maxMethod bounds methods, except copies of whole stores: a connection can be lost silently while the watch's
	// connection works.
	maxMethod = time.Minute

	watchEvery  = time.Second     // pause while the database answers
	watchWait   = 3 * time.Second // wait for an answer
	maxRetry    = 2 * time.Second // longest pause while it does not answer
	connectWait = 5 * time.Second // for each host of a URL that has no connect_timeout
)

// purpose says what a database is opened for.
type purpose int

const (
	everything purpose = iota
	reading
	sealedOnly // like reading, with any schema or none
)

// unconnected turns a connection error into one line with what to do: the driver has a line for each attempt, with
// TLS and without. Other errors stay unchanged.
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
	return &reworded{strings.Join(all, " ") + "; check that it runs, and that store is right", err}
}

// reworded is an error with another text.
type reworded struct {
	text string
	error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.error }

// configOf parses a URL.
func configOf(at string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(at)
	if misread(at) && (err != nil || strings.Contains(config.Database, "@") || slices.ContainsFunc(hosts(config), func(host string) bool { return strings.Contains(host, "@") })) {
		return nil, errors.New("its URL cannot be read: write %40 for @, and %2F for /, in a user or password")
	}
	if err != nil {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause // drops the URL, which has a password
		}
		return nil, fmt.Errorf("its URL cannot be read: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = leeway.Of(connectWait)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "toolfinch"
	}
	config.RuntimeParams["client_encoding"] = "UTF8" // whatever the encoding of the database
	return config, nil
}

// misread reports whether the user or password of a URL may contain an unescaped @ or /. The driver would take the
// rest for a host or database, and print it.
func misread(at string) bool {
	_, rest, _ := strings.Cut(at, "://")
	user, rest, _ := strings.Cut(rest, "@")
	return strings.Contains(user, "/") || strings.Contains(rest, "@")
}

func hosts(config *pgx.ConnConfig) []string {
	all := []string{config.Host}
	for _, next := range config.Fallbacks { // each host occurs with TLS and without
		if !slices.Contains(all, next.Host) {
			all = append(all, next.Host)
		}
	}
	return all
}

// pool returns a pool that prepares each new connection.
func (p *remote) pool(prepare func(context.Context, *pgx.Conn) error) *sql.DB {
	return sql.OpenDB(connector{stdlib.GetConnector(*p.config, stdlib.OptionAfterConnect(prepare))})
}

// outlived makes the database end a session within some 15 s after its process's machine or network has gone
// silently: other processes wait for its locks. The system's default is two hours.
const outlived = `SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 15000; `

// whereTablesAre returns the schema of the tables. It need not be the first of search_path: another schema may have
// been added since.
const whereTablesAre = `SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('compatible')), current_schema()),
	current_setting('server_encoding')`

// storesText refuses encodings other than UTF8, with which nothing was tested.
func storesText(encoding string) error {
	if encoding != "UTF8" {
		return fmt.Errorf("its encoding is %s: toolfinch needs a database with the encoding UTF8 (CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0)", encoding)
	}
	return nil
}

// prepare bounds the waits of a connection. Startup parameters would do it, but poolers refuse them.
func prepare(ctx context.Context, conn *pgx.Conn, readOnly bool) error {
	_, err := conn.Exec(ctx, outlived+fmt.Sprintf(`SET lock_timeout = %d; SET idle_in_transaction_session_timeout = %d; SET statement_timeout = %d; SET default_transaction_read_only = %t`,
		leeway.Of(patience).Milliseconds(), leeway.Of(maxIdle).Milliseconds(), maxStatement.Milliseconds(), readOnly))
	return err
}

// connect returns a separate connection, which the watch does not check: its owner notices when it breaks, and
// closes it.
func (p *remote) connect(ctx context.Context) (*pgx.Conn, error) {
	if away := p.away.Load(); away != nil { // fail at once, and do not read while pooled connections cannot
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

// lock locks a name for all processes. It uses a connection of its own: if the connection is lost, so is the lock.
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

// lockKey returns the key of an advisory lock. Stores in different schemas of one database have different keys.
func (p *remote) lockKey(name string) int64 {
	sum := sha256.Sum256([]byte("toolfinch\x00" + p.schema + "\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// errSilent is transient, like other timeouts.
var errSilent = fmt.Errorf("PostgreSQL did not answer in time: %w", context.DeadlineExceeded)

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server notices in any case
}

// ping checks the database over a connection that it keeps in conn.
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

func (p *remote) setAway(away *Away) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away.Store(away)
	p.drop(away)
}

func (p *remote) setUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.drop = context.WithCancelCause(context.Background())
	p.away.Store(nil)
}

// refusal says since when the database answers but stores nothing: its disk is full, or it is a standby.
type refusal struct {
	since, last time.Time
	err         error
	logged      bool // was logged
}

// refusedFor is how long a refusal counts that does not recur.
const refusedFor = time.Minute
