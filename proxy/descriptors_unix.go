//go:build unix

package proxy

import "golang.org/x/sys/unix"

// descriptors returns how many files and connections this process may have open.
func descriptors() int64 {
	var is unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &is); err != nil {
		return 1024
	}
	return int64(min(uint64(is.Cur), 1<<30))
}
