package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"toolfinch/configs/clients"
	"toolfinch/configs/document"
	"toolfinch/internal/rawjson"
)

// NameError says that a server is not in a file, or that it is there already.
type NameError struct {
	File  string // base name
	Name  string
	Taken bool   // it is there already
	Near  string // a name that is there and may have been meant
}

// Error returns one line.
func (e *NameError) Error() string {
	if e.Taken {
		return fmt.Sprintf("%s has a server %q already", e.File, e.Name)
	}
	text := fmt.Sprintf("%s has no server %q", e.File, e.Name)
	if e.Near != "" {
		text += fmt.Sprintf(" (did you mean %q?)", e.Near)
	}
	return text
}

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

// Servers returns the servers in the file as they are written, switched off or not,
// in file order: no variable is replaced.
func Servers(path string) ([]clients.Server, error) {
	f, err := openEdit(path)
	if err != nil || document.IsBlank(f.Data) {
		return nil, err
	}
	root, _, _ := document.Parse(path, f.Data)
	var servers []clients.Server
	for _, name := range serverBlocks {
		if block := root.Find(name); block != nil {
			pairs, _ := serversOf(block)
			for _, p := range pairs {
				servers = append(servers, dialect{}.read(p.Value).server(p.Key.Text))
			}
		}
	}
	return servers, nil
}

// Shown returns the command line and the URL of a server as they may be shown: what
// looks like a secret is ***, as in Config.Resolved.
func Shown(s clients.Server) (command []string, url string) {
	none := new(secrets)
	if s.Command != "" {
		command = none.words(append([]string{s.Command}, s.Args...))
	}
	return command, none.url(s.URL)
}

// AddServer writes a server into the file, behind those that are there. A file
// that does not exist is made. Like all edits it keeps comments and order, changes
// nothing when the result would not load for a reason that was not there before
// (Errors), and nothing when the file changes meanwhile (clients.ErrChanged). A
// taken name is a *NameError. A file that gets a secret is its owner's alone from then on.
func AddServer(path string, s clients.Server) error { return addServer(path, s, false) }

// AddServerUnset is AddServer for a server that is started elsewhere: variables that
// are not set here are no mistake.
func AddServerUnset(path string, s clients.Server) error { return addServer(path, s, true) }

func addServer(path string, s clients.Server, unset bool) error {
	f, err := openEdit(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = newEdit(path)
	}
	if err != nil {
		return err
	}
	f.unset = unset
	if f.block(s.Name) != "" {
		return &NameError{File: f.name, Name: s.Name, Taken: true}
	}
	block := serverBlocks[0]
	for _, other := range serverBlocks[1:] {
		if f.At(block) == nil && f.At(other) != nil {
			block = other
		}
	}
	value := struct {
		clients.Server
		Enabled *bool `json:"enabled,omitempty"`
	}{Server: s}
	if s.Disabled {
		value.Enabled = new(bool)
	}
	f.private = s.Secret || holdsSecrets(s)
	return f.save(f.put(value, block, s.Name))
}

// RemoveServer takes a server out of the file, with the comments directly above
// it. An unknown name is a *NameError.
func RemoveServer(path, name string) error {
	f, block, err := openServer(path, name)
	if err != nil {
		return err
	}
	return f.save(f.set(nil, block, name))
}

// SetEnabled switches a server on or off, and reports whether it was not so
// before. An unknown name is a *NameError.
func SetEnabled(path, name string, on bool) (changed bool, err error) {
	f, block, err := openServer(path, name)
	if err != nil {
		return false, err
	}
	wanted := map[string]string{}
	for _, key := range []string{"enabled", "disabled"} {
		if f.At(block, name, key) != nil {
			wanted[key] = fmt.Sprint(on == (key == "enabled"))
		}
	}
	if len(wanted) == 0 && !on {
		wanted["enabled"] = "false"
	}
	for key, want := range wanted {
		if string(f.At(block, name, key)) == want {
			continue
		}
		if err := f.set(json.RawMessage(want), block, name, key); err != nil {
			return false, err
		}
		changed = true
	}
	if !changed {
		return false, nil
	}
	return true, f.save(nil)
}

// openServer opens the file and finds the block that has the server.
func openServer(path, name string) (*edit, string, error) {
	f, err := openEdit(path)
	if err != nil {
		return nil, "", err
	}
	block := f.block(name)
	if block == "" {
		near, _ := closest(name, f.serverNames())
		return nil, "", &NameError{File: f.name, Name: name, Near: near}
	}
	return f, block, nil
}

