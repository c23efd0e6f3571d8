package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// giveBack gives the system back what is not in use: garbage, and the pages of the program's
// file, most of which only the start needed. A page that is used again comes from the page
// cache.
func giveBack() {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, _ := os.ReadFile("/proc/self/smaps")
	var start, end uint64 // of a mapping of the file that is read only
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if from, to, found := strings.Cut(fields[0], "-"); found {
			start, end = 0, 0
			if fields[1][1] == '-' && strings.HasSuffix(line, " "+program+"\n") {
				start, _ = strconv.ParseUint(from, 16, 64)
				end, _ = strconv.ParseUint(to, 16, 64)
			}
		}
		// Pages that the loader has changed are not in the file any more.
		if end > start && fields[0] == "Anonymous:" && fields[1] == "0" {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED)
		}
	}
}
