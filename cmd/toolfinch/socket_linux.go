package main

import "golang.org/x/sys/unix"

// peerOf returns the user of the process at the other end of a socket.
func peerOf(fd int) (uid uint32, err error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return peer.Uid, nil
}
