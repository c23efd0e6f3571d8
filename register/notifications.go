package register

import (
	"encoding/json"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Notifications of changes.
const (
	toolsChanged     = "notifications/tools/list_changed"
	promptsChanged   = "notifications/prompts/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	groupsChanged    = "notifications/groups/list_changed"
	resourceUpdated  = "notifications/resources/updated"
)

type notification struct {
	method string
	params json.RawMessage
}

// severe reports whether a log message has at least the given level. Unknown levels pass.
func severe(params json.RawMessage, level string) bool {
	is := slices.Index(tool.LogLevels, rawjson.Text(rawjson.Member(params, "level")))
	return is < 0 || is >= slices.Index(tool.LogLevels, level)
}

// leveled wraps notify, and drops log messages below the client's level.
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
