// Package python runs the owner's hooks and custom tools in Python: one process of the
// owner's interpreter, started when it is needed first, which serves calls side by
// side. It knows neither MCP nor who calls.
package python

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/leeway"
)

// Settings say which Python runs, and where.
type Settings struct {
	Command    string            // the interpreter; default DefaultCommand()
	Dir        string            // where modules are looked for first, and its working directory
	Env        map[string]string // its environment on top of the minimal one
	InheritEnv []string          // globs of further variables that it gets of this environment
}

// DefaultCommand is the interpreter that is looked for in PATH.
func DefaultCommand() string {
	if runtime.GOOS == "windows" {
		return "python"
	}
	return "python3"
}

// Kind says how a function is called.
type Kind string

// The kinds of functions.
const (
	PreCall  Kind = "pre_call"  // (context, args) -> HookResult
	PostCall Kind = "post_call" // (context, args, result) -> HookResult
	Tool     Kind = "tool"      // (**arguments) -> anything
)

// Function is a custom tool as its module declares it.
type Function struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Parameters  []Parameter `json:"parameters"`
}

// Parameter is a parameter of a Function.
type Parameter struct {
	Name     string          `json:"name"`
	Required bool            `json:"required"`
	Schema   json.RawMessage `json:"schema"`
}

// Request is one call of a function.
type Request struct {
	Kind    Kind
	Path    string          // of what was loaded
	Name    string          // of the tool: a module may have several
	Context json.RawMessage // an object: what the function may know of the call
	Args    json.RawMessage // an object
	Data    json.RawMessage // what a tool came to, for PostCall
	Timeout time.Duration   // starting Python counts
	Output  int             // bytes of the answer as JSON; default MaxAnswer
	// CallTool calls a tool for the function. It may be called concurrently. Nil: there
	// are none.
	CallTool func(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
}

// MaxAnswer bounds what Python sends in one line, in bytes.
const MaxAnswer = 16 << 20

const (
	loadTime    = 10 * time.Second // of the import of one module, and of the start
	grace       = 2 * time.Second  // of a function that was cancelled
	maxCalls    = 1000             // at a time
	calm        = 10 * time.Second // after it Python does not count as one that crashes at once
	mostBackOff = 30 * time.Second
)

// Error is a function that failed, or Python itself.
type Error struct {
	Reason string // for anybody: without paths
	Detail string // more of it for the owner: the place, a traceback; "" when there is none
	// Misanswered says that a hook returned what is no HookResult, or one that cannot be
	// used: it may have meant to refuse.
	Misanswered bool
}

// Error returns all of it, for the log.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Reason
	}
	return e.Reason + " (" + e.Detail + ")"
}

func failed(format string, args ...any) *Error { return &Error{Reason: fmt.Sprintf(format, args...)} }

var errClosed = failed("Python was closed")

// target is what a configuration names.
type target struct {
	kind Kind
	path string
}

// module is a target that was loaded, or why it could not be.
type module struct {
	functions []Function
	err       error
}

// Host is the process, whether it runs or not. It is started by the first Load or Call,
// and again after a crash by the first call then, with growing delays.
type Host struct {
	settings Settings
	log      *slog.Logger

	mu      sync.Mutex // guards what follows; never held over I/O
	running *process   // nil: none
	modules map[target]module
	files   map[string]stamp
	active  int       // calls
	crashes int       // one soon after the other
	again   time.Time // no start before it
	last    *Error    // why it ended
	retired bool      // another Host has taken its place: it runs while it has calls
	closed  bool

	lives sync.WaitGroup // processes; more only while mu is held and closed is not set
}

// stamp changes when a file does. The zero stamp is no file.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// New returns a Host that does not run yet. What functions print goes to log.
func New(settings Settings, log *slog.Logger) *Host {
	settings.Command = cmp.Or(settings.Command, DefaultCommand())
	return &Host{settings: settings, log: log, modules: map[target]module{}, files: map[string]stamp{}}
}

// Current returns h if it is what another configuration wants: the settings are the
// same, no file was edited and nothing failed to load. Else it returns a new Host; who
// takes it retires h.
func (h *Host) Current(settings Settings) *Host {
	next := New(settings, h.log)
	h.mu.Lock()
	defer h.mu.Unlock()
	same := reflect.DeepEqual(h.settings, next.settings)
	for _, one := range h.modules {
		same = same && one.err == nil
	}
	for file, was := range h.files {
		same = same && stampOf(file) == was
	}
	if same {
		return h
	}
	return next
}

