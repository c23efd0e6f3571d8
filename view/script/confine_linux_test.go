package script

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// probeVariable makes this test a process that confines itself and then tries what
// it names.
const probeVariable = "SCRIPT_TEST_PROBE"

var probes = map[string]func() error{
	"nothing": func() error { return errors.New("allowed") },
	"open":    func() error { _, err := os.Open("/etc/hostname"); return err },
	"write":   func() error { return os.WriteFile("probe.txt", []byte("x"), 0o600) },
	"connect": func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err },
	"exec":    func() error { return syscall.Exec("/bin/true", []string{"true"}, nil) },
	"signal":  func() error { return syscall.Kill(os.Getppid(), syscall.Signal(0)) },
	"memory": func() error {
		b := make([]byte, 2<<30)
		return fmt.Errorf("%d bytes", len(b))
	},
}

func init() {
	what := os.Getenv(probeVariable)
	if what == "" {
		return
	}
	makeTimers()
	confine(Limits{}.orDefaults())
	fmt.Println("tried:", probes[what]())
	os.Exit(0)
}

func TestAScriptsProcessIsConfined(t *testing.T) {
	for what := range probes {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{probeVariable + "=" + what}
		out, err := cmd.CombinedOutput()
		got := string(out) + fmt.Sprint(err)
		if allowed := strings.Contains(got, "tried: allowed"); allowed != (what == "nothing") {
			t.Errorf("%s: %s", what, got)
		}
		if killed := what == "connect" || what == "exec" || what == "signal"; killed && !strings.Contains(got, "bad system call") {
			t.Errorf("%s: %s, want the process killed", what, got)
		}
	}
}
