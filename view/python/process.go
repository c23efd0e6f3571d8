package python

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/group"
	"toolfinch/internal/leeway"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

//go:embed host.py
var hostSource string

// process is a running Python.
type process struct {
	host   *Host
	life   context.Context // ends, with the reason, when calls can no longer be answered
	fail   context.CancelCauseFunc
	left   sync.Once
	ready  chan struct{} // closed after the targets of its predecessor are loaded
	orders chan order    // to be written
	stderr *group.Stderr

	mu     sync.Mutex // guards the fields below; never held over I/O
	began  time.Time  // zero: it could not be started
	cmd    *exec.Cmd  // nil: not started, or reaped
	number int64
	calls  map[int64]*pending
}

// pending is a call that waits for an answer.
type pending struct {
	ctx    context.Context
	answer chan reply // has room for it
	tool   func(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
}

// order is a message to Python. Foreign values are texts, so that a value that Python cannot read fails
// only its call.
type order struct {
	Do      string          `json:"do"` // load, call, cancel, answer
	ID      int64           `json:"id"`
	Kind    Kind            `json:"kind,omitempty"`
	Path    string          `json:"path,omitempty"`
	Name    string          `json:"name,omitempty"`
	Context json.RawMessage `json:"context,omitempty"`
	Args    json.RawMessage `json:"args,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	Most    int             `json:"most,omitempty"`
	OK      json.RawMessage `json:"ok,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// reply is a message from Python: an answer, or a tool to call for the call Call.
type reply struct {
	ID        int64           `json:"id"`
	OK        json.RawMessage `json:"ok"`
	Tools     []Function      `json:"tools"`
	Files     []string        `json:"files"`
	Error     *failure        `json:"error"`
	Call      int64           `json:"call"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
}

type failure struct {
	Text, Where, Trace string
	Misanswered        bool
}

func newProcess(h *Host) *process {
	p := &process{
		host: h, calls: map[int64]*pending{}, stderr: group.NewStderr(h.log.With("of", "python")),
		ready: make(chan struct{}), orders: make(chan order, 64),
	}
	p.life, p.fail = context.WithCancelCause(context.Background())
	return p
}

// boot reads the host's source from standard input, before the messages: a command line is bounded and
// public.
const boot = `import os
n, text = %d, b""
while len(text) < n: text += os.read(0, n - len(text))
exec(compile(text, "<toolfinch>", "exec"))`

// live runs the process from its start to its end.
func (p *process) live(targets []target) {
	s := p.host.settings
	// -B: the bytecode of an edit within the same second would be stale.
	cmd := exec.Command(s.Command, "-B", "-X", "utf8", "-c", fmt.Sprintf(boot, len(hostSource)))
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.Dir, group.Environment(s.Env, s.InheritEnv), leeway.Of(grace)
	cmd.Env = append(cmd.Env, "PYTHONSAFEPATH=1") // Python 3.13 imports from the folder before it runs anything
	group.Own(cmd)
	words, stderr := io.Pipe()
	cmd.Stderr = stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	err := cmp.Or(inErr, outErr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.leave(startError(s.Command, err))
		return
	}
	p.mu.Lock()
	p.cmd, p.began = cmd, time.Now()
	p.mu.Unlock()
	if p.life.Err() != nil { // ended before it began
		_ = group.Kill(cmd)
	}
	var workers sync.WaitGroup
	workers.Go(func() { p.stderr.Follow(words) })
	messages := group.NewMessages(out, in)
	workers.Go(func() { p.read(messages, &workers) })
	workers.Go(func() { p.write(in, messages) })
	workers.Go(func() { p.prepare(targets) })
	_ = cmd.Wait()
	p.mu.Lock()
	p.cmd = nil
	p.mu.Unlock()
	_ = group.Kill(cmd) // its children end with it
	_ = stderr.Close()
	<-p.stderr.Done()
	p.leave(&Error{Reason: "Python ended (" + cmd.ProcessState.String() + ")", Detail: printable.Line(p.stderr.Words())})
	workers.Wait()
}

func startError(command string, err error) *Error {
	command = filepath.Base(command)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &Error{Reason: command + " is not there", Detail: "install Python 3.9 or later, or name an interpreter under the key python"}
	}
	return &Error{Reason: command + " cannot be started", Detail: err.Error()}
}

// prepare loads the targets of an earlier process, before calls need them.
func (p *process) prepare(targets []target) {
	for _, one := range targets {
		ctx, cancel := context.WithTimeout(p.life, leeway.Of(loadTime))
		_, _ = p.load(ctx, one) // the next call reports the error
		cancel()
	}
	close(p.ready)
}

// leave notes once why calls can no longer be answered. The next call then starts another process.
func (p *process) leave(why *Error) {
	p.left.Do(func() {
		p.mu.Lock()
		began := p.began
		p.mu.Unlock()
		p.host.gone(began, why)
		p.fail(why)
	})
}

// end ends the process at once, for a reason.
func (p *process) end(why *Error) {
	p.leave(why)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil { // after the reaping its ID may belong to another process
		_ = group.Kill(p.cmd)
	}
}

func (p *process) load(ctx context.Context, of target) (reply, error) {
	return p.await(ctx, order{Do: "load", Kind: of.kind, Path: of.path}, nil)
}

func (p *process) exchange(ctx context.Context, r Request) (reply, error) {
	o := order{Do: "call", Kind: r.Kind, Path: r.Path, Name: r.Name, Context: inText(r.Context), Args: inText(r.Args), Most: MaxAnswer - 1000}
	if r.Output > 0 {
		o.Most = min(o.Most, r.Output)
	}
	if r.Kind == PostCall {
		o.Data = inText(r.Data)
	}
	return p.await(ctx, o, r.CallTool)
}

// inText is JSON as a text.
func inText(value json.RawMessage) json.RawMessage { return rawjson.Quote(string(value)) }

// await sends an order and returns its answer. A call that does not answer in time, nor after its
// cancellation, blocks all calls: Python is ended.
func (p *process) await(ctx context.Context, o order, tool func(context.Context, string, json.RawMessage) (json.RawMessage, error)) (reply, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the tools that the function calls
	defer cancel()
	c := &pending{ctx: ctx, answer: make(chan reply, 1), tool: tool}
	p.mu.Lock()
	p.number++
	o.ID = p.number
	p.calls[o.ID] = c
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.calls, o.ID)
		p.mu.Unlock()
	}()
	sent := p.send(ctx, o)
	select {
	case got := <-c.answer:
		return got, got.err()
	case <-p.life.Done():
		return reply{}, context.Cause(p.life)
	case <-ctx.Done():
	}
	why := context.Cause(ctx)
	if errors.Is(ctx.Err(), context.Canceled) { // the client has gone; the deadline of another call finds a blocked Python
		select {
		case p.orders <- order{Do: "cancel", ID: o.ID}:
		default:
		}
		return reply{}, why
	}
	if errors.Is(why, context.DeadlineExceeded) {
		why = failed("no answer within %s", leeway.Of(loadTime))
	}
	if sent { // else Python knows no such call, and would answer no cancellation
		p.cancel(c, o)
	}
	return reply{}, why
}

// cancel cancels a call past its time, and ends Python if the call goes on.
func (p *process) cancel(c *pending, o order) {
	ctx, stop := context.WithTimeout(context.Background(), leeway.Of(grace))
	defer stop()
	p.send(ctx, order{Do: "cancel", ID: o.ID})
	select {
	case <-c.answer:
	case <-p.life.Done():
	case <-ctx.Done():
		what := o.Path
		if o.Do == "load" {
			what = "the import of " + what
		}
		p.end(&Error{
			Reason: "Python was ended because a function blocked it",
			Detail: what + " did not end when its time was over; an async function must not loop, sleep or wait without await: write def, not async def",
		})
	}
}

// send hands an order to the writer, and reports whether the writer took it.
func (p *process) send(ctx context.Context, o order) bool {
	select {
	case p.orders <- o:
		return true
	case <-p.life.Done():
	case <-ctx.Done():
	}
	return false
}

// write writes the host's source, and then orders, until the end.
func (p *process) write(in io.WriteCloser, messages *group.Messages) {
	defer in.Close()
	_, err := io.WriteString(in, hostSource)
	for err == nil {
		select {
		case o := <-p.orders:
			err = messages.Send(o) // the process has ended and reports why
		case <-p.life.Done():
			return
		}
	}
}

// read handles replies until the end.
func (p *process) read(messages *group.Messages, workers *sync.WaitGroup) {
	for {
		var got reply
		switch err := messages.Receive(&got, MaxAnswer); {
		case errors.Is(err, group.ErrNoMessage):
			p.end(&Error{Reason: "Python was ended because it sent an invalid message", Detail: err.Error()})
			return
		case errors.Is(err, group.ErrLong):
			p.end(failed("Python was ended because it sent more than %d MB in one line", MaxAnswer>>20))
			return
		case err != nil:
			return // Python ends
		}
		p.mu.Lock()
		c := p.calls[cmp.Or(got.Call, got.ID)]
		p.mu.Unlock()
		switch {
		case c == nil: // the call was given up
		case got.Call != 0:
			workers.Go(func() { p.callTool(c, got) })
		default:
			select {
			case c.answer <- got:
			default: // already answered
			}
		}
	}
}

// callTool calls a tool for a function.
func (p *process) callTool(c *pending, asked reply) {
	answer := order{Do: "answer", ID: asked.ID}
	value, err := json.RawMessage(nil), error(failed("tools cannot be called here"))
	if c.tool != nil {
		value, err = c.tool(c.ctx, asked.Tool, asked.Arguments)
	}
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.OK = inText(value)
	}
	p.send(p.life, answer)
}

// err is the error that Python reports.
func (r reply) err() error {
	if r.Error == nil {
		return nil
	}
	detail := strings.TrimSpace(r.Error.Where + "\n" + r.Error.Trace)
	return &Error{Reason: printable.Lines(r.Error.Text), Detail: printable.Lines(detail), Misanswered: r.Error.Misanswered}
}
