package upstream

import "time"

// Settings says how to reach one MCP server: a command to start, or a URL.
type Settings struct {
	Name             string            // configured name, unique
	Description      string            // what the server is for; indexed with its tools
	Command          string            // stdio: the program to start
	Args             []string          // stdio: its arguments
	Env              map[string]string // stdio: environment on top of the minimal one
	Cwd              string            // stdio: working directory, "" for the proxy's
	URL              string            // HTTP: the endpoint
	Headers          map[string]string // HTTP: sent with every request
	Transport        Transport         // default TransportAuto
	Protocol         Protocol          // default ProtocolAuto
	ConnectTimeout   time.Duration     // default 30s
	CallTimeout      time.Duration     // from a request, or its last progress, to the answer; default 120s
	CallTimeoutTotal time.Duration     // of a call, whatever progress it makes; at least CallTimeout; default 1h
	Validate         bool              // check arguments against the tool's schema first; default true
	AskTimeout       time.Duration     // how long the client may take to answer what the server asks; default 10m
	Isolate          Isolation         // default IsolateAuto
	Prefix           *string           // what exposed names begin with; nil for the server's name and "_"
	// Secrets are masked where the server repeats them in errors and log lines, from
	// 5 bytes on. Results of calls stay as they are.
	Secrets []string
}

// Isolation says whether clients share one connection to a server. A server
// that asks clients something, or keeps state of them, must not mix them up.
type Isolation string

// IsolateAuto shares until the server has asked a client something for the
// first time. A 2026-07-28 server is always shared: it keeps no state.
const (
	IsolateAuto   Isolation = "auto"
	IsolateAlways Isolation = "always"
	IsolateNever  Isolation = "never"
)

// Transport is the way to a server.
type Transport string

// TransportAuto means stdio for a command; for a URL streamable HTTP, then SSE.
const (
	TransportAuto  Transport = "auto"
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "streamable-http"
	TransportSSE   Transport = "sse"
)

// Protocol bounds the protocol eras tried with a server.
type Protocol string

// ProtocolLegacy never probes for the 2026-07-28 era.
const (
	ProtocolAuto   Protocol = "auto"
	ProtocolLegacy Protocol = "legacy"
)

// Defaults of Settings.
const (
	DefaultConnectTimeout   = 30 * time.Second
	DefaultCallTimeout      = 120 * time.Second
	DefaultCallTimeoutTotal = time.Hour
	DefaultAskTimeout       = 10 * time.Minute
)

// Era is the verdict about a server's protocol: a session with a handshake, or
// the stateless protocol of 2026-07-28. EraUnknown has not been found out yet.
type Era string

const (
	EraUnknown Era = ""
	EraLegacy  Era = "legacy"
	EraModern  Era = "2026-07-28"
)
