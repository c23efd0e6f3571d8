package upstream

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// maxNotification bounds a notification in bytes: many may wait for many clients.
const maxNotification = 1 << 20

// listChanged are the kinds that are listed again after a notification.
var listChanged = map[string][]tool.Kind{
	"notifications/tools/list_changed":     {tool.KindTool},
	"notifications/prompts/list_changed":   {tool.KindPrompt},
	"notifications/resources/list_changed": {tool.KindResource, tool.KindTemplate, tool.KindSkill},
	"notifications/groups/list_changed":    {tool.KindTool, tool.KindPrompt, tool.KindResource},
}

// Notified is called for each notification of the server.
func (c *connection) Notified(stream int64, method string, params json.RawMessage) {
	s := c.server
	if kinds := listChanged[method]; kinds != nil {
		if c.main || c.common {
			s.lists.notified(kinds)
		}
		return
	}
	if len(params) > maxNotification {
		level := slog.LevelDebug
		if s.dropped.Add(1) == 1 { // a server can send many
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "a notification is too long and was dropped", "method", method, "bytes", len(params))
		return
	}
	if strings.HasPrefix(method, notificationsTasks) {
		c.taskChanged(stream, method, params)
		return
	}
	switch method {
	case "notifications/progress":
		c.progressed(stream, method, params)
	case "notifications/message":
		c.logged(stream, method, s.mask.json(params))
	case "notifications/resources/updated":
		if s.env.events.Updated != nil {
			s.env.events.Updated(s.settings.Name, rawjson.Text(rawjson.Member(params, "uri")), withoutSubscription(params))
		}
	case "notifications/elicitation/complete":
		c.completed(method, params)
	case "notifications/cancelled":
		c.requests.withdraw(rawjson.Member(params, "requestId"))
	case "notifications/subscriptions/acknowledged":
		c.listening.acknowledged(params)
	default:
		for _, of := range c.calls.about(stream) { // an unknown notification belongs to a call
			c.calls.pass(stream, of, method, params)
		}
	}
}

// progressed passes progress on to its call.
func (c *connection) progressed(stream int64, method string, params json.RawMessage) {
	token := strings.Trim(string(rawjson.Member(params, "progressToken")), `"`)
	id, _ := strconv.ParseInt(strings.TrimPrefix(token, tokenPrefix), 10, 64)
	of := c.calls.of(id)
	if of == nil {
		return
	}
	of.clock.renew()
	if of.token == nil {
		return
	}
	if own, err := rawjson.Set(params, "progressToken", of.token); err == nil {
		c.calls.pass(stream, of, method, own)
	}
}

// logged passes a log message on to the calls that it may be about, or without calls to
// Events.Log.
func (c *connection) logged(stream int64, method string, params json.RawMessage) {
	s := c.server
	s.lines.message(params)
	targets, asked := c.calls.about(stream), c.level.current() != ""
	for _, of := range targets {
		if wantsLog(c.Era, of.Call, asked, params) {
			c.calls.pass(stream, of, method, params)
		}
	}
	if len(targets) > 0 {
		return
	}
	if s.env.events.Log != nil {
		s.env.events.Log(s.settings.Name, c.users.session(), asked, params)
	}
}

// completed tells the client that was asked to open a URL that the user is done.
func (c *connection) completed(method string, params json.RawMessage) {
	key := c.server.questions.opened.client(params)
	if key == "" {
		return
	}
	if of := c.calls.latest(key); of != nil {
		c.calls.pass(0, of, method, params)
	} else if c.server.env.events.Notify != nil {
		c.server.env.events.Notify(key, method, params)
	}
}

// withoutSubscription removes the ID of the proxy's subscription from the params of a
// notification: clients do not know it.
func withoutSubscription(params json.RawMessage) json.RawMessage {
	meta := rawjson.Member(params, "_meta")
	if rawjson.Member(meta, mcp.MetaKeySubscriptionID) == nil {
		return params
	}
	rest := without(meta, mcp.MetaKeySubscriptionID)
	if rawjson.IsEmpty(rest) {
		return without(params, "_meta")
	}
	if out, err := rawjson.Set(params, "_meta", rest); err == nil {
		return out
	}
	return params
}

// taskChanged passes a notification about a task on to the call on whose stream it came. A
// notification on another stream is dropped, because nothing else names its client.
func (c *connection) taskChanged(stream int64, method string, params json.RawMessage) {
	s, of := c.server, c.calls.of(stream)
	if of == nil || s.env.tasks.isOfAnother(s.settings.Name, taskID(params), of.Principal) {
		s.log.Debug("a notification about a task belongs to no call and was dropped", "method", method)
		return
	}
	c.calls.pass(stream, of, method, s.env.tasks.expose(s.settings.Name, params, of.Principal))
}
