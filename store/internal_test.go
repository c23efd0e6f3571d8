package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	_ "toolfinch/internal/await" // other processes are waited for as on a busy machine
	"toolfinch/internal/leeway"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// These tests need what only the package has: its connection, whose settings make a disk full and a wait short.

func open(t *testing.T, dir string, log *bytes.Buffer) *Store {
	t.Helper()
	s := must.Get(Open(t.Context(), dir, slog.New(slog.NewTextHandler(log, nil))))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *Store) exec(t *testing.T, statement string) {
	t.Helper()
	must.Get(s.db.Exec(statement))(t)
}

// list stores a server with n tools.
func list(t *testing.T, s *Store, server string, n int) error {
	t.Helper()
	var defs []*tool.Def
	for i := range n {
		def := must.Get(tool.ParseDef(server, []byte(`{"name":"`+strings.Repeat("t", i+1)+`"}`)))(t)
		defs = append(defs, def)
	}
	_, err := s.PutServer(t.Context(), Upstream{Name: server}, defs, nil)
	return err
}

// stays checks that only the one tool of s is stored, and that more can be.
func stays(t *testing.T, s *Store) {
	t.Helper()
	if got, err := s.Tools(t.Context()); err != nil || len(got) != 1 || got[0].ID.Server != "s" {
		t.Errorf("stored are %v, %v", got, err)
	}
}

func TestAFullDiskFailsTheWriteAndNothingElse(t *testing.T) {
	s := open(t, t.TempDir(), new(bytes.Buffer))
	must.Do(t, list(t, s, "s", 1))
	s.exec(t, `PRAGMA max_page_count = 1`) // no smaller than it is: no page more
	if err := list(t, s, "many", 300); err == nil || !strings.HasPrefix(err.Error(), "store: put server many: ") {
		t.Errorf("got %v", err)
	}
	stays(t, s)
	s.exec(t, `PRAGMA max_page_count = 1000000`)
	if err := list(t, s, "many", 300); err != nil {
		t.Error(err)
	}
}

func TestALockedDatabaseFailsTheWriteAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir, new(bytes.Buffer)), open(t, dir, new(bytes.Buffer))
	must.Do(t, list(t, s, "s", 1))
	s.exec(t, `PRAGMA busy_timeout = 1`)
	tx := must.Get(other.db.Begin())(t)
	if err := list(t, s, "t", 0); !busy(err) {
		t.Errorf("got %v", err)
	}
	stays(t, s)
	must.Do(t, errors.Join(tx.Rollback(), list(t, s, "t", 1)))
}

// What is forgotten while somebody reads may stay in the file, which costs one warning.
func TestForgettingWhileSomebodyReadsSaysWhatStays(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	s, reader := open(t, dir, &log), open(t, dir, new(bytes.Buffer))
	s.exec(t, "PRAGMA busy_timeout = 1")
	must.Do(t, s.Usage().PutLearned(t.Context(), LearnedUse{Query: "q", Tool: tool.ID{Server: "s", Name: "t"}, Count: 1, At: time.UnixMilli(0)}))
	rows := must.Get(reader.db.Query(selectLearned))(t)
	defer rows.Close()
	if !rows.Next() {
		t.Fatal("nothing to read")
	}
	if n, err := s.Usage().ForgetLearned(t.Context(), "", ""); n != 1 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	if strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("log: %s", &log)
	}
}

// openAgain opens a database without waiting for anybody.
func openAgain(t *testing.T, dir string) error {
	t.Helper()
	lock, err := openLock(t.Context(), filepath.Join(dir, lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	db, err := openShared(t.Context(), filepath.Join(dir, fileName), lock, 0, true, slog.New(slog.DiscardHandler))
	if err == nil {
		err = db.Close()
	}
	return err
}

// To make a database and to read it takes as long as it takes: only others are not waited for.
func TestASlowMachineOpensItsDatabase(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // it is made, and it is there
		must.Do(t, openAgain(t, dir))
	}
}

func TestADatabaseInUseIsNeverMoved(t *testing.T) {
	dir := t.TempDir()
	user := open(t, dir, new(bytes.Buffer))
	tx := must.Get(user.db.Begin())(t)
	if err := openAgain(t, dir); err != nil {
		t.Errorf("while somebody writes: %v", err)
	}
	must.Do(t, tx.Rollback())
	user.exec(t, `PRAGMA user_version = -1`)
	if err := openAgain(t, dir); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "another process is using it") {
		t.Errorf("damaged: %v", err)
	}
	if now, err := os.Stat(user.path); err != nil || !os.SameFile(now, user.file) {
		t.Errorf("the database in use was replaced: %v", err)
	}
}

// A connection may hang while that of the watch does not: a method ends after a minute.
func TestAMethodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &remote{within: maxMethod}
		p.up, p.drop = context.WithCancelCause(t.Context())
		d := &database{remote: p}
		hang := func(ctx context.Context, _ *sql.DB) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		if err := d.read(t.Context(), hang); !errors.Is(err, errSilent) || !Transient(err) || time.Since(began) != maxMethod { // by the bubble's clock
			t.Errorf("%v after %s", err, time.Since(began))
		}
		var away *Away
		go p.setAway(&Away{Err: errors.New("it is gone")})
		if err := d.read(t.Context(), hang); !errors.As(err, &away) {
			t.Errorf("when the database goes away: %v", err)
		}
		if err := d.read(t.Context(), hang); !errors.As(err, &away) {
			t.Errorf("while it is away: %v", err)
		}
	})
}

// A host that takes connections and never answers costs a command some seconds whatever the URL is, and one line.
func TestASilentHost(t *testing.T) {
	for at, want := range map[string]time.Duration{"postgres://u@a/d": leeway.Of(connectWait), "postgres://u@a,b/d": leeway.Of(connectWait), "postgres://u@a/d?connect_timeout=30": 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			config, err := configOf(at)
			if err != nil {
				t.Fatal(err)
			}
			hosts := len(hosts(config))
			config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
			config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { _, _ = theirs.Read(make([]byte, 100)) }()
				return ours, nil
			}
			began := time.Now()
			_, err = pgx.ConnectConfig(t.Context(), config)
			said := unconnected(err).Error()
			if took := time.Since(began); took != want*time.Duration(hosts) { // by the bubble's clock
				t.Errorf("%s took %s", at, took)
			}
			if strings.Contains(said, "\n") || strings.Count(said, "no answer within "+want.String()) != hosts || !strings.Contains(said, "; check that it runs") {
				t.Errorf("%s: %s", at, said)
			}
		})
	}
}
