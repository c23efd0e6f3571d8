//go:build linux

package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// TestTheDiskOfTheAuditLogIsFull fills a disk under a toolfinch that serves: nothing is
// done that cannot be written down, and it goes on once there is room. Nothing is lost.
func TestTheDiskOfTheAuditLogIsFull(t *testing.T) {
	if err := exec.Command("unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=64k", "disk", t.TempDir()).Run(); err != nil {
		missing(t, "no disk can be mounted here: unshare: %v", err)
	}
	h := newHouse(t, map[string]server{"sly": {Command: "sly", ConnectTimeout: patience.String()}})
	disk := filepath.Join(h.home, "disk")
	must.Do(t, os.Mkdir(disk, 0o700))
	env := append(h.env, "MCPPROXY_AUDIT="+filepath.Join(disk, "audit.jsonl"))
	cmd := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-c", `mount -t tmpfs -o size=128k disk "$0" && exec toolfinch serve --config "$1"`, disk, h.config)
	cmd.Env, cmd.Stderr = env, &await.Log{}
	c := speakWith(t, cmd)
	ask := func(method, params string) string { return string(c.ask(t, method, params)) }
	ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"full","version":"1"}}`)
	call := func() string { return ask("tools/call", `{"name":"retrieve_tools","arguments":{"query":"run"}}`) }
	const refusal = "the audit log cannot be written (no space left on device)"
	if got := call(); strings.Contains(got, refusal) {
		t.Fatal(got)
	}
	within := "/proc/" + strconv.Itoa(cmd.Process.Pid) + "/root" + disk // what it sees there
	fill := must.Get(os.Create(filepath.Join(within, "fill")))(t)
	if _, err := io.Copy(fill, strings.NewReader(strings.Repeat("x", 1<<20))); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	must.Do(t, fill.Close())
	did := 1 // calls that were admitted
	await.True(t, func() bool {
		if strings.Contains(call(), refusal) {
			return true
		}
		did++ // what is left of the last page of the file takes some
		return false
	})
	if got := ask("tools/call", `{"name":"call_tool","arguments":{"name":"sly_fail"}}`); !strings.Contains(got, refusal) {
		t.Errorf("a call on a full disk answers %s", got)
	}
	must.Do(t, os.Remove(fill.Name()))
	await.True(t, func() bool { return !strings.Contains(call(), refusal) })
	did++
	await.Nil(t, func() error {
		text, err := os.ReadFile(filepath.Join(within, "audit.jsonl"))
		if n := strings.Count(string(text), `"event":"retrieve"`); err != nil || n != did || !strings.HasSuffix(string(text), "}\n") {
			return fmt.Errorf("%d lines of %d are written, %v", n, did, err)
		}
		return nil
	})
	if err := errors.Join(c.in.Close(), cmd.Wait()); err != nil {
		t.Errorf("%v: %s", err, cmd.Stderr)
	}
}
