package script

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"toolfinch/internal/group"
)

// process is a script's process in its parent.
type process struct {
	messages *group.Messages
	in       *os.File // to its standard input
	out      *os.File // of its standard output
	stderr   group.Head
	cmd      *exec.Cmd
	life     context.Context // ends when the process is reaped
	reaped   context.CancelFunc
}

func newProcess() *process {
	p := &process{}
	p.life, p.reaped = context.WithCancel(context.Background())
	return p
}

// live starts the process, reports that on started, and returns when the process is reaped. On Linux a
// process ends with the thread that started it, so the thread waits.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait()
	}
	p.reaped()
}

func (p *process) start() error {
	path, err := group.Self()
	if err != nil {
		return err
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, childIn.Close(), in.Close())
	}
	p.cmd = &exec.Cmd{
		Path: path, Args: []string{"toolfinch", childArgument}, Env: environment(),
		Stdin: childIn, Stdout: childOut, Stderr: &p.stderr, WaitDelay: time.Second,
	}
	group.Own(p.cmd)
	group.EndWithThread(p.cmd, syscall.SIGKILL)
	err = p.cmd.Start()
	_, _ = childIn.Close(), childOut.Close()
	if err != nil {
		_, _ = in.Close(), out.Close()
		return err
	}
	p.in, p.out, p.messages = in, out, group.NewMessages(out, in)
	return nil
}

// environment is the whole environment of a script's process. A set number of processors spares the
// runtime a file.
func environment() []string {
	env := []string{childVariable + "=1", "GOMAXPROCS=2", "GOTRACEBACK=none"}
	if root := os.Getenv("SYSTEMROOT"); root != "" { // no program starts on Windows without it
		env = append(env, "SYSTEMROOT="+root)
	}
	return env
}

func (p *process) gone() bool { return p.life.Err() != nil }

// kill ends the process at once. It may be called again.
func (p *process) kill() {
	if !p.gone() { // otherwise its ID may belong to another process
		_ = group.Kill(p.cmd)
	}
}

// discard ends an unused process.
func (p *process) discard() {
	p.kill()
	_, _ = p.in.Close(), p.out.Close()
}

// end ends the process, waits until it has ended and says how.
func (p *process) end() (state string) {
	p.discard()
	<-p.life.Done()
	return p.cmd.ProcessState.String()
}

// limitReached returns the limit that ended the process; nil for another cause.
func (p *process) limitReached(limits Limits) error {
	state := p.cmd.ProcessState
	switch {
	case bytes.Contains(p.stderr.Bytes(), []byte("stack overflow")):
		return limitError("%d bytes of stack: nest less", maxStack)
	case state.ExitCode() > exitOrphan && state.ExitCode() != exitStarted:
		return limitError("%d bytes of memory: make smaller values, or fewer", limits.Memory)
	case state.UserTime()+state.SystemTime() >= cpuTime(limits):
		return limitError("%s of CPU time: do less", cpuTime(limits))
	}
	return nil
}

// cpuTime bounds the processor time: the garbage collector uses a second processor.
func cpuTime(limits Limits) time.Duration {
	return 2*limits.Time.Round(time.Second) + time.Second
}
