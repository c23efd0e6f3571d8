package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func init() { programs["private"] = private }

// private is a program that keeps what it has to itself, or does not, until its standard
// input ends.
func private() {
	if os.Getenv("KEEP") == "private" {
		keepPrivate()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A server without a sandbox runs as the same user, who may read the environment of all
// that are his.
func TestOtherProcessesOfTheUserDoNotReadTheEnvironment(t *testing.T) {
	as := func(cmd *exec.Cmd) *exec.Cmd {
		if os.Getuid() == 0 { // who may read all of them
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		cmd.Dir = "/"
		return cmd
	}
	for keep, readable := range map[string]bool{"open": true, "private": false} {
		cmd := as(exec.Command("/proc/self/exe")) // its folder may be another user's
		cmd.Args[0] = "private"
		cmd.Env = []string{"KEEP=" + keep, "SECRET=correct-horse"}
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); errors.Is(err, fs.ErrPermission) {
			t.Skip("no process of another user can be started: ", err)
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Error(err)
		}
		read, err := as(exec.Command("cat", fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))).Output()
		if got := strings.Contains(string(read), "correct-horse"); got != readable {
			t.Errorf("%s: the environment is read: %v, %v", keep, got, err)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
