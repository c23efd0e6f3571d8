package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
)

func TestALogFileIsBounded(t *testing.T) {
	for _, test := range []struct {
		name, had string
		moved     bool // the file becomes the older one
	}{
		{"new", "", false},
		{"short and young", "time=" + time.Now().Add(-maxLogAge/2).Format(time.RFC3339Nano) + " level=INFO msg=x\n", false},
		{"old", "time=" + time.Now().Add(-maxLogAge-time.Hour).Format(time.RFC3339Nano) + " level=INFO msg=x\n", true},
		{"old, as JSON", `{"time":"` + time.Now().UTC().Add(-maxLogAge-time.Hour).Format(time.RFC3339) + `"}` + "\n", true},
		{"a line without a time", "panic: x\n", false},
		{"long", strings.Repeat("x", maxLog-3) + "\n", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "toolfinch.log")
			if test.had != "" {
				must.Do(t, os.WriteFile(path, []byte(test.had), 0o600))
			}
			file := must.Get(openRotated(path))(t)
			for range 2 {
				must.Get(file.Write([]byte("one\n")))(t)
			}
			must.Do(t, file.Close())
			had, want := "", test.had+"one\none\n"
			if test.moved {
				had, want = test.had, "one\none\n"
			}
			if got := string(must.Get(os.ReadFile(path))(t)); got != want {
				t.Errorf("the file has %.100q, want %.100q", got, want)
			}
			if older, _ := os.ReadFile(path + ".1"); string(older) != had {
				t.Errorf("the older file has %.100q, want %.100q", older, had)
			}
		})
	}
}
