package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"toolfinch/configs/clients"
	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
)

// NameError says that a server is missing in a file, or exists already.
type NameError struct {
	File  string // base name
	Name  string
	Taken bool   // it exists already
	Near  string // the nearest existing name
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

// Servers returns all servers in the file, with variables as they are written.
func Servers(path string) ([]clients.Server, error) {
	data, err := clients.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ServersOf(path, data)
}

// ServersOf is Servers for the bytes of a file.
func ServersOf(path string, data []byte) ([]clients.Server, error) {
	if document.IsBlank(data) {
		return nil, nil
	}
	d := newDecoder(source{path: path, shown: filepath.Base(path)}, filepath.Dir(path), os.LookupEnv)
	var servers []clients.Server
	for _, t := range d.written(data) {
		s := t.server()
		s.Configured = true
		servers = append(servers, s)
	}
	if len(d.errors) > 0 {
		return nil, Errors(d.errors)
	}
	return servers, nil
}

// written returns the servers of the file as they are written.
func (d *decoder) written(data []byte) (servers []*taken) {
	root := d.parse(data)
	if root == nil {
		return nil
	}
	seen := map[string]*document.Node{}
	for _, b := range d.blocks(root) {
		for _, p := range d.serversOf(b, seen) {
			seen[p.Key.Text] = p.Key
			servers = append(servers, b.dialect.read(p.Key.Text, p.Value))
		}
	}
	return servers
}

// Shown returns the command line and the URL of a server with secrets masked, as in
// Config.Resolved.
func Shown(s clients.Server) (command []string, url string) {
	none := new(secrets)
	if s.Command != "" {
		command = none.words(append([]string{s.Command}, s.Args...))
	}
	return command, none.url(s.URL)
}

// AddServer appends a server to the file, and makes the file if it is missing. Like all
// edits it keeps comments and order. It fails if the edit causes new errors (Errors), if the
// file changes meanwhile (clients.ErrChanged), or if the name is taken (*NameError). Only
// the owner may read a file that gets a secret.
func AddServer(path string, s clients.Server) error { return addServer(path, s, false) }

// AddServerUnset is AddServer without errors for unset variables.
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
	err = f.put(value, block, s.Name)
	for _, name := range slices.Sorted(maps.Keys(s.Others)) {
		if err == nil {
			err = f.put(s.Others[name], block, s.Name, name)
		}
	}
	f.private = s.Secret || holdsSecrets(s)
	return f.save(err)
}

// RemoveServer removes a server with the comments directly above it. An unknown name is a
// *NameError.
func RemoveServer(path, name string) error {
	f, block, err := openServer(path, name)
	if err != nil {
		return err
	}
	return f.save(f.set(nil, block, name))
}

// SetEnabled switches a server on or off, and reports whether that changed the file. An
// unknown name is a *NameError.
func SetEnabled(path, name string, on bool) (changed bool, err error) {
	f, block, err := openServer(path, name)
	if err != nil {
		return false, err
	}
	set := func(key string, value json.RawMessage) {
		if string(f.At(block, name, key)) != string(value) && err == nil {
			changed, err = true, f.set(value, block, name, key)
		}
	}
	found := false
	for key, value := range rawjson.Members(f.At(block, name)) {
		switch ours := folded[foldKey(key)]; {
		case ours == "enabled" || ours == "disabled":
			found = true
			set(key, rawjson.Of(on == (ours == "enabled")))
		case ours == "status" && on:
			if is, known := truths[strings.ToLower(strings.Trim(string(value), `"`))]; known && !is {
				set(key, nil)
			}
		}
	}
	if !found && !on {
		set("enabled", json.RawMessage("false"))
	}
	if !changed || err != nil {
		return false, err
	}
	return true, f.save(nil)
}

// openServer opens the file and finds the server's block.
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
	path, name string // name is the base name
	before     []byte // nil when there is no file
	unset      bool   // unset variables are no error
	private    bool   // only the owner may read the new file
}

func openEdit(path string) (*edit, error) {
	data, err := clients.ReadFile(path)
	if err != nil {
		return nil, err
	}
	servers, broken := ServersOf(path, data)
	f, err := editOf(path, data)
	if broken == nil && (err != nil || len(f.serverNames()) != len(servers)) {
		return nil, fmt.Errorf("%s has its servers as another program writes them, which toolfinch reads and does not edit: toolfinch import takes them over", filepath.Base(path))
	}
	return f, err
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

// newEdit begins the edit of a missing file.
func newEdit(path string) (*edit, error) {
	f, err := editOf(path, nil)
	if err == nil && !f.IsJSON {
		f.Data = []byte("# " + f.name + " of toolfinch. Every key there is: toolfinch init --config all.yaml\n")
	}
	return f, err
}

// block returns the server's block, "" for an unknown server.
func (f *edit) block(server string) string {
	for _, block := range serverBlocks {
		if f.At(block, server) != nil {
			return block
		}
	}
	return ""
}

// names returns the names in blocks, in file order.
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

// put sets the value at path to v as JSON.
func (f *edit) put(v any, path ...string) error {
	if !utf8.ValidString(fmt.Sprint(v, path)) {
		return fmt.Errorf("%s: %s: the text is not UTF-8", f.name, strings.ToValidUTF8(strings.Join(path, "."), "?"))
	}
	return f.set(rawjson.Of(v), path...)
}

// set changes the value at path, or removes it if value is nil.
func (f *edit) set(value json.RawMessage, path ...string) error {
	if err := f.Set(value, path...); err != nil {
		return fmt.Errorf("%s: %s: %w", f.name, strings.Join(path, "."), err)
	}
	return nil
}

// save writes the file, unless the edit failed or causes new errors.
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
			// No place: the line is in no existing file.
			fresh = append(fresh, &Error{Message: e.Message, Hint: e.Hint})
		}
	}
	if len(fresh) > 0 {
		return fmt.Errorf("nothing was written: %w", fresh)
	}
	write := clients.Replace
	if f.private {
		write = clients.ReplacePrivate
	}
	if err := write(f.path, f.before, f.Data); err != nil {
		return err
	}
	return KeepTrust(f.path, f.before, f.Data)
}

// holdsSecrets reports whether a server has a text outside of variables that looks like a
// secret.
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
	for name, value := range rawjson.Members(s.Others["oauth"]) {
		if isSecretName(name) && literal(string(value)) {
			return true
		}
	}
	for _, texts := range []map[string]string{s.Env, s.Headers} {
		for name, text := range texts {
			if text != "" && literal(text) && (isSecretName(name) || none.word(text) != text) {
				return true
			}
		}
	}
	return false
}

// check returns the errors of a content of the file.
func (f *edit) check(data []byte) Errors {
	if document.IsBlank(data) { // removing the last server leaves a blank file
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
