// Package configs owns the configuration: it finds the file, reads it, joins it
// with environment and flags, reports everything wrong with it in one go, tells
// when it changes and edits it in place. It starts nothing and dials nothing.
//
// Each key is described once, in a table beside the mapping that it belongs to
// (section, key, kind). Reading, defaults, printing, the JSON Schema and the tables
// of docs/configuration.md follow from the description.
package configs

import (
	_ "embed"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/embed"
	"toolfinch/trust/audit"
	"toolfinch/trust/inbound"
	"toolfinch/trust/leaks"
	"toolfinch/trust/pins"
	"toolfinch/trust/policy"
	"toolfinch/trust/rate"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/view/python"
)

// Config is a configuration that has been checked. Every field is filled in; top
// has the defaults and bounds.
type Config struct {
	Path              string               // absolute path of the file it was read from
	Servers           []upstream.Settings  // enabled servers, in file order
	Disabled          []string             // names of the servers switched off, in file order
	Routing           Routing              // how found tools reach the client
	TopK              int                  // tools in an answer
	Embed             embed.Settings       // how texts become vectors
	QueryEmbedTimeout time.Duration        // how long a query waits for its vector
	StartWait         time.Duration        // how long requests wait for servers that start for the first time
	Learn             bool                 // rank by what was called after earlier queries
	ListChangedExec   string               // shell command run after a list_changed; "" for none
	DataDir           string               // folder of the store and of what belongs to this machine, absolute
	Store             string               // URL of a PostgreSQL database; "": the store is in DataDir. See Places
	LogLevel          slog.Level           // how much is logged
	LogFormat         string               // LogText or LogJSON
	Pinned            []string             // globs of path.Match (where * stops at a /) over exposed names and server.tool
	MaxRegistered     int                  // registered tools per session, at least 1
	ResumeTools       int                  // tools that a client called in its last sessions, registered for new ones; 0 for none
	Clients           []Client             // in file order
	MaxSessions       int                  // sessions of clients at once, at least 1
	SessionTimeout    time.Duration        // ends a session that is idle
	CallTool          CallToolMode         // how call_tool is offered
	Transport         string               // TransportStdio or TransportHTTP
	Listen            string               // host:port
	Origins           []string             // Origin values accepted besides loopback, in lower case
	Hosts             []string             // names in Host beside this machine's own, in lower case
	Auth              inbound.Settings     // who may come in over HTTP
	Proxies           []netip.Prefix       // reverse proxies that are believed; nil: this machine's
	Changes           map[string]pins.Mode // what becomes of definitions that a server changes, by its name; pins.Review where it has none
	HTTP              HTTPLimits           // of clients over HTTP
	Tools             []view.UpstreamTools // what stands under the enabled servers for every view, in file order
	REST              bool                 // whether HTTP serves the REST API, /openapi.json and /metrics
	UI                bool                 // whether HTTP serves the page
	Secrets           leaks.Mode           // what becomes of secrets in answers; see SecretsIn
	Gating            *view.Gating         // of the default view where Views has none; nil: what is found may be called
	ProxyTool         string               // name of the proxy tool of such a view; "" for none
	DirectBelow       int                  // RoutingAuto lists all tools that cost fewer tokens together; 0: never
	DefaultExposure   view.Exposure        // of views that have none of their own
	SearchStyle       view.SearchStyle     // of views that have none of their own
	DefaultView       string               // RootAll, RootViews, RootNone or the name of a view; "" where Root decides
	Views             []view.Settings      // in file order, with what they leave to the top level
	Python            python.Settings      // what runs hooks and custom tools in Python
	HookHeaders       []string             // names of the HTTP headers that hooks may see, in lower case
	Audit             *audit.Settings      // what is written of what was done; nil: nothing. See AuditLog
	PolicyTexts       []Policy             // in file order
	Policies          *policy.Policies     // PolicyTexts and what views allow, compiled; nil: everything is allowed
	RateLimits        []rate.Rule          // in file order
	PrincipalHeader   string               // HTTP header in which a trusted proxy names the user; "" for none
	Warnings          []*Error             // what was read but has no effect, in file order
	// Broken is what is wrong with single servers and views, in file order. The servers
	// are in Servers with a Fault, but for those without a name of their own; the views
	// are in BrokenViews.
	Broken []*Error
	// BrokenViews says by the name of a view why it is left out of Views.
	BrokenViews map[string]string

	fingerprint string // what Fingerprint returns

	secrets *secrets // what Resolved masks beside what it recognises; nil for nothing
}

