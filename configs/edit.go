package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"toolfinch/clients"
)

// Server is a server as it is written in a file: no variable is replaced, and
// what is not given is not written.
type Server struct {
	Command     string
	Args        []string
	Env         map[string]string
	Cwd         string
	URL         string
	Headers     map[string]string
	Transport   string // "sse" or "streamable-http"; "" to find out
	Description string
	Disabled    bool
}

// NewView is a view to be written into a file.
type NewView struct {
	Description string
	Exposure    string   // "" for the default
	Tools       []string // globs over server.tool, of servers in the file
	IncludeAll  bool
	Exclude     []string // globs over server.tool
}

// Written is a server in a file.
type Written struct {
	Name string
	Server
}

// NameError says that a name is not in a file, or that it is there already.
type NameError struct {
	File  string // base name
	Kind  string // "server" or "view"
	Name  string
	Taken bool   // it is there already
	Near  string // a name that is there and may have been meant
}

// Error returns one line.
func (e *NameError) Error() string {
	if e.Taken {
		return fmt.Sprintf("%s has a %s %q already", e.File, e.Kind, e.Name)
	}
	text := fmt.Sprintf("%s has no %s %q", e.File, e.Kind, e.Name)
	if e.Near != "" {
		text += fmt.Sprintf(" (did you mean %q?)", e.Near)
	}
	return text
}

// errByHand is said of what is no plain mapping: an alias, a merged mapping.
var errByHand = errors.New("it is written in a way that cannot be edited without changing something else; edit it by hand")

const viewBlock = "tool_views"

// Find returns the absolute path of the file that Load would read. When there
// is none anywhere, errors.Is(err, ErrNoConfig).
func Find(opts Options) (string, error) {
	if opts.Env == nil {
		opts.Env = os.LookupEnv
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	}
	file, err := find(opts, dir, homeDir(runtime.GOOS, opts.Env))
	return file.path, err
}

// Servers returns the servers in the file, switched off or not, in file order.
func Servers(path string) ([]Written, error) {
	f, err := openEdit(path)
	if err != nil {
		return nil, err
	}
	var servers []Written
	for _, block := range serverBlocks {
		if n := f.root.find(block); n != nil {
			for _, p := range n.pairs {
				servers = append(servers, written(p))
			}
		}
	}
	return servers, nil
}

func written(p pair) Written {
	w := Written{Name: p.key.text}
	text := func(keys ...string) string {
		for _, key := range keys {
			if n := p.value.find(key); n != nil {
				return n.text
			}
		}
		return ""
	}
	texts := func(key string) map[string]string {
		n := p.value.find(key)
		if n == nil || len(n.pairs) == 0 {
			return nil
		}
		all := make(map[string]string, len(n.pairs))
		for _, p := range n.pairs {
			all[p.key.text] = p.value.text
		}
		return all
	}
	w.Command, w.Cwd, w.URL = text("command"), text("cwd"), text("url", "serverUrl", "httpUrl")
	w.Env, w.Headers = texts("env"), texts("headers")
	w.Transport, w.Description = text("transport", "type"), text("description")
	w.Disabled = text("enabled") == "false" || text("disabled") == "true"
	if n := p.value.find("args"); n != nil {
		for _, item := range n.items {
			w.Args = append(w.Args, item.text)
		}
	}
	return w
}

// AddServer writes a server into the file, behind those that are there. A file
// that does not exist is made. Like all edits it keeps every other line as it
// is, changes nothing when the result would not load for a reason that was not
// there before (Errors), and nothing when the file changes meanwhile
// (clients.ErrChanged). A taken name is a *NameError.
func AddServer(path, name string, s Server) error { return addServer(path, name, s, false) }

// AddServerUnset is AddServer for a server that is started elsewhere: variables that
// are not set here are no mistake.
func AddServerUnset(path, name string, s Server) error { return addServer(path, name, s, true) }

