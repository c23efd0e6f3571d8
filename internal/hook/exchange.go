package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"toolfinch/internal/group"
)

// Program is a program of the configuration that answers one JSON object with
// another. No shell is involved.
type Program struct {
	Argv    []string      // the program and its arguments; a program with a / in it is relative to Dir
	Dir     string        // working directory; "" for the proxy's
	Timeout time.Duration // of the run, then the whole group is killed; 0 means 5s
}

// Check returns the reason that the program cannot start, without starting it.
func (p Program) Check() error {
	if len(p.Argv) == 0 {
		return errors.New("no program is named")
	}
	program := p.Argv[0]
	if filepath.Base(program) != program && !filepath.IsAbs(program) {
		program = filepath.Join(p.Dir, program)
	}
	_, err := exec.LookPath(program)
	return err
}

// MaxAnswer bounds a Program's answer, in bytes.
const MaxAnswer = 16 << 20

// Error is a Program's failure to answer.
type Error struct {
	Reason string // for everyone: without paths and output
	Err    error  // for the owner; may be nil
	Stderr string // the beginning of its standard error
}

// Error returns the whole error, for the log.
func (e *Error) Error() string {
	text := e.Reason
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Stderr != "" {
		text += fmt.Sprintf(" (stderr: %q)", e.Stderr)
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// Exchange starts the program with env on top of the proxy's environment, writes request to its
// standard input, and returns the JSON object that it printed. A program with an exit status other than
// 0 has failed, whatever it printed. The error is an *Error; it wraps ctx's error if ctx ended the
// program.
func (p Program) Exchange(ctx context.Context, env []string, request []byte) (answer []byte, err error) {
	if len(p.Argv) == 0 {
		return nil, &Error{Reason: "no program is named"}
	}
	stdout := bounded{most: MaxAnswer}
	var stderr group.Head
	err = runGroup(ctx, p.Timeout, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, p.Argv[0], p.Argv[1:]...)
		cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), env...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &stdout, &stderr
		return cmd
	})
	fail := func(reason string, err error) ([]byte, error) {
		return nil, &Error{Reason: reason, Err: err, Stderr: string(bytes.TrimSpace(stderr.Bytes()))}
	}
	var exit *exec.ExitError
	switch {
	case stdout.over:
		return fail(fmt.Sprintf("it answered more than %d MB", MaxAnswer>>20), nil)
	case errors.As(err, &exit):
		return fail("it ended with "+exit.Error(), nil)
	case ctx.Err() != nil:
		return fail("the call was given up", ctx.Err())
	case errors.As(err, new(timeoutError)):
		return fail("it was "+err.Error(), nil)
	case err != nil:
		return fail("it could not be run", err)
	}
	answer = bytes.TrimSpace(stdout.b.Bytes())
	switch {
	case len(answer) == 0:
		return fail("it printed nothing; a JSON object is expected on standard output, {} for no change", nil)
	case answer[0] != '{' || !json.Valid(answer):
		return fail("what it printed is not one JSON object", fmt.Errorf("it printed %q", answer[:min(len(answer), 200)]))
	}
	return answer, nil
}

// bounded keeps up to most bytes, and then refuses writes, which closes the pipe.
type bounded struct {
	b    bytes.Buffer
	most int
	over bool
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > w.most {
		w.over = true
		return 0, errors.New("too much output")
	}
	return w.b.Write(p)
}
