package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/rawjson"
)

// jsonServers returns the servers at the path of the document, in their order.
func jsonServers(data []byte, path []string) ([]Server, error) {
	d, err := parseJSON(data)
	if err != nil {
		return nil, err
	}
	block := json.RawMessage(d.standard())
	for _, name := range path {
		block = rawjson.Member(block, name)
	}
	return serversIn(block, path[len(path)-1])
}

// serversIn are the servers of an object by name, in its order. The key is what errors
// call it.
func serversIn(block json.RawMessage, key string) ([]Server, error) {
	if block = bytes.TrimSpace(block); len(block) > 0 && block[0] != '{' && string(block) != "null" {
		return nil, fmt.Errorf("%s is not an object", key)
	}
	var servers []Server
	for name, value := range rawjson.Members(block) {
		s, rest := parseServer(name, value)
		s.NotTaken, s.rest = slices.Sorted(maps.Keys(rest)), rest
		servers = append(servers, s)
	}
	return servers, nil
}

// ParseServer reads one server of this project's own configuration, without what no
// client has.
func ParseServer(name string, value json.RawMessage) Server {
	s, _ := parseServer(name, value)
	s.Tools = nil // the clients' own lists of tools are not used there
	if tools := rawjson.Member(value, "tools"); rawjson.IsObject(tools) {
		s.Tools = tools
	}
	return s
}

// parseServer reads one server, and returns what it does not understand. Clients differ
// in a few keys, and no two of them mean different things by one.
func parseServer(name string, value json.RawMessage) (Server, map[string]json.RawMessage) {
	s, rest := Server{Name: name}, map[string]json.RawMessage{}
	var allowed, denied json.RawMessage
	builtIn := false
	for key, raw := range membersOfServer(value) {
		switch key {
		case "command":
			switch raw[0] {
			case '[': // opencode
				words := list(raw)
				if len(words) > 0 {
					s.Command, s.Args = words[0], append(words[1:], s.Args...)
				}
			case '{': // Zed, once
				s.Command = word(rawjson.Member(raw, "path"))
				s.Args, s.Env = list(rawjson.Member(raw, "args")), words(rawjson.Member(raw, "env"))
			default:
				s.Command = word(raw)
			}
		case "args":
			s.Args = append(s.Args, list(raw)...)
		case "env", "environment":
			s.Env = words(raw)
		case "cmd": // Goose, as the next ones
			s.Command = word(raw)
		case "envs":
			for name, text := range words(raw) {
				set(&s.Env, name, text)
			}
		case "env_keys":
			for _, name := range list(raw) {
				set(&s.Env, name, "${"+name+"}")
			}
		case "uri":
			s.URL = word(raw)
		case "available_tools": // none are all
			if len(list(raw)) > 0 {
				allowed = raw
			}
		case "requestOptions": // Continue
			s.Headers = words(rawjson.Member(raw, "headers"))
			for name := range rawjson.Members(raw) {
				if name != "headers" {
					rest[key+"."+name] = raw
				}
			}
		case "cwd":
			s.Cwd = word(raw)
		case "url", "serverUrl":
			s.URL = word(raw)
		case "httpUrl":
			s.URL, s.Transport = word(raw), "streamable-http"
		case "headers":
			s.Headers = words(raw)
		case "description":
			s.Description = word(raw)
		case "type", "transport":
			switch strings.ToLower(word(raw)) {
			case "sse":
				s.Transport = "sse"
			case "http", "streamable-http", "streamablehttp", "streamable_http":
				s.Transport = "streamable-http"
			case "builtin", "platform", "frontend", "inline_python": // of Goose
				builtIn = true
			}
		case "disabled":
			s.Disabled = s.Disabled || string(raw) == "true"
		case "enabled":
			s.Disabled = s.Disabled || string(raw) == "false"
		case "includeTools", "enabledTools", "enabled_tools":
			allowed = raw
		case "excludeTools", "disabledTools", "disabled_tools":
			denied = raw
		case "tools": // Copilot CLI; a mapping is this project's own
			if allowed = raw; raw[0] != '[' {
				allowed = nil
			}
		case "source", "name", "display_name", "bundled": // the other keys say the same
		default:
			rest[key] = raw
		}
	}
	s.Tools = choiceOfTools(allowed, denied)
	if s.check(); builtIn && s.Problem != "" {
		s.Problem = "it is a part of the program, not a server"
	}
	return s, rest
}

