package script

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"toolfinch/internal/seccomp"
)

// confine removes, for good, everything that a script does not need: files, the network, other
// processes, and memory and processor time past its limits. It skips protections that the kernel lacks.
func confine(limits Limits) {
	data := dataSize() // read before files are out of reach
	for resource, most := range map[int]uint64{
		unix.RLIMIT_NOFILE: 0,
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_CPU:    uint64(cpuTime(limits).Seconds()),
		// The process keeps freed memory, and threads have stacks.
		unix.RLIMIT_DATA: data + 4*uint64(limits.Memory) + 64<<20,
	} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most})
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	// Without a filter in the kernel or for the architecture, the other limits remain.
	_ = seccomp.Confine(systemCalls(), seccomp.Fail(unix.EPERM))
}

// dataSize is the private memory of this process, in bytes, as RLIMIT_DATA counts it.
func dataSize() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if size, ok := strings.CutPrefix(line, "VmData:"); ok {
			kilobytes, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(size), "kB")), 10, 64)
			return kilobytes << 10
		}
	}
	return 1 << 30 // without /proc: large enough for every script
}
