package await

import (
	"strings"
	"sync"
)

// Log keeps what is written to it, and can be read meanwhile. The zero Log is ready.
type Log struct {
	mu   sync.Mutex // guards text; not held over anything
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