// membersOfServer are those of a server's object; Cline's CLI has most of them in an
// object of their own.
func membersOfServer(value json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for key, raw := range rawjson.Members(value) {
			if key != "transport" || !rawjson.IsObject(raw) {
				if !yield(key, raw) {
					return
				}
				continue
			}
			for key, raw := range rawjson.Members(raw) {
				if !yield(key, raw) {
					return
				}
			}
		}
	}
}

// choiceOfTools is the choice as this project's configuration has it: a tool by its name
// goes before the pattern for all.
func choiceOfTools(allowed, denied json.RawMessage) json.RawMessage {
	out := json.RawMessage(`{"enabled":false}`)
	var tools rawjson.Object
	off := list(denied)
	for _, name := range off {
		tools.Add(name, out)
	}
	if on := list(allowed); len(allowed) > 0 && allowed[0] == '[' && !slices.Contains(on, "*") {
		for _, name := range on {
			if !slices.Contains(off, name) {
				tools.Add(name, json.RawMessage("{}"))
			}
		}
		tools.Add("*", out)
	}
	if tools.Empty() {
		return nil
	}
	return rawjson.Unique(tools.JSON())
}

// ChoiceInWords says which tools of a server a choice as in Server.Tools has, like
// "only a, b". Choices that it says the same of are the same.
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

// timeout is a duration under some client's key.
type timeout struct {
	unit time.Duration
	call bool // of a call, not of connecting
}

var (
	geminiTimeouts   = map[string]timeout{"timeout": {time.Millisecond, true}}
	secondsOfCalls   = map[string]timeout{"timeout": {time.Second, true}}
	openCodeTimeouts = map[string]timeout{"timeout": {time.Millisecond, false}}
	continueTimeouts = map[string]timeout{"connectionTimeout": {time.Millisecond, false}}
	codexTimeouts    = map[string]timeout{
		"startup_timeout_sec": {time.Second, false}, "startup_timeout_ms": {time.Millisecond, false},
		"tool_timeout_sec": {time.Second, true},
	}
)

// takeTimeouts reads the durations; one that is none stays among what is not taken.
func (s *Server) takeTimeouts(known map[string]timeout) {
	for key, of := range known {
		number, err := strconv.ParseFloat(string(s.rest[key]), 64)
		d := time.Duration(number * float64(of.unit)).Round(time.Millisecond)
		if err != nil || d <= 0 || number*float64(of.unit) > float64(24*time.Hour) {
			continue
		}
		text := d.String()
		for _, none := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(text, none) {
				text = text[:len(text)-2]
			}
		}
		if of.call {
			s.CallTimeout = text
		} else {
			s.ConnectTimeout = text
		}
		s.NotTaken = slices.DeleteFunc(s.NotTaken, func(k string) bool { return k == key })
	}
	if s.rest = nil; len(s.NotTaken) == 0 {
		s.NotTaken = nil
	}
}

func (s *Server) check() {
	switch {
	case s.Command == "" && s.URL == "":
		s.Problem = "it has neither a command nor a URL"
	case s.Command != "" && s.URL != "":
		s.Problem = "it has both a command and a URL"
	}
	if s.Command != "" {
		s.Transport = ""
	}
}

// word is a text, or a number or truth value as it is written.
func word(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' {
		return rawjson.Text(raw)
	}
	return string(raw)
}

func list(raw json.RawMessage) []string {
	var words []string
	for item := range rawjson.Elements(raw) {
		words = append(words, word(item))
	}
	return words
}

func words(raw json.RawMessage) map[string]string {
	var texts map[string]string
	for name, value := range rawjson.Members(raw) {
		set(&texts, name, word(value))
	}
	return texts
}
