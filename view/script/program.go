package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"toolfinch/internal/nearest"
)

// maxSource bounds the bytes of one file.
const maxSource = 1 << 20

// Bounds of a program.
const (
	maxFiles  = 100
	maxShared = 1_000_000 // values in one global
)

// Program is a loaded module. It is safe for concurrent use.
type Program struct {
	name    string              // base name
	files   []string            // absolute paths
	globals starlark.StringDict // frozen
	count   counter
	now     func() time.Time
}

// Function is a function of a module. It is safe for concurrent use.
type Function struct {
	Name   string
	Doc    string    // its docstring without indentation
	Params []Param   // after the first, ctx
	Tool   *Declared // nil without tool(...)

	program *Program
	fn      *starlark.Function
}

// Load compiles the Starlark module at path with the modules that it loads, and runs their top levels
// within the default limits. read reads a file, nil for os.ReadFile; log gets printed lines, and may be
// nil. load("other.star", "name") is relative to the loading file and stays within the folder of path.
// The error is an *Error.
func Load(path string, read func(path string) ([]byte, error), log func(string)) (*Program, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{File: filepath.Base(path), Message: "no such path", Err: err}
	}
	p := &Program{name: filepath.Base(file), now: time.Now}
	r := newRun(context.Background(), p.name, nil, Limits{}, log)
	defer r.end()
	r.count, r.now = &p.count, func() time.Time { return p.now() }
	l := &loader{program: p, file: file, read: read, modules: map[string]*moduleFile{}}
	r.thread.Load = l.load
	err = r.protect(func() (err error) {
		p.globals, err = l.module(r.thread, p.name)
		return err
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
	stack   []string               // of modules being loaded
}

// moduleFile is a module; its globals are nil while it is being loaded.
type moduleFile struct{ globals starlark.StringDict }

// load implements the load statement.
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
	for _, global := range globals.Keys() {
		left := maxShared
		if err := checkShared(globals[global], 0, &left); err != nil {
			return nil, &Error{File: path.Base(name), Message: fmt.Sprintf("%s: %v", global, err), Err: err}
		}
	}
	globals.Freeze() // calls share them
	made.globals = globals
	return globals, nil
}

// source reads a file. Loaded modules are read through the folder, which no link can leave.
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

// withoutPath is an error's text without the path of an error of package os.
func withoutPath(err error) string {
	if inner := (*os.PathError)(nil); errors.As(err, &inner) {
		return inner.Err.Error()
	}
	return err.Error()
}

// Files returns the absolute paths of the program's files, its own first.
func (p *Program) Files() []string { return slices.Clone(p.files) }

// Function returns a function, or the value of tool(...), by the name of its global. The error is an
// *Error that lists the functions.
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

// Call calls the function with ctx and then args, each a JSON value, nil for None. It returns the
// function's value as JSON, nil for None. The error is an *AbortError or an *Error. info, host and log
// may be nil.
func (f *Function) Call(ctx context.Context, info *Info, host Host, limits Limits, log func(string), args ...json.RawMessage) (json.RawMessage, error) {
	return f.call(ctx, info, host, limits, log, func() (starlark.Tuple, []starlark.Tuple, error) {
		values := make(starlark.Tuple, len(args))
		for i, arg := range args {
			var err error
			if values[i], err = decodeRaw(arg); err != nil {
				return nil, nil, fmt.Errorf("argument %d: %w", i+1, err)
			}
		}
		return values, nil, nil
	})
}

// CallNamed is Call with the members of a JSON object as named arguments.
func (f *Function) CallNamed(ctx context.Context, info *Info, host Host, limits Limits, log func(string), kwargs json.RawMessage) (json.RawMessage, error) {
	return f.call(ctx, info, host, limits, log, func() (starlark.Tuple, []starlark.Tuple, error) {
		if kwargs == nil {
			return nil, nil, nil
		}
		dict, err := decodeObject(kwargs)
		if err != nil {
			return nil, nil, fmt.Errorf("arguments: %w", err)
		}
		return nil, dict.Items(), nil
	})
}

func (f *Function) call(ctx context.Context, info *Info, host Host, limits Limits, log func(string), arguments func() (starlark.Tuple, []starlark.Tuple, error)) (json.RawMessage, error) {
	r := newRun(ctx, f.program.name, info, limits, log)
	defer r.end()
	r.count, r.now = &f.program.count, f.program.now
	if host != nil {
		r.door = newHostDoor(host, limits)
	}
	var out json.RawMessage
	err := r.protect(func() error {
		args, kwargs, err := arguments()
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

// didYouMean hints at the name most like an unknown one, or is "".
func didYouMean(name string, names []string) string {
	near := nearest.Names(name, names, 1, nearest.Close)
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", near[0])
}

// dedent removes the common indentation of the lines after the first, and white space around.
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

// checkShared refuses a value that freezing would walk without end: freezing follows functions that
// refer to themselves, and visits a shared tuple once for each path to it.
func checkShared(v starlark.Value, depth int, left *int) error {
	if *left--; *left < 0 {
		return limitError("%d values that a module defines", maxShared)
	}
	if depth > maxDepth {
		return errTooDeep
	}
	var inner []starlark.Value
	switch v := v.(type) {
	case *starlark.Function:
		for i := range v.NumFreeVars() {
			_, value := v.FreeVar(i)
			inner = append(inner, value)
		}
	case *declaration:
		inner = append(inner, v.fn)
	case *starlark.Dict:
		for key, value := range v.Entries() {
			inner = append(inner, key, value)
		}
	case starlark.Iterable:
		if v.Type() != "range" { // a range may be long, and has only numbers
			inner = slices.Collect(starlark.Elements(v))
		}
	}
	for _, one := range inner {
		if one == nil {
			continue
		}
		if err := checkShared(one, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}
