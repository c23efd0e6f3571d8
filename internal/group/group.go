// Package group owns the common parts of child processes: process groups and their ends, the
// environment, standard error. It starts no process, and does not decide which may start.
package group

import "os"

// maxHead bounds a Head, in bytes.
const maxHead = 4 << 10

// Head keeps the beginning of a process's output: the first 4 kB.
type Head struct{ kept []byte }

// Write keeps the bytes that still fit. It never fails.
func (h *Head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxHead-len(h.kept))]...)
	return len(p), nil
}

// Bytes returns the kept output.
func (h *Head) Bytes() []byte { return h.kept }

// Self returns the path of this program, to start it once more.
func Self() (string, error) {
	const running = "/proc/self/exe" // works even after the file was replaced
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}
