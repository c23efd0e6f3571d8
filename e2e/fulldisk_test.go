//go:build linux

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// TestReindexOnAFullDisk mounts disks of a few sizes, so that the store cannot be
// made, or cannot take what the server has.
func TestReindexOnAFullDisk(t *testing.T) {
	if err := exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "disk", t.TempDir()).Run(); err != nil {
		missing(t, "no disk can be mounted here: unshare: %v", err)
	}
	for size, want := range map[string]string{"8k": "cannot be opened: nothing would be kept", "400k": "disk is full"} {
		t.Run(size, func(t *testing.T) {
			h := newHouse(t, map[string]server{"sly": {Command: "sly", Args: []string{"many"}, ConnectTimeout: patience.String()}})
			data := filepath.Join(h.home, "disk")
			must.Do(t, os.Mkdir(data, 0o700))
			cmd := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-c", `mount -t tmpfs -o size=`+size+` disk "$0" && exec toolfinch reindex --config "$1" --data-dir "$0"`, data, h.config)
			cmd.Env = h.env
			out, err := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d (%v): %s", code, err, out)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("the reason is not said: %s", out)
			}
		})
	}
}
