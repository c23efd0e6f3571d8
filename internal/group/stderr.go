package group

import (
	"bufio"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxLogLine    = 4 << 10 // bytes of a line of standard error that are logged
	stderrBurst   = 200     // lines logged without delay
	stderrRate    = 20      // lines a second after stderrBurst
	keptLines     = 20      // lines that are kept
	maxKeptLine   = 1 << 10 // bytes of a kept line
	lastLines     = 5       // kept lines that Words returns
	maxLastLine   = 300     // bytes of a line in Words
	longLine      = "(a line too long to show)"
	lastSeparator = " | "
)

// Stderr is the standard error of a child. It is logged at a bounded rate; the last lines are kept.
type Stderr struct {
	log  *slog.Logger
	done chan struct{}

	repeats bool // lines in heard are logged at level debug

	mu    sync.Mutex // guards the fields below; never held over I/O
	last  []string
	heard map[uint64]bool // hashes of the first lines, without numbers
}

// NewStderr returns a Stderr that writes to log.
func NewStderr(log *slog.Logger) *Stderr { return &Stderr{log: log, done: make(chan struct{})} }

// Repeats makes Follow log a line at level debug if before had it, apart from numbers: a process that fails at each
// start repeats its lines. Call it before Follow.
func (e *Stderr) Repeats(before *Stderr) {
	before.mu.Lock()
	defer before.mu.Unlock()
	e.repeats, e.heard = true, maps.Clone(before.heard)
}

// isNew notes a line, and reports whether it is new, apart from numbers.
func (e *Stderr) isNew(line string) bool {
	var hash maphash.Hash
	hash.SetSeed(seed)
	digit := false
	for _, c := range []byte(line) {
		was := digit
		if digit = '0' <= c && c <= '9'; digit {
			c = '#'
		}
		if !digit || !was {
			_ = hash.WriteByte(c)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard[hash.Sum64()] {
		return false
	}
	if len(e.heard) < stderrBurst {
		if e.heard == nil {
			e.heard = map[uint64]bool{}
		}
		e.heard[hash.Sum64()] = true
	}
	return true
}

var seed = maphash.MakeSeed()

// Done returns a channel that is closed at the end of the output.
func (e *Stderr) Done() <-chan struct{} { return e.done }

// Follow reads and logs r until its end.
func (e *Stderr) Follow(r io.ReadCloser) {
	defer close(e.done)
	defer r.Close()
	in := bufio.NewReaderSize(r, maxLogLine)
	credit, since, left := float64(stderrBurst), time.Now(), 0
	tell := func() {
		if left > 0 {
			e.log.Info("lines of stderr were left out", "count", left)
		}
		left = 0
	}
	defer tell()
	for {
		line, more, err := in.ReadLine()
		text := string(line)
		for more && err == nil {
			text = longLine
			_, more, err = in.ReadLine()
		}
		if text == "" {
			if err != nil {
				return
			}
			continue
		}
		e.keep(text)
		if first := e.isNew(text); !first && e.repeats {
			e.log.Debug("stderr", "line", text)
			continue
		}
		now := time.Now()
		credit, since = min(stderrBurst, credit+now.Sub(since).Seconds()*stderrRate), now
		if credit < 1 {
			left++
			continue
		}
		credit--
		tell()
		e.log.Info("stderr", "line", text)
	}
}

func (e *Stderr) keep(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.last) == keptLines {
		e.last = append(e.last[:0], e.last[1:]...)
	}
	e.last = append(e.last, strings.Clone(line[:min(len(line), maxKeptLine)]))
}

// Lines returns the last lines, unchanged.
func (e *Stderr) Lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.last)
}

// Words returns the last lines as one line.
func (e *Stderr) Words() string {
	lines := e.Lines()
	lines = lines[max(0, len(lines)-lastLines):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), maxLastLine)]
	}
	return strings.Join(lines, lastSeparator)
}
