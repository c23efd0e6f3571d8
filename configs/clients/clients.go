// Package clients finds, reads and edits the files in which other MCP clients keep their
// servers, and keeps backups of them. It does not know toolfinch's own configuration, and
// writes without asking.
package clients

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

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
)

// Passing returns which variables the client can pass on.
func (c *Client) Passing() Passing {
	switch {
	case c.TOML:
		return PassAny
	case c.refer == nil:
		return PassNone
	}
	return PassSet
}

// CanHold reports whether the client reads a value literally. No client has an escape for
// its notation of variables.
func (c *Client) CanHold(value string) bool {
	return c.TOML || c.refer == nil || !strings.Contains(value, "$") && !strings.Contains(value, "{env:")
}

// ErrNoEdit says that toolfinch does not edit a client's file.
var ErrNoEdit = errors.New("keeps its servers in YAML, which toolfinch reads and does not edit: add toolfinch there by hand, as docs/clients.md shows")

// CanEdit reports whether the client's file can be edited.
func (c *Client) CanEdit() bool { return !c.yaml }

// ErrNoURL says that a client's file takes commands only.
var ErrNoURL = errors.New("takes no URL in its file, only a command")

// All are the clients, in the order of lists.
var All = []*Client{
	{ID: "claude-desktop", Name: "Claude Desktop", Block: mcpServers, Notation: literal, files: claudeDesktop, entry: commandOnly},
	{ID: "claude-code", Name: "Claude Code", Block: mcpServers, Notation: ours, files: claudeCode, refer: bracedRef, entry: typed},
	{ID: "cursor", Name: "Cursor", Block: mcpServers, Notation: ours, files: inHome("mcp.json", ".cursor"), refer: editorRef, entry: plain("url")},
	{ID: "vscode", Name: "VS Code", Block: []string{"servers"}, Notation: ours, files: vsCode, refer: editorRef, entry: typed},
	{ID: "windsurf", Name: "Windsurf", Block: mcpServers, Notation: ours, files: windsurf, refer: editorRef, entry: plain("serverUrl")},
	{ID: "codex", Name: "Codex", Block: []string{"mcp_servers"}, TOML: true, Notation: literal, files: codex, Timeouts: codexTimeouts, entry: plain("url")},
	{ID: "gemini", Name: "Gemini CLI", Block: mcpServers, Notation: dollar, files: inHome("settings.json", ".gemini"), refer: bracedRef, Timeouts: geminiTimeouts, entry: plain("httpUrl")},
	{ID: "qwen", Name: "Qwen Code", Block: mcpServers, Notation: dollar, files: inHome("settings.json", ".qwen"), refer: bracedRef, Timeouts: geminiTimeouts, entry: qwenEntry},
	{ID: "opencode", Name: "opencode", Block: []string{"mcp"}, Notation: braces, files: opencode, refer: openCodeRef, Timeouts: openCodeTimeouts, entry: openCodeEntry},
	{ID: "zed", Name: "Zed", Block: []string{"context_servers"}, Notation: literal, files: zed, entry: plain("url")},
	{ID: "cline", Name: "Cline", Block: mcpServers, Notation: literal, files: cline, Timeouts: secondsOfCalls, entry: typedURL("streamableHttp")},
	{ID: "cline-cli", Name: "Cline CLI", Block: mcpServers, Notation: literal, files: clineCLI, Timeouts: secondsOfCalls, entry: clineEntry},
	{ID: "roo", Name: "Roo Code", Block: mcpServers, Notation: ours, files: roo, refer: editorRef, Timeouts: secondsOfCalls, entry: typedURL("streamable-http")},
	{ID: "kiro", Name: "Kiro", Block: mcpServers, Notation: ours, files: inHome("mcp.json", ".kiro/settings"), refer: bracedRef, entry: plain("url")},
	{ID: "copilot", Name: "Copilot CLI", Block: mcpServers, Notation: ours, files: copilot, refer: bracedRef, entry: copilotEntry},
	{ID: "amp", Name: "Amp", Block: []string{"amp.mcpServers"}, Notation: ours, files: amp, refer: bracedRef, entry: plain("url")},
	{ID: "junie", Name: "Junie", Block: mcpServers, Notation: literal, files: inHome("mcp.json", ".junie/mcp"), entry: plain("url")},
	{ID: "lm-studio", Name: "LM Studio", Block: mcpServers, Notation: literal, files: lmStudio, entry: plain("url")},
	{ID: "goose", Name: "Goose", Block: []string{"extensions"}, yaml: true, Notation: ours, files: goose, Timeouts: secondsOfCalls},
	{ID: "continue", Name: "Continue", Block: mcpServers, yaml: true, Notation: mustache, files: continues, Timeouts: continueTimeouts},
}

var mcpServers = []string{"mcpServers"}

