package python

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/leeway"
)

func TestWithoutPythonThereIsAReason(t *testing.T) {
	reasons := map[string]string{
		"no-such-python":      "no-such-python is not there (install Python 3.9 or later, or name an interpreter under the key python)",
		"/nonexistent/python": "python is not there (install",
		os.TempDir():          filepath.Base(os.TempDir()) + " cannot be started (",
	}
	if runtime.GOOS != "windows" {
		reasons["false"] = "Python ended (exit status 1)"
	}
	for command, want := range reasons {
		h := New(Settings{Command: command, Dir: t.TempDir()}, slog.New(slog.DiscardHandler))
		if _, err := h.Load(PreCall, "hooks.f.g"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
		h.Close()
	}
}

// From the second crash on the next start waits, longer each time, until Python has run for a while.
func TestAStartAfterCrashesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Settings{}, slog.New(slog.DiscardHandler))
		crashes := func(ran, want time.Duration) {
			t.Helper()
			time.Sleep(time.Until(h.again))
			began := time.Now()
			time.Sleep(ran)
			h.gone(began, failed("Python ended (exit status 7)"))
			if got := max(time.Until(h.again), 0); got != want {
				t.Errorf("it is started again in %s, want %s", got, want)
			}
		}
		calmly := leeway.Of(calm) + time.Second
		for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 30, 30} {
			crashes(0, want*time.Second)
			if i == 1 {
				if _, err := h.process(t.Context()); err == nil || err.Error() != "Python ended (exit status 7); it is started again in 2s" {
					t.Errorf("before the next start a call is told %v", err)
				}
			}
		}
		crashes(calmly, 0)
		h.gone(time.Time{}, failed("it could not be started"))
		if h.crashes != 1 {
			t.Errorf("a start that failed counts as crash %d", h.crashes)
		}
	})
}
