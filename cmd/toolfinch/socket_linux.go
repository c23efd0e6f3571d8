package main

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// isOwn returns an error unless the process at the other end of a socket belongs to this user.
func isOwn(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(peer.Uid) != os.Getuid() {
		return errors.New("the process at this socket is another user's")
	}
	return nil
}
