package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// plainLog writes warnings and errors as sentences, for commands that end by themselves. It leaves out records about
// one server: these commands print the errors of servers themselves.
type plainLog struct {
	w       io.Writer
	omitted bool // the records have the attribute server
}

func (plainLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l plainLog) Handle(_ context.Context, record slog.Record) error {
	text, more := record.Message, ""
	record.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "server":
			l.omitted = true
		case "error":
			text += ": " + a.Value.String()
		default:
			more += fmt.Sprintf("; %s: %s", a.Key, a.Value)
		}
		return true
	})
	if l.omitted {
		return nil
	}
	if record.Level < slog.LevelError {
		text = "warning: " + text
	}
	if screenOf(l.w).terminal {
		_, _ = io.WriteString(unfiltered(l.w), "\r\x1b[K") // a progress bar may stand here
	}
	_, err := fmt.Fprintln(l.w, text+more)
	return err
}

func (l plainLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		l.omitted = l.omitted || a.Key == "server"
	}
	return l
}

func (l plainLog) WithGroup(string) slog.Handler { return l }

// wantsLog reports whether the user wants log lines of a command, and not only its own messages.
func (s *settings) wantsLog() bool { return s.logLevel != "" || os.Getenv("MCPPROXY_LOG_LEVEL") != "" }