func addServer(path, name string, s Server, unset bool) error {
	f, err := openEdit(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = newEdit(path), nil
	}
	if err != nil {
		return err
	}
	f.unset = unset
	if _, n := f.server(name); n != nil {
		return &NameError{File: f.name, Kind: "server", Name: name, Taken: true}
	}
	block := serverBlocks[0]
	for _, other := range serverBlocks[1:] {
		if f.root.find(block) == nil && f.root.find(other) != nil {
			block = other
		}
	}
	if err := f.set([]string{block, name}, s.node()); err != nil {
		return err
	}
	return f.save()
}

// RemoveServer takes a server out of the file, with the comments directly above
// it. An unknown name is a *NameError.
func RemoveServer(path, name string) error {
	f, err := openEdit(path)
	if err != nil {
		return err
	}
	block, n := f.server(name)
	if n == nil {
		return f.unknown("server", name, f.serverNames())
	}
	if err := f.set([]string{block, name}, nil); err != nil {
		return err
	}
	return f.save()
}

// SetEnabled switches a server on or off, and reports whether it was not so
// before. An unknown name is a *NameError.
func SetEnabled(path, name string, on bool) (changed bool, err error) {
	f, err := openEdit(path)
	if err != nil {
		return false, err
	}
	block, n := f.server(name)
	if n == nil {
		return false, f.unknown("server", name, f.serverNames())
	}
	found := false
	for _, key := range []string{"enabled", "disabled"} {
		was := n.find(key)
		if was == nil {
			continue
		}
		found = true
		want := &node{kind: kindBool, text: fmt.Sprint(on == (key == "enabled"))}
		if same(was, want) {
			continue
		}
		if err := f.set([]string{block, name, key}, want); err != nil {
			return false, err
		}
		changed = true
	}
	if !found && !on {
		if err := f.set([]string{block, name, "enabled"}, &node{kind: kindBool, text: "false"}); err != nil {
			return false, err
		}
		changed = true
	}
	if !changed {
		return false, nil
	}
	return true, f.save()
}

// AddView writes a view into the file, behind those that are there. A taken name
// is a *NameError, and so is a server in Tools that the file does not have.
func AddView(path, name string, v NewView) error {
	f, err := openEdit(path)
	if err != nil {
		return err
	}
	if views := f.root.find(viewBlock); views != nil && views.find(name) != nil {
		return &NameError{File: f.name, Kind: "view", Name: name, Taken: true}
	}
	value, err := f.view(v)
	if err != nil {
		return err
	}
	if err := f.set([]string{viewBlock, name}, value); err != nil {
		return err
	}
	return f.save()
}

// ViewNames returns the names of the views in the file, in file order.
func ViewNames(path string) ([]string, error) {
	f, err := openEdit(path)
	if err != nil {
		return nil, err
	}
	return f.viewNames(), nil
}

// RemoveView takes a view out of the file, with the comments directly above it.
// An unknown name is a *NameError.
func RemoveView(path, name string) error {
	f, err := openEdit(path)
	if err != nil {
		return err
	}
	views := f.root.find(viewBlock)
	if views == nil || views.find(name) == nil {
		return f.unknown("view", name, f.viewNames())
	}
	if err := f.set([]string{viewBlock, name}, nil); err != nil {
		return err
	}
	return f.save()
}

// edit is a file on its way from what it was to what it will be.
type edit struct {
	path, name string // name is what errors call it
	before     []byte // nil when there is no file
	data       []byte
	root       *node // of data
	isJSON     bool
	unset      bool // variables that are not set are no mistake
}

func openEdit(path string) (*edit, error) {
	data, err := clients.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return editOf(path, data)
}

func editOf(path string, data []byte) (*edit, error) {
	f := &edit{path: path, name: filepath.Base(path), before: data, data: data}
	if isBlank(data) {
		f.root, f.isJSON = &node{kind: kindMapping, line: 1, column: 1}, namedJSON(path)
		return f, nil
	}
	root, isJSON, problems := parse(path, data)
	if len(problems) > 0 {
		return nil, f.errors(problems)
	}
	if root.kind != kindMapping {
		return nil, Errors{{File: f.name, Line: 1, Column: 1, Message: "the file must be a mapping of keys to values, not " + string(root.kind)}}
	}
	f.root, f.isJSON = root, isJSON
	return f, nil
}

