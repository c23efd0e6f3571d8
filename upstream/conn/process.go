package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"toolfinch/internal/group"
	"toolfinch/upstream/sandbox"
)

// grace is how long a child may take to end after its stdin is closed, and again after SIGTERM.
const grace = time.Second

// process is one running child with its process group, or a Program.
type process struct {
	stdin     io.WriteCloser
	stdout    io.ReadCloser
	errors    io.ReadCloser // standard error of the child
	terminate func()        // sends SIGTERM to the group
	destroy   func()        // sends SIGKILL to the group
	exited    chan struct{} // closed once the child was reaped and its group killed
	state     string        // exit of the child; read after exited
	stderr    *group.Stderr
	env       map[string]string // of the settings
	inherit   []string
}

// Program is a server that runs inside this process instead of a command, for tests. It ends with its input or with
// ctx, and returns its exit like a process.
type Program func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (state string)

// run starts a Program.
func run(o Options) *process {
	ctx, cancel := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	p := &process{stdin: inW, stdout: outR, errors: errR, terminate: cancel, exited: make(chan struct{}), stderr: group.NewStderr(o.Log)}
	p.destroy = func() {
		cancel()
		_, _, _ = inR.Close(), outW.Close(), errW.Close()
	}
	go func() {
		p.state = o.Program(ctx, inR, outW, errW)
		p.destroy()
		close(p.exited)
	}()
	return p
}

// Process describes the child of a connection, for status pages.
type Process struct {
	PID    int
	Exited <-chan struct{} // closed when the child has ended; another process may have its PID from then on
	Stderr *group.Stderr
}

// start starts the server. Its standard error goes to the log.
func start(o Options) (p *process, err error) {
	pid := 0
	if o.Program != nil {
		p = run(o)
	} else if p, pid, err = spawn(o); err != nil {
		return nil, err
	}
	if o.Again && o.Before != nil {
		p.stderr.Repeats(o.Before.Stderr)
	}
	if o.Started != nil {
		o.Started(&Process{PID: pid, Exited: p.exited, Stderr: p.stderr})
	}
	go p.stderr.Follow(p.errors)
	return p, nil
}

// spawn starts the server's command.
func spawn(o Options) (p *process, pid int, err error) {
	cmd := exec.Command(o.Command, o.Args...)
	cmd.Dir = o.Cwd
	cmd.Env = group.Environment(o.Env, o.InheritEnv)
	if err := confine(cmd, o); err != nil {
		return nil, 0, err
	}
	group.Own(cmd)
	// Pipes of our own: those of exec.Cmd are closed, or waited for, by Wait,
	// which must reap the child while a grandchild may still hold them.
	var ends [6]*os.File // read and write ends of stdin, stdout, stderr
	closeAll := func(ends ...*os.File) {
		for _, end := range ends {
			_ = end.Close() // Close of a nil file is an error
		}
	}
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			closeAll(ends[:]...)
			return nil, 0, err
		}
	}
	inR, inW, outR, outW, errR, errW := ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	p = &process{stdin: inW, stdout: outR, errors: errR, exited: make(chan struct{}), stderr: group.NewStderr(o.Log), env: o.Env, inherit: o.InheritEnv}
	p.terminate, p.destroy = func() { _ = group.Terminate(cmd) }, func() { _ = group.Kill(cmd) }
	started := make(chan error)
	go p.live(cmd, started)
	err = <-started
	closeAll(inR, outW, errW)
	if err != nil {
		closeAll(inW, outR, errR)
		o.warn("the command cannot be started", "command", o.Command, "cwd", o.Cwd, "error", err)
		return nil, 0, startError(o, err)
	}
	return p, cmd.Process.Pid, nil
}

// live starts the child, tells so, and returns when the child was reaped and its group killed. It keeps a thread of
// its own, because the kernel ends the child with that thread: not all servers end when their standard input does.
func (p *process) live(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	group.EndWithThread(cmd, syscall.SIGTERM)
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = cmd.Wait()
	p.state = cmd.ProcessState.String()
	group.KillSession(cmd) // processes that the child started end, too
	close(p.exited)
}

// warn logs a problem, the first time that it appears.
func (o Options) warn(message string, args ...any) {
	level := slog.LevelWarn
	if o.Again {
		level = slog.LevelDebug
	}
	o.Log.Log(context.Background(), level, message, args...)
}

// confine puts the command into its sandbox. A missing command is left to Start, unless a wrapper in front of it may
// have the command, in a container perhaps.
func confine(cmd *exec.Cmd, o Options) error {
	if !o.Sandbox.On() || cmd.Err != nil && len(o.Sandbox.Wrapper) == 0 {
		return nil
	}
	path, args, env, err := o.Sandbox.Command(cmd.Path, cmd.Args, cmd.Env)
	if errors.Is(err, sandbox.ErrUnsupported) && o.Sandbox.Optional {
		o.warn("the server is started without its sandbox", "error", err)
		return nil
	}
	cmd.Path, cmd.Args, cmd.Env, cmd.Err = path, args, env, nil
	return err
}

// startError leaves out the path of the program and the folders where it was looked for, because clients may see the
// error.
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
		p.terminate()
		if !p.gone() {
			p.destroy()
		}
	}
	<-p.exited
	// Only what has left the group can hold the pipes now.
	_, _ = p.stdout.Close(), p.errors.Close()
	<-p.stderr.Done()
}

// ended is the error of a connection whose process has exited: how it exited, and what it wrote last, which ended
// waits for a moment.
func (p *process) ended() error {
	select {
	case <-p.stderr.Done():
	case <-time.After(grace): // another process holds the child's stderr
	}
	text := processEnded + p.state + ")"
	if names := group.Withheld(p.env, p.inherit, p.stderr.Words()); len(names) > 0 {
		text += fmt.Sprintf("%s%s (inherit_env: [%[2]s] does)", notPassedOn, strings.Join(names, ", "))
	}
	return withLastWords(Mark(errors.New(text), ErrClosed), p.stderr.Words())
}

// kill kills the child; live then reaps it as ever.
func (p *process) kill() {
	select {
	case <-p.exited: // another process may have the PID by now
	default:
		p.destroy()
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
