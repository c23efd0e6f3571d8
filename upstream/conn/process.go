package conn

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/group"
)

// Grace at the end of a child: after stdin is closed, and after SIGTERM.
const grace = time.Second

// process is one running child with its process group.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *os.File
	errors *os.File      // the read end of its standard error
	exited chan struct{} // closed once the child was reaped and its group killed
	state  string        // how it ended; read after exited
	stderr *stderr
}

// start starts the server's command. Its standard error goes to the log.
func start(o Options) (*process, error) {
	cmd := exec.Command(o.Command, o.Args...)
	cmd.Dir = o.Cwd
	cmd.Env = environment(o.Env, o.InheritEnv)
	group.Own(cmd)
	// Pipes of our own: those of exec.Cmd are closed, or waited for, by Wait,
	// which must reap the child while a grandchild may still hold them.
	var ends [6]*os.File // stdin, stdout and stderr: to read, to write
	closeAll := func(ends ...*os.File) {
		for _, end := range ends {
			_ = end.Close() // nil is refused
		}
	}
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			closeAll(ends[:]...)
			return nil, err
		}
	}
	inR, inW, outR, outW, errR, errW := ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	err := cmd.Start()
	closeAll(inR, outW, errW)
	if err != nil {
		closeAll(inW, outR, errR)
		o.Log.Warn("the command cannot be started", "command", o.Command, "cwd", o.Cwd, "error", err)
		return nil, startError(o, err)
	}
	p := &process{cmd: cmd, stdin: inW, stdout: outR, errors: errR, exited: make(chan struct{}), stderr: &stderr{log: o.Log, done: make(chan struct{})}}
	go p.stderr.follow(errR)
	go func() {
		_ = cmd.Wait()
		p.state = cmd.ProcessState.String()
		_ = group.Kill(cmd) // what it started ends with it
		close(p.exited)
	}()
	return p, nil
}

// startError leaves out where the program and its directory are, and where it was
// looked for: clients may see it.
func startError(o Options, err error) error {
	command := filepath.Base(o.Command)
	if first, _, more := strings.Cut(o.Command, " "); more && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)) {
		if _, lookErr := exec.LookPath(first); lookErr == nil {
			return fmt.Errorf("the command %q cannot be started with its arguments in it: write them under args", filepath.Base(first))
		}
	}
	dir, dirErr := os.Stat(cmp.Or(o.Cwd, "."))
	_, fileErr := os.Stat(o.Command)
	var pathError *os.PathError
	switch {
	case dirErr == nil && fileErr == nil && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the command %q cannot be started: the interpreter that its first line names is not there", command)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("the command %q is not on the PATH", command)
	case dirErr != nil || !dir.IsDir():
		return fmt.Errorf("the command %q cannot be started: there is no such working directory", command)
	case errors.As(err, &pathError):
		return fmt.Errorf("the command %q cannot be started: %w", command, pathError.Err)
	}
	return fmt.Errorf("the command %q cannot be started", command)
}

// end ends the whole group: stdin is closed, then SIGTERM, then SIGKILL.
func (p *process) end() {
	_ = p.stdin.Close()
	if !p.gone() {
		_ = group.Terminate(p.cmd)
		if !p.gone() {
			_ = group.Kill(p.cmd)
		}
	}
	<-p.exited
	// Only what has left the group can hold the pipes now.
	_, _ = p.stdout.Close(), p.errors.Close()
	<-p.stderr.done
}

// ended is why the connection to a process that has exited ends: how it ended, and
// what it wrote last, for which it waits a moment.
func (p *process) ended() error {
	select {
	case <-p.stderr.done:
	case <-time.After(grace): // someone else holds its stderr
	}
	err := fmt.Errorf("%w: the process ended (%s)", ErrClosed, p.state)
	if words := p.stderr.words(); words != "" {
		err = fmt.Errorf("%w; its last words: %s", err, words)
	}
	return err
}

// kill ends the child at once. Its end follows as ever.
func (p *process) kill() {
	select {
	case <-p.exited: // the number may be another's by now
	default:
		_ = group.Kill(p.cmd)
	}
}

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(grace):
		return false
	}
}

// kept are globs of what a child inherits of the environment, in upper case: what it
// needs to run at all, and to reach registries and servers as the owner does.
var kept = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TEMP", "TMP", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_*", "REQUESTS_CA_BUNDLE",
	"NPM_CONFIG_*", "PIP_*INDEX*", "PIP_TRUSTED_HOST", "PIP_CERT", "UV_*INDEX*", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
	// Windows
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "ALLUSERSPROFILE", "PROGRAMFILES*", "PROGRAMW6432",
	"COMMONPROGRAMFILES*", "COMMONPROGRAMW6432", "USERPROFILE", "USERNAME", "USERDOMAIN", "PUBLIC", "HOMEDRIVE", "HOMEPATH", "PATHEXT",
	"COMSPEC", "OS", "PROCESSOR_*", "NUMBER_OF_PROCESSORS", "PSMODULEPATH",
}

// environment is the minimal environment, what inherit matches beside, and what the
// configuration gives: what else is set here, secrets among it, is none of a server's
// business.
func environment(own map[string]string, inherit []string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if matchesAny(kept, strings.ToUpper(name)) || matchesAny(inherit, name) {
			env = append(env, pair)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { ok, _ := path.Match(glob, name); return ok })
}
