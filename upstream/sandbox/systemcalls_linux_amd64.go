package sandbox

import "golang.org/x/sys/unix"

// modeCallsHere and watchCallsHere are older calls, which arm64 does not have.
var (
	modeCallsHere  = []uint32{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN}
	watchCallsHere = []uint32{unix.SYS_INOTIFY_INIT}
)
