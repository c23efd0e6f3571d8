// Package sandbox limits the files and ports that a server's process may use: by Landlock and a filter of system calls,
// which the Linux kernel applies to the process and its children, or by a wrapper command. It starts no process.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"toolfinch/internal/group"
)

// Settings limit a process. The zero value sets no limit.
type Settings struct {
	Wrapper  []string // wrapper command; its last arguments are the server's command
	Landlock *Rules   // ignored with a Wrapper
	Optional bool     // if this machine cannot sandbox, the server starts without a sandbox
}

// Rules are the files and TCP ports that Landlock allows. All others are refused, and so are system calls that bypass
// Landlock.
type Rules struct {
	Read  []string `json:"read"`  // readable files and folders, beside those that programs need; nil for all
	Write []string `json:"write"` // files and folders that may also be changed
	Ports []int    `json:"ports"` // TCP ports to connect to; nil allows all ports, and listening

	OwnPort int `json:"own_port"` // port where toolfinch itself listens, never allowed; 0 for none
}

// WithOwnPort returns settings that forbid connections to the port where toolfinch itself listens. Over that port the
// process could call other servers, which are outside of its sandbox.
func (s Settings) WithOwnPort(port int) Settings {
	if s.Landlock != nil {
		rules := *s.Landlock
		rules.OwnPort = port
		s.Landlock = &rules
	}
	return s
}

// On reports whether there is a limit.
func (s Settings) On() bool { return len(s.Wrapper) > 0 || s.Landlock != nil }

// String describes the limits for people.
func (s Settings) String() string {
	switch {
	case len(s.Wrapper) > 0:
		return "what " + strings.Join(s.Wrapper, " ") + " lets it"
	case s.Landlock != nil:
		return s.Landlock.String()
	}
	return "all that you may"
}

// String describes the rules on one line.
func (r Rules) String() string {
	read, write, ports := "all files", "none", "any port"
	if r.Read != nil {
		read = strings.Join(append([]string{"programs"}, r.Read...), ", ")
	}
	if len(r.Write) > 0 {
		write = strings.Join(r.Write, ", ")
	}
	if r.Ports != nil {
		ports = "no port"
	}
	if len(r.Ports) > 0 {
		ports = "TCP port"
		for i, port := range r.Ports {
			ports += []string{" ", ", "}[min(i, 1)] + strconv.Itoa(port)
		}
	}
	return fmt.Sprintf("reads %s; writes %s; connects to %s", read, write, ports)
}

// ErrUnsupported means that this machine cannot apply the settings.
var ErrUnsupported = errors.New("its sandbox cannot be had here")

// minABI is the first version of Landlock's interface with rules for TCP, from Linux 6.7.
const minABI = 4

// Check returns why the settings cannot be applied; the error is ErrUnsupported if this machine is the reason. It names
// files without their folders, because clients may see it.
func (s Settings) Check() error {
	if len(s.Wrapper) > 0 {
		if _, err := exec.LookPath(s.Wrapper[0]); err != nil {
			return fmt.Errorf("%w: there is no %s; %s", ErrUnsupported, filepath.Base(s.Wrapper[0]), without)
		}
	}
	if s.Landlock == nil {
		return nil
	}
	if abi() < minABI {
		return fmt.Errorf("%w: it needs Landlock of Linux 6.7 or later on amd64 or arm64; %s", ErrUnsupported, without)
	}
	for _, path := range s.Landlock.Write {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("its sandbox lets it write to %q, which is not there", filepath.Base(path))
		}
	}
	return nil
}

const without = "sandbox_optional: true starts the server without"

// A program that imports this package becomes a server's process if it is started with this environment variable and
// argument: before its main function runs, it limits itself and executes the server's program.
const (
	childVariable = "TOOLFINCH_SANDBOX"
	childArgument = "run-sandboxed"
)

// order is the value of childVariable.
type order struct {
	Rules Rules  `json:"rules"`
	Path  string `json:"path"` // path of the program
}

// Exit codes of a process that could not become the server's process.
const (
	exitConfine = 126
	exitExec    = 127
)

func init() {
	text := os.Getenv(childVariable)
	if text == "" || len(os.Args) < 3 || os.Args[1] != childArgument {
		return
	}
	fail := func(code int, what string, err error) {
		fmt.Fprintf(os.Stderr, "sandbox: %s: %v\n", what, err)
		os.Exit(code)
	}
	runtime.LockOSThread() // capabilities and Landlock apply to one thread, which becomes the program
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fail(exitConfine, "its rules", err)
	}
	if err := confine(o.Rules, o.Path); err != nil {
		fail(exitConfine, "its limits were refused", err)
	}
	_ = os.Unsetenv(childVariable)
	fail(exitExec, "the program was not started", execute(o.Path, os.Args[2:], os.Environ()))
}

// Command returns the path, arguments and environment to start instead of a program's. args[0] is the program's name; a
// Wrapper gets this name, not path. Command fails like Check.
func (s Settings) Command(path string, args, env []string) (string, []string, []string, error) {
	if err := s.Check(); err != nil {
		return path, args, env, err
	}
	switch {
	case len(s.Wrapper) > 0:
		wrapper, err := exec.LookPath(s.Wrapper[0])
		return wrapper, slices.Concat(s.Wrapper, args), env, err
	case s.Landlock != nil:
		self, err := group.Self()
		if err != nil {
			return path, args, env, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		text, err := json.Marshal(order{*s.Landlock, path})
		if err != nil {
			return path, args, env, err
		}
		return self, append([]string{"toolfinch", childArgument}, args...), append(slices.Clone(env), childVariable+"="+string(text)), nil
	}
	return path, args, env, nil
}

// systemFolders are the folders that programs need to run at all.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/proc", "/sys", "/run/systemd/resolve"}

// devices are readable and writable for every program. The terminal is missing: a program could type commands into it.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// readable returns the files and folders that a program may read: r.Read, systemFolders, the program's file, and its
// installation. The installation is the folder of the file, or the parent of a folder named bin.
func (r Rules) readable(program string) []string {
	if r.Read == nil {
		return []string{"/"}
	}
	paths := slices.Concat(r.Read, systemFolders)
	home, _ := os.UserHomeDir()
	for _, file := range []string{program, resolved(program)} {
		dir := filepath.Dir(file)
		if above := filepath.Dir(dir); filepath.Base(dir) == "bin" && above != "/" && above != home {
			dir = above
		}
		if paths = append(paths, file); dir != "/" && dir != home {
			paths = append(paths, dir)
		}
	}
	return paths
}

func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