// ViewNames returns the names of the views in the file, in file order.
func ViewNames(path string) ([]string, error) {
	f, err := openEdit(path)
	if err != nil {
		return nil, err
	}
	return f.names(viewBlock), nil
}

// edit is our file while it is changed.
type edit struct {
	*document.Edit
	path, name string // name is the file's in errors
	before     []byte // nil when there is no file
	unset      bool   // variables that are not set are no mistake
	private    bool   // only the owner is to read the file from now on
}

func openEdit(path string) (*edit, error) {
	data, err := clients.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return editOf(path, data)
}

func editOf(path string, data []byte) (*edit, error) {
	f := &edit{path: path, name: filepath.Base(path), before: data}
	var err error
	if f.Edit, err = document.NewEdit(path, data); err != nil {
		if errs := f.check(data); len(errs) > 0 {
			return nil, errs
		}
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return f, nil
}

// newEdit is the edit of a file that does not exist.
func newEdit(path string) (*edit, error) {
	f, err := editOf(path, nil)
	if err == nil && !f.IsJSON {
		f.Data = []byte("# " + f.name + " of toolfinch. Every key there is: toolfinch init --config all.yaml\n")
	}
	return f, err
}

// block returns the block that has the server, "" for none.
func (f *edit) block(server string) string {
	for _, block := range serverBlocks {
		if f.At(block, server) != nil {
			return block
		}
	}
	return ""
}

// names are those in the blocks, in file order.
func (f *edit) names(blocks ...string) []string {
	var names []string
	for _, block := range blocks {
		for name := range rawjson.Members(f.At(block)) {
			names = append(names, name)
		}
	}
	return names
}

func (f *edit) serverNames() []string { return f.names(serverBlocks...) }

// put sets the value at path to what v is as JSON.
func (f *edit) put(v any, path ...string) error {
	if !utf8.ValidString(fmt.Sprint(v, path)) {
		return fmt.Errorf("%s: %s: the text is not UTF-8", f.name, strings.ToValidUTF8(strings.Join(path, "."), "?"))
	}
	return f.set(rawjson.Of(v), path...)
}

// set changes the value at path, or removes it when value is nil.
func (f *edit) set(value json.RawMessage, path ...string) error {
	if err := f.Set(value, path...); err != nil {
		return fmt.Errorf("%s: %s: %w", f.name, strings.Join(path, "."), err)
	}
	return nil
}

// save writes the file after an edit that did not fail, unless it would not load
// for a new reason.
func (f *edit) save(failed error) error {
	if failed != nil {
		return failed
	}
	known := map[string]int{}
	for _, e := range f.check(f.before) {
		known[e.Message]++
	}
	var fresh Errors
	for _, e := range f.check(f.Data) {
		if known[e.Message]--; known[e.Message] < 0 {
			// Without a place: the line is in no file that there is.
			fresh = append(fresh, &Error{Message: e.Message, Hint: e.Hint})
		}
	}
	if len(fresh) > 0 {
		return fmt.Errorf("nothing was written: %w", fresh)
	}
	if f.private {
		return clients.ReplacePrivate(f.path, f.before, f.Data)
	}
	return clients.Replace(f.path, f.before, f.Data)
}

// holdsSecrets reports whether a server has something in it that looks like a secret
// and is not in a variable.
func holdsSecrets(s clients.Server) bool {
	literal := func(text string) bool { return !strings.Contains(strings.ReplaceAll(text, "$${", ""), "${") }
	command, url := Shown(s)
	if literal(s.URL) && url != s.URL {
		return true
	}
	for i, word := range command[min(1, len(command)):] {
		if literal(s.Args[i]) && word != s.Args[i] {
			return true
		}
	}
	none := new(secrets)
	for _, texts := range []map[string]string{s.Env, s.Headers} {
		for name, text := range texts {
			if text != "" && literal(text) && (isSecretName(name) || none.word(text) != text) {
				return true
			}
		}
	}
	return false
}

// check returns what is wrong with a content of the file.
func (f *edit) check(data []byte) Errors {
	if document.IsBlank(data) { // not a mistake: removing the last server leaves such a file
		return nil
	}
	d := newDecoder(source{path: f.path, shown: f.name}, filepath.Dir(f.path), os.LookupEnv)
	d.later = f.unset
	c := top.fresh()
	c.Path = f.path
	d.load(&c, data)
	d.completeViews(&c)
	d.leaveOut(&c)
	return inOrder(append(d.errors, c.Broken...))
}
