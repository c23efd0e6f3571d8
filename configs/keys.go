package configs

import (
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/embed"
	"toolfinch/embed/models"
	"toolfinch/internal/document"
	"toolfinch/trust/audit"
	"toolfinch/trust/inbound"
	"toolfinch/trust/leaks"
	"toolfinch/trust/rate"
	"toolfinch/view"
	"toolfinch/view/python"
	"toolfinch/view/skills"
)

// top are the keys of the top level without the servers.
var top = section[Config]{keys: keys{
	{
		name: "routing_type", env: "MCPPROXY_ROUTING_TYPE",
		doc:   "`DYNAMIC` registers what is retrieved, `CALL_TOOL` offers `call_tool`, `AUTO` does both",
		value: in(func(c *Config) *Routing { return &c.Routing }).is(choice[Routing]{words: []Routing{RoutingAuto, RoutingCallTool, RoutingDynamic}}, RoutingAuto),
	},
	{
		name: "top_k", env: "MCPPROXY_TOP_K",
		doc:   "tools per answer if the query does not say, 1 to 50",
		value: in(func(c *Config) *int { return &c.TopK }).is(number[int]{1, MaxTopK}, DefaultTopK),
	},
	{
		name: "embedder", env: "MCPPROXY_EMBEDDER", change: restart,
		doc:   "`AUTO`, `BM25`, `HF`, `OPENAI`; see [Embedders](#embedders)",
		value: in(func(c *Config) *string { return &c.Embed.Kind }).is(choice[string]{words: []string{embed.KindAuto, embed.KindBM25, embed.KindHF, embed.KindOpenAI}}, embed.KindAuto),
	},
	{
		name: "hf_model", env: "MCPPROXY_HF_MODEL", change: restart,
		doc:   "for `HF` and `AUTO`",
		value: in(func(c *Config) *string { return &c.Embed.HFModel }).is(str{check: notEmpty, mask: (*secrets).prose}, models.DefaultModel),
	},
	{
		name: "hf_adapter", env: "MCPPROXY_HF_ADAPTER", change: restart,
		doc:   "`auto` uses toolfinch's own with `all-MiniLM-L6-v2`; `off`; or a file; see [Embedders](#embedders)",
		value: in(func(c *Config) *string { return &c.Embed.HFAdapter }).is(str{check: (*decoder).adapter}, embed.AdapterAuto),
	},
	{
		name: "openai_model", env: "MCPPROXY_OPENAI_MODEL", change: restart,
		doc:   "for `OPENAI`, as are the next four",
		value: in(func(c *Config) *string { return &c.Embed.OpenAI.Model }).is(str{check: notEmpty, mask: (*secrets).prose}, embed.DefaultOpenAIModel),
	},
	{
		name: "openai_base_url", env: "OPENAI_BASE_URL", without: "that of OpenAI", change: restart,
		doc:   "an http or https URL; most end with `/v1`",
		value: in(func(c *Config) *string { return &c.Embed.OpenAI.BaseURL }).is(str{mask: (*secrets).url}),
	},
	{
		name: "openai_api_key", env: "OPENAI_API_KEY", change: restart,
		doc:   "a secret: use the environment; never printed",
		value: in(func(c *Config) *embed.Secret { return &c.Embed.OpenAI.APIKey }).is(secret{}),
	},
	{
		name: "openai_dimensions", without: "the model's own", change: restart,
		doc:   "vector length to request",
		value: in(func(c *Config) *int { return &c.Embed.OpenAI.Dimensions }).is(number[int]{1, maxDimensions}),
	},
	{
		name: "openai_max_bytes", without: "`" + strconv.Itoa(embed.MaxText) + "`", change: restart,
		doc:   "bytes of a text to send, from 100",
		value: in(func(c *Config) *int { return &c.Embed.OpenAI.MaxBytes }).is(number[int]{100, embed.MaxText}),
	},
	{
		name: "query_embed_timeout", env: "MCPPROXY_QUERY_EMBED_TIMEOUT",
		doc:   "wait for a query's vector, 10ms to 30s",
		value: in(func(c *Config) *time.Duration { return &c.QueryEmbedTimeout }).is(duration{MinQueryEmbedTimeout, MaxQueryEmbedTimeout, "800ms"}, DefaultQueryEmbedTimeout),
	},
	{
		name:  "start_wait",
		doc:   "wait for servers that start for the first time, 1ms to 5m",
		value: in(func(c *Config) *time.Duration { return &c.StartWait }).is(duration{time.Millisecond, 5 * time.Minute, "8s"}, DefaultStartWait),
	},
	{
		name: "starting", change: restart, without: "the number of cores, at least 2",
		doc:   "how many servers with a command start at once; those that a client waits for come first",
		value: in(func(c *Config) *int { return &c.Starting }).is(number[int]{1, 1000}),
	},
	{
		name: "connect_timeout", change: reconnect, without: "see the server's",
		doc:   "limit for connecting, of servers without their own",
		value: in(func(c *Config) *time.Duration { return &c.ConnectTimeout }).is(duration{}),
	},
	{
		name: "learn", env: "MCPPROXY_LEARN", change: restart,
		doc:   "ranks tools higher that were called after similar queries; kept in the store only",
		value: in(func(c *Config) *bool { return &c.Learn }).is(boolean{}),
	},
	{
		name: "list_changed_exec", env: "MCPPROXY_LIST_CHANGED_EXEC", empty: true, without: "off", change: restart,
		doc:   "shell command after `list_changed`; see [The shell hook](#the-shell-hook)",
		value: in(func(c *Config) *string { return &c.ListChangedExec }).is(str{mask: (*secrets).word, empty: true}),
	},
	{
		name: "data_dir", env: "MCPPROXY_DATA_DIR", without: "in the user's data directory", change: restart,
		doc:   "folder of the store",
		value: in(func(c *Config) *string { return &c.DataDir }).is(str{check: (*decoder).path}),
	},
	{
		name: "store", env: "MCPPROXY_STORE", without: "SQLite in `data_dir`", change: restart,
		doc:   "`postgres://USER:PASSWORD@HOST/DATABASE`, for several replicas; see [scale](scale.md)",
		value: in(func(c *Config) *string { return &c.Store }).is(str{mask: (*secrets).url, check: (*decoder).storeURL}),
	},
	{
		name: "log_level", env: "MCPPROXY_LOG_LEVEL", change: restart,
		doc:   "`debug`, `info`, `warn`, `error`; always to stderr",
		value: in(func(c *Config) *slog.Level { return &c.LogLevel }).is(logLevel{}, slog.LevelInfo),
	},
	{
		name: "log_format", change: restart,
		doc:   "or `json`",
		value: in(func(c *Config) *string { return &c.LogFormat }).is(choice[string]{words: []string{LogText, LogJSON}}, LogText),
	},
	{
		name:  "pinned",
		doc:   "globs over exposed names and `server.tool`: always listed, in this order",
		value: in(func(c *Config) *[]string { return &c.Pinned }).is(list[string]{item: str{check: glob, mask: (*secrets).prose}, empty: true}),
	},
	{
		name:  "skills",
		doc:   "folders of skills, each with a `SKILL.md` or with directories that have one; see [skills.md](skills.md)",
		value: in(func(c *Config) *[]string { return &c.Skills }).is(list[string]{item: str{check: (*decoder).path}, empty: true}),
	},
	{
		name:  "max_registered",
		doc:   "tools registered per session; the least recently used leaves first",
		value: in(func(c *Config) *int { return &c.MaxRegistered }).is(number[int]{1, 1_000_000}, DefaultMaxRegistered),
	},
	{
		name:  "resume_tools",
		doc:   "how many of a client's recently called tools its new session lists; `0`: none",
		value: in(func(c *Config) *int { return &c.ResumeTools }).is(number[int]{0, 1000}, DefaultResumeTools),
	},
	{
		name:  "clients",
		doc:   "when found tools are listed, by client name or pattern: `{register: at_once}`, `when_used` or `never`, and `{era: legacy}` or `auto`; see [clients.md](clients.md#what-clients-are-listed)",
		value: in(func(c *Config) *[]Client { return &c.Clients }).is(clientList),
	},
	{
		name: "max_sessions", change: restart,
		doc:   "concurrent HTTP sessions; see [Limits](#limits)",
		value: in(func(c *Config) *int { return &c.MaxSessions }).is(number[int]{1, 1_000_000}, DefaultMaxSessions),
	},
	{
		name: "session_timeout", change: restart,
		doc:   "ends a session without request or event stream, up to 24h",
		value: in(func(c *Config) *time.Duration { return &c.SessionTimeout }).is(duration{}, DefaultSessionTimeout),
	},
	{
		name:  "call_tool",
		doc:   "`split` offers `call_tool_read`, `call_tool_write`, `call_tool_destructive`",
		value: in(func(c *Config) *CallToolMode { return &c.CallTool }).is(choice[CallToolMode]{words: []CallToolMode{CallToolSingle, CallToolSplit}}, CallToolSingle),
	},
	{
		name: "transport", change: restart,
		doc:   "or `http`",
		value: in(func(c *Config) *string { return &c.Transport }).is(choice[string]{words: []string{TransportStdio, TransportHTTP}}, TransportStdio),
	},
	{
		name: "shared", env: "MCPPROXY_SHARED", change: restart,
		doc:   "whether all agents of a user share one toolfinch over stdio; see [One toolfinch for all agents](deployment.md#one-toolfinch-for-all-agents)",
		value: in(func(c *Config) *bool { return &c.Shared }).is(boolean{}, true),
	},
	{
		name:  "keep_running",
		doc:   "how long a shared toolfinch runs without agents, 1ms to 24h",
		value: in(func(c *Config) *time.Duration { return &c.KeepRunning }).is(duration{time.Millisecond, 24 * time.Hour, "10m"}, DefaultKeepRunning),
	},
	{
		name: "listen", change: restart,
		doc:   "for `http`",
		value: in(func(c *Config) *string { return &c.Listen }).is(str{check: listen}, DefaultListen),
	},
	{
		name: "allowed_origins", change: restart,
		doc:   "browser origins besides loopback",
		value: in(func(c *Config) *[]string { return &c.Origins }).is(list[string]{item: str{check: webOrigin, mask: (*secrets).prose}, empty: true}),
	},
	{
		name: "allowed_hosts", change: restart,
		doc:   "more names that `Host` may have; see [security.md](security.md#web-pages-names-proxies)",
		value: in(func(c *Config) *[]string { return &c.Hosts }).is(list[string]{item: str{check: hostName}, empty: true}),
	},
	{
		name: "auth", without: "anyone on this machine", change: restart,
		doc:   "who may come in over HTTP: `keys`, `none` (anyone), or a mapping; see [Who may come in](#who-may-come-in)",
		value: in(func(c *Config) *inbound.Settings { return &c.Auth }).is(authKind{}),
	},
	{
		name: "trusted_proxies", without: "this machine", change: restart,
		doc:   "addresses or ranges (`10.0.0.0/8`) of proxies trusted for `principal_header` and `X-Forwarded-For`",
		value: in(func(c *Config) *[]netip.Prefix { return &c.Proxies }).is(allowed[netip.Prefix]{prefixes{}}),
	},
	{
		name: "http_limits", change: restart, without: "see [Limits of HTTP](#limits-of-http)",
		doc:   "bounds for HTTP clients",
		value: in(func(c *Config) *HTTPLimits { return &c.HTTP }).is(httpLimitsKind{}, DefaultHTTPLimits),
	},
	{
		name: "rest_api", env: "MCPPROXY_REST_API",
		doc:   "serves the REST API, `/openapi.json` and `/metrics`, too",
		value: in(func(c *Config) *bool { return &c.REST }).is(boolean{}, true),
	},
	{
		name: "ui", env: "MCPPROXY_UI",
		doc:   "serves [the page](page.md) at `/`",
		value: in(func(c *Config) *bool { return &c.UI }).is(boolean{}, true),
	},
	{
		name:  "ui_keep",
		doc:   "searches of clients whose query and hits the page shows its owner, in memory; `0`: none",
		value: in(func(c *Config) *int { return &c.UIKeep }).is(number[int]{0, MaxUIKeep}, DefaultUIKeep),
	},
	{
		name: "python", without: "`python3`",
		doc:   "the interpreter, or `{command: ..., env: {NAME: value}, inherit_env: [...]}`; see [hooks.md](hooks.md#python)",
		value: in(func(c *Config) *python.Settings { return &c.Python }).is(pythonKind{}),
	},
	{
		name:  "hook_headers",
		doc:   "HTTP headers that hooks see in `ctx.headers`; never `authorization`",
		value: in(func(c *Config) *[]string { return &c.HookHeaders }).is(list[string]{item: str{check: seenHeader}, empty: true}),
	},
	{
		name: "principal_header", change: restart,
		doc: "the HTTP header in which a reverse proxy names the authenticated user, the principal. " +
			"Requests that repeat it or come from outside `trusted_proxies` are anonymous. Only without `auth`, or with `auth: none`",
		value: in(func(c *Config) *string { return &c.PrincipalHeader }).is(str{check: headerName}),
	},
	{
		name: "audit", env: "MCPPROXY_AUDIT", change: restart, without: "off",
		doc:   "the audit log: `true`, its file, or a mapping; see [Audit](#audit)",
		value: in(func(c *Config) **audit.Settings { return &c.Audit }).is(auditKind{onOff[audit.Settings]{section: auditKeys}}),
	},
	{
		name:  "secrets",
		doc:   leaksDoc + "; see [security.md](security.md#secrets-in-answers)",
		value: in(func(c *Config) *leaks.Mode { return &c.Secrets }).is(leaksWords, leaks.Off),
	},
	{
		name: "policies", without: "everything is allowed",
		doc:   "who may do what, in Cedar: files or text; see [security.md](security.md#what-they-may-do)",
		value: in(func(c *Config) *[]Policy { return &c.PolicyTexts }).is(list[Policy]{item: policyKind{}}),
	},
	{
		name: "rate_limits", without: "none",
		doc:   "see [Rate limits](#rate-limits)",
		value: in(func(c *Config) *[]rate.Rule { return &c.RateLimits }).is(list[rate.Rule]{item: rateKind{}}),
	},
	{
		name:  "gating",
		doc:   "tools must be provisioned before a call; see [Gating](#gating)",
		value: in(func(c *Config) **view.Gating { return &c.Gating }).is(gatingKind),
	},
	{
		name: "proxy_tool", env: "MCPPROXY_PROXY_TOOL",
		doc:   "`true`, its name, or `{name: ...}`; see [The proxy tool](#the-proxy-tool)",
		value: in(func(c *Config) *string { return &c.ProxyTool }).is(proxyTool{}),
	},
	{
		name: "direct_below",
		doc: "with `routing_type` `AUTO`, all tools are listed while they cost fewer tokens; `0`: never. " +
			"See [views.md](views.md#how-a-views-tools-reach-the-client)",
		value: in(func(c *Config) *int { return &c.DirectBelow }).is(directBelow, DefaultDirectBelow),
	},
	{
		name:  "default_exposure",
		doc:   "`exposure_mode` of views that have none",
		value: in(func(c *Config) *view.Exposure { return &c.DefaultExposure }).is(choice[view.Exposure]{words: view.Exposures}, view.ExposureAuto),
	},
	{
		name:  "search_style",
		doc:   "answers of `NAME_search_tools`: `summary` has names, first sentences and signatures; `plain` has `name`, `description` and `parameters`",
		value: in(func(c *Config) *view.SearchStyle { return &c.SearchStyle }).is(searchStyle, view.SearchSummary),
	},
	{
		name: "schemas",
		doc: "input schemas in lists: `as_is`; `portable` for all [model providers](clients.md#schemas-and-model-providers); " +
			"`by_client`: portable for clients that pass them on unmended",
		value: in(func(c *Config) *view.Schemas { return &c.Schemas }).is(schemas, view.SchemasByClient),
	},
	{
		name: "groups", change: reconnect,
		doc:   "`on` speaks the draft extension [groups](protocol.md#groups) to clients and servers that declare it",
		value: in(func(c *Config) *string { return &c.Groups }).is(choice[string]{words: []string{"off", GroupsOn}}, "off"),
	},
	{
		name: "default_view", without: "`default`, else `views`, else `all`",
		doc:   "what is served where no view is named: `all`, `views` (together), `none` or a view's name; see [The root](views.md#the-root)",
		value: in(func(c *Config) *string { return &c.DefaultView }).is(str{check: notEmpty, mask: (*secrets).prose}),
	},
	{
		name:  viewBlock,
		doc:   "see [Views](#views)",
		value: in(func(c *Config) *[]view.Settings { return &c.Views }).is(views{}),
	},
}}

