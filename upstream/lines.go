package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

const (
	keptLines = 200 // lines that are kept of each server
	maxLine   = 600 // bytes of a kept line
)

// Line is a log line about a server, with the server's secrets masked.
type Line struct {
	Number int64     `json:"number"` // counts the lines of a server from 1
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // stderr, message (the server's notifications/message), or a level: debug, info, warn, error
	Text   string    `json:"text"` // one line
}

// recent are the last log lines about a server, of every level. They are for the owner.
type recent struct {
	mu   sync.Mutex // guards the fields below
	kept []Line
	last int64 // number of the last line
}

func (l *recent) add(at time.Time, kind, text string) {
	text = rawjson.Clip(printable.Line(text), maxLine)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) == keptLines {
		l.kept = append(l.kept[:0], l.kept[1:]...)
	}
	l.last++
	l.kept = append(l.kept, Line{l.last, at, kind, text})
}

// after returns the kept lines after a number.
func (l *recent) after(number int64) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := slices.IndexFunc(l.kept, func(line Line) bool { return line.Number > number })
	if from < 0 {
		return nil
	}
	return slices.Clone(l.kept[from:])
}

// inherit puts the lines of a server's predecessor before its own.
func (l *recent) inherit(old *recent) {
	before := old.after(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.kept
	l.kept = append(before, own...)
	l.kept = l.kept[max(0, len(l.kept)-keptLines):]
	if len(before) > 0 {
		for i := range own {
			l.kept[len(l.kept)-len(own)+i].Number += before[len(before)-1].Number
		}
		l.last += before[len(before)-1].Number
	}
}

// message keeps a notifications/message of the server.
func (l *recent) message(params []byte) {
	data := rawjson.Member(params, "data")
	text := rawjson.Text(data)
	if text == "" {
		text = string(data)
	}
	l.add(time.Now(), "message", strings.TrimPrefix(rawjson.Text(rawjson.Member(params, "level"))+": "+text, ": "))
}

// keeping passes log records on, and keeps them as lines, also those whose level is not logged.
type keeping struct {
	slog.Handler
	lines *recent
}

func (keeping) Enabled(context.Context, slog.Level) bool { return true }

func (h keeping) Handle(ctx context.Context, record slog.Record) error {
	kind, text := strings.ToLower(record.Level.String()), record.Message
	record.Attrs(func(a slog.Attr) bool {
		if record.Message == "stderr" {
			kind, text = record.Message, a.Value.String()
		} else {
			text += fmt.Sprintf("; %s: %s", a.Key, a.Value)
		}
		return true
	})
	h.lines.add(record.Time, kind, text)
	if !h.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

func (h keeping) WithAttrs(attrs []slog.Attr) slog.Handler {
	return keeping{h.Handler.WithAttrs(attrs), h.lines}
}

func (h keeping) WithGroup(name string) slog.Handler {
	return keeping{h.Handler.WithGroup(name), h.lines}
}
