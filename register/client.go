package register

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Connected is a connected client: a session of the legacy era, or an event stream of a 2026-07-28
// client.
type Connected struct {
	Client    string // "name version", as the client states them
	Principal string // ID of the principal that connected, "" for none
	Transport string // a transport of package identity
	Modern    bool   // 2026-07-28 era
	Since     time.Time
}

func principalOf(p identity.Party) string {
	if p.Principal == nil {
		return ""
	}
	return p.Principal.ID
}

// clientName returns "name version", bounded.
func clientName(name, version string) string {
	return strings.TrimSpace(clientPart(name) + " " + clientPart(version))
}

func clientPart(text string) string { return rawjson.Head(text, maxClientName) }

// Bounds for clients, which choose their own names.
const (
	maxClients    = 10_000
	maxClientName = 128 // bytes of a name, and of a version
)

// modernKeys counts the keys of 2026-07-28 clients over all Lives, because upstreams see the keys.
var modernKeys atomic.Int64

// modernKey returns a key for one request of a 2026-07-28 client.
func modernKey() string { return "call-" + strconv.FormatInt(modernKeys.Add(1), 10) }

// modernClient reads the 2026-07-28 client from the params of its request.
func modernClient(params json.RawMessage) *tool.Client {
	meta := rawjson.Member(params, "_meta")
	info := rawjson.Member(meta, mcp.MetaKeyClientInfo)
	name, version := rawjson.Text(rawjson.Member(info, "name")), rawjson.Text(rawjson.Member(info, "version"))
	c := &tool.Client{
		Name:         clientName(name, version),
		Program:      clientPart(name),
		Version:      clientPart(version),
		Key:          modernKey(),
		Modern:       true,
		Capabilities: rawjson.Member(meta, mcp.MetaKeyClientCapabilities),
		LogLevel:     rawjson.Text(rawjson.Member(meta, mcp.MetaKeyLogLevel)),
	}
	c.Ask = func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if err := checkSupported(c, method, params); err != nil {
			return nil, err
		}
		return nil, methodNotFound(method) // this request cannot carry questions
	}
	return c
}
