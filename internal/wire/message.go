package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
)

// Inbound is one parsed JSON-RPC message of a client: a request, a notification or a reply.
type Inbound struct {
	Raw           json.RawMessage // the whole message
	Method        string          // "" for a reply
	ID            json.RawMessage // nil for a notification
	Params        json.RawMessage // an object; nil if absent or null
	Result, Error json.RawMessage // of a reply; one of them is set
}

// IsRequest reports whether the message needs an answer.
func (m *Inbound) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsReply reports whether the message answers a request to the client.
func (m *Inbound) IsReply() bool { return m.Method == "" }

// Version is the protocol version in the message, "" for none: only the 2026-07-28 era states it in
// each request.
func (m *Inbound) Version() string {
	return rawjson.Text(rawjson.Member(rawjson.Member(m.Params, "_meta"), mcp.MetaKeyProtocolVersion))
}

// SuspendedPrefix begins the requestState of a suspended call of package register (specification
// 2026-07-28, multi round-trip requests).
const SuspendedPrefix = "toolfinch-parked-"

// SuspendedState returns the rest of the requestState in params after SuspendedPrefix; false without
// the prefix.
func SuspendedState(params json.RawMessage) (state string, ok bool) {
	return strings.CutPrefix(rawjson.Text(rawjson.Member(params, "requestState")), SuspendedPrefix)
}

// Refusal is the error response to a refused message.
type Refusal struct {
	ID     json.RawMessage // of the message, nil without a valid one
	Code   int
	Reason string
}

// Answer is the response message.
func (r *Refusal) Answer() []byte {
	id := r.ID
	if id == nil {
		id = json.RawMessage("null")
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, r.Code, rawjson.Quote(r.Reason))
}

// Bounds of a message, beside its length, which its transport bounds.
const (
	maxID     = 1 << 10 // bytes of an ID
	maxMethod = 256     // bytes of the name of a method
	maxBatch  = 100     // messages of a batch
)

// The protocol's members, by object. Libraries ignore the case of names, and read the first or the last
// of duplicates: the checker and the handler of a message must read the same.
var (
	topMembers    = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramsMembers = []string{
		"_meta", "argument", "arguments", "capabilities", "clientInfo", "context", "cursor", "inputResponses", "level", "name",
		"notifications", "progressToken", "protocolVersion", "reason", "ref", "requestId", "requestState", "taskId", "uri",
	}
	metaMembers = []string{
		"progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel, mcp.MetaKeySubscriptionID,
	}
)

// ParseMessages parses a message, or a batch. Refusals of a batch are at the messages' indexes.
func ParseMessages(sent []byte) (messages []*Inbound, refused []*Refusal, batch bool) {
	sent = bytes.TrimSpace(sent)
	one := func(raw []byte) {
		switch m, refusal := parseMessage(raw); {
		case refusal != nil:
			refused = append(refused, refusal)
		default:
			messages = append(messages, m)
		}
	}
	if !json.Valid(sent) || rawjson.TooDeep(sent) {
		// JSON that is only too deep has an ID.
		_, id := idOf(sent)
		return nil, []*Refusal{{id, mcp.PARSE_ERROR, "the message is not valid JSON, or nested too deeply"}}, false
	}
	if sent[0] != '[' {
		one(sent)
		return messages, refused, false
	}
	count := 0
	for raw := range rawjson.Elements(sent) {
		if count++; count > maxBatch {
			return nil, []*Refusal{{nil, mcp.INVALID_REQUEST, fmt.Sprintf("a batch has more than %d messages: send several", maxBatch)}}, true
		}
		one(raw)
	}
	if count == 0 {
		refused = []*Refusal{{nil, mcp.INVALID_REQUEST, "a batch has no message"}}
	}
	return messages, refused, true
}

// idOf returns the ID of a message, which may be invalid JSON otherwise; id is nil if it is neither a
// string nor a number, or too long.
func idOf(message []byte) (has bool, id json.RawMessage) {
	raw := rawjson.Member(message, "id")
	switch {
	case raw == nil:
		return false, nil
	case len(raw) > maxID || !json.Valid(raw) || raw[0] != '"' && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9'):
		return true, nil
	}
	return true, raw
}

func parseMessage(raw []byte) (*Inbound, *Refusal) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, &Refusal{nil, mcp.INVALID_REQUEST, "a message must be a JSON object"}
	}
	hasID, id := idOf(raw)
	refuse := func(format string, args ...any) (*Inbound, *Refusal) {
		return nil, &Refusal{id, mcp.INVALID_REQUEST, fmt.Sprintf(format, args...)}
	}
	if err := distinct(raw, "the message", topMembers); err != nil {
		return refuse("%s", err)
	}
	m := &Inbound{Raw: raw, ID: id}
	var version, method json.RawMessage
	for key, value := range rawjson.Members(raw) {
		switch key {
		case "jsonrpc":
			version = value
		case "method":
			method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
	}
	if m.Method = rawjson.Text(method); isNull(m.Params) {
		m.Params = nil
	}
	// Some languages do not tell an empty list from an empty object.
	if len(m.Params) > 1 && m.Params[0] == '[' && string(bytes.TrimSpace(m.Params[1:])) == "]" {
		m.Params = json.RawMessage(`{}`)
		m.Raw, _ = rawjson.Set(raw, "params", m.Params)
	}
	switch { // some libraries write both
	case m.Result != nil && isNull(m.Error):
		m.Error = nil
	case m.Error != nil && isNull(m.Result):
		m.Result = nil
	}
	switch {
	case rawjson.Text(version) != mcp.JSONRPC_VERSION:
		return refuse(`the member "jsonrpc" must be "2.0"`)
	case hasID && id == nil:
		return refuse("the ID must be a string or a number, of at most %d bytes", maxID)
	case method == nil:
		return m.reply(refuse)
	case m.Method == "" || len(m.Method) > maxMethod:
		return refuse(`the member "method" must be a string of 1 to %d bytes`, maxMethod)
	case m.Result != nil || m.Error != nil:
		return refuse("a request has neither a result nor an error")
	case m.Params != nil && m.Params[0] != '{':
		return refuse(`the member "params" must be an object`)
	}
	if err := distinct(m.Params, "params", paramsMembers); err != nil {
		return refuse("%s", err)
	}
	if err := distinct(rawjson.Member(m.Params, "_meta"), "_meta", metaMembers); err != nil {
		return refuse("%s", err)
	}
	return m, nil
}

// reply checks a message without a method.
func (m *Inbound) reply(refuse func(string, ...any) (*Inbound, *Refusal)) (*Inbound, *Refusal) {
	switch {
	case m.Result == nil && m.Error == nil:
		return refuse(`the message has neither a method nor a result nor an error`)
	case m.ID == nil || m.Result != nil && m.Error != nil:
		return refuse("a reply has an ID, and either a result or an error")
	}
	return m, nil
}

// distinct refuses an object with a known member twice, or in another case. Unknown members pass.
func distinct(object json.RawMessage, what string, known []string) error {
	var seen uint64 // a bit for each of known
	for key := range rawjson.Members(object) {
		i := slices.IndexFunc(known, func(name string) bool { return strings.EqualFold(name, key) })
		switch {
		case i < 0:
		case known[i] != key:
			return fmt.Errorf("%s has a member %.64q, which the protocol spells %q", what, key, known[i])
		case seen&(1<<i) != 0:
			return fmt.Errorf("%s has the member %q twice", what, key)
		default:
			seen |= 1 << i
		}
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
