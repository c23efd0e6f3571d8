// Package group owns what the processes that this program starts have in common: how
// they are grouped and ended, what they get of the environment, what becomes of their
// standard error. It starts none itself, and does not decide which may be started.
package group

import "os"

// maxHead is how much a Head keeps, in bytes.
const maxHead = 4 << 10

// Head is a writer that keeps the beginning of what a process prints: the first
// 4 kB.
type Head struct{ kept []byte }

// Write keeps what there is room for. It never fails.
func (h *Head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxHead-len(h.kept))]...)
	return len(p), nil
}

// Bytes is what is kept.
func (h *Head) Bytes() []byte { return h.kept }

// Self is the path of the program that this process runs, for one that starts it once more.
func Self() (string, error) {
	const running = "/proc/self/exe" // also when the file was replaced
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}
