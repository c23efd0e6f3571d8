package script

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Defaults of Limits.
const (
	DefaultSteps  = 1_000_000
	DefaultMemory = 64 << 20
	DefaultTime   = 5 * time.Second
	DefaultOutput = 1 << 20
)

// maxSource bounds the bytes of one file, and maxScript those of a whole script.
const (
	maxSource = 1 << 20
	maxScript = 256 << 10
)

// Bounds of what a run may log.
const (
	maxLine   = 2 << 10
	maxLines  = 1000
	maxLogged = 256 << 10
)

// maxFiles bounds the files of a program.
const maxFiles = 100

// Program is a module that was loaded. It is safe for concurrent use.
type Program struct {
	name    string // base name
	files   []string
	globals starlark.StringDict // frozen
	count   counter
	now     func() time.Time
}

// Function is a function of a module. It is safe for concurrent use.
type Function struct {
	Name   string
	Doc    string    // its docstring without indentation
	Params []Param   // those after the first, ctx
	Tool   *Declared // nil unless it was declared with tool(...)

	program *Program
	fn      *starlark.Function
}

// Load compiles the Starlark module at path, and those it loads, and runs their
// top levels within the default limits. read reads a file, nil for os.ReadFile;
// log takes what is printed, nil for nobody. load("other.star", "name") is
// relative to the file it stands in and stays within the folder of path. The error
// is an *Error.
func Load(path string, read func(path string) ([]byte, error), log func(string)) (*Program, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{File: filepath.Base(path), Message: "no such path", Err: err}
	}
	p := &Program{name: filepath.Base(file), now: time.Now}
	r := newRun(context.Background(), p.name, nil, nil, Limits{}, log)
	defer r.end()
	r.count, r.now = &p.count, func() time.Time { return p.now() }
	l := &loader{program: p, file: file, read: read, modules: map[string]*moduleFile{}}
	r.thread.Load = l.load
	err = r.protect(func() (err error) {
		if p.globals, err = l.module(r.thread, p.name); err != nil {
			return err
		}
		return r.freeze(l)
	})
	if err != nil {
		return nil, r.failure(p.name, err)
	}
	return p, nil
}

// loader loads the modules of one program.
type loader struct {
	program *Program
	file    string // of the program, absolute
	read    func(path string) ([]byte, error)
	modules map[string]*moduleFile // by slash-separated path from the folder of file
	stack   []string               // of modules that are being loaded
}

// moduleFile is a module that was loaded, or is being: then globals is nil.
type moduleFile struct{ globals starlark.StringDict }

