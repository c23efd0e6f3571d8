package upstream

import (
	"context"
	"encoding/json"
)

// Events receive messages of servers that belong to no call. Each field may be nil.
// Except for Ask and Started they must not block.
type Events struct {
	// Updated is called when a resource has changed, with the server's own URI of the
	// resource and the params of notifications/resources/updated.
	Updated func(server, uri string, params json.RawMessage)
	// Log gets the params of a server's notifications/message. clientKey names the only
	// client of the connection; it is "" for no client or several. asked reports that the
	// server was told a level that some client wants: clients that want no level must then
	// get nothing.
	Log func(server, clientKey string, asked bool, params json.RawMessage)
	// Notify gets a notification for one client (notifications/elicitation/complete).
	Notify func(clientKey, method string, params json.RawMessage)
	// Ask is tool.Client.Ask for a request outside of a call, to the only client of a
	// connection.
	Ask func(ctx context.Context, clientKey, method string, params json.RawMessage) (json.RawMessage, error)
	// Started is called with the process of a server before the first message is sent to
	// it. It may block. It must not change settings.
	Started func(server string, settings *Settings, pid int)
	// Reaches reports whether Ask reaches a client at once.
	Reaches func(clientKey string) bool
}

// Leads says whether this process lists a server. If not, another process does, and this
// process only keeps a connection and calls the server. changed is closed when the answer
// changes. It must not block.
type Leads func(server string) (leads bool, changed <-chan struct{})

// leadsAlways is the Leads of a process without replicas.
func leadsAlways(string) (leads bool, changed <-chan struct{}) { return true, nil }