// NeedRestart returns the changed keys of the top level that need a restart.
func NeedRestart(before, after *Config) []string {
	var names []string
	for _, k := range top.keys {
		if k.change == restart && !reflect.DeepEqual(k.value.at(before), k.value.at(after)) {
			names = append(names, k.name)
		}
	}
	return names
}

// maxDimensions is more than any model has.
const maxDimensions = 65_536

// secret is a text that is never printed. It drops space around the text, because a file
// with a key ends with a line break.
type secret struct{}

func (secret) read(d *decoder, n *document.Node, label string, to *embed.Secret) bool {
	var text string
	ok := d.text(n, label, &text)
	if ok {
		*to = embed.Secret(strings.TrimSpace(text))
	}
	return ok
}

func (secret) show(s *secrets, v embed.Secret) *document.Node { return str{}.show(s, v.String()) }
func (secret) schema() schema                                 { return anyText }

func (d *decoder) storeURL(n *document.Node, label string, text *string) bool {
	if *text != "" && !strings.HasPrefix(*text, "postgres://") && !strings.HasPrefix(*text, "postgresql://") {
		d.fail(n, label+" must be the URL of a PostgreSQL database", "such as postgres://toolfinch@db.example/toolfinch; without it, SQLite in data_dir is the store")
		return false
	}
	return true
}