// Files are the absolute paths of the files that were imported from the folder, and of
// those that are missing there, sorted.
func (h *Host) Files() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.files))
}

// Load imports what a dotted path names and returns its functions, if it is of kind
// Tool. What was loaded once, or failed to, is remembered.
func (h *Host) Load(kind Kind, path string) ([]Function, error) {
	of := target{kind, path}
	h.mu.Lock()
	known, ok := h.modules[of]
	h.mu.Unlock()
	if ok {
		return known.functions, known.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), leeway.Of(loadTime))
	defer cancel()
	var got reply
	p, err := h.process(ctx)
	if err == nil {
		got, err = p.load(ctx, of)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil { // where it may appear
		file := filepath.Join(h.settings.Dir, filepath.FromSlash(strings.ReplaceAll(path, ".", "/")))
		got.Files = append(got.Files, file+".py", filepath.Dir(file)+".py")
	}
	for _, file := range got.Files {
		h.files[file] = stampOf(file)
	}
	h.modules[of] = module{got.Tools, err}
	return got.Tools, err
}

// Call calls a function that was loaded and returns what it answers: of a hook an
// object with abort, args or result where the function gave them, else any value. The
// error is an *Error, or that of ctx.
func (h *Host) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	h.mu.Lock()
	one := h.modules[target{r.Kind, r.Path}]
	busy := h.active >= maxCalls
	h.active++
	h.mu.Unlock()
	defer h.done()
	switch {
	case one.err != nil:
		return nil, one.err
	case busy:
		return nil, failed("more than %d calls of Python at a time", maxCalls)
	}
	late := failed("no answer within %s", r.Timeout)
	timed, cancel := context.WithTimeoutCause(ctx, r.Timeout, late)
	defer cancel()
	p, err := h.process(timed)
	if err == nil {
		var got reply
		got, err = p.exchange(timed, r)
		if err == nil {
			return got.OK, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, err
}

// done ends the process of a retired Host with its last call.
func (h *Host) done() {
	h.mu.Lock()
	h.active--
	p := h.running
	idle := h.retired && h.active == 0
	h.mu.Unlock()
	if idle && p != nil {
		p.end(errClosed)
	}
}

// Retire ends the process once the calls in flight have ended. A call that comes later,
// from what was served before, starts it for this call.
func (h *Host) Retire() {
	h.mu.Lock()
	h.retired = true
	h.active++
	h.mu.Unlock()
	h.done()
}

// Close ends the process and the calls in flight, and waits until it has ended.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	p := h.running
	h.mu.Unlock()
	if p != nil {
		p.end(errClosed)
	}
	h.lives.Wait()
}

// process returns the process once it has loaded what it ran before, and starts it if
// there is none.
func (h *Host) process(ctx context.Context) (*process, error) {
	h.mu.Lock()
	p := h.running
	wait := time.Until(h.again)
	switch {
	case h.closed:
		h.mu.Unlock()
		return nil, errClosed
	case p == nil && wait > 0:
		err := *h.last
		h.mu.Unlock()
		err.Reason += fmt.Sprintf("; it is started again in %s", wait.Truncate(time.Second)+time.Second)
		return nil, &err
	case p == nil:
		p = newProcess(h)
		h.running = p
		targets := slices.Collect(maps.Keys(h.modules))
		h.lives.Go(func() { p.live(targets) })
	}
	h.mu.Unlock()
	select {
	case <-p.ready:
		return p, nil
	case <-p.life.Done():
		return nil, context.Cause(p.life)
	case <-ctx.Done():
		return nil, &Error{Reason: "Python is still starting", Detail: "modules are imported then"}
	}
}

// gone notes that the process, which began then, has ended, and when another may start.
func (h *Host) gone(began time.Time, why *Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running, h.last = nil, why
	if why == errClosed || began.IsZero() {
		return
	}
	if time.Since(began) > leeway.Of(calm) {
		h.crashes = 0
	}
	if h.crashes++; h.crashes > 1 { // the first time it is an accident
		h.again = time.Now().Add(min(time.Second<<min(h.crashes-2, 10), mostBackOff))
	}
	h.log.Error("Python ended", "error", why, "crashes", h.crashes)
}
