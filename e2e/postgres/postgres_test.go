//go:build linux

// Package postgres_test shows that servers of tests end with their tests.
package postgres_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// TestKilled is the process that the next test kills: its server is paused, and must end, too.
func TestKilled(t *testing.T) {
	if os.Getenv("TOOLFINCH_TEST_HANG") == "" {
		t.Skip("another test runs it")
	}
	c := postgres.New(t)
	at := must.Get(url.Parse(c.Database(t)))(t)
	c.Pause(t)
	fmt.Println(at.Query().Get("host"))
	select {}
}

func TestAKilledTestLeavesNothing(t *testing.T) {
	postgres.Start(t) // or there is no PostgreSQL
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "TOOLFINCH_TEST_HANG=1")
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	var dir string
	must.Get(fmt.Fscanln(out, &dir))(t)
	first, _, _ := strings.Cut(must.Read(t, filepath.Join(dir, "data", "postmaster.pid")), "\n")
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