// Find returns the client with the ID, or nil.
func Find(id string) *Client {
	i := slices.IndexFunc(All, func(c *Client) bool { return strings.EqualFold(c.ID, id) })
	if i < 0 {
		return nil
	}
	return All[i]
}

// IDs returns the IDs of All.
func IDs() []string {
	ids := make([]string, len(All))
	for i, c := range All {
		ids[i] = c.ID
	}
	return ids
}

// Files returns the client's files, the user's first. Without a home directory only files
// of the project are known.
func (c *Client) Files(sys System) []File {
	var files []File
	for _, f := range c.files(sys) {
		f.Client = c
		if f.Block == nil {
			f.Block = c.Block
		}
		if filepath.IsAbs(f.Path) || sys.GOOS == "windows" {
			files = append(files, f)
		}
	}
	return files
}

// File returns the file that connect edits, of the user or of the project: the first that
// exists. An error names the missing folder.
func (c *Client) File(sys System, project bool) (File, error) {
	var found []File
	for _, f := range c.Files(sys) {
		if (f.Project != "") == project && (f.Project == "" || f.Project == sys.Dir) && slices.Equal(f.Block, c.Block) {
			found = append(found, f)
		}
	}
	if len(found) == 0 && project {
		return File{}, fmt.Errorf("%s has no file of its own for a project", c.Name)
	}
	if len(found) == 0 {
		return File{}, fmt.Errorf("no home directory is known: %s cannot be found", c.Name)
	}
	for _, f := range found {
		if f.Exists() {
			return f, nil
		}
	}
	return found[0], nil
}

// Installed reports whether the client seems to be installed: the folder of its user's
// file exists.
func (c *Client) Installed(sys System) bool {
	f, err := c.File(sys, false)
	if err != nil {
		return false
	}
	home, _ := sys.home()
	if dir := filepath.Dir(f.Path); dir != home {
		_, err := os.Stat(dir)
		return err == nil
	}
	return f.Exists()
}

// Exists reports whether the path exists.
func (f File) Exists() bool {
	_, err := os.Stat(f.Path)
	return err == nil
}

// Shown is the path with ~ for the home directory.
func (f File) Shown(sys System) string {
	if home, ok := sys.home(); ok {
		if rest, ok := strings.CutPrefix(f.Path, filepath.Clean(home)+string(filepath.Separator)); ok {
			return "~" + string(filepath.Separator) + rest
		}
	}
	return f.Path
}

// Read returns the bytes of the file, none for a missing file.
func (f File) Read() ([]byte, error) {
	data, err := ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Set returns the bytes with entry as the named server, and everything else unchanged. It
// writes nothing.
func (f File) Set(data []byte, name string, entry Entry) ([]byte, error) {
	if !f.Client.CanEdit() {
		return nil, fmt.Errorf("%s %w", f.Client.Name, ErrNoEdit)
	}
	entry.env = maps.Clone(entry.Values)
	if refer := f.Client.refer; refer != nil {
		for _, variable := range entry.Pass {
			set(&entry.env, variable, refer(variable))
		}
	}
	value, err := f.Client.entry(entry)
	if err != nil {
		return nil, fmt.Errorf("%s %w", f.Client.Name, err)
	}
	if f.Client.TOML {
		data, err = tomlSet(data, name, entry)
	} else {
		data, err = document.SetJSON(data, append(slices.Clone(f.Block), name), value)
	}
	return data, f.wrap(err)
}

// Remove returns the bytes without the named server, and everything else unchanged. It
// writes nothing.
func (f File) Remove(data []byte, name string) ([]byte, error) {
	if !f.Client.CanEdit() {
		return nil, fmt.Errorf("%s %w", f.Client.Name, ErrNoEdit)
	}
	var err error
	if f.Client.TOML {
		data, err = tomlRemove(data, name)
	} else {
		data, err = document.RemoveJSON(data, append(slices.Clone(f.Block), name))
	}
	return data, f.wrap(err)
}

func (f File) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", filepath.Base(f.Path), err)
}

// SeenFrom makes paths absolute that start at the folder of a project, because the server
// moves to another file. A server runs in that folder; if it is guessed, only a server with
// a relative path among its arguments does.
func (s *Server) SeenFrom(f File) {
	project := f.Project
	if project == "" {
		return
	}
	if of := filepath.ToSlash(s.Command); IsRelativeCommand(s.Command) && (s.Cwd == "" || strings.HasPrefix(of, "./") || strings.HasPrefix(of, "../")) {
		s.Command = filepath.Join(project, s.Command)
	}
	if s.Cwd == "" && s.Command != "" && (!f.Guessed || slices.ContainsFunc(s.Args, func(arg string) bool { return isRelative(arg, project) })) {
		s.Cwd = project
	}
	if s.Cwd != "" && !filepath.IsAbs(s.Cwd) && !strings.HasPrefix(s.Cwd, "~") && !strings.Contains(s.Cwd, "${") {
		s.Cwd = filepath.Join(project, s.Cwd)
	}
}

