//go:build amd64 || arm64

package script

import (
	"os"

	"golang.org/x/sys/unix"
)

// Offsets in what a filter sees of a system call (struct seccomp_data).
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

// systemCalls is the filter of system calls: those that Go's runtime makes are let
// through, those that no runtime makes end the process, others fail.
func systemCalls() []unix.SockFilter {
	statement := func(code uint16, value uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: value} }
	load := func(offset uint32) unix.SockFilter { return statement(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
	end := func(action uint32) unix.SockFilter { return statement(unix.BPF_RET|unix.BPF_K, action) }
	const (
		fail = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		kill = unix.SECCOMP_RET_KILL_PROCESS
		pass = unix.SECCOMP_RET_ALLOW
	)
	// when skips the next instructions unless the test holds.
	when := func(test uint16, value uint32, skipped uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jf: skipped, K: value}
	}
	filter := []unix.SockFilter{
		load(offsetArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch},
		end(kill),
		load(offsetNumber),
	}
	for _, number := range append(neverCalls, neverCallsHere...) {
		filter = append(filter, when(unix.BPF_JEQ, number, 1), end(kill))
	}
	for _, number := range append(runtimeCalls, runtimeCallsHere...) {
		filter = append(filter, when(unix.BPF_JEQ, number, 1), end(pass))
	}
	// A C library makes threads by the older call where the newer one, whose flags a
	// filter does not see, is not there.
	filter = append(filter, when(unix.BPF_JEQ, unix.SYS_CLONE3, 1), end(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	// A thread may be made, a process not; memory must not become code; names may be
	// given to memory, and a signal to this process.
	for _, one := range []struct {
		number, argument uint32
		test             uint16
		value            uint32
		then, otherwise  uint32
	}{
		{unix.SYS_CLONE, 0, unix.BPF_JSET, unix.CLONE_THREAD, pass, kill},
		{unix.SYS_MMAP, 2, unix.BPF_JSET, unix.PROT_EXEC, fail, pass},
		{unix.SYS_MPROTECT, 2, unix.BPF_JSET, unix.PROT_EXEC, fail, pass},
		{unix.SYS_PRCTL, 0, unix.BPF_JEQ, unix.PR_SET_VMA, pass, fail},
		{unix.SYS_TGKILL, 0, unix.BPF_JEQ, uint32(os.Getpid()), pass, fail},
	} {
		filter = append(filter, when(unix.BPF_JEQ, one.number, 4),
			load(offsetArguments+8*one.argument), when(one.test, one.value, 1), end(one.then), end(one.otherwise))
	}
	return append(filter, end(fail))
}

// neverCalls are system calls that only somebody makes who has taken the process
// over. Opening a file, which a C library may try, just fails.
var neverCalls = []uint32{
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_MKNODAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KILL,
	unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_MOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_KEYCTL, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN,
}

// runtimeCalls are system calls of Go's runtime while it computes, and of reading
// and writing the pipes.
var runtimeCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MREMAP,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS,
	unix.SYS_GETRUSAGE, unix.SYS_FCNTL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}
