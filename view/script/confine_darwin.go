package script

import "golang.org/x/sys/unix"

// confine removes this process's access to files, and limits its processor time, for good.
func confine(limits Limits) {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_NOFILE: 0,
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_CPU:    uint64(cpuTime(limits).Seconds()),
	} {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most})
	}
}
