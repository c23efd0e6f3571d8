package relay

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
)

// Stopped is the method of the notification that a toolfinch sends before it ends on purpose. The client does not get
// it. Only the client's next message starts another toolfinch.
const Stopped = "notifications/toolfinch/stopped"

// message is what a relay reads of a message. IDs are compared as they are written.
type message struct {
	id     json.RawMessage // nil for a notification
	method string          // "" for an answer
	raw    []byte          // without a line break
}

// messagesOf returns the messages of a line, several for a batch. Of a line that is cut off, it reads the members
// before the cut.
func messagesOf(line []byte) (all []message) {
	line = bytes.TrimSpace(line)
	if bytes.HasPrefix(line, []byte("[")) {
		for one := range rawjson.Elements(line) {
			all = append(all, messageOf(one))
		}
		return all
	}
	return []message{messageOf(line)}
}

func messageOf(raw []byte) (m message) {
	m.raw = raw
	for name, value := range rawjson.Members(raw) {
		switch name {
		case "id":
			m.id = value
		case "method":
			m.method = rawjson.Text(value)
		}
	}
	return m
}

// param returns a parameter of the message.
func (m message) param(name string) json.RawMessage {
	return rawjson.Member(rawjson.Member(m.raw, "params"), name)
}

// client is what a client has told its toolfinch about itself, and what both wait for.
type client struct {
	initialize  []byte // the messages; nil if they were not sent
	initialized []byte
	level       []byte
	subscribed  map[string][]byte // resources/subscribe, by URI

	waits map[string]message  // requests of the client, by ID
	asked map[string]struct{} // IDs of the toolfinch's requests
	again map[string]struct{} // IDs of repeated requests, whose answer the client has already
}

func newClient() client {
	return client{subscribed: map[string][]byte{}, waits: map[string]message{}, asked: map[string]struct{}{}, again: map[string]struct{}{}}
}

// maxSubscribed bounds the subscriptions that another toolfinch is told of.
const maxSubscribed = 1000

// sends notes messages of the client.
func (c *client) sends(all []message) {
	for _, m := range all {
		if m.method == "" {
			delete(c.asked, string(m.id))
			continue
		}
		switch mcp.MCPMethod(m.method) {
		case mcp.MethodInitialize:
			c.initialize = bytes.Clone(m.raw)
		case mcp.MethodNotificationInitialized:
			c.initialized = bytes.Clone(m.raw)
		case mcp.MethodSetLogLevel:
			c.level = bytes.Clone(m.raw)
		case mcp.MethodResourcesSubscribe:
			if len(c.subscribed) < maxSubscribed {
				c.subscribed[rawjson.Text(m.param("uri"))] = bytes.Clone(m.raw)
			}
		case mcp.MethodResourcesUnsubscribe:
			delete(c.subscribed, rawjson.Text(m.param("uri")))
		case mcp.MethodNotificationCancelled: // a cancelled request may stay without an answer
			delete(c.waits, string(m.param("requestId")))
		}
		if m.id != nil {
			kept := message{id: bytes.Clone(m.id), method: m.method}
			if m.method == string(mcp.MethodSubscriptionsListen) {
				kept.raw = bytes.Clone(m.raw)
			}
			c.waits[string(m.id)] = kept
		}
	}
}

// greets reports whether the client waits for the answer to initialize.
func (c *client) greets() bool {
	if c.initialize == nil {
		return false
	}
	_, waits := c.waits[string(messageOf(c.initialize).id)]
	return waits
}

// withdraws forgets messages that no toolfinch got. It reports false if the client was told that one of them failed.
func (c *client) withdraws(all []message) bool {
	for _, m := range all {
		if m.id == nil || m.method == "" {
			continue
		}
		if _, waits := c.waits[string(m.id)]; !waits {
			return false
		}
		delete(c.waits, string(m.id))
		if m.method == string(mcp.MethodInitialize) {
			c.initialize = nil
		}
	}
	return true
}

// answered returns the IDs of the answers among messages.
func answered(all []message) (ids []json.RawMessage) {
	for _, m := range all {
		if m.method == "" && m.id != nil {
			ids = append(ids, bytes.Clone(m.id))
		}
	}
	return ids
}

// gets notes messages of the toolfinch, and reports whether the client is to get them.
func (c *client) gets(all []message) (passed bool) {
	for _, m := range all {
		id := string(m.id)
		switch {
		case m.method == Stopped:
		case m.method == string(mcp.MethodNotificationCancelled):
			delete(c.asked, string(m.param("requestId")))
			passed = true
		case m.method != "":
			if m.id != nil {
				c.asked[id] = struct{}{}
			}
			passed = true
		default:
			if _, repeated := c.again[id]; repeated {
				delete(c.again, id)
				continue
			}
			delete(c.waits, id)
			passed = true
		}
	}
	return passed
}

// loses returns what the client must be told when its toolfinch has gone: requests that fail, and requests of the
// toolfinch that need no answer. Requests that another toolfinch can answer as well keep waiting: initialize only if it is
// there soon, because the client sends nothing more before the answer.
func (c *client) loses(soon bool) (failed, cancelled []json.RawMessage) {
	for id, m := range c.waits {
		greets := m.method == string(mcp.MethodInitialize)
		if greets && !soon {
			c.initialize = nil
		}
		if m.raw == nil && !(greets && soon) {
			failed = append(failed, m.id)
			delete(c.waits, id)
		}
	}
	for id := range c.asked {
		cancelled = append(cancelled, json.RawMessage(id))
	}
	clear(c.asked)
	clear(c.again)
	slices.SortFunc(failed, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	return failed, cancelled
}

// introduction returns what another toolfinch is told of the client: greeting, whose answer is waited for, and then
// later. Answers that the client has already are not passed on.
func (c *client) introduction() (greeting []byte, later [][]byte) {
	switch {
	case c.greets():
		later = append(later, c.initialize)
	case c.initialize != nil:
		greeting = c.initialize
	}
	if c.initialized != nil {
		later = append(later, c.initialized)
	}
	if c.level != nil {
		later = append(later, c.repeat(c.level))
	}
	for _, raw := range c.subscribed {
		later = append(later, c.repeat(raw))
	}
	for _, m := range c.waits {
		if m.raw != nil {
			later = append(later, m.raw)
		}
	}
	return greeting, later
}

// repeat notes that the answer to a message is not passed on, unless the client still waits for it.
func (c *client) repeat(raw []byte) []byte {
	id := messageOf(raw).id
	if _, waits := c.waits[string(id)]; !waits {
		c.again[string(id)] = struct{}{}
	}
	return raw
}
