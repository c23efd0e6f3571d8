package upstream

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
	"toolfinch/upstream/sandbox"
)

// Settings says how to reach one MCP server: a command to start, or a URL.
type Settings struct {
	Name             string            // configured name, unique
	Description      string            // what the server is for; indexed with its tools
	Command          string            // stdio: the program to start
	Args             []string          // stdio: its arguments
	Env              map[string]string // stdio: environment on top of the minimal one
	InheritEnv       []string          // stdio: globs of further variables that it gets of the proxy's environment
	Cwd              string            // stdio: working directory, "" for the proxy's
	Sandbox          sandbox.Settings  // stdio: what the process may touch
	URL              string            // HTTP: the endpoint
	Headers          map[string]string // HTTP: sent with every request
	Login            login.Settings    // HTTP: how to log in; not where Headers have Authorization
	Transport        Transport         // default TransportAuto
	Protocol         Protocol          // default ProtocolAuto
	ConnectTimeout   time.Duration     // default 30s
	CallTimeout      time.Duration     // from a request, or its last progress, to the answer; default 120s
	CallTimeoutTotal time.Duration     // of a call, whatever progress it makes; at least CallTimeout; default 1h
	Validate         bool              // check arguments against the tool's schema first; default true
	AskTimeout       time.Duration     // how long the client may take to answer what the server asks; default 10m
	Isolate          Isolation         // default IsolateAuto
	Prefix           *string           // what exposed names begin with; nil for the server's name and "_"
	// Fault is why the server cannot be used as it is configured; "" for nothing. It is
	// never connected then, and the reason is that of its health.
	Fault string
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
type Transport = conn.Transport

// TransportAuto means stdio for a command; for a URL streamable HTTP, then SSE.
const (
	TransportAuto  = conn.TransportAuto
	TransportStdio = conn.TransportStdio
	TransportHTTP  = conn.TransportHTTP
	TransportSSE   = conn.TransportSSE
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
// the stateless protocol of 2026-07-28.
type Era = conn.Era

// EraUnknown has not been found out yet.
const (
	EraUnknown = conn.EraUnknown
	EraLegacy  = conn.EraLegacy
	EraModern  = conn.EraModern
)

// complete is s with its defaults, and sharing nothing with s that can change.
func (s Settings) complete() Settings {
	if s.ConnectTimeout <= 0 {
		s.ConnectTimeout = DefaultConnectTimeout
	}
	if s.CallTimeout <= 0 {
		s.CallTimeout = DefaultCallTimeout
	}
	if s.CallTimeoutTotal <= 0 {
		s.CallTimeoutTotal = DefaultCallTimeoutTotal
	}
	if s.AskTimeout <= 0 {
		s.AskTimeout = DefaultAskTimeout
	}
	if s.Transport == "" {
		s.Transport = TransportAuto
	}
	if s.Protocol == "" {
		s.Protocol = ProtocolAuto
	}
	if s.Isolate == "" {
		s.Isolate = IsolateAuto
	}
	s.Args, s.Secrets, s.Env, s.Headers = slices.Clone(s.Args), slices.Clone(s.Secrets), maps.Clone(s.Env), maps.Clone(s.Headers)
	return s
}

// dialsLike reports whether connections made with s serve other as well: all
// but what no connection depends on is the same. Both are complete.
func (s Settings) dialsLike(other Settings) bool {
	return reflect.DeepEqual(s.dialled(), other.dialled())
}

// dialled is s without what no connection depends on. What a new field means is
// not known here, so it stays.
func (s Settings) dialled() Settings {
	s.Description, s.Prefix, s.Validate = "", nil, false
	s.CallTimeout, s.CallTimeoutTotal, s.AskTimeout = 0, 0, 0
	if len(s.Args) == 0 {
		s.Args = nil
	}
	if len(s.Secrets) == 0 {
		s.Secrets = nil
	}
	if len(s.Env) == 0 {
		s.Env = nil
	}
	if len(s.Headers) == 0 {
		s.Headers = nil
	}
	return s
}
