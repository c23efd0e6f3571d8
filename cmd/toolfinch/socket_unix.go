//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// isPrivate returns an error unless a folder is this user's, and closed to all others. It closes a folder of this user.
// The folder above must be private, too, or let nobody else rename its entries, as /tmp does.
func isPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || owner == nil || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s is no folder of this user", dir)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}

// hungUp returns when nobody reads a pipe or socket any more, or when ctx ends.
func hungUp(ctx context.Context, out io.Writer) {
	file, ok := out.(*os.File)
	if !ok {
		<-ctx.Done()
		return
	}
	const often = 200 // milliseconds: poll cannot be interrupted
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(file.Fd())}}
		if n, _ := unix.Poll(fds, often); n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
			return
		}
	}
}
