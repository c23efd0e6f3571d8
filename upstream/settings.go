package upstream

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
	"toolfinch/upstream/sandbox"
)

// Settings configure how one MCP server is reached: by a command to start, or by a URL.
type Settings struct {
	Name             string            // configured name, unique
	Description      string            // the purpose of the server; indexed with its tools
	Command          string            // stdio: the program to start
	Args             []string          // stdio: its arguments
	Env              map[string]string // stdio: environment on top of the minimal one
	InheritEnv       []string          // stdio: globs of further variables passed on from the proxy's environment
	Cwd              string            // stdio: working directory, "" for the proxy's
	Sandbox          sandbox.Settings  // stdio: the files and networks that the process may use
	URL              string            // HTTP: the endpoint
	Headers          map[string]string // HTTP: sent with every request
	Login            login.Settings    // HTTP: how to log in; ignored if Headers have Authorization
	TLS              discovery.TLS     // HTTP: certificates
	Transport        Transport         // default TransportAuto
	Protocol         Protocol          // default ProtocolAuto
	ConnectTimeout   time.Duration     // default 30s; 2m for a command that downloads the server first
	CallTimeout      time.Duration     // from a request, or its last progress, to the answer; default 120s
	CallTimeoutTotal time.Duration     // for a whole call, with progress; at least CallTimeout; default 1h
	Validate         bool              // check arguments against the tool's schema first; default true
	AskTimeout       time.Duration     // how long the client may take to answer a server's question; default 10m
	Isolate          Isolation         // default IsolateAuto
	Prefix           *string           // prefix of exposed names; nil for the server's name and "_"
	Groups           bool              // whether the groups extension is declared, and groups are listed
	// Fault is why the configuration of the server cannot be used; "" if it can. A server
	// with a fault is never connected, and its health has the fault as reason.
	Fault string
	// Secrets of at least 5 bytes are masked in the server's errors and log lines.
	// Results of calls are not masked.
	Secrets []string
}

// Isolation says whether clients share one connection to a server. A server that asks
// clients something or keeps state about them must not mix clients up.
type Isolation string

// IsolateAuto shares the connection until the server first asks a client something. A
// 2026-07-28 server keeps no state, so it is always shared.
const (
	IsolateAuto   Isolation = "auto"
	IsolateAlways Isolation = "always"
	IsolateNever  Isolation = "never"
)

// Transport is how messages reach a server.
type Transport = conn.Transport

// TransportAuto means stdio for a command; for a URL, streamable HTTP and then SSE.
const (
	TransportAuto  = conn.TransportAuto
	TransportStdio = conn.TransportStdio
	TransportHTTP  = conn.TransportHTTP
	TransportSSE   = conn.TransportSSE
)

// Protocol restricts the protocol eras that are tried with a server.
type Protocol string

// ProtocolLegacy never probes for the 2026-07-28 era.
const (
	ProtocolAuto   Protocol = "auto"
	ProtocolLegacy Protocol = "legacy"
)

// Defaults of Settings.
const (
	DefaultConnectTimeout   = 30 * time.Second
	DownloadTimeout         = 2 * time.Minute // until the server was listed once
	DefaultCallTimeout      = 120 * time.Second
	DefaultCallTimeoutTotal = time.Hour
	DefaultAskTimeout       = 10 * time.Minute
)

// Era is the kind of protocol that a server speaks: sessions with a handshake, or the
// stateless protocol of 2026-07-28.
type Era = conn.Era

// EraUnknown is the era before the first connection.
const (
	EraUnknown = conn.EraUnknown
	EraLegacy  = conn.EraLegacy
	EraModern  = conn.EraModern
)

// complete returns a deep copy of s with defaults filled in.
func (s Settings) complete() Settings {
	if s.CallTimeout <= 0 {
		s.CallTimeout = DefaultCallTimeout
	}
	if s.CallTimeoutTotal <= 0 {
		s.CallTimeoutTotal = DefaultCallTimeoutTotal
	}
	if s.AskTimeout <= 0 {
		s.AskTimeout = DefaultAskTimeout
	}
	s.Transport = cmp.Or(s.Transport, TransportAuto)
	s.Protocol = cmp.Or(s.Protocol, ProtocolAuto)
	s.Isolate = cmp.Or(s.Isolate, IsolateAuto)
	s.Args, s.Secrets, s.Env, s.Headers = slices.Clone(s.Args), slices.Clone(s.Secrets), maps.Clone(s.Env), maps.Clone(s.Headers)
	return s
}

// dialsLike reports whether connections made with s also serve other: they differ only in
// fields that no connection depends on. Both are complete.
func (s Settings) dialsLike(other Settings) bool {
	return reflect.DeepEqual(s.dialled(), other.dialled())
}

// dialled returns s without the fields that no connection depends on. It names these
// fields, so that connections depend on a new field by default.
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

// limits are the time limits of a server. They may change while it runs.
type limits struct{ call, total, ask time.Duration }

func (s Settings) limits() *limits {
	return &limits{s.CallTimeout, s.CallTimeoutTotal, s.AskTimeout}
}
