//go:build amd64 || arm64

package script

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"toolfinch/internal/seccomp"
)

// systemCalls are the rules for system calls: calls of Go's runtime are allowed, calls that no runtime
// makes end the process, and the rest fails.
func systemCalls() []seccomp.Rule {
	return []seccomp.Rule{
		{Calls: slices.Concat(neverCalls, neverCallsHere), Then: seccomp.Kill},
		{Calls: slices.Concat(runtimeCalls, runtimeCallsHere), Then: seccomp.Allow},
		// The flags of clone3 cannot be tested; without clone3 a C library uses clone.
		{Calls: []uint32{unix.SYS_CLONE3}, Then: seccomp.Fail(unix.ENOSYS)},
		{Calls: []uint32{unix.SYS_CLONE}, If: []seccomp.Test{seccomp.Has(0, unix.CLONE_THREAD)}, Then: seccomp.Allow},
		{Calls: []uint32{unix.SYS_CLONE}, Then: seccomp.Kill},
		// Memory must not become code.
		{Calls: []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT}, If: []seccomp.Test{seccomp.Has(2, unix.PROT_EXEC)}, Then: seccomp.Fail(unix.EPERM)},
		{Calls: []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT}, Then: seccomp.Allow},
		// Go's runtime gives names to memory.
		{Calls: []uint32{unix.SYS_PRCTL}, If: []seccomp.Test{seccomp.Is(0, unix.PR_SET_VMA)}, Then: seccomp.Allow},
		// Go's runtime sends signals to its own threads.
		{Calls: []uint32{unix.SYS_TGKILL}, If: []seccomp.Test{seccomp.Is(0, uint32(os.Getpid()))}, Then: seccomp.Allow},
	}
}

// neverCalls are system calls that only an attacker in the process makes. Opening a file, which a C
// library may try, merely fails.
var neverCalls = []uint32{
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_MKNODAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KILL,
	unix.SYS_IO_URING_SETUP, unix.SYS_BPF, unix.SYS_MOUNT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_KEYCTL, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN,
}

// runtimeCalls are system calls of Go's runtime during computation, and of reading and writing the
// pipes.
var runtimeCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MREMAP,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS,
	unix.SYS_GETRUSAGE, unix.SYS_FCNTL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}
