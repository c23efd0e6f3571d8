//go:build amd64 || arm64

package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"

	"toolfinch/internal/seccomp"
)

// systemCalls returns the rules for system calls that bypass Landlock. Most refused calls fail with EPERM, so that a
// program that does not depend on the call continues.
func systemCalls(r Rules) []seccomp.Rule {
	refuse := seccomp.Fail(unix.EPERM)
	on := func(then seccomp.Action, calls []uint32, tests ...seccomp.Test) seccomp.Rule {
		return seccomp.Rule{Calls: calls, If: tests, Then: then}
	}
	one := func(call uint32) []uint32 { return []uint32{call} }
	rules := []seccomp.Rule{
		on(refuse, neverCalls),
		on(refuse, queueCalls),
		// A filter cannot test the flags of clone3. If clone3 is missing, C libraries use clone.
		on(seccomp.Fail(unix.ENOSYS), one(unix.SYS_CLONE3)),
		// In a user namespace a process has all capabilities.
		on(refuse, one(unix.SYS_CLONE), seccomp.Has(0, namespaces)),
		on(refuse, one(unix.SYS_UNSHARE), seccomp.Has(0, namespaces|unix.CLONE_NEWTIME)),

		// A process may change its own limits and priority, but no other process's. The number 0 means the calling
		// process or thread.
		on(refuse, otherCalls, seccomp.IsNot(0, 0)),
		on(seccomp.Allow, one(unix.SYS_SETPRIORITY), seccomp.Is(0, unix.PRIO_PROCESS), seccomp.Is(1, 0)),
		on(seccomp.Allow, one(unix.SYS_IOPRIO_SET), seccomp.Is(0, ioprioProcess), seccomp.Is(1, 0)),
		on(refuse, []uint32{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET}),

		// Landlock does not control modes, owners and extended attributes. Programs that copy or install files fail if
		// they cannot set modes, so the calls for modes succeed and do nothing.
		on(seccomp.Fail(0), slices.Concat(modeCalls, modeCallsHere)),
		on(seccomp.Fail(unix.EOPNOTSUPP), attributeCalls),
		// What has its own session would outlive its server. Programs that start others fail if they cannot make one.
		on(seccomp.Fail(0), one(unix.SYS_SETSID)),

		// Landlock does not see connections that are opened by sending data (TCP Fast Open).
		on(refuse, []uint32{unix.SYS_SENDTO, unix.SYS_SENDMMSG}, seccomp.Has(3, unix.MSG_FASTOPEN)),
		on(refuse, one(unix.SYS_SENDMSG), seccomp.Has(2, unix.MSG_FASTOPEN)),
		// These requests type into a terminal.
		on(refuse, one(unix.SYS_IOCTL), seccomp.Is(1, unix.TIOCSTI)),
		on(refuse, one(unix.SYS_IOCTL), seccomp.Is(1, tiocLinux)),

		// Stream sockets of a pair reach only each other, but a datagram socket of a pair can send to any socket.
		on(seccomp.Allow, one(unix.SYS_SOCKETPAIR), seccomp.Test{Argument: 1, Mask: socketType, Value: unix.SOCK_STREAM}),
		on(seccomp.Allow, one(unix.SYS_SOCKETPAIR), seccomp.Test{Argument: 1, Mask: socketType, Value: unix.SOCK_SEQPACKET}),
		on(refuse, one(unix.SYS_SOCKETPAIR)),
		// Programs read the addresses of this machine over NETLINK_ROUTE.
		on(seccomp.Allow, one(unix.SYS_SOCKET), seccomp.Is(0, unix.AF_NETLINK), seccomp.Is(2, unix.NETLINK_ROUTE)),
	}
	// A filter does not see the address that a socket connects to, so sockets of other families, such as AF_UNIX, are
	// refused. MPTCP and SMC are refused, because Landlock does not control them.
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6} {
			rules = append(rules, on(seccomp.Allow, one(unix.SYS_SOCKET), seccomp.Is(0, family), seccomp.Is(2, protocol)))
		}
	}
	rules = append(rules, on(refuse, one(unix.SYS_SOCKET)))
	if r.Read != nil { // watch events would name files that must not be read
		rules = append(rules, on(refuse, slices.Concat(watchCalls, watchCallsHere)))
	}
	return rules
}

const (
	namespaces    = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	ioprioProcess = 1      // IOPRIO_WHO_PROCESS
	tiocLinux     = 0x541c // TIOCLINUX
	socketType    = 0xf    // SOCK_TYPE_MASK
)

// neverCalls access other processes, bypass Landlock, or reach rarely used parts of the kernel.
var neverCalls = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, // filters do not see requests of io_uring
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT,
}

// queueCalls share memory, semaphores and queues with all processes of a user (System V, POSIX). Landlock does not
// control these, because they are no files.
var queueCalls = []uint32{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// otherCalls change the process or thread that their first argument names.
var otherCalls = []uint32{unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR}

var modeCalls = []uint32{unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}

var attributeCalls = []uint32{
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

var watchCalls = []uint32{unix.SYS_INOTIFY_INIT1, unix.SYS_FANOTIFY_INIT}
