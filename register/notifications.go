package register

import (
	"encoding/json"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Notifications of what changed.
const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

type notification struct {
	method string
	params json.RawMessage
}

// severe reports whether a log message has at least a level. An unknown level of the
// message counts as severe enough.
func severe(params json.RawMessage, level string) bool {
	is := slices.Index(tool.LogLevels, rawjson.Text(rawjson.Member(params, "level")))
	return is < 0 || is >= slices.Index(tool.LogLevels, level)
}

// leveled wraps notify: of log messages, only those that c wants pass.
func leveled(c *tool.Client, notify func(string, json.RawMessage)) func(string, json.RawMessage) {
	return func(method string, params json.RawMessage) {
		if method == "notifications/message" {
			if c.LogLevel == "" && c.Modern || c.LogLevel != "" && !severe(params, c.LogLevel) {
				return
			}
		}
		notify(method, params)
	}
}
