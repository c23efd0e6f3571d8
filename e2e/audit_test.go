//go:build unix

package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"toolfinch/internal/await"
)

// What docs/security.md says sends the lines of the audit log to another machine does, with the logger of this one.
func TestTheAuditLogIsSentElsewhere(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("logger"); err != nil {
		missing(t, "logger is not here (Debian: bsdutils)")
	}
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	line := string(regexp.MustCompile(`(?m)^ {4}toolfinch audit .*\| logger .*$`).Find(page))
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	_, port, _ := net.SplitHostPort(elsewhere.Addr().String())
	came := make(chan string, 100)
	go func() {
		from, err := elsewhere.Accept()
		if err != nil {
			return
		}
		defer from.Close()
		for lines := bufio.NewScanner(from); lines.Scan(); {
			came <- lines.Text()
		}
	}()

	program(t) // it is in PATH from here on
	h := newHouse(t, nil)
	h.env = append(h.env, "MCPPROXY_AUDIT="+filepath.Join(h.home, "audit.jsonl"), "MCPPROXY_CONFIG="+h.config)
	line = strings.NewReplacer("logs.example.com", "127.0.0.1", "--port 514", "--port "+port).Replace(strings.TrimSpace(line))
	cmd := exec.CommandContext(await.Program(t), "sh", "-c", line)
	cmd.Env, cmd.Stderr = h.env, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // of the pipe
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	keys := 0
	await.Nil(t, func() error { // it sends what is written from some moment on
		keys++
		if out, said, code := h.run(t, "", "key", "create", fmt.Sprint("k", keys), "--scope", "mcp:read"); code != 0 {
			t.Fatal(out, said)
		}
		select {
		case got := <-came:
			if !strings.Contains(got, `"event":"key.changed"`) || !strings.HasSuffix(got, "}") {
				t.Errorf("it came as %s", got)
			}
			return nil
		default:
			return errors.New("nothing has come")
		}
	})
}
