package await

import (
	"strings"
	"sync"
)

// Log keeps written text, and can be read concurrently. The zero Log is ready.
type Log struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the text so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