// IsRelativeCommand reports whether a command is a relative path, not a name in PATH.
func IsRelativeCommand(command string) bool {
	separated := strings.ContainsFunc(command, func(r rune) bool { return r < utf8.RuneSelf && os.IsPathSeparator(uint8(r)) })
	return separated && !os.IsPathSeparator(command[0]) && !filepath.IsAbs(command) && !strings.HasPrefix(command, "~") && !strings.Contains(command, "${")
}

// Absolute returns an argument with a path in the folder made absolute.
func Absolute(arg, folder string) string {
	if !isRelative(arg, folder) {
		return arg
	}
	flag, path, ok := strings.Cut(arg, "=")
	if !ok {
		return filepath.Join(folder, arg)
	}
	return flag + "=" + filepath.Join(folder, path)
}

// IsYAML reports whether the file's name is that of a YAML file.
func (f File) IsYAML() bool {
	ext := strings.ToLower(filepath.Ext(f.Path))
	return ext == ".yaml" || ext == ".yml"
}

// isRelative reports whether an argument, or its part after =, looks like a path in the
// folder.
func isRelative(arg, folder string) bool {
	if _, value, ok := strings.Cut(arg, "="); ok {
		arg = value
	}
	switch {
	case arg == "" || filepath.IsAbs(arg) || strings.HasPrefix(arg, "-") || strings.HasPrefix(arg, "~") || strings.Contains(arg, "://"):
		return false
	case arg == "." || arg == ".." || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../"):
		return true
	}
	_, err := os.Stat(filepath.Join(folder, arg))
	return err == nil
}

func object(pairs ...any) json.RawMessage {
	var o rawjson.Object
	for i := 0; i < len(pairs); i += 2 {
		o.Add(pairs[i].(string), rawjson.Of(pairs[i+1]))
	}
	return o.JSON()
}

func plain(urlKey string) func(Entry) (json.RawMessage, error) {
	return func(e Entry) (json.RawMessage, error) {
		if e.URL != "" {
			return object(urlKey, e.URL), nil
		}
		return e.command("env", "command", e.Command, "args", e.Args), nil
	}
}

// command returns an object of the pairs, with the variables under key.
func (e Entry) command(key string, pairs ...any) json.RawMessage {
	if len(e.env) > 0 {
		pairs = append(pairs, key, e.env)
	}
	return object(pairs...)
}

func bracedRef(name string) string   { return "${" + name + "}" }
func editorRef(name string) string   { return "${env:" + name + "}" }
func openCodeRef(name string) string { return "{env:" + name + "}" }

func commandOnly(e Entry) (json.RawMessage, error) {
	if e.URL != "" {
		return nil, ErrNoURL
	}
	return plain("")(e)
}

func typed(e Entry) (json.RawMessage, error) {
	if e.URL != "" {
		return object("type", "http", "url", e.URL), nil
	}
	return e.command("env", "type", "stdio", "command", e.Command, "args", e.Args), nil
}

// typedURL is plain with the transport beside a URL.
func typedURL(kind string) func(Entry) (json.RawMessage, error) {
	return func(e Entry) (json.RawMessage, error) {
		if e.URL != "" {
			return object("type", kind, "url", e.URL), nil
		}
		return plain("")(e)
	}
}

func copilotEntry(e Entry) (json.RawMessage, error) {
	all := []string{"*"}
	if e.URL != "" {
		return object("type", "http", "url", e.URL, "tools", all), nil
	}
	return e.command("env", "type", "local", "command", e.Command, "args", e.Args, "tools", all), nil
}

// clineEntry is the entry of Cline's CLI.
func clineEntry(e Entry) (json.RawMessage, error) {
	inner := object("type", "streamableHttp", "url", e.URL)
	if e.URL == "" {
		inner = e.command("env", "type", "stdio", "command", e.Command, "args", e.Args)
	}
	return object("transport", inner), nil
}

// qwenEntry prevents Qwen Code from hiding the tools behind its own search.
func qwenEntry(e Entry) (json.RawMessage, error) {
	if e.URL != "" {
		return object("httpUrl", e.URL, "alwaysLoadTools", true), nil
	}
	return e.command("env", "command", e.Command, "args", e.Args, "alwaysLoadTools", true), nil
}

func openCodeEntry(e Entry) (json.RawMessage, error) {
	if e.URL != "" {
		return object("type", "remote", "url", e.URL, "enabled", true), nil
	}
	return e.command("environment", "type", "local", "command", append([]string{e.Command}, e.Args...), "enabled", true), nil
}
