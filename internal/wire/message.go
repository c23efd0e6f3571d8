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

// Inbound is one JSON-RPC message of a client, taken apart: a request, a
// notification or a reply.
type Inbound struct {
	Raw           json.RawMessage // the whole message
	Method        string          // "" for a reply
	ID            json.RawMessage // nil for a notification
	Params        json.RawMessage // an object; nil when absent or null
	Result, Error json.RawMessage // of a reply; one of them is set
}

// IsRequest reports whether the message wants an answer.
func (m *Inbound) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsReply reports whether the message answers a request to the client.
func (m *Inbound) IsReply() bool { return m.Method == "" }

// Version is the protocol version that the message states, "" where it states none:
// only the 2026-07-28 era has it in each request.
func (m *Inbound) Version() string {
	return rawjson.Text(rawjson.Member(rawjson.Member(m.Params, "_meta"), mcp.MetaKeyProtocolVersion))
}

// SuspendedPrefix is what the requestState of a call begins with that waits here, in package
// register, for its client to come back (specification 2026-07-28, multi round-trip requests).
const SuspendedPrefix = "toolfinch-parked-"

// SuspendedState returns what follows SuspendedPrefix in the requestState of params, and false where
// they have no such state.
func SuspendedState(params json.RawMessage) (state string, ok bool) {
	return strings.CutPrefix(rawjson.Text(rawjson.Member(params, "requestState")), SuspendedPrefix)
}

// Refusal says why a message is refused. It is an error response.
type Refusal struct {
	ID     json.RawMessage // of the message, nil where it has none that is valid
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

// Bounds of a message beside its length, which its transport bounds.
const (
	maxID     = 1 << 10 // bytes of an ID
	maxMethod = 256     // bytes of the name of a method
	maxBatch  = 100     // messages of a batch
)

// Members that the protocol has, by where. Libraries read names without regard to
// case, and of duplicates the first or the last: who checks a message and who acts
// on it must read the same.
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

// ParseMessages takes apart what a client sent at once: a message, or a batch. What
// is refused in a batch stands in its place.
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
	if !json.Valid(sent) {
		// Not of what encoding/json refuses for its depth alone: that has an ID.
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

// idOf returns the ID of a message, which need be no valid JSON otherwise; id is nil
// where it is neither a string nor a number, or is too long.
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

// distinct returns an error for an object that has one of the known members twice, or
// one that differs from them in case alone. What the protocol does not know passes.
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
