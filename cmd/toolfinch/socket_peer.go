//go:build linux || darwin

package main

import (
	"errors"
	"net"
	"os"
)

// isOwn returns an error unless the process at the other end of a socket belongs to this user.
func isOwn(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var uid uint32
	var failed error
	if err := raw.Control(func(fd uintptr) { uid, failed = peerOf(int(fd)) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(uid) != os.Getuid() {
		return errors.New("the process at this socket is another user's")
	}
	return nil
}
