//go:build unix

package hook

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"toolfinch/internal/await"
)

// line is a command that has time enough on any machine.
func line(text string) Command { return Command{Line: text, Timeout: await.Bound} }

func TestRunGivesTheEnvironmentAndTakesBoundedOutput(t *testing.T) {
	output, err := line(`printf '%s' "$MCPPROXY_TOOLS_ADDED"`).Run(t.Context(), []string{"MCPPROXY_TOOLS_ADDED=a; $(rm -rf x) b"})
	if err != nil || string(output) != "a; $(rm -rf x) b" {
		t.Errorf("output %q, error %v", output, err)
	}
	output, err = line(`head -c 100000 /dev/zero | tr '\0' x`).Run(t.Context(), nil)
	if err != nil || len(output) != 4<<10 {
		t.Errorf("%d bytes kept, error %v; want %d", len(output), err, 4<<10)
	}
}

func TestRunReportsFailure(t *testing.T) {
	if output, err := line("echo why >&2; exit 3").Run(t.Context(), nil); err == nil || string(output) != "why\n" {
		t.Errorf("output %q, error %v", output, err)
	}
}

func TestTheWholeGroupIsKilledAfterTheTimeout(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	pid := 0
	for timeout := 100 * time.Millisecond; pid == 0; timeout *= 2 { // until the grandchild is started before it
		_, err := Command{Line: `sleep 300 & echo $! > "$PID_FILE"; wait`, Timeout: timeout}.Run(t.Context(), []string{"PID_FILE=" + pidFile})
		if want := "killed after " + timeout.String(); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error %v, want %q", err, want)
		}
		raw, _ := os.ReadFile(pidFile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
	}
	// The grandchild is no child of ours: init reaps it, a moment later.
	await.True(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
}

// zombie reports whether the process has ended but was not reaped: containers
// may have an init that does not.
func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