// adapter is a word, or the path of a file.
func (d *decoder) adapter(n *document.Node, label string, text *string) bool {
	if word, ok := matchFold(*text, []string{embed.AdapterAuto, embed.AdapterOff}); ok {
		*text = word
		return true
	}
	if *text == "" {
		return notEmpty(d, n, label, text)
	}
	if !d.absolute(n, label, text) {
		return false
	}
	if !isFile(*text) {
		d.fail(n, label+" names a file that is not there: "+asWritten(n), "it takes auto, off or a file; a relative path starts at the folder of this file")
		return false
	}
	return true
}

// checkOpenAI checks the keys of OPENAI if that embedder is chosen: the variables may be set
// for another program. Messages do not repeat values, which may hold secrets.
func (d *decoder) checkOpenAI(c *Config) {
	s := c.Embed.OpenAI
	kind, key, base := d.origins["embedder"], d.origins["openai_api_key"], d.origins["openai_base_url"]
	if c.Embed.Kind != embed.KindOpenAI || key.node != nil && !key.ok || base.node != nil && !base.ok {
		return
	}
	if s.APIKey == "" && s.BaseURL == "" {
		d.fail(kind.node, kind.label+": "+embed.KindOpenAI+" needs a key or a server", "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own")
	}
	if strings.ContainsFunc(string(s.APIKey), isControl) {
		d.fail(key.node, key.label+" has a line break or another control character", "")
	}
	if s.BaseURL == "" {
		return
	}
	if u, ok := isWebURL(s.BaseURL); !ok || u.RawQuery != "" || u.Fragment != "" {
		d.fail(base.node, base.label+" must be an http or https URL without a query", "like http://localhost:11434/v1")
	}
}

// checkSkills refuses a server with the name of the one that has the skills of folders.
func (d *decoder) checkSkills(c *Config) {
	if from := d.origins["skills"]; len(c.Skills) > 0 && slices.Contains(d.known, skills.Server) {
		d.fail(from.node, fmt.Sprintf("%s: there is a server %q, the name of the server of these skills", from.label, skills.Server), "give that server another name")
	}
}

// checkHook warns of a hook that rarely runs: with CALL_TOOL only lists of gated views change.
func (d *decoder) checkHook(c *Config) {
	gated := c.Gating != nil || slices.ContainsFunc(c.Views, func(v view.Settings) bool { return v.Gating != nil })
	if c.ListChangedExec != "" && c.Routing == RoutingCallTool && !gated {
		from := d.origins["list_changed_exec"]
		d.warn(from.node, from.label+" is hardly ever run with routing_type CALL_TOOL, which registers no tools", "AUTO and DYNAMIC do")
	}
}

func topKeys() []string { return append([]string{serverBlocks[0]}, top.names()...) }

const viewBlock = "tool_views"

// serverBlocks are the keys of servers: ours, most clients', and VS Code's.
var serverBlocks = []string{"mcp_servers", "mcpServers", "servers"}
