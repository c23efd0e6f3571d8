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

// Connected is a client that is there: a session of the legacy era, or an event stream of
// a 2026-07-28 client, which has no session.
type Connected struct {
	Client    string // "name version", as it says itself
	Principal string // ID of who opened it, "" for nobody
	Transport string // one of trust's transports
	Modern    bool   // of the 2026-07-28 era
	Since     time.Time
}

func principalOf(p identity.Party) string {
	if p.Principal == nil {
		return ""
	}
	return p.Principal.ID
}

// clientName is how a client is known: "name version".
func clientName(name, version string) string {
	return strings.TrimSpace(clientPart(name) + " " + clientPart(version))
}

func clientPart(text string) string { return rawjson.Head(text, maxClientName) }

// Bounds of what is remembered of clients, which may call themselves anything.
const (
	maxClients    = 10_000
	maxClientName = 128 // bytes of its name, and of its version
)

// modernKeys counts the keys of 2026-07-28 clients, of all Lives: upstreams know
// them, too.
var modernKeys atomic.Int64

// modernKey returns a key for one request of a 2026-07-28 client.
func modernKey() string { return "call-" + strconv.FormatInt(modernKeys.Add(1), 10) }

// modernClient is the 2026-07-28 client behind a request, which describes itself in
// each.
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
		return nil, methodNotFound(method) // this request of the client takes no questions
	}
	return c
}