// load is what a load statement does.
func (l *loader) load(thread *starlark.Thread, name string) (starlark.StringDict, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) || strings.Contains(name, `\`) || slices.Contains(strings.Split(name, "/"), "..") {
		return nil, fmt.Errorf("%q does not stay within the module's folder: name a file beside it or below", name)
	}
	return l.module(thread, path.Join(path.Dir(l.stack[len(l.stack)-1]), name))
}

// module loads the module at a path relative to the folder.
func (l *loader) module(thread *starlark.Thread, name string) (starlark.StringDict, error) {
	if known := l.modules[name]; known != nil {
		if known.globals == nil {
			return nil, errors.New("the modules load each other in a circle")
		}
		return known.globals, nil
	}
	if len(l.modules) >= maxFiles {
		return nil, limitError("%d files of a program", maxFiles)
	}
	made := &moduleFile{}
	l.modules[name] = made
	l.stack = append(l.stack, name)
	defer func() { l.stack = l.stack[:len(l.stack)-1] }()

	source, err := l.source(name)
	if err != nil {
		return nil, &Error{File: path.Base(name), Message: "cannot be read: " + withoutPath(err), Err: err}
	}
	program, err := compile(path.Base(name), source, moduleNames)
	if err != nil {
		return nil, err
	}
	globals, err := program.Init(thread, moduleNames)
	if err != nil {
		return nil, err
	}
	made.globals = globals
	return globals, nil
}

// source reads a file. What a module loads is read through the folder, which no
// link leads out of.
func (l *loader) source(name string) ([]byte, error) {
	folder := filepath.Dir(l.file)
	file := filepath.Join(folder, filepath.FromSlash(name))
	l.program.files = append(l.program.files, file)
	switch {
	case l.read != nil:
		return l.read(file)
	case file == l.file:
		return os.ReadFile(file)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(filepath.FromSlash(name))
}

// withoutPath is an error's text without the path that those of package os have.
func withoutPath(err error) string {
	if inner := (*os.PathError)(nil); errors.As(err, &inner) {
		return inner.Err.Error()
	}
	return err.Error()
}

// freeze makes what all modules define read-only, so that calls may share it.
func (r *run) freeze(l *loader) error {
	for _, name := range sortedKeys(l.modules) {
		globals := l.modules[name].globals
		for _, global := range globals.Keys() {
			// Freezing walks tuples and closures as trees.
			if err := r.weigh(globals[global], 1); err != nil {
				return &Error{File: path.Base(name), Message: fmt.Sprintf("%s: %v", global, err), Err: err}
			}
		}
		globals.Freeze()
	}
	return nil
}

// Files are the absolute paths of all files that the program was made of, the
// module's own first.
func (p *Program) Files() []string { return slices.Clone(p.files) }

// Function returns a function, or what was made of one with tool(...), by the
// name of its global. The error is an *Error that says what is there.
func (p *Program) Function(name string) (*Function, error) {
	bad := func(format string, args ...any) error {
		return &Error{File: p.name, Message: fmt.Sprintf(format, args...)}
	}
	f := &Function{Name: name, program: p}
	switch v := p.globals[name].(type) {
	case nil:
		var names []string
		for other, v := range p.globals {
			switch v.(type) {
			case *starlark.Function, *declaration:
				names = append(names, other)
			}
		}
		slices.Sort(names)
		return nil, bad("it has no function %s%s", name, didYouMean(name, names))
	case *starlark.Function:
		f.fn = v
	case *declaration:
		f.fn, f.Tool = v.fn, v.declared
	default:
		return nil, bad("%s is no function but %s", name, v.Type())
	}
	if f.fn.NumParams() == 0 {
		return nil, bad("function %s takes no parameters: the first must be ctx", name)
	}
	f.Doc, f.Params = dedent(f.fn.Doc()), paramsOf(f.fn)
	return f, nil
}

// Call calls the function with ctx and then args, each a JSON value, nil for
// None. It returns what the function returned as JSON, nil for None. The error is
// an *AbortError or an *Error. info, host and log may be nil.
func (f *Function) Call(ctx context.Context, info *Info, host Host, limits Limits, log func(string), args ...json.RawMessage) (json.RawMessage, error) {
	return f.call(ctx, info, host, limits, log, func(r *run) (starlark.Tuple, []starlark.Tuple, error) {
		values := make(starlark.Tuple, len(args))
		for i, arg := range args {
			var err error
			if values[i], err = r.decodeRaw(arg); err != nil {
				return nil, nil, fmt.Errorf("argument %d: %w", i+1, err)
			}
		}
		return values, nil, nil
	})
}

// CallNamed is Call with the members of a JSON object as named arguments.
func (f *Function) CallNamed(ctx context.Context, info *Info, host Host, limits Limits, log func(string), kwargs json.RawMessage) (json.RawMessage, error) {
	return f.call(ctx, info, host, limits, log, func(r *run) (starlark.Tuple, []starlark.Tuple, error) {
		if kwargs == nil {
			return nil, nil, nil
		}
		dict, err := r.decodeObject(kwargs)
		if err != nil {
			return nil, nil, fmt.Errorf("arguments: %w", err)
		}
		return nil, dict.Items(), r.allocN(dict.Len(), sizePair)
	})
}

func (f *Function) call(ctx context.Context, info *Info, host Host, limits Limits, log func(string), arguments func(*run) (starlark.Tuple, []starlark.Tuple, error)) (json.RawMessage, error) {
	r := newRun(ctx, f.program.name, info, host, limits, log)
	defer r.end()
	r.count, r.now = &f.program.count, f.program.now
	var out json.RawMessage
	err := r.protect(func() error {
		args, kwargs, err := arguments(r)
		if err != nil {
			return err
		}
		result, err := starlark.Call(r.thread, f.fn, append(starlark.Tuple{&callContext{r: r}}, args...), kwargs)
		if err != nil {
			return err
		}
		if out, err = r.output(result); err != nil {
			return fmt.Errorf("the result of %s: %w", f.Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, r.failure(f.program.name, err)
	}
	return out, nil
}

// scriptName is the name of a whole script in errors.
const scriptName = "script"

// Run runs a whole script: its result is what main() or main(ctx) returns if it
// defines main, else its global named result, nil without one. The functions of
// ctx are globals as well. The error is an *AbortError or an *Error, whose File is
// "script".
func Run(ctx context.Context, source string, info *Info, host Host, limits Limits, log func(string)) (json.RawMessage, error) {
	r := newRun(ctx, scriptName, info, host, limits, log)
	defer r.end()
	var out json.RawMessage
	err := r.protect(func() error {
		if len(source) > maxScript {
			return limitError("%d bytes of source", maxScript)
		}
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

// moduleNames and scriptNames are what the two kinds of source have predeclared.
var (
	moduleNames = with(starlark.StringDict{"tool": toolFunction, "counter": counterFunction})
	scriptNames = with(func() starlark.StringDict {
		all := starlark.StringDict{}
		for name, function := range hostFunctions {
			all[name] = function
		}
		return all
	}())
)

// compile compiles one file.
func compile(name string, source []byte, names starlark.StringDict) (*starlark.Program, error) {
	if len(source) > maxSource {
		return nil, &Error{File: name, Message: fmt.Sprintf("limit reached: %d bytes of source", maxSource), Err: ErrLimit}
	}
	options := &syntax.FileOptions{Set: true, TopLevelControl: true, GlobalReassign: true}
	file, err := options.Parse(name, source, 0)
	if err == nil {
		err = rewrite(file)
	}
	var program *starlark.Program
	if err == nil {
		// Of a name that nothing defines the interpreter says which is most like it,
		// for each such name. So all names are there until one is looked for.
		defined := func(name string) bool { return names.Has(name) || !starlark.Universe.Has(name) }
		if program, err = starlark.FileProgram(file, defined); err == nil {
			err = undefined(file, names)
		}
	}
	if err == nil {
		return program, nil
	}
	at, message := syntax.Position{}, err.Error()
	var wrong syntax.Error
	var unresolved resolve.ErrorList
	switch {
	case errors.As(err, &wrong):
		at, message = wrong.Pos, wrong.Msg
	case errors.As(err, &unresolved) && len(unresolved) > 0:
		at, message = unresolved[0].Pos, unresolved[0].Msg
	}
	return nil, &Error{File: name, Line: int(at.Line), Message: shorten(message) + pythonHint(source, int(at.Line)), Err: err}
}

// undefined is an error at the first name of a resolved file that nothing defines.
func undefined(file *syntax.File, names starlark.StringDict) (err error) {
	syntax.Walk(file, func(node syntax.Node) bool {
		id, ok := node.(*syntax.Ident)
		if !ok || err != nil {
			return err == nil
		}
		if binding, ok := id.Binding.(*resolve.Binding); ok && binding.Scope == resolve.Predeclared && !names.Has(id.Name) {
			known := slices.Concat(sortedKeys(names), sortedKeys(starlark.Universe))
			for _, global := range file.Module.(*resolve.Module).Globals {
				known = append(known, global.First.Name)
			}
			known = slices.DeleteFunc(known, func(name string) bool { return name[0] == '$' })
			err = syntax.Error{Pos: id.NamePos, Msg: "undefined: " + id.Name + didYouMean(id.Name, known)}
		}
		return true
	})
	return err
}

// python is what people, and more so models, take for Starlark.
var python = []struct{ begins, hint string }{
	{"import ", "there is no import: json, re, time, hash and math are there already"},
	{"from ", "there is no import: json, re, time, hash and math are there already"},
	{"try:", "there is no try: an error ends the script"},
	{"except", "there is no except: an error ends the script"},
	{"raise ", "there is no raise: use fail(text) or abort(reason)"},
	{"while ", "there is no while: use for ... in range(n) and break"},
	{"class ", "there is no class: use a dict or struct(...)"},
	{"with ", "there is no with"},
	{"async ", "there is no async: use parallel([...])"},
	{"global ", "there is no global: return what changes"},
	{"assert ", "there is no assert: use fail(text)"},
}

// pythonHint explains a line that is Python but not Starlark.
func pythonHint(source []byte, line int) string {
	lines := strings.SplitN(string(source), "\n", line+1)
	if line < 1 || line > len(lines) {
		return ""
	}
	text := strings.TrimSpace(lines[line-1])
	for _, one := range python {
		if strings.HasPrefix(text, one.begins) {
			return " (" + one.hint + ")"
		}
	}
	for _, quote := range []string{`f"`, `f'`} {
		if i := strings.Index(text, quote); i == 0 || i > 0 && strings.IndexByte(" (=+,[:{", text[i-1]) >= 0 {
			return ` (there are no f-strings: use "%s" % x or "{}".format(x))`
		}
	}
	return ""
}

