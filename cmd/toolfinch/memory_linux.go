package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// giveBack returns unused memory to the system: garbage, and the pages of the program's file, most of which only the
// start needed. The page cache keeps them for the next use.
func giveBack() {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, _ := os.ReadFile("/proc/self/smaps")
	var start, end uint64 // bounds of a read-only mapping of the file
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if from, to, found := strings.Cut(fields[0], "-"); found {
			start, end = 0, 0
			if fields[1][1] == '-' && strings.HasSuffix(line, " "+program+"\n") {
				start, _ = strconv.ParseUint(from, 16, 64)
				end, _ = strconv.ParseUint(to, 16, 64)
			}
		}
		// Anonymous pages stay: the file lacks the loader's changes to them.
		if end > start && fields[0] == "Anonymous:" && fields[1] == "0" {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, uintptr(start), uintptr(end-start), syscall.MADV_DONTNEED)
		}
	}
}