func newEdit(path string) *edit {
	f := &edit{path: path, name: filepath.Base(path), root: &node{kind: kindMapping, line: 1, column: 1}, isJSON: namedJSON(path)}
	if !f.isJSON {
		f.data = []byte("# " + f.name + " of toolfinch. Every key there is: toolfinch init config\n")
	}
	return f
}

func namedJSON(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".json" || ext == ".jsonc"
}

// isBlank reports whether there is nothing but comments.
func isBlank(data []byte) bool {
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

func (f *edit) errors(problems []problem) error {
	var errs Errors
	for _, p := range problems {
		errs = append(errs, &Error{File: f.name, Line: p.line, Column: p.column, Message: p.message, Hint: p.hint})
	}
	return errs
}

func (f *edit) unknown(kind, name string, names []string) error {
	near, _ := closest(name, names)
	return &NameError{File: f.name, Kind: kind, Name: name, Near: near}
}

// server returns the block that has the server, and the server; nil without.
func (f *edit) server(name string) (string, *node) {
	for _, block := range serverBlocks {
		if n := f.root.find(block); n != nil {
			if s := n.find(name); s != nil {
				return block, s
			}
		}
	}
	return "", nil
}

func (f *edit) serverNames() []string {
	var names []string
	for _, block := range serverBlocks {
		if n := f.root.find(block); n != nil {
			for _, p := range n.pairs {
				names = append(names, p.key.text)
			}
		}
	}
	return names
}

func (f *edit) viewNames() []string {
	var names []string
	if views := f.root.find(viewBlock); views != nil {
		for _, p := range views.pairs {
			names = append(names, p.key.text)
		}
	}
	return names
}

// set changes the value at path, or removes it when value is nil, and makes sure
// that nothing else has become another.
func (f *edit) set(path []string, value *node) error {
	if value != nil && !value.isUTF8() || !utf8.ValidString(strings.Join(path, "")) {
		return fmt.Errorf("%s: %s: the text is not UTF-8", f.name, strings.ToValidUTF8(strings.Join(path, "."), "?"))
	}
	var data []byte
	var err error
	switch {
	case !f.isJSON:
		data, err = editYAML(f.data, path, value)
	case value == nil:
		data, err = clients.RemoveJSON(f.data, path)
	default:
		data, err = clients.SetJSON(f.data, path, value.json())
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", f.name, strings.Join(path, "."), err)
	}
	root := &node{kind: kindMapping, line: 1, column: 1}
	if !isBlank(data) {
		var problems []problem
		if root, _, problems = parse(f.path, data); len(problems) > 0 {
			return fmt.Errorf("%s: %s: %w (it would become: %s)", f.name, strings.Join(path, "."), errByHand, problems[0].message)
		}
	}
	got := root
	for _, key := range path {
		if got != nil {
			got = got.find(key)
		}
	}
	if (got == nil) != (value == nil) || got != nil && !same(got, value) || !same(without(f.root, path), without(root, path)) {
		return fmt.Errorf("%s: %s: %w", f.name, strings.Join(path, "."), errByHand)
	}
	f.data, f.root = data, root
	return nil
}

// save writes the file, unless it would not load for a new reason.
func (f *edit) save() error {
	known := map[string]int{}
	if f.before != nil {
		for _, e := range f.check(f.before) {
			known[e.Message]++
		}
	}
	var fresh Errors
	for _, e := range f.check(f.data) {
		if known[e.Message]--; known[e.Message] < 0 {
			// Without a place: the line is in no file that there is.
			fresh = append(fresh, &Error{Message: e.Message, Hint: e.Hint})
		}
	}
	if len(fresh) > 0 {
		return fmt.Errorf("nothing was written: %w", fresh)
	}
	return clients.Replace(f.path, f.before, f.data)
}

// check returns what is wrong with a content of the file.
func (f *edit) check(data []byte) []*Error {
	d := newDecoder(source{path: f.path, shown: f.name}, filepath.Dir(f.path), os.LookupEnv)
	d.later = f.unset
	c := defaults()
	c.Path = f.path
	if isBlank(data) { // and nobody's mistake: it may have become so
		return nil
	}
	d.load(c, data)
	d.settleViews(c)
	return inOrder(d.errors)
}
