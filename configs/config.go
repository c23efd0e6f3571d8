// Package configs owns the configuration: it finds the file, reads it with environment and
// flags, reports all errors at once, watches the file and edits it in place. It starts
// nothing and dials nothing.
//
// One table for each mapping describes its keys (section, key, kind). Reading, defaults,
// printing, the JSON Schema and the tables of docs/configuration.md follow from the tables.
package configs

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/embed"
	"toolfinch/internal/document"
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

// Config is a checked configuration with all defaults; top has the defaults and bounds. It has more than 25 fields: each
// key at the top of the file has one.
type Config struct {
	Path              string               // absolute path of the file it was read from
	Found             bool                 // a search found the file in the working folder: reading it needs trust
	Servers           []upstream.Settings  // enabled servers, in file order
	Disabled          []string             // names of the servers switched off, in file order
	Routing           Routing              // how found tools reach the client
	TopK              int                  // tools in an answer
	Embed             embed.Settings       // how texts become vectors
	QueryEmbedTimeout time.Duration        // how long a query waits for its vector
	StartWait         time.Duration        // how long requests wait for servers that start for the first time
	Starting          int                  // how many servers start at once; 0: upstream.DefaultStarting
	ConnectTimeout    time.Duration        // of servers without their own; 0: the default of upstream
	Learn             bool                 // rank by what was called after earlier queries
	ListChangedExec   string               // shell command after a list_changed; "" for none
	DataDir           string               // absolute folder of the store and of this machine's data
	Store             string               // URL of a PostgreSQL database; "" for a store in DataDir
	LogLevel          slog.Level           // how much is logged
	LogFormat         string               // LogText or LogJSON
	Pinned            []string             // globs of path.Match over exposed names and server.tool
	Skills            []string             // absolute folders of skills, in file order
	MaxRegistered     int                  // registered tools per session, at least 1
	ResumeTools       int                  // recently called tools that a client's new session lists; 0 for none
	Clients           []Client             // in file order
	MaxSessions       int                  // concurrent sessions, at least 1
	SessionTimeout    time.Duration        // ends an idle session
	CallTool          CallToolMode         // how call_tool is offered
	Transport         string               // TransportStdio or TransportHTTP
	Shared            bool                 // over stdio, agents of a user share one process
	KeepRunning       time.Duration        // how long that process runs without agents
	Listen            string               // host:port
	Origins           []string             // Origin values accepted besides loopback, in lower case
	Hosts             []string             // names accepted in Host besides this machine's, in lower case
	Auth              inbound.Settings     // who may come in over HTTP
	Proxies           []netip.Prefix       // trusted reverse proxies; nil for those of this machine
	Changes           map[string]pins.Mode // handling of changed definitions, by server; default pins.Review
	HTTP              HTTPLimits           // bounds for HTTP clients
	Tools             []view.UpstreamTools // tools blocks of enabled servers, in file order
	REST              bool                 // whether HTTP serves the REST API, /openapi.json and /metrics
	UIKeep            int                  // searches that the page keeps; 0 for none
	UI                bool                 // whether HTTP serves the page
	Secrets           leaks.Mode           // handling of secrets in answers; see SecretsIn
	Gating            *view.Gating         // of the default view if Views has none; nil: no gating
	ProxyTool         string               // the proxy tool's name in that view; "" for none
	DirectBelow       int                  // RoutingAuto lists all tools below this many tokens; 0: never
	DefaultExposure   view.Exposure        // of views without exposure_mode
	SearchStyle       view.SearchStyle     // of views without search_style
	Schemas           view.Schemas         // of views without schemas
	Groups            string               // GroupsOn, or "off"
	DefaultView       string               // RootAll, RootViews, RootNone, the name of a view, or "": see Root
	Views             []view.Settings      // in file order, with defaults of the top level
	Python            python.Settings      // interpreter of hooks and custom tools
	HookHeaders       []string             // names of the HTTP headers that hooks may see, in lower case
	Audit             *audit.Settings      // nil for no audit log; see AuditLog
	PolicyTexts       []Policy             // in file order
	Policies          *policy.Policies     // PolicyTexts and views' allow, compiled; nil allows everything
	RateLimits        []rate.Rule          // in file order
	PrincipalHeader   string               // HTTP header with a trusted proxy's user; "" for none
	Warnings          []*Error             // keys without effect, in file order
	// Broken has the errors of single servers and views, in file order. A broken server is
	// in Servers with a Fault if its name is legal; a broken view is in BrokenViews.
	Broken []*Error
	// BrokenViews has the reasons why views are missing from Views, by name.
	BrokenViews map[string]string

	fingerprint string             // SHA-256 in hex digits
	read        *map[string]string // variables and secrets that were used, by name; a pointer, so that no print has them

	secrets *secrets // texts that Resolved masks besides recognised secrets; may be nil
}

// Routing is how found tools reach the client.
type Routing string

// The kinds of routing.
const (
	RoutingAuto     Routing = "AUTO"      // registered, and call_tool
	RoutingCallTool Routing = "CALL_TOOL" // call_tool only
	RoutingDynamic  Routing = "DYNAMIC"   // registered only
)