// newRun begins a run. Its owner calls end.
func newRun(ctx context.Context, name string, info *Info, host Host, limits Limits, log func(string)) *run {
	limits.Steps = cmp.Or(limits.Steps, DefaultSteps)
	limits.Memory = cmp.Or(limits.Memory, DefaultMemory)
	limits.Time = cmp.Or(limits.Time, DefaultTime)
	limits.Output = cmp.Or(limits.Output, DefaultOutput)
	r := &run{limits: limits, memory: limits.Memory, calls: limits.Calls, info: cmp.Or(info, &Info{}), host: host, log: log, now: time.Now}
	r.thread = &starlark.Thread{Name: name, Print: func(_ *starlark.Thread, text string) { r.say(text) }}
	r.thread.SetLocal(runKey, r)
	r.thread.SetMaxExecutionSteps(limits.Steps)
	r.thread.OnMaxSteps = func(thread *starlark.Thread) {
		r.limit = r.errSteps()
		thread.Cancel("too many steps")
	}
	timed, cancel := context.WithTimeoutCause(ctx, limits.Time, errTime)
	r.ctx = timed
	told := make(chan struct{})
	stop := context.AfterFunc(timed, func() {
		defer close(told)
		r.thread.Cancel("ended")
	})
	r.end = func() {
		if !stop() {
			<-told
		}
		cancel()
	}
	return r
}

