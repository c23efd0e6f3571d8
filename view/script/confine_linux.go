package script

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"toolfinch/internal/seccomp"
)

// confine takes from this process, for good, all that a script does not need:
// files, the network, other processes, and more memory and time of processors than
// its limits. What the kernel does not have is left out.
func confine(limits Limits) {
	data := dataSize() // before files are out of reach
	for resource, most := range map[int]uint64{
		unix.RLIMIT_NOFILE: 0,
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_CPU:    uint64(cpuTime(limits).Seconds()),
		// Memory that was freed stays in the process, and threads have stacks.
		unix.RLIMIT_DATA: data + 4*uint64(limits.Memory) + 64<<20,
	} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most})
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	// Where the kernel or the architecture has no filter, a script has the other limits alone.
	_ = seccomp.Confine(systemCalls(), seccomp.Fail(unix.EPERM))
}

// dataSize is how many bytes of private memory this process has, of those that
// RLIMIT_DATA counts.
func dataSize() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if size, ok := strings.CutPrefix(line, "VmData:"); ok {
			kilobytes, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(size), "kB")), 10, 64)
			return kilobytes << 10
		}
	}
	return 1 << 30 // no /proc: so much that nothing fails
}
