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

// A script's process and its parent exchange messages (group.Messages). The parent begins with
// an order. The process then says lines of its log and asks for requests, each of which gets an
// answer, until it says what came of the script.

// order is what a script's process is to do.
type order struct {
	Limits Limits

	Source string `json:",omitempty"` // a script
	Info   Info
	Tools  bool // whether there is a Host

	Query string          `json:",omitempty"` // a jq expression, where there is Data
	Data  json.RawMessage `json:",omitempty"` // that it is over
}

// saying is what a script's process says. Without any of the first three it is the last one,
// with the result of the script, nil for None.
type saying struct {
	Log    *string         `json:",omitempty"`
	Ask    []*request      `json:",omitempty"`
	Error  *report         `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}

// answer is what came of requests.
type answer struct {
	Limit string    `json:",omitempty"` // that was reached: nothing else counts then
	Came  []outcome // for each request
}

// outcome is what came of one request: none of both is no value.
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
	Host    bool // by what the Host answered
}

// runChild runs the one script of this process.
func runChild() int {
	os.Clearenv()
	time.Local = time.UTC // it would be read from a file
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

// makeTimers makes what timers need: once the process is confined, no file may be opened for it.
func makeTimers() (stop func() bool) { return time.AfterFunc(time.Hour, func() {}).Stop }

// parent is the process that started this one.
type parent struct{ *group.Messages }

func (p *parent) say(what saying) {
	if p.Send(what) != nil {
		os.Exit(exitOrphan)
	}
}

// report says what came of the script, and returns the exit code of its process.
func (p *parent) report(result json.RawMessage, err error) int {
	last := saying{Result: result}
	if err != nil {
		last = saying{Error: reportOf(err)}
	}
	p.say(last)
	return exitDone
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
		program, err := compile(scriptName, []byte(source), scriptNames)
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

// childDoor is the door of a script's process: what it passes is done by the parent.
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

// reachedError is a limit that the parent found reached.
type reachedError struct{ text string }

func (e *reachedError) Error() string { return e.text }
func (e *reachedError) Unwrap() error { return ErrLimit }
