package clients

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/rawjson"
)

// ChoiceInWords describes a choice of tools as in Server.Tools, like "only a, b". Equal
// choices have equal descriptions.
func ChoiceInWords(tools json.RawMessage) string {
	var on, off, patterns []string
	for name, tool := range rawjson.Members(tools) {
		switch pattern := strings.ContainsAny(name, "*?["); {
		case string(rawjson.Member(tool, "enabled")) != "false":
			on = append(on, name)
		case pattern:
			patterns = append(patterns, name)
		default:
			off = append(off, name)
		}
	}
	for _, names := range [][]string{on, off, patterns} {
		slices.Sort(names)
	}
	switch {
	case len(patterns) == 0 && len(off) == 0:
		return "all tools"
	case len(patterns) == 0:
		return "all but " + strings.Join(off, ", ")
	case len(on) == 0 && slices.Contains(patterns, "*"):
		return "no tool"
	case slices.Equal(patterns, []string{"*"}):
		return "only " + strings.Join(on, ", ")
	}
	words := "all but " + strings.Join(append(off, patterns...), ", ")
	if len(on) > 0 {
		words += " with " + strings.Join(on, ", ")
	}
	return words
}

// Timeout describes a client's key of a duration.
type Timeout struct {
	Unit time.Duration
	Call bool // bounds a call, not connecting
}

var (
	geminiTimeouts   = map[string]Timeout{"timeout": {time.Millisecond, true}}
	secondsOfCalls   = map[string]Timeout{"timeout": {time.Second, true}}
	openCodeTimeouts = map[string]Timeout{"timeout": {time.Millisecond, false}}
	continueTimeouts = map[string]Timeout{"connectionTimeout": {time.Millisecond, false}}
	codexTimeouts    = map[string]Timeout{
		"startup_timeout_sec": {time.Second, false}, "startup_timeout_ms": {time.Millisecond, false},
		"tool_timeout_sec": {time.Second, true},
	}
)

// Server is an MCP server of a file. In its texts ${NAME} is a variable of the environment,
// and $${ is ${. The tags are the keys of toolfinch's own configuration.
type Server struct {
	Name        string            `json:"-"`
	Command     string            `json:"command,omitempty"` // "" for a URL
	Args        []string          `json:"args,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Cwd         string            `json:"cwd,omitempty"`
	URL         string            `json:"url,omitempty"` // "" for a command
	Headers     map[string]string `json:"headers,omitempty"`
	Transport   string            `json:"transport,omitempty"` // "sse", "streamable-http", or "" if the file does not say
	Description string            `json:"description,omitempty"`
	// ConnectTimeout and CallTimeout are durations such as "30s", or "" if the file has no
	// duration with a known unit.
	ConnectTimeout string `json:"connect_timeout,omitempty"`
	CallTimeout    string `json:"call_timeout,omitempty"`
	// Tools is a choice of tools in the keys of toolfinch's configuration, nil for all.
	Tools    json.RawMessage `json:"tools,omitempty"`
	Disabled bool            `json:"-"`
	Secret   bool            `json:"-"` // it has a secret, even if no text looks like one
	Problem  string          `json:"-"` // why the server cannot be used; "" if it can
	// Others are the values of toolfinch's other keys, such as oauth.
	Others map[string]json.RawMessage `json:"-"`
	// NotTaken are the file's unknown keys, sorted. Lost has them with their values, except
	// for those of approval and the like.
	NotTaken []string        `json:"-"`
	Lost     json.RawMessage `json:"-"`
	// Mended says of each value in another form than the known one what it was taken for.
	Mended     []string `json:"-"`
	Legal      string   `json:"-"` // a name that toolfinch takes, if Name is none
	Twin       bool     `json:"-"` // its file has an equal server with another name
	Configured bool     `json:"-"` // it is in toolfinch's own file, where Lost does not matter
}

// Same reports whether servers are equal in all that decides which server answers, and as whom. A configured one may
// have more keys of toolfinch.
func (s Server) Same(other Server) bool {
	if s.Configured {
		s, other = other, s
	}
	for key, value := range s.Others {
		if !bytes.Equal(value, other.Others[key]) {
			return false
		}
	}
	return s.Command == other.Command && slices.Equal(s.Args, other.Args) && maps.Equal(s.Env, other.Env) && s.Cwd == other.Cwd &&
		s.URL == other.URL && maps.Equal(s.Headers, other.Headers) &&
		(other.Configured || len(s.Others) == len(other.Others) && bytes.Equal(s.Lost, other.Lost))
}

// Client is a program that uses MCP servers.
type Client struct {
	ID       string   // what users type: "claude-code"
	Name     string   // what people call it: "Claude Code"
	Block    []string // keys that lead to the servers in a file
	TOML     bool
	yaml     bool                // its file is YAML, which is only read
	Notation func(string) string // rewrites its variables in our notation
	files    func(System) []File
	// refer writes a variable of the environment as a value of env; nil if the client has no
	// notation for it.
	refer func(name string) string
	// Timeouts are the keys of durations with a documented unit.
	Timeouts map[string]Timeout
	// entry returns the client's entry for a command or a URL, or an error if the client
	// cannot use it.
	entry func(Entry) (json.RawMessage, error)
}

// System is the machine on which clients are looked for.
type System struct {
	GOOS string                      // runtime.GOOS
	Env  func(string) (string, bool) // os.LookupEnv
	Dir  string                      // absolute folder of the project
}

// File is a place where a client looks for servers. It need not exist.
type File struct {
	Client  *Client
	Path    string   // absolute
	Project string   // folder of its project, "" for a file of the user
	Guessed bool     // Project is only where relative paths start
	Block   []string // keys that lead to the servers
}

// Own is the name of toolfinch's own server in clients' files.
const Own = "toolfinch"

// Entry is the server that connect writes: a command, or a URL of streamable HTTP.
type Entry struct {
	Command string
	Args    []string
	URL     string
	Pass    []string          // names of variables that the client passes on to the command
	Values  map[string]string // variables of the command with literal values

	env map[string]string // Pass and Values in the client's notation
}

// Passing says which variables a client can pass on to a command.
type Passing int

// Given are variables that every client gives the servers that it starts, as the SDKs do.
var Given = []string{
	"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER",
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
}

// The kinds of Passing.
const (
	PassNone Passing = iota // none: its file has only values
	PassSet                 // set variables; an unset variable arrives as a wrong value
	PassAny                 // any variable; an unset variable stays unset
)
