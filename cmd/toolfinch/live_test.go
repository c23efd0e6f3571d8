//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy/web"
)

// Only its user opens the socket of a toolfinch, at no moment anyone else: whatever the umask
// and the folder of the store let others do.
func TestTheSocketIsPrivateFromTheStart(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir, err := os.MkdirTemp("", "") // the path of t.TempDir is too long for one
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	must.Do(t, os.Chmod(dir, 0o777))
	ctx, end := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			sockets, _ := filepath.Glob(filepath.Join(dir, "*"))
			for _, one := range sockets {
				if info, err := os.Stat(one); err == nil && info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s has the mode %s", one, info.Mode())
				}
			}
		}
	})
	for i := range 100 {
		listener := must.Get(listenPrivately(filepath.Join(dir, fmt.Sprint(liveName, i))))(t)
		defer listener.Close()
	}
	end()
	watching.Wait()
}

// A toolfinch answers at its socket while it runs, and leaves nothing in the folder.
func TestASocketGoesWithItsProcess(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", ""))(t)
	defer os.RemoveAll(dir)
	ctx, end := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		answerLive(ctx, dir, live{status: func(context.Context) web.Status { return web.Status{Configuration: "this"} }}, slog.New(slog.DiscardHandler))
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
		listener := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, fmt.Sprint(liveName, "0", i)), Net: "unix"}))(t)
		listener.SetUnlinkOnClose(false)
		listener.Close()
	}
	if mine, others := askLive(ctx, dir, "this"); len(mine) != 1 || len(others) > 0 {
		t.Errorf("beside what others left %d answer, %d do not", len(mine), len(others))
	}
	end()
	serving.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
