package group

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// KillSession ends the process group of a started command, and what of its session has left the group.
func KillSession(cmd *exec.Cmd) {
	_ = Kill(cmd)
	for range 10 { // what is killed may start another before
		if !killSession(cmd.Process.Pid) {
			return
		}
	}
}

// killSession reports whether the session had a process.
func killSession(session int) (some bool) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, _ := os.ReadFile(path)
		_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" ")) // the name before it may have anything
		fields := bytes.Fields(rest)                                                        // state, parent, group, session
		if len(fields) < 4 || string(fields[0]) == "Z" || string(fields[3]) != strconv.Itoa(session) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		some = err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil || some
	}
	return some
}
