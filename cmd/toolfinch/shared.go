package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"toolfinch/configs"
	"toolfinch/internal/leeway"
	"toolfinch/internal/printable"
	"toolfinch/internal/relay"
	"toolfinch/store/vault"
)

// maxStarting is how many starts of other agents an agent waits for, at most.
const maxStarting = 3

// startsWithin bounds some starts of a toolfinch in the background, one after the other.
func startsWithin(n int) time.Duration { return time.Duration(n) * time.Minute }

// joining finds or starts the toolfinch that an agent shares with the user's other agents.
type joining struct {
	read     func() (*configs.Config, error)
	view     string
	vaultKey string
	flags    []string // of the command line, for a toolfinch that is started
	log      *slog.Logger
}

// relay serves an agent through the toolfinch of its user, until the agent leaves.
func (j joining) relay(ctx context.Context, std streams) error {
	keepPrivate()
	outlivePipes()
	conn, err := j.join(ctx)
	if err != nil {
		return err
	}
	collectGarbage(25) // a relay lives long and makes little garbage
	giveBack()         // nor does it need what its start needed
	defer time.AfterFunc(settled, giveBack).Stop()
	return relay.Run(ctx, conn, relay.Options{
		In: std.in, Out: std.out, Log: j.log, Gone: func(ctx context.Context) { hungUp(ctx, std.out) },
		Connect: func(ctx context.Context) (net.Conn, error) {
			defer giveBack()
			return j.join(ctx)
		},
	})
}

// settled is when a relay has passed on what its agent asks at its start, and gives back what that needed.
const settled = 3 * time.Second

// join returns a connection to the toolfinch, which it starts if none runs.
func (j joining) join(ctx context.Context) (net.Conn, error) {
	config, err := j.read()
	if err != nil {
		return nil, err
	}
	dir, err := makeSocketDir(config.DataDir)
	if err != nil {
		return nil, fmt.Errorf("there is no place for the socket of a shared toolfinch: %w; toolfinch serve --alone needs none", err)
	}
	conn, _, err := j.attach(ctx, config)
	if conn != nil || err != nil {
		return conn, err
	}
	lock := flock.New(filepath.Join(dir, "start.lock"), flock.SetPermissions(0o600))
	waiting, cancel := context.WithTimeout(ctx, leeway.Of(startsWithin(maxStarting)))
	defer cancel()
	if _, err := lock.TryLockContext(waiting, 20*time.Millisecond); err != nil {
		return nil, fmt.Errorf("other agents have been starting toolfinch for %s: %w", startsWithin(maxStarting), err)
	}
	defer lock.Unlock()
	var others []string
	for range 2 { // an edit or an upgrade may come between the reading here and there
		if config, err = j.read(); err != nil {
			return nil, err
		}
		if conn, others, err = j.attach(ctx, config); conn != nil || err != nil { // another agent may have started it
			return conn, err
		}
		if err := j.start(ctx, config, others); err != nil {
			return nil, err
		}
		if conn, others, err = j.attach(ctx, config); conn != nil || err != nil {
			return conn, err
		}
	}
	return nil, fmt.Errorf("toolfinch was started in the background, but does not let this agent in: %s; toolfinch serve --alone needs no other process", strings.Join(others, "; "))
}

// attach asks each running toolfinch of the configuration to let the agent in. It returns nil if none does, with the
// reasons.
func (j joining) attach(ctx context.Context, config *configs.Config) (conn net.Conn, reasons []string, err error) {
	same := samenessOf(config, j.vaultKey)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	a := attachment{Configuration: config.Path, Key: key, Parts: same.digests(key), View: j.view}
	for _, socket := range sockets(config.DataDir) {
		conn, why, err := attachTo(ctx, socket, a)
		switch {
		case err == nil:
			return conn, nil, nil
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case !errors.Is(err, errRefused): // it has ended, or is of an older version
		case why.NoView:
			return nil, nil, &exitError{exitUsage, fmt.Errorf("--view: %s", why.Reason)}
		case len(why.Differs) > 0:
			reasons = append(reasons, fmt.Sprintf("process %d differs in %s", why.PID, strings.Join(why.Differs, ", ")))
		}
	}
	return nil, reasons, nil
}

// start starts a toolfinch in the background, and returns when it lets agents in.
func (j joining) start(ctx context.Context, config *configs.Config, others []string) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(startsWithin(1)))
	defer cancel()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{"serve", "--background", "--transport", configs.TransportStdio, "--config", config.Path, "--data-dir", config.DataDir}, j.flags...)
	if config.Found {
		args = append(args, "--found")
	}
	for _, other := range others {
		args = append(args, "--beside", other)
	}
	cmd := exec.Command(program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Env = filepath.Dir(config.Path), os.Environ()
	if j.vaultKey != "" {
		cmd.Env = append(cmd.Env, vault.EnvKey+"="+j.vaultKey)
	}
	inBackground(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var said limited
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("toolfinch cannot be started in the background: %w", err)
	}
	ready := make(chan bool, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- line == readyLine
	}()
	select {
	case is := <-ready:
		if is {
			go func() { _ = cmd.Wait() }() // reaps it, should it end before this process
			j.log.Info("toolfinch was started in the background", "pid", cmd.Process.Pid, "log", logFile(config.DataDir))
			return nil
		}
		err = cmd.Wait()
		return fmt.Errorf("toolfinch, started in the background, has ended: %s", printable.Line(strings.TrimSpace(said.String()+" ("+err.Error()+")")))
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("toolfinch, started in the background, was not ready within %s; its log is %s", startsWithin(1), logFile(config.DataDir))
	}
}

// readyLine is what a toolfinch in the background prints when it lets agents in.
const readyLine = "ready\n"

// shares reports whether an agent that starts this process gets a shared toolfinch. A person at a terminal does not.
func shares(cmd *cobra.Command, config *configs.Config, alone bool) bool {
	return config.Shared && !alone && config.Transport == configs.TransportStdio && !onTerminal(cmd.InOrStdin())
}

// limited keeps the beginning of what is written.
type limited struct{ text []byte }

const maxSaid = 4 << 10 // bytes

// Write never fails.
func (l *limited) Write(p []byte) (int, error) {
	l.text = append(l.text, p[:min(len(p), maxSaid-len(l.text))]...)
	return len(p), nil
}

func (l *limited) String() string { return string(l.text) }

var _ io.Writer = (*limited)(nil)
