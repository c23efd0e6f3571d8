package proxy

import (
	"log/slog"

	"toolfinch/internal/telemetry"
	"toolfinch/proxy/web/page"
	"toolfinch/trust/audit"
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
	"toolfinch/view"
)

// Option changes a setting of Open, OpenWorkspace or OpenLogins.
type Option func(*options)

type options struct {
	version string
	log     *slog.Logger
	only    string
	pre     []view.PreCall
	post    []view.PostCall
	indexed func()
	atFirst int // tools that Open indexes before the first question; 0: openTools
	idle    func()
	audit   auditor
	traces  *telemetry.Traces
	logLost func() int64 // lines of the log that were dropped

	observer *observer // made from audit and log

	programs func(upstream.Settings) conn.Program // in tests: runs instead of a server's command

	ownPort int // port that serves clients; 0: port of the configuration

	vaultKey  string
	connector page.Connector
}

func optionsOf(given []Option) options {
	o := options{version: "dev", log: slog.New(slog.DiscardHandler), indexed: func() {}, idle: func() {}, logLost: func() int64 { return 0 }}
	for _, option := range given {
		option(&o)
	}
	o.observer = newObserver(o.audit, o.log)
	return o
}

// WithVersion sets the version that clients and upstreams see. The default is "dev".
func WithVersion(version string) Option { return func(o *options) { o.version = version } }

// agent is the User-Agent of requests to authorization servers.
func (o *options) agent() string { return "toolfinch/" + o.version }

// WithLogger sets where the proxy logs. By default it logs nothing.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithView serves only the named view, in place of the default view. The empty name serves all views.
func WithView(name string) Option { return func(o *options) { o.only = name } }

// WithVaultKey sets the key of the vault (vault.TakeKey), in place of a keyring or a file.
func WithVaultKey(key string) Option { return func(o *options) { o.vaultKey = key } }

// WithConnector sets the page's source of MCP clients and of the entries for their configuration files.
func WithConnector(c page.Connector) Option { return func(o *options) { o.connector = c } }

// WithOwnPort sets the TCP port at which this process serves clients, to which servers in a sandbox cannot connect. The
// default is the port of the configuration.
func WithOwnPort(port int) Option { return func(o *options) { o.ownPort = port } }

// WithTraces records requests and the work they cause as spans. The proxy does not close t. By default there are no
// spans.
func WithTraces(t *telemetry.Traces) Option { return func(o *options) { o.traces = t } }

// WithLogLost tells the metrics how many lines of the log were dropped since the start.
func WithLogLost(count func() int64) Option { return func(o *options) { o.logLost = count } }

// WithPreCall runs hook before every tool call in every view, and before the hooks of the configuration. Hooks run in
// the order of their options.
func WithPreCall(hook view.PreCall) Option {
	return func(o *options) { o.pre = append(o.pre, hook) }
}

// WithPostCall runs hook after every tool call in every view, and after the hooks of the configuration. Hooks run in
// the order of their options.
func WithPostCall(hook view.PostCall) Option {
	return func(o *options) { o.post = append(o.post, hook) }
}

// WhenIndexed calls f once everything in the store is indexed, after Run has begun.
func WhenIndexed(f func()) Option { return func(o *options) { o.indexed = f } }

// WhenIdle calls f each time background work that needs much memory is done: counting definitions, making or reading
// vectors, storing segments. Several goroutines may call f at once.
func WhenIdle(f func()) Option { return func(o *options) { o.idle = f } }

// WithAudit writes an audit log; settings are the settings that log was opened with. Run writes it, and Close closes it.
func WithAudit(log *audit.Log, settings audit.Settings) Option {
	return func(o *options) {
		o.audit = auditor{log, settings}
	}
}
