package script

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"

	"go.starlark.net/starlark"
)

// scriptName is the name of a model's script in errors.
const scriptName = "script"

// maxScript bounds the bytes of a model's script.
const maxScript = 256 << 10

// maxStack bounds the stack of a script's process in bytes.
const maxStack = 32 << 20

// A program that imports this package becomes a script's process when it is started
// with this variable set and this argument: before its main function runs, after
// the packages that this one imports are initialized. Sandbox starts it so.
const (
	childVariable = "TOOLFINCH_SCRIPT_PROCESS"
	childArgument = "run-script"
)

func init() {
	if os.Getenv(childVariable) != "1" || len(os.Args) != 2 || os.Args[1] != childArgument {
		return
	}
	os.Exit(runChild())
}

// Exit codes of a script's process. Any other is that of Go's runtime, which without
// memory ends in several ways.
const (
	exitDone    = 0
	exitOrphan  = 1 // its parent is gone
	exitMemory  = 3 // the script holds more memory than it may
	exitStarted = 4 // it got no order that it understands
)

// order is what a script's process is told, beside the source.
type order struct {
	Info   Info
	Limits Limits
	Tools  bool // whether there is a Host
}

// report is how a script failed.
type report struct {
	Line    int
	Message string
	Abort   bool // by abort(reason)
	Limit   bool // by a limit
	Host    bool // by what the Host answered
}

// runChild runs the one script of this process.
func runChild() int {
	os.Clearenv()
	time.Local = time.UTC // it would be read from a file
	debug.SetMaxStack(maxStack)
	runtime.GC()
	defer makeTimers()()

	parent := newPipe(os.Stdin, os.Stdout)
	first, err := parent.receive(math.MaxInt32)
	if err != nil {
		return exitOrphan
	}
	var o order
	isQuery := first.kind == kindQuery && len(first.texts) == 3
	if !isQuery && (first.kind != kindStart || len(first.texts) != 2) || json.Unmarshal(first.texts[0], &o) != nil {
		return exitStarted
	}
	go watchMemory(o.Limits.Memory)
	answers := make(chan frame)
	go func() {
		for {
			answer, err := parent.receive(math.MaxInt32)
			if err != nil {
				os.Exit(exitOrphan)
			}
			answers <- answer
		}
	}()
	confine(o.Limits)
	if isQuery {
		timed, cancel := context.WithTimeout(context.Background(), o.Limits.Time)
		defer cancel()
		result, err := query(timed, string(first.texts[1]), first.texts[2], o.Limits)
		return parent.report(result, err)
	}
	r := newRun(context.Background(), scriptName, &o.Info, o.Limits, func(line string) {
		parent.mustSend(frame{kindLog, [][]byte{[]byte(line)}})
	})
	defer r.end()
	r.script = true
	if o.Tools {
		r.door = &childDoor{parent, answers}
	}
	result, err := r.source(string(first.texts[1]))
	return parent.report(result, err)
}

// makeTimers makes what timers need: once the process is confined, no file may be opened for it.
func makeTimers() (stop func() bool) { return time.AfterFunc(time.Hour, func() {}).Stop }

// report sends what came of the script, and returns the exit code of its process.
func (p *pipe) report(result json.RawMessage, err error) int {
	switch {
	case err != nil:
		p.mustSend(reportOf(err).frame())
	case result == nil:
		p.mustSend(frame{kind: kindResult})
	default:
		p.mustSend(frame{kindResult, [][]byte{result}})
	}
	return exitDone
}

func (p *pipe) mustSend(f frame) {
	if p.send(f) != nil {
		os.Exit(exitOrphan)
	}
}

// watchMemory ends this process when more than so many bytes beside those of now
// are in use after a garbage collection.
func watchMemory(most int64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/total:bytes"}}
	metrics.Read(live)
	held := func() int64 { return int64(live[0].Value.Uint64() + live[1].Value.Uint64()) }
	before := held()
	// Near its bound the garbage collector runs more often.
	debug.SetMemoryLimit(int64(live[2].Value.Uint64()) + most + most/2)
	for range time.Tick(5 * time.Millisecond) {
		if metrics.Read(live); held()-before > most {
			os.Exit(exitMemory)
		}
	}
}

// source runs a whole script: its result is what main() or main(ctx) returns if it
// defines main, else its global named result, nil without one. The functions of ctx
// are globals as well. The error is an *AbortError or an *Error.
func (r *run) source(source string) (json.RawMessage, error) {
	var out json.RawMessage
	err := r.protect(func() error {
		_, program, err := compile(scriptName, []byte(source), scriptNames)
		if err == nil {
			err = r.alive() // compiling looks at no time
		}
		if err != nil {
			return err
		}
		globals, err := program.Init(r.thread, scriptNames)
		if err != nil {
			return err
		}
		result := cmp.Or(globals["result"], starlark.Value(starlark.None))
		if main, ok := globals["main"].(*starlark.Function); ok {
			var args starlark.Tuple
			if main.NumParams() > 0 {
				args = starlark.Tuple{&callContext{r: r}}
			}
			if result, err = starlark.Call(r.thread, main, args, nil); err != nil {
				return err
			}
		}
		if out, err = r.output(result); err != nil {
			return fmt.Errorf("the result: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, r.failure(scriptName, err)
	}
	return out, nil
}

func reportOf(err error) report {
	if abort := (*AbortError)(nil); errors.As(err, &abort) {
		return report{Message: abort.Reason, Abort: true}
	}
	failed := &Error{Message: err.Error()}
	errors.As(err, &failed)
	return report{
		Line: failed.Line, Message: failed.Message,
		Limit: errors.Is(err, ErrLimit), Host: errors.As(err, new(*hostError)),
	}
}

func (r report) frame() frame {
	raw, err := json.Marshal(r)
	if err != nil { // a report has nothing that could fail
		panic(err)
	}
	return frame{kindError, [][]byte{raw}}
}

// childDoor is the door of a script's process: what it passes is done by the parent.
type childDoor struct {
	parent  *pipe
	answers <-chan frame
}

func (d *childDoor) pass(_ context.Context, requests []*request) error {
	ask := frame{kind: kindCalls}
	for _, one := range requests {
		if one.search {
			ask = frame{kindSearch, [][]byte{[]byte(one.query), strconv.AppendInt(nil, int64(one.limit), 10)}}
			break
		}
		ask.texts = append(ask.texts, []byte(one.tool), one.arguments)
	}
	d.parent.mustSend(ask)
	answer := <-d.answers
	if answer.kind != kindAnswer || len(answer.texts) != 1+2*len(requests) {
		return errFrame
	}
	if limit := string(answer.texts[0]); limit != "" {
		return &reachedError{limit}
	}
	for i, one := range requests {
		switch what := answer.texts[2+2*i]; string(answer.texts[1+2*i]) {
		case endedValue:
			one.result = what
		case endedError:
			one.err = errors.New(string(what))
		}
	}
	return nil
}

// reachedError is a limit that the parent found reached.
type reachedError struct{ text string }

func (e *reachedError) Error() string { return e.text }
func (e *reachedError) Unwrap() error { return ErrLimit }
