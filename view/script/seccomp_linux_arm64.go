package script

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// neverCallsHere and runtimeCallsHere are the system calls of this architecture
// alone.
var neverCallsHere, runtimeCallsHere []uint32
