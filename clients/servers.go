package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	if block = bytes.TrimSpace(block); len(block) > 0 && block[0] != '{' && string(block) != "null" {
		return nil, fmt.Errorf("%s is not an object", path[len(path)-1])
	}
	var servers []Server
	for name, value := range rawjson.Members(block) {
		s, rest := parseServer(name, value)
		s.NotTaken, s.rest = slices.Sorted(maps.Keys(rest)), rest
		servers = append(servers, s)
	}
	return servers, nil
}

// ParseServer reads one server, of any client or of this project's own configuration,
// without what only one of them has.
func ParseServer(name string, value json.RawMessage) Server {
	s, _ := parseServer(name, value)
	return s
}

// parseServer reads one server, and returns what it does not understand. Clients differ
// in a few keys, and no two of them mean different things by one.
func parseServer(name string, value json.RawMessage) (Server, map[string]json.RawMessage) {
	s, rest := Server{Name: name}, map[string]json.RawMessage{}
	var allowed, denied json.RawMessage
	for key, raw := range rawjson.Members(value) {
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
		case "source": // Zed; the other keys say the same
		default:
			rest[key] = raw
		}
	}
	s.Tools = choiceOfTools(allowed, denied)
	s.check()
	return s, rest
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

// timeout is a duration under some client's key.
type timeout struct {
	unit time.Duration
	call bool // of a call, not of connecting
}

var (
	geminiTimeouts   = map[string]timeout{"timeout": {time.Millisecond, true}}
	secondsOfCalls   = map[string]timeout{"timeout": {time.Second, true}}
	openCodeTimeouts = map[string]timeout{"timeout": {time.Millisecond, false}}
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
	s.rest = nil
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