// GroupsOn is the value of Groups that speaks the draft extension io.modelcontextprotocol/groups.
const GroupsOn = "on"

// CallToolMode is how call_tool is offered.
type CallToolMode string

// The modes of call_tool.
const (
	CallToolSingle CallToolMode = "single" // one call_tool
	CallToolSplit  CallToolMode = "split"  // call_tool_read, call_tool_write, call_tool_destructive
)

// What the root serves, besides the name of a view. A client that names no view gets the root.
const (
	RootAll   = "all"   // every tool of every server, without views
	RootViews = "views" // the tools of all views
	RootNone  = "none"  // nothing
)

// Root returns what the root serves: RootAll, RootViews, RootNone or the name of a view.
func (c *Config) Root() string {
	switch {
	case c.DefaultView != "":
		return c.DefaultView
	case slices.ContainsFunc(c.Views, func(v view.Settings) bool { return v.Name == view.Default }):
		return view.Default
	case len(c.Views)+len(c.BrokenViews) > 0: // a broken view still hides the servers
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
	DefaultUIKeep         = 500
	MaxUIKeep             = 10_000
	DefaultSessionTimeout = 30 * time.Minute
	DefaultListen         = "127.0.0.1:8080"

	DefaultQueryEmbedTimeout = 800 * time.Millisecond
	DefaultStartWait         = 8 * time.Second
	DefaultKeepRunning       = 10 * time.Minute
	DefaultDirectBelow       = 12_000
	MinQueryEmbedTimeout     = 10 * time.Millisecond
	MaxQueryEmbedTimeout     = 30 * time.Second
)

//go:embed example.yaml
var example string

// Example returns a commented configuration file, valid as it stands, with
// every key and its default.
func Example() string { return strings.ReplaceAll(example, "\r\n", "\n") }

// Modules returns the absolute paths of the policies, Starlark modules and programs that
// the configuration names, each once, in file order. Files that those load are not included.
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

// Client has the settings of a client.
type Client struct {
	Name     string // an ID of package clients, or a pattern over names of clients
	Register Register
	Era      Era
}

// Era says in which era of the protocol a client that knows both is served.
type Era string

// EraLegacy ends at revision 2025-11-25; with EraAuto the client takes the newest that it knows.
const (
	EraLegacy Era = "legacy"
	EraAuto   Era = "auto"
)

// Register says when tools that a client has found are registered for it.
type Register string

// RegisterAtOnce registers tools with the answer, RegisterWhenUsed after a call, when the
// list changes anyway, and for later sessions, RegisterNever never, RegisterBest the best of
// each query with the answer.
const (
	RegisterAtOnce   Register = "at_once"
	RegisterWhenUsed Register = "when_used"
	RegisterNever    Register = "never"
	RegisterBest     Register = "best"
)

// HTTPLimits bound the resources of HTTP clients.
type HTTPLimits struct {
	PrincipalSessions, AddressSessions, PrincipalStreams int
	Body, Headers                                        int // bytes
	BodyTime, IdleTime                                   time.Duration
	Drain                                                time.Duration // how long running calls may continue on shutdown
}

// Policy is a list of policies in Cedar: a file, or text in the configuration.
type Policy struct {
	File string // absolute; "" if Text has the policies
	Text string
	at   document.Node
}

// Read returns what the configuration was made from: a hash of the file, and the values of variables and secrets. Of two
// configurations with the same values and the same working folder, one is as good as the other.
func (c *Config) Read() (hash string, values map[string]string) {
	if c.read != nil {
		values = *c.read
	}
	return c.fingerprint, values
}

// Fingerprint is a short hash of the keys and policies that were read, "" without a file.
// Replicas share it: listen and data_dir, which differ by machine, are left out.
func (c *Config) Fingerprint() string {
	return c.fingerprint[:min(8, len(c.fingerprint))]
}

// digest is a hash of the values below n, without some keys of n. A node is hashed once,
// because aliases of aliases grow without end.
func digest(n *document.Node, done map[*document.Node]string, without ...string) string {
	if sum, ok := done[n]; ok {
		return sum
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %q", n.Kind, n.Text)
	for _, item := range n.Items {
		text.WriteString(" " + digest(item, done))
	}
	for _, p := range n.Pairs {
		if !slices.Contains(without, p.Key.Text) {
			fmt.Fprintf(&text, " %q %s", p.Key.Text, digest(p.Value, done))
		}
	}
	done[n] = hash(text.String())
	return done[n]
}

// hash is the SHA-256 of text in hex digits.
func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// SecretsIn returns the handling of secrets in a server's answers to clients of a view: the
// view's own setting, else the server's. The view's own tools have the server "".
func (c *Config) SecretsIn(viewName, server string) leaks.Mode {
	mode := c.Secrets
	for _, u := range c.Tools {
		if u.Name == server && u.Secrets != "" {
			mode = u.Secrets
		}
	}
	for _, v := range c.Views {
		if v.Name == viewName && v.Secrets != "" {
			mode = v.Secrets
		}
	}
	return mode
}