// Routing is how found tools reach the client.
type Routing string

// The kinds of routing.
const (
	RoutingAuto     Routing = "AUTO"      // registered, and call_tool
	RoutingCallTool Routing = "CALL_TOOL" // call_tool only
	RoutingDynamic  Routing = "DYNAMIC"   // registered only
)

// CallToolMode is how call_tool is offered.
type CallToolMode string

// The modes of call_tool.
const (
	CallToolSingle CallToolMode = "single" // one call_tool
	CallToolSplit  CallToolMode = "split"  // call_tool_read, call_tool_write, call_tool_destructive
)

// What the root serves, beside the name of a view: the root is where clients name none.
const (
	RootAll   = "all"   // every tool of every server, past the views
	RootViews = "views" // the views together: each tool through its view
	RootNone  = "none"  // nothing
)

// Root returns what the root serves: RootAll, RootViews, RootNone or the name of a view.
func (c *Config) Root() string {
	switch {
	case c.DefaultView != "":
		return c.DefaultView
	case slices.ContainsFunc(c.Views, func(v view.Settings) bool { return v.Name == view.Default }):
		return view.Default
	case len(c.Views)+len(c.BrokenViews) > 0: // what is left out is no way past the views
		return RootViews
	}
	return RootAll
}

// Server returns the server of that name, nil for none.
func (c *Config) Server(name string) *upstream.Settings {
	if i := slices.IndexFunc(c.Servers, func(s upstream.Settings) bool { return s.Name == name }); i >= 0 {
		return &c.Servers[i]
	}
	return nil
}

// Transports toolfinch itself is served on.
const (
	TransportStdio = "stdio"
	TransportHTTP  = "http"
)

// Formats of the log.
const (
	LogText = "text"
	LogJSON = "json"
)

// Bounds and defaults of Config.
const (
	DefaultTopK           = 5
	MaxTopK               = 50
	DefaultMaxRegistered  = 40
	DefaultResumeTools    = 5
	DefaultMaxSessions    = 10_000
	DefaultSessionTimeout = 30 * time.Minute
	DefaultListen         = "127.0.0.1:8080"

	DefaultQueryEmbedTimeout = 800 * time.Millisecond
	DefaultStartWait         = 8 * time.Second
	DefaultDirectBelow       = 12_000
	MinQueryEmbedTimeout     = 10 * time.Millisecond
	MaxQueryEmbedTimeout     = 30 * time.Second
)

//go:embed example.yaml
var example string

// Example returns a commented configuration file, valid as it stands, with
// every key and its default.
func Example() string { return strings.ReplaceAll(example, "\r\n", "\n") }

// Modules returns the absolute paths of all files that the configuration names and that
// change what it means, without the files those load: policies, Starlark modules and
// programs of hooks. Each comes once, in file order.
func (c *Config) Modules() []string {
	var files []string
	add := func(file string) {
		if filepath.IsAbs(file) && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	for _, p := range c.PolicyTexts {
		add(p.File)
	}
	for _, v := range c.Views {
		for _, h := range []*view.Hook{v.Hooks.PreCall, v.Hooks.PostCall} {
			if h == nil {
				continue
			}
			add(h.Module)
			if len(h.Command) > 0 {
				add(h.Command[0])
			}
		}
		for _, custom := range v.Customs {
			add(custom.Module)
		}
	}
	return files
}
