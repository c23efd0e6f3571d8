package clients

import (
	"encoding/json"
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
