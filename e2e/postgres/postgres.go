// Package postgres runs real PostgreSQL servers for tests: clusters of their own in
// temporary folders, reached over unix sockets. It knows nothing of what is stored.
package postgres

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// Start returns the URL of an empty database. All databases of a test process are in one
// cluster, which is started with the first and ends with the process, however that ends.
// Without PostgreSQL the test is skipped, or fails with TOOLFINCH_TEST_REQUIRE=all.
func Start(t testing.TB) string { return Copy(t, "/template1") }

// Copy returns the URL of a database that has what another one of Start has, which nobody has open.
func Copy(t testing.TB, database string) string {
	t.Helper()
	c, err := shared()
	if err != nil {
		missing(t, err)
	}
	of, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return c.database(t, strings.TrimPrefix(of.Path, "/"))
}

// shared is never stopped here: its guard sees the end of the process.
var shared = sync.OnceValues(start)

// Cluster is a server that one test may stop and pause.
type Cluster struct {
	dir      string
	guard    *exec.Cmd
	commands io.WriteCloser
	answers  *bufio.Scanner
	names    atomic.Int64
}

// New starts a cluster of its own for a test. It ends with the test. Without
// PostgreSQL it does what Start does.
func New(t testing.TB) *Cluster {
	t.Helper()
	c, err := start()
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
		t.Fatalf("%v (TOOLFINCH_TEST_REQUIRE=all)", err)
	}
	t.Skip(err)
}

// bin returns the folder of the newest version of the programs of PostgreSQL.
func bin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // libraries are found from there
		return filepath.Dir(path), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian's
	if len(found) == 0 {
		return "", errors.New("there is no PostgreSQL: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// guard starts and stops the server as it is told, and ends it with everything it left
// when its standard input ends: so a test process that is killed leaves nothing.
//
//go:embed guard.sh
var guard string

// start makes a cluster and waits until it answers.
func start() (_ *Cluster, err error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("PostgreSQL is run for tests on Linux only")
	}
	programs, err := bin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "toolfinch-postgres-") // short: a socket's path has 107 bytes at most
	if err != nil {
		return nil, err
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{dir: dir, guard: exec.Command("/bin/sh", "-c", guard, "guard", dir, programs)}
	c.guard.Dir, c.guard.SysProcAttr = dir, as
	c.guard.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	c.commands, err = c.guard.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := c.guard.StdoutPipe() // never ours: go test waits for whoever has that open
	if err != nil {
		return nil, err
	}
	c.answers = bufio.NewScanner(answers)
	if err := c.guard.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err = c.tell("init"); err == nil {
		err = c.run()
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// tell has the guard do something, and waits until that is done.
func (c *Cluster) tell(command string) error {
	if _, err := fmt.Fprintln(c.commands, command); err != nil {
		return fmt.Errorf("PostgreSQL: %s: %w", command, err)
	}
	if !c.answers.Scan() || c.answers.Text() != "done" {
		log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
		return fmt.Errorf("PostgreSQL: %s: %s\n%s", command, c.answers.Text(), log)
	}
	return nil
}

// run starts the server and waits until it answers.
func (c *Cluster) run() error {
	if err := c.tell("start"); err != nil {
		return err
	}
	deadline := time.Now().Add(await.Bound)
	for {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		conn, err := pgx.Connect(ctx, c.url("postgres"))
		if err == nil {
			err = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// close ends the server and removes its folder.
func (c *Cluster) close() error {
	err := c.commands.Close()
	return errors.Join(err, c.guard.Wait())
}

func (c *Cluster) url(database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("toolfinch"), Path: "/" + database, RawQuery: url.Values{"host": {c.dir}}.Encode()}).String()
}

// Database returns the URL of an empty database, which ends with the cluster.
func (c *Cluster) Database(t testing.TB) string { return c.database(t, "template1") }

func (c *Cluster) database(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", c.names.Add(1))
	statement := "CREATE DATABASE " + name + " TEMPLATE " + template
	err := c.exec(statement + " STRATEGY FILE_COPY") // which costs a fifth where nothing is synced
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == "42601" {
		err = c.exec(statement) // before version 15 there is no other way
	}
	if err != nil {
		t.Fatal(err)
	}
	return c.url(name)
}

func (c *Cluster) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), await.Bound)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// Stop ends the server: connections break, and new ones are refused.
func (c *Cluster) Stop(t testing.TB) {
	t.Helper()
	must.Do(t, c.tell("stop"))
}

// Run starts the server after Stop, and returns when it answers.
func (c *Cluster) Run(t testing.TB) {
	t.Helper()
	must.Do(t, c.run())
}

// Restart is Stop and Run.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	c.Stop(t)
	c.Run(t)
}

// Standby makes the server a standby, which nothing is written to: a copy that others were promoted beside.
func (c *Cluster) Standby(t testing.TB) {
	t.Helper()
	must.Do(t, c.exec("ALTER SYSTEM SET wal_level = replica"))
	c.Restart(t)
	c.Stop(t)
	must.Do(t, os.WriteFile(filepath.Join(c.dir, "data", "standby.signal"), nil, 0o644))
	c.Run(t)
}

// Pause stops every process of the server: connections stay open, and nobody answers.
func (c *Cluster) Pause(t testing.TB) {
	t.Helper()
	must.Do(t, c.tell("pause"))
}

// Resume ends Pause.
func (c *Cluster) Resume(t testing.TB) {
	t.Helper()
	must.Do(t, c.tell("resume"))
}
