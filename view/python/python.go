// Package python runs the owner's hooks and custom tools in Python: one process of the owner's
// interpreter, started at the first use, serves concurrent calls. It knows neither MCP nor callers.
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
	Dir        string            // first folder of its modules, and its working directory
	Env        map[string]string // its environment on top of the minimal one
	InheritEnv []string          // globs of further variables from this environment
}

// DefaultCommand is the interpreter to look for in PATH.
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
	Path    string          // of a loaded target
	Name    string          // of the tool: a module may have several
	Context json.RawMessage // an object: facts about the call
	Args    json.RawMessage // an object
	Data    json.RawMessage // a tool's result, for PostCall
	Timeout time.Duration   // includes the start of Python
	Output  int             // bytes of the answer as JSON; default MaxAnswer
	// CallTool calls a tool for the function. It may be called concurrently. If nil, there are no
	// tools.
	CallTool func(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
}

// MaxAnswer bounds one line from Python, in bytes.
const MaxAnswer = 16 << 20

const (
	loadTime    = 10 * time.Second // of the import of one module, and of the start
	grace       = 2 * time.Second  // of a function that was cancelled
	maxCalls    = 1000             // at a time
	calm        = 10 * time.Second // a crash after this time does not count as repeated
	mostBackOff = 30 * time.Second
)

// Error is a failure of a function, or of Python itself.
type Error struct {
	Reason string // for everyone: without paths
	Detail string // for the owner: the place, a traceback; may be ""
	// Misanswered says that a hook returned no usable HookResult: it may have meant to refuse.
	Misanswered bool
}

// Error returns the whole error, for the log.
func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Reason
	}
	return e.Reason + " (" + e.Detail + ")"
}

func failed(format string, args ...any) *Error { return &Error{Reason: fmt.Sprintf(format, args...)} }

var errClosed = failed("Python was closed")

// target is a dotted path with its kind.
type target struct {
	kind Kind
	path string
}

// module is a loaded target, or the error of loading it.
type module struct {
	functions []Function
	err       error
}

// Host is Python, running or not. The first Load or Call starts it; after a crash the next call does,
// with growing delays.
type Host struct {
	settings Settings
	log      *slog.Logger

	mu      sync.Mutex // guards the fields below; never held over I/O
	running *process   // nil: not running
	modules map[target]module
	files   map[string]stamp
	active  int       // calls
	crashes int       // in quick succession
	again   time.Time // no start before
	last    *Error    // why it ended
	retired bool      // another Host has replaced it: it runs until its calls end
	closed  bool

	lives sync.WaitGroup // processes; more only while mu is held and closed is not set
}

// stamp changes with a file. The zero stamp is a missing file.
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

// New returns a Host that is not running. Functions print to log.
func New(settings Settings, log *slog.Logger) *Host {
	settings.Command = cmp.Or(settings.Command, DefaultCommand())
	return &Host{settings: settings, log: log, modules: map[target]module{}, files: map[string]stamp{}}
}

// Current returns h if the settings are equal, no file was edited and every target loaded. Otherwise it
// returns a new Host, and its user retires h.
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

// Files returns the absolute paths of the files that were imported from the folder, or are missing
// there, sorted.
func (h *Host) Files() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.files))
}

// Load imports a dotted path and returns its functions, for the kind Tool. Results and failures are
// remembered.
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
	if err != nil { // the file may appear
		file := filepath.Join(h.settings.Dir, filepath.FromSlash(strings.ReplaceAll(path, ".", "/")))
		got.Files = append(got.Files, file+".py", filepath.Dir(file)+".py")
	}
	for _, file := range got.Files {
		h.files[file] = stampOf(file)
	}
	h.modules[of] = module{got.Tools, err}
	return got.Tools, err
}

// Call calls a loaded function and returns its answer: for a hook an object with the given ones of
// abort, args and result, else any value. The error is an *Error, or the error of ctx.
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

// Retire ends the process after the calls in flight. A later call, of an older served value, starts it
// once more.
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

// process returns the process after it has loaded its targets again, and starts it if necessary.
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

// gone notes the end of the process that began at began, and when the next may start.
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
	if h.crashes++; h.crashes > 1 { // a single crash is an accident
		h.again = time.Now().Add(min(time.Second<<min(h.crashes-2, 10), mostBackOff))
	}
	h.log.Error("Python ended", "error", why, "crashes", h.crashes)
}
