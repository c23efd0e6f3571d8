package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

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
		servers = append(servers, ParseServer(name, value))
	}
	return servers, nil
}

// ParseServer reads one server. Clients differ in a few keys, and no two of them
// mean different things by one.
func ParseServer(name string, value json.RawMessage) Server {
	s := Server{Name: name}
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
		}
	}
	s.check()
	return s
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
