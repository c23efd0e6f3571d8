package script

import "golang.org/x/sys/unix"

// neverCallsHere and runtimeCallsHere are the system calls of this architecture only.
var (
	neverCallsHere   = []uint32{unix.SYS_CREAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_LINK, unix.SYS_SYMLINK}
	runtimeCallsHere = []uint32{unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL, unix.SYS_TIME}
)
