//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy/web"
)

// The folder of the sockets is closed to all other users, wherever it is.
func TestTheFolderOfSocketsIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	open := must.Get(os.MkdirTemp("", ""))(t)
	defer os.RemoveAll(open)
	long := filepath.Join(open, strings.Repeat("long", 30))
	defer os.RemoveAll(socketDir(long))
	for _, dir := range []string{open, long} {
		must.Do(t, os.MkdirAll(socketDir(dir), 0o777))
		must.Do(t, os.Chmod(socketDir(dir), 0o777))
		listener := must.Get(listenLive(dir))(t)
		defer listener.Close()
		info := must.Get(os.Stat(socketDir(dir)))(t)
		if info.Mode().Perm() != 0o700 || len(listener.Addr().String()) > maxSocket {
			t.Errorf("%s has the mode %s", listener.Addr(), info.Mode())
		}
	}
	must.Do(t, os.RemoveAll(socketDir(open)))
	must.Do(t, os.Symlink(t.TempDir(), socketDir(open)))
	if _, err := listenLive(open); err == nil {
		t.Error("it listens in a folder that a link leads to")
	}
}

// A toolfinch answers at its socket while it runs, and leaves nothing in the folder.
func TestASocketGoesWithItsProcess(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", ""))(t)
	defer os.RemoveAll(dir)
	ctx, end := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	listener := must.Get(listenLive(dir))(t)
	serving.Go(func() {
		answerLive(ctx, listener, live{status: func(context.Context) web.Status { return web.Status{Configuration: "this"} }}, slog.New(slog.DiscardHandler))
	})
	await.Nil(t, func() error {
		mine, others := askLive(ctx, dir, "this")
		if len(mine) != 1 || len(others) > 0 {
			return fmt.Errorf("%d answer, %d do not", len(mine), len(others))
		}
		return nil
	})
	// What crashed ones have left hides it only until it is removed.
	for i := range 3 * maxLive {
		listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(socketDir(dir), fmt.Sprint(liveName, "0", i)), Net: "unix"}))(t)
		listener.SetUnlinkOnClose(false)
		listener.Close()
	}
	if mine, others := askLive(ctx, dir, "this"); len(mine) != 1 || len(others) > 0 {
		t.Errorf("beside what others left %d answer, %d do not", len(mine), len(others))
	}
	end()
	serving.Wait()
	if left, err := os.ReadDir(socketDir(dir)); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
