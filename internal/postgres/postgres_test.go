//go:build linux

package postgres

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func TestDatabasesAreFresh(t *testing.T) {
	for range 2 {
		conn := connect(t, Start(t))
		if _, err := conn.Exec(t.Context(), `CREATE TABLE a (b int)`); err != nil {
			t.Fatal(err)
		}
		conn.Close(t.Context())
	}
}

func TestAServerStopsAndPauses(t *testing.T) {
	c := New(t)
	url := c.Database(t)
	conn := connect(t, url)

	c.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := pgx.Connect(ctx, url); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server: %v", err)
	}
	c.Resume(t)
	if err := conn.Ping(t.Context()); err != nil {
		t.Errorf("after a pause: %v", err)
	}

	c.Stop(t)
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a stopped server takes connections")
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlives its server")
	}
	c.Run(t)
	connect(t, url)
}

// The test binary itself is the process that is killed: see TestMain.
func TestAKilledTestLeavesNothing(t *testing.T) {
	if _, err := bin(); err != nil {
		missing(t, err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TOOLFINCH_TEST_HANG=1")
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	buf := make([]byte, 4096)
	n := must.Get(out.Read(buf))(t)
	dir := string(buf[:n])
	text := must.Get(os.ReadFile(filepath.Join(dir, "data", "postmaster.pid")))(t)
	first, _, _ := strings.Cut(string(text), "\n")
	pid := must.Get(strconv.Atoi(first))(t)
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	await.True(t, func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the server still runs: %v", err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("TOOLFINCH_TEST_HANG") != "" {
		c, err := start()
		if err == nil {
			err = c.tell("pause") // stopped processes must end, too
		}
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(c.dir)
		select {}
	}
	os.Exit(m.Run())
}
