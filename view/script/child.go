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
	"time"

	"go.starlark.net/starlark"

	"toolfinch/internal/group"
)

// scriptName is the name of a model's script in errors.
const scriptName = "script"

// maxScript bounds the bytes of a model's script.
const maxScript = 256 << 10

// maxStack bounds the stack of a script's process in bytes.
const maxStack = 32 << 20

// A program that imports this package becomes a script's process when Sandbox starts it with this
// variable and this argument: before its main function, after the imports of this package are
// initialized.
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

// Exit codes of a script's process. Go's runtime without memory has other codes.
const (
	exitDone    = 0
	exitOrphan  = 1 // its parent is gone
	exitMemory  = 3 // the script holds more memory than it may
	exitStarted = 4 // it got no valid order
)

// A script's process and its parent exchange messages (group.Messages). The parent sends an order. The
// process then sends lines of its log and requests, gets an answer to each request, and at the end
// sends the script's result.

// order is the task of a script's process.
type order struct {
	Limits Limits

	Source string `json:",omitempty"` // a script
	Info   Info
	Tools  bool // a Host exists

	Query string          `json:",omitempty"` // a jq expression, with Data
	Data  json.RawMessage `json:",omitempty"` // the input of Query
}

// saying is a message of a script's process. Without the first three fields it is the last one, with
// the script's result, nil for None.
type saying struct {
	Log    *string         `json:",omitempty"`
	Ask    []*request      `json:",omitempty"`
	Error  *report         `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}

// answer has the outcomes of requests.
type answer struct {
	Limit string    `json:",omitempty"` // a reached limit; the other fields are then empty
	Came  []outcome // for each request
}

// outcome is the outcome of one request. Without both fields it is no value.
type outcome struct {
	Value json.RawMessage `json:",omitempty"`
	Error *string         `json:",omitempty"`
}

// report is how a script failed.
type report struct {
	Line    int
	Message string
	Abort   bool // by abort(reason)
	Limit   bool // by a limit
	Host    bool // by an error of the Host
}

// runChild runs the one script of this process.
func runChild() int {
	os.Clearenv()
	time.Local = time.UTC // Go would read it from a file
	debug.SetMaxStack(maxStack)
	runtime.GC()
	defer makeTimers()()

	parent := &parent{group.NewMessages(os.Stdin, os.Stdout)}
	var o order
	switch err := parent.Receive(&o, math.MaxInt32); {
	case errors.Is(err, group.ErrNoMessage):
		return exitStarted
	case err != nil:
		return exitOrphan
	}
	go watchMemory(o.Limits.Memory)
	answers := make(chan answer)
	go func() {
		for {
			var a answer
			if parent.Receive(&a, math.MaxInt32) != nil {
				os.Exit(exitOrphan)
			}
			answers <- a
		}
	}()
	confine(o.Limits)
	if o.Data != nil {
		timed, cancel := context.WithTimeout(context.Background(), o.Limits.Time)
		defer cancel()
		return parent.report(query(timed, o.Query, o.Data, o.Limits))
	}
	r := newRun(context.Background(), scriptName, &o.Info, o.Limits, func(line string) { parent.say(saying{Log: &line}) })
	defer r.end()
	r.script = true
	if o.Tools {
		r.door = &childDoor{parent, answers}
	}
	return parent.report(r.source(o.Source))
}

// makeTimers makes the runtime's timers: later the confined process can open no file for them.
func makeTimers() (stop func() bool) { return time.AfterFunc(time.Hour, func() {}).Stop }

// parent is the process that started this one.
type parent struct{ *group.Messages }

func (p *parent) say(what saying) {
	if p.Send(what) != nil {
		os.Exit(exitOrphan)
	}
}

// report sends the script's outcome, and returns the exit code of its process.
func (p *parent) report(result json.RawMessage, err error) int {
	last := saying{Result: result}
	if err != nil {
		last = saying{Error: reportOf(err)}
	}
	p.say(last)
	return exitDone
}

// watchMemory ends this process when a garbage collection leaves more than most bytes above the present
// use.
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

// source runs a whole script. The result is the value of main() or main(ctx) if it defines main, else
// its global named result, nil without one. The functions of ctx are globals as well. The error is an
// *AbortError or an *Error.
func (r *run) source(source string) (json.RawMessage, error) {
	var out json.RawMessage
	err := r.protect(func() error {
		program, err := compile(scriptName, []byte(source), scriptNames)
		if err == nil {
			err = r.alive() // compiling ignores the time limit
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

func reportOf(err error) *report {
	if abort := (*AbortError)(nil); errors.As(err, &abort) {
		return &report{Message: abort.Reason, Abort: true}
	}
	failed := &Error{Message: err.Error()}
	errors.As(err, &failed)
	return &report{
		Line: failed.Line, Message: failed.Message,
		Limit: errors.Is(err, ErrLimit), Host: errors.As(err, new(*hostError)),
	}
}

// childDoor is the door of a script's process: the parent makes its requests.
type childDoor struct {
	parent  *parent
	answers <-chan answer
}

func (d *childDoor) pass(_ context.Context, requests []*request) error {
	if len(requests) == 0 {
		return nil
	}
	d.parent.say(saying{Ask: requests})
	a := <-d.answers
	if a.Limit != "" {
		return &reachedError{a.Limit}
	}
	if len(a.Came) != len(requests) {
		return errProtocol
	}
	for i, came := range a.Came {
		requests[i].result = came.Value
		if came.Error != nil {
			requests[i].err = errors.New(*came.Error)
		}
	}
	return nil
}

// reachedError is a limit that the parent has reported.
type reachedError struct{ text string }

func (e *reachedError) Error() string { return e.text }
func (e *reachedError) Unwrap() error { return ErrLimit }