// say writes a line to the log, until there are too many.
func (r *run) say(text string) {
	if r.log == nil || r.lines > maxLines || r.logged > maxLogged {
		return
	}
	text = cut(text, maxLine)
	if r.lines++; r.lines > maxLines {
		text = "... (and more)"
	} else if r.logged += len(text); r.logged > maxLogged {
		text = "... (and more)"
	}
	r.log(text)
}

// protect runs what the interpreter does. A panic there is an error of the script.
func (r *run) protect(do func() error) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("internal error of the interpreter: %v", caught)
		}
	}()
	if err := r.alive(); err != nil {
		return err
	}
	return do()
}

// output is a result as JSON, nil for None.
func (r *run) output(v starlark.Value) (json.RawMessage, error) {
	if v == starlark.None {
		return nil, nil
	}
	if err := r.weigh(v, 1); err != nil {
		return nil, err
	}
	out, err := encode(v, r.limits.Output)
	if errors.Is(err, errOutput) {
		return nil, limitError("%d bytes of output: return less, or raise the limit of output", r.limits.Output)
	}
	return out, err
}

// failure makes of whatever ended a run an *AbortError or an *Error.
func (r *run) failure(name string, err error) error {
	fromHost := (*hostError)(nil)
	own := !errors.As(err, &fromHost)
	if abort := (*AbortError)(nil); own && errors.As(err, &abort) {
		return abort
	}
	failed := &Error{File: name, Message: err.Error(), Err: err}
	if inner := (*Error)(nil); own && errors.As(err, &inner) {
		*failed = *inner // in a module that was loaded
	} else if at := (*starlark.EvalError)(nil); errors.As(err, &at) {
		for deeper := at; errors.As(errors.Unwrap(at), &deeper); {
			at = deeper // the stack of the module that was loaded
		}
		failed.Message, failed.Err = at.Msg, errors.Unwrap(at)
		for i := range at.CallStack {
			if pos := at.CallStack.At(i).Pos; pos.Line > 0 {
				failed.File, failed.Line = pos.Filename(), int(pos.Line)
				break
			}
		}
	}
	switch {
	case r.limit != nil:
		failed.Err = r.limit
	case own && errors.Is(err, ErrLimit):
		failed.Message = shorten(failed.Message)
		return failed
	case r.ctx.Err() == nil:
		failed.Message = shorten(failed.Message)
		if strings.Contains(failed.Message, " frozen ") {
			failed.Message += " (what a module defines cannot change after it was loaded; counter(key, window_seconds) counts)"
		}
		return failed
	case errors.Is(context.Cause(r.ctx), errTime):
		failed.Err = r.errTime()
	default:
		failed.Err = r.ctx.Err()
	}
	failed.Message = failed.Err.Error()
	return failed
}

func shorten(message string) string { return cut(message, maxMessage) }

// cut is the beginning of a text of more than n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + " ..."
}

// dedent removes the indentation that the lines after the first share, and white
// space around.
func dedent(doc string) string {
	lines := strings.Split(strings.ReplaceAll(doc, "\t", "    "), "\n")
	least := -1
	for _, line := range lines[1:] {
		if text := strings.TrimLeft(line, " "); text != "" {
			if indent := len(line) - len(text); least < 0 || indent < least {
				least = indent
			}
		}
	}
	for i, line := range lines {
		if i > 0 && len(line) >= least && least > 0 {
			line = line[least:]
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
