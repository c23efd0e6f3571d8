package conn

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"toolfinch/wire"
)

const (
	maxLogLine    = 4 << 10 // bytes of a line of standard error that are logged
	stderrBurst   = 200     // lines that are logged as fast as they come
	stderrRate    = 20      // lines a second after that
	lastLines     = 5       // lines that are kept for errors
	maxLastLine   = 300     // bytes of each
	longLine      = "(a line too long to show)"
	lastSeparator = " | "
)

// stderr is what a child writes to its standard error. It goes to the log at a
// bounded rate; the last lines are kept.
type stderr struct {
	log  *slog.Logger
	done chan struct{} // closed when there is nothing more to read

	mu   sync.Mutex // guards last
	last []string
}

// follow reads until the end.
func (e *stderr) follow(r io.ReadCloser) {
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
		line, _, err := wire.ReadLine(in, maxLogLine)
		if errors.Is(err, wire.ErrLineTooLong) {
			line, err = []byte(longLine), nil
		}
		if err != nil {
			return
		}
		if len(line) == 0 {
			continue
		}
		text := string(line)
		e.keep(text)
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

func (e *stderr) keep(line string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.last) == lastLines {
		e.last = append(e.last[:0], e.last[1:]...)
	}
	e.last = append(e.last, line)
}

// words are the last lines on one line.
func (e *stderr) words() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := make([]string, len(e.last))
	for i, line := range e.last {
		lines[i] = strings.Map(printable, strings.ToValidUTF8(line[:min(len(line), maxLastLine)], ""))
	}
	return strings.Join(lines, lastSeparator)
}

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}
