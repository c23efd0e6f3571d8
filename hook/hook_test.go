//go:build unix

package hook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRunGivesTheEnvironmentAndTakesBoundedOutput(t *testing.T) {
	output, err := Command{Line: `printf '%s' "$MCPPROXY_TOOLS_ADDED"`}.Run(t.Context(), []string{"MCPPROXY_TOOLS_ADDED=a; $(rm -rf x) b"})
	if err != nil || string(output) != "a; $(rm -rf x) b" {
		t.Errorf("output %q, error %v", output, err)
	}
	output, err = Command{Line: `head -c 100000 /dev/zero | tr '\0' x`}.Run(t.Context(), nil)
	if err != nil || len(output) != maxOutput {
		t.Errorf("%d bytes kept, error %v; want %d", len(output), err, maxOutput)
	}
}

func TestRunReportsFailure(t *testing.T) {
	if output, err := (Command{Line: "echo why >&2; exit 3"}).Run(t.Context(), nil); err == nil || string(output) != "why\n" {
		t.Errorf("output %q, error %v", output, err)
	}
}

func TestTheWholeGroupIsKilledAfterTheTimeout(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	_, err := Command{Line: `sleep 300 & echo $! > "$PID_FILE"; wait`, Timeout: 300 * time.Millisecond}.Run(t.Context(), []string{"PID_FILE=" + pidFile})
	if err == nil || !strings.Contains(err.Error(), "killed after 300ms") {
		t.Errorf("error = %v", err)
	}
	raw, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	// The grandchild is no child of ours: init reaps it, a moment later.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !zombie(pid) {
		if ctx.Err() != nil {
			t.Fatalf("process %d is still there", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// zombie reports whether the process has ended but was not reaped: containers
// may have an init that does not.
func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
