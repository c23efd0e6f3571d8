package configs

import (
	"path/filepath"
	"testing"
	"time"

	"toolfinch/trust/audit"
)

func TestAuditIsOffOnAFileOrAMapping(t *testing.T) {
	usual := audit.Settings{MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge, Keep: audit.DefaultKeep, Arguments: audit.ArgumentsDigest}
	for text, want := range map[string]func(dir string, s *audit.Settings) bool{ // false: off
		"":                 func(string, *audit.Settings) bool { return false },
		"audit:":           func(string, *audit.Settings) bool { return false },
		"audit: false":     func(string, *audit.Settings) bool { return false },
		"audit: true":      func(string, *audit.Settings) bool { return true },
		"audit: {}":        func(string, *audit.Settings) bool { return true },
		"audit: log/a.log": func(dir string, s *audit.Settings) bool { s.File = filepath.Join(dir, "log", "a.log"); return true },
		"audit: {file: b.jsonl, max_size: 1MB, max_age: 1h, keep: 0, arguments: full, results: true}": func(dir string, s *audit.Settings) bool {
			*s = audit.Settings{File: filepath.Join(dir, "b.jsonl"), MaxSize: 1_000_000, MaxAge: time.Hour, Arguments: audit.ArgumentsFull, Results: true}
			return true
		},
	} {
		c, err := load(t, minimal+text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		settings := usual
		settings.File = filepath.Join(c.DataDir, audit.FileName)
		got := c.AuditLog()
		if on := want(filepath.Dir(c.Path), &settings); on != (got != nil) {
			t.Errorf("%s: on is %v", text, got != nil)
		} else if on && *got != settings {
			t.Errorf("%s: %+v, want %+v", text, *got, settings)
		}
	}
}
