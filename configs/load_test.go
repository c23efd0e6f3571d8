package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/embed"
	"toolfinch/internal/document"
	"toolfinch/internal/must"
	"toolfinch/trust/leaks"
	"toolfinch/upstream"
	"toolfinch/view"
	"toolfinch/view/python"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// home is the home directory in tests, absolute on every system.
var home = func() string {
	if runtime.GOOS == "windows" {
		return `C:\home\finch`
	}
	return "/home/finch"
}()

// environ is an environment for a test: nothing of the machine's.
func environ(pairs ...string) func(string) (string, bool) {
	vars := map[string]string{"HOME": home, "USERPROFILE": home}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		vars[name] = value
	}
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// Every file in testdata/bad is reported as its golden file says: all that is
// wrong with it, in file order, in one run.
func TestBadFiles(t *testing.T) {
	files := must.Get(filepath.Glob("testdata/bad/*.*"))(t)
	for _, file := range files {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := loadAll(Options{
				Dir:  "testdata/bad",
				Path: filepath.Base(file),
				Env:  environ("SET=5", "WORD=hidden-word"),
			})
			if err == nil {
				t.Fatal("accepted")
			}
			got := err.Error() + "\n"
			golden := file + ".golden"
			if *update {
				must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want := must.Get(os.ReadFile(golden))(t)
			if got != strings.ReplaceAll(string(want), "\r\n", "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// write makes a file in a new folder and returns the folder.
func write(t testing.TB, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, filepath.Join(dir, name), text)
	return dir
}

// trustsAll trusts every configuration of a working folder.
func trustsAll(string, []byte) (has, known bool) { return true, true }

// loadAll is Load, and what is wrong with single servers is an error, too.
func loadAll(opts Options) (*Config, error) {
	c, err := Load(opts)
	if err == nil && len(c.Broken) > 0 {
		return nil, Errors(c.Broken)
	}
	return c, err
}

// load reads text as toolfinch.yaml.
func load(t testing.TB, text string, env ...string) (*Config, error) {
	t.Helper()
	return loadWith(t, text, nil, env...)
}

func mustLoad(t testing.TB, text string, env ...string) *Config {
	t.Helper()
	return must.Get(load(t, text, env...))(t)
}

const minimal = "mcp_servers: {a: {command: a}}\n"

func TestSearchOrder(t *testing.T) {
	// Files in order of precedence: each is found once those before it are gone.
	order := []string{
		"flag.conf", "env.conf",
		"work/toolfinch.yaml", "work/toolfinch.yml", "work/toolfinch.json", "work/config.yaml",
		"user/toolfinch/toolfinch.yaml", "user/toolfinch/toolfinch.yml", "user/toolfinch/toolfinch.json", "user/toolfinch/config.yaml",
	}
	base := t.TempDir()
	for i, name := range order {
		path := filepath.Join(base, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		text := fmt.Sprintf(`{"mcp_servers": {"s%d": {"command": "a"}}}`, i)
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	opts := Options{
		Trusts:  trustsAll,
		Path:    filepath.Join(base, "flag.conf"),
		Env:     environ("MCPPROXY_CONFIG=../env.conf"),
		Dir:     filepath.Join(base, "work"),
		UserDir: filepath.Join(base, "user"),
	}
	for i, name := range order {
		c, err := loadAll(opts)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := fmt.Sprintf("s%d", i); c.Servers[0].Name != want || c.Path != filepath.Join(base, name) {
			t.Errorf("read %s with server %s, want %s", c.Path, c.Servers[0].Name, name)
		}
		switch i {
		case 0:
			opts.Path = ""
		case 1:
			opts.Env = environ()
		default:
			must.Do(t, os.Remove(filepath.Join(base, name)))
		}
	}
	_, err := loadAll(opts)
	if !errors.Is(err, ErrNoConfig) {
		t.Fatalf("got %v, want ErrNoConfig", err)
	}
	for _, want := range []string{opts.Dir, filepath.Join(opts.UserDir, "toolfinch"), "toolfinch import", "--config", "MCPPROXY_CONFIG"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message does not say %q:\n%v", want, err)
		}
	}
}

// Many programs have a config.yaml: one without servers is not taken, and one beside
// a configuration of toolfinch is not warned of. A mistake in one with servers is told.
func TestConfigYAMLOfSomebodyElse(t *testing.T) {
	for text, want := range map[string]string{
		"logging: {level: debug}\n":                              "no configuration",
		"mcp_servers:\n  a: {command: a, comand: b}\n":           "comand",
		"mcp_servers:\n  a: {command: a\n":                       "config.yaml:",
		"# see mcpServers\nmcpServers:\n  a: {url: ftp://x/y}\n": "url",
	} {
		_, err := loadAll(Options{Trusts: trustsAll, Dir: write(t, sharedName, text), UserDir: t.TempDir(), Env: environ()})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrNoConfig) != (want == "no configuration") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	dir := write(t, "toolfinch.yaml", minimal)
	must.Do(t, os.WriteFile(filepath.Join(dir, sharedName), []byte(minimal), 0o600))
	if c, err := Load(Options{Trusts: trustsAll, Dir: dir, Env: environ()}); err != nil || len(c.Warnings) > 0 || filepath.Base(c.Path) != "toolfinch.yaml" {
		t.Errorf("beside toolfinch.yaml: %+v, %v", c, err)
	}
}

func TestUnreadableFiles(t *testing.T) {
	dir := write(t, "big.yaml", "# "+strings.Repeat("x", maxSize))
	tests := []struct {
		name string
		opts Options
		want string
	}{
		{"missing, by flag", Options{Path: "none.yaml"}, "none.yaml: cannot be read: " + missing(t) + " (named by --config)"},
		{"missing, by environment", Options{Env: environ("MCPPROXY_CONFIG=none.yaml")}, "none.yaml: cannot be read: " + missing(t) + " (named by MCPPROXY_CONFIG)"},
		{"no home for ~", Options{Env: environ("MCPPROXY_CONFIG=~/c.yaml", "HOME=", "USERPROFILE=")}, "~/c.yaml: no home directory is known (named by MCPPROXY_CONFIG)"},
		{"a folder", Options{Path: "."}, ".: is a folder (name the file in it)"},
		{"too large", Options{Path: "big.yaml"}, "big.yaml: is larger than 5 MiB (is it a configuration?)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Dir = dir
			if tt.opts.Env == nil {
				tt.opts.Env = environ()
			}
			_, err := loadAll(tt.opts)
			var errs Errors
			if !errors.As(err, &errs) || err.Error() != tt.want {
				t.Errorf("got %v, want Errors: %s", err, tt.want)
			}
		})
	}
}

// missing is what this system says of a file that is not there.
func missing(t *testing.T) string {
	_, err := os.Open(filepath.Join(t.TempDir(), "none"))
	return errors.Unwrap(err).Error()
}

func TestDefaults(t *testing.T) {
	dir := write(t, "toolfinch.yaml", minimal)
	c := must.Get(loadAll(Options{Trusts: trustsAll, Dir: dir, UserDir: dir, Env: environ("XDG_DATA_HOME="+dir, "LOCALAPPDATA="+dir)}))(t)
	dataDir := must.Get(defaultDataDir(runtime.GOOS, environ("XDG_DATA_HOME="+dir, "LOCALAPPDATA="+dir)))(t)
	// A folder for this very file: another configuration has another store.
	if dataDir = filepath.Join(dataDir, filepath.Base(c.DataDir)); len(filepath.Base(c.DataDir)) != 8 {
		t.Errorf("data_dir = %s", c.DataDir)
	}
	if other, err := loadAll(Options{Trusts: trustsAll, Dir: write(t, "toolfinch.yaml", minimal), Env: environ("XDG_DATA_HOME="+dir, "LOCALAPPDATA="+dir)}); err != nil || other.DataDir == c.DataDir {
		t.Errorf("another file shares the store %s (error %v)", c.DataDir, err)
	}
	want := &Config{
		Path: filepath.Join(dir, "toolfinch.yaml"), Found: true,
		Servers: []upstream.Settings{{
			Name: "a", Command: "a", Cwd: dir, Transport: "auto", Protocol: "auto",
			CallTimeout: 120 * time.Second, CallTimeoutTotal: time.Hour, Validate: true,
			AskTimeout: 10 * time.Minute, Isolate: "auto",
		}},
		Routing: "AUTO", TopK: 5, QueryEmbedTimeout: 800 * time.Millisecond, StartWait: 8 * time.Second,
		Embed:   embed.Settings{Kind: "AUTO", HFModel: "all-MiniLM-L6-v2", HFAdapter: "auto", OpenAI: embed.OpenAI{Model: "text-embedding-3-small"}},
		DataDir: dataDir, LogFormat: "text",
		MaxRegistered: 40, ResumeTools: 5, MaxSessions: 10_000, HTTP: DefaultHTTPLimits, SessionTimeout: 30 * time.Minute, CallTool: "single", DirectBelow: 12_000, DefaultExposure: "auto", SearchStyle: "summary", Schemas: "by_client", Groups: "off", Secrets: leaks.Off, Transport: "stdio", Shared: true, KeepRunning: 10 * time.Minute, Listen: "127.0.0.1:8080", REST: true, UI: true, UIKeep: 500,
		Python: python.Settings{Dir: dir},
	}
	c.fingerprint, c.read = "", nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
}

func TestEveryKey(t *testing.T) {
	c := mustLoad(t, `
mcp_servers:
  program:
    command: run
    args: [a, 1, 2.50, 0x10, true, "", no]
    env: {PORT: 80, ON: true, TEXT: "x", EMPTY: ""}
    inherit_env: [AWS_*, TOKEN]
    cwd: sub
    transport: stdio
    description: what it is for
    connect_timeout: 5
    call_timeout: 1m30s
    call_timeout_total: 2h
    protocol: legacy
    validate: false
    prefix: ""
    isolate: Never
    ask_timeout: 24h
  "web @ example.com/x:1":
    url: HTTPS://mcp.example.com/mcp?x=1
    headers: {Authorization: Bearer x, X-Number: 5}
    transport: sse
    call_timeout: 0.5
    prefix: web-2
    isolate: always
    ask_timeout: 1
  off: {command: x, enabled: false}
routing_type: call_tool
top_k: 50
embedder: openai
hf_model: org/name
hf_adapter: off
openai_model: nomic-embed-text
openai_base_url: http://localhost:11434/v1
openai_api_key: " key "
openai_dimensions: 512
query_embed_timeout: 2
start_wait: 20
starting: 3
connect_timeout: 45
learn: true
list_changed_exec: echo "$MCPPROXY_CLIENT"
data_dir: data
log_level: WARN
log_format: json
pinned: ["files_*", "git.hub.?"]
max_registered: 1
resume_tools: 3
max_sessions: 2
http_limits: {sessions_per_principal: 3, sessions_per_address: 4, streams_per_principal: 5, body: 1MB, headers: 8KiB, body_time: 10s, idle_time: 1m, drain: 30s}
session_timeout: 90s
call_tool: split
direct_below: 0
default_exposure: search
search_style: plain
default_view: none
transport: http
listen: "[::1]:0"
allowed_origins: [https://App.example.com:8443]
rest_api: false
ui: false
ui_keep: 7
gating: {max_tokens: 0, max_tools: 1, ttl: 90}
proxy_tool: everything-1_2
secrets: BLOCK
`)
	dir := filepath.Dir(c.Path)
	want := &Config{
		Path: c.Path,
		Servers: []upstream.Settings{{
			Name: "program", Command: "run", Args: []string{"a", "1", "2.50", "0x10", "true", "", "no"},
			Env: map[string]string{"PORT": "80", "ON": "true", "TEXT": "x", "EMPTY": ""}, InheritEnv: []string{"AWS_*", "TOKEN"}, Cwd: filepath.Join(dir, "sub"),
			Transport: upstream.TransportStdio, Description: "what it is for",
			ConnectTimeout: 5 * time.Second, CallTimeout: 90 * time.Second, CallTimeoutTotal: 2 * time.Hour, Protocol: upstream.ProtocolLegacy,
			AskTimeout: 24 * time.Hour, Isolate: upstream.IsolateNever, Prefix: new(""),
		}, {
			Name: "web @ example.com/x:1", URL: "HTTPS://mcp.example.com/mcp?x=1",
			Headers:   map[string]string{"Authorization": "Bearer x", "X-Number": "5"},
			Transport: upstream.TransportSSE, Protocol: upstream.ProtocolAuto,
			ConnectTimeout: 45 * time.Second, CallTimeout: 500 * time.Millisecond, CallTimeoutTotal: time.Hour, Validate: true,
			AskTimeout: time.Second, Isolate: upstream.IsolateAlways, Prefix: new("web-2"), Secrets: []string{"Bearer x"},
		}},
		Found:    true,
		Disabled: []string{"off"},
		Routing:  RoutingCallTool, TopK: 50, ListChangedExec: `echo "$MCPPROXY_CLIENT"`,
		Embed: embed.Settings{Kind: embed.KindOpenAI, HFModel: "org/name", HFAdapter: "off", OpenAI: embed.OpenAI{
			APIKey: "key", BaseURL: "http://localhost:11434/v1", Model: "nomic-embed-text", Dimensions: 512,
		}},
		QueryEmbedTimeout: 2 * time.Second, StartWait: 20 * time.Second, Starting: 3, ConnectTimeout: 45 * time.Second, Learn: true,
		DataDir: filepath.Join(dir, "data"), LogLevel: slog.LevelWarn, LogFormat: LogJSON,
		Pinned: []string{"files_*", "git.hub.?"}, MaxRegistered: 1, ResumeTools: 3, MaxSessions: 2, HTTP: HTTPLimits{PrincipalSessions: 3, AddressSessions: 4, PrincipalStreams: 5, Body: 1_000_000, Headers: 8192, BodyTime: 10 * time.Second, IdleTime: time.Minute, Drain: 30 * time.Second}, SessionTimeout: 90 * time.Second, CallTool: CallToolSplit, DefaultExposure: view.ExposureSearch, SearchStyle: view.SearchPlain, Schemas: view.SchemasByClient, Groups: "off", Secrets: leaks.Block, DefaultView: RootNone,
		Transport: TransportHTTP, Shared: true, KeepRunning: 10 * time.Minute, Listen: "[::1]:0", Origins: []string{"https://app.example.com:8443"},
		Gating: &view.Gating{MaxTools: 1, TTL: 90 * time.Second}, UIKeep: 7, ProxyTool: "everything-1_2", Python: python.Settings{Dir: dir},
	}
	c.fingerprint, c.read = "", nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
}

// A flag wins over the environment, the environment over the file.
func TestPrecedence(t *testing.T) {
	text := minimal + "routing_type: CALL_TOOL\ntop_k: 1\nlist_changed_exec: file\ndata_dir: file\nlog_level: error\n" +
		"embedder: AUTO\nhf_model: file\nhf_adapter: auto\nopenai_model: file\nopenai_base_url: file\nopenai_api_key: file\nquery_embed_timeout: 1s\nlearn: true\n" +
		"rest_api: true\nproxy_tool: file\n"
	env := []string{
		"MCPPROXY_ROUTING_TYPE=dynamic", "MCPPROXY_TOP_K=2", "MCPPROXY_EMBEDDER=BM25",
		"MCPPROXY_LIST_CHANGED_EXEC=env ${X}", "MCPPROXY_DATA_DIR=~/env", "MCPPROXY_LOG_LEVEL=debug",
		"MCPPROXY_HF_MODEL=env", "MCPPROXY_HF_ADAPTER=OFF", "MCPPROXY_OPENAI_MODEL=env", "OPENAI_BASE_URL=env", "OPENAI_API_KEY=env",
		"MCPPROXY_QUERY_EMBED_TIMEOUT=10ms", "MCPPROXY_LEARN=false",
		"MCPPROXY_REST_API=false", "MCPPROXY_PROXY_TOOL=env",
	}
	c := mustLoad(t, text, env...)
	if c.Routing != RoutingDynamic || c.TopK != 2 || c.ListChangedExec != "env ${X}" ||
		c.DataDir != filepath.Join(home, "env") || c.LogLevel != slog.LevelDebug || c.REST || c.ProxyTool != "env" {
		t.Errorf("environment over file: %+v", c)
	}
	if want := (embed.Settings{Kind: "BM25", HFModel: "env", HFAdapter: "off", OpenAI: embed.OpenAI{APIKey: "env", BaseURL: "env", Model: "env"}}); c.Embed != want ||
		c.QueryEmbedTimeout != 10*time.Millisecond || c.Learn {
		t.Errorf("environment over file: %#v, %+v", c.Embed, c)
	}

	dir := write(t, "toolfinch.yaml", text)
	c = must.Get(loadAll(Options{Trusts: trustsAll, Dir: dir, Env: environ(env...), Flags: map[string]string{
		"top_k": "3", "data_dir": "flag", "listen": ":0", "auth": "none", "pinned": "a_*, b", "transport": "http", "log_format": "json",
	}}))(t)
	if c.TopK != 3 || c.DataDir != filepath.Join(dir, "flag") || c.Listen != ":0" || c.Transport != TransportHTTP ||
		c.LogFormat != LogJSON || !reflect.DeepEqual(c.Pinned, []string{"a_*", "b"}) || c.Routing != RoutingDynamic {
		t.Errorf("flags over environment: %+v", c)
	}

	c = mustLoad(t, text, "MCPPROXY_ROUTING_TYPE=", "MCPPROXY_TOP_K=", "MCPPROXY_LIST_CHANGED_EXEC=", "MCPPROXY_CONFIG=")
	if c.Routing != RoutingCallTool || c.TopK != 1 || c.ListChangedExec != "" {
		t.Errorf("empty variables are unset, but for the hook: %+v", c)
	}
}

// Relative paths in the file start where it lies, those of the environment
// where the program was started.
func TestPaths(t *testing.T) {
	file := write(t, "deep/conf.yaml", `
mcp_servers:
  near: {command: ./bin/run, cwd: work}
  up: {command: ../run, cwd: .}
  home: {command: ~/run, cwd: "~"}
  path: {command: run, cwd: ""}
  inside: {command: bin/run}
data_dir: data
`)
	dir := filepath.Join(file, "deep")
	c := must.Get(loadAll(Options{Dir: file, Path: "deep/conf.yaml", Env: environ()}))(t)
	want := []struct{ command, cwd string }{
		{filepath.Join(dir, "bin", "run"), filepath.Join(dir, "work")},
		{filepath.Join(file, "run"), dir},
		{filepath.Join(home, "run"), home},
		{"run", dir},
		{"bin/run", dir},
	}
	for i, s := range c.Servers {
		if s.Command != want[i].command || s.Cwd != want[i].cwd {
			t.Errorf("%s: got %s in %q, want %s in %q", s.Name, s.Command, s.Cwd, want[i].command, want[i].cwd)
		}
	}
	if c.DataDir != filepath.Join(dir, "data") {
		t.Errorf("data_dir of the file: %s", c.DataDir)
	}
	c = must.Get(loadAll(Options{Dir: file, Path: "deep/conf.yaml", Env: environ("MCPPROXY_DATA_DIR=data")}))(t)
	if c.DataDir != filepath.Join(file, "data") {
		t.Errorf("data_dir of the environment: %s", c.DataDir)
	}
}

func TestBadEnvironmentAndFlags(t *testing.T) {
	dir := write(t, "toolfinch.yaml", minimal+"top_k: 0\n")
	_, err := loadAll(Options{Trusts: trustsAll, Dir: dir, Env: environ(
		"MCPPROXY_TOP_K=many", "MCPPROXY_ROUTING_TYPE=CAL_TOOL", "MCPPROXY_EMBEDDER=openai:small", "MCPPROXY_LOG_LEVEL=loud",
		"MCPPROXY_REST_API=1", "MCPPROXY_PROXY_TOOL=off",
	), Flags: map[string]string{"max_registered": "-1", "pinned": "a,[", "top": "1"}})
	const want = `toolfinch.yaml:2:8: top_k must be a whole number from 1 to 50, not 0
MCPPROXY_ROUTING_TYPE must be AUTO, CALL_TOOL or DYNAMIC, not "CAL_TOOL" (did you mean "CALL_TOOL"?)
MCPPROXY_TOP_K must be a whole number from 1 to 50, not "many"
MCPPROXY_EMBEDDER must be AUTO, BM25, HF or OPENAI, not "openai:small"
MCPPROXY_LOG_LEVEL must be debug, info, warn or error, not "loud"
MCPPROXY_REST_API must be true or false, not "1"
MCPPROXY_PROXY_TOOL must be the name of a tool, not "off" (true and false, without quotes, switch the proxy tool on and off)
--max-registered must be a whole number from 1 to 1000000, not "-1"
--pinned[1] is not a valid glob (* and ? match anything, [a-z] a range, a backslash the character after it)
unknown setting --top (did you mean "top_k"?)`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if one := new(Error); !errors.As(err, &one) || one.Line != 2 || one.Column != 8 || one.File != "toolfinch.yaml" {
		t.Errorf("errors.As finds %+v", one)
	}
}

// OPENAI needs a key or a server, whoever asks for it; nobody else minds what
// its variables say.
func TestOpenAI(t *testing.T) {
	const needs = ": OPENAI needs a key or a server (set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own)"
	tests := []struct {
		name, text string
		env        []string
		want       string
	}{
		{"a key", "embedder: OPENAI\n", []string{"OPENAI_API_KEY=key\n"}, ""},
		{"a server", "embedder: OPENAI\n", []string{"OPENAI_BASE_URL=https://h/v1"}, ""},
		{"neither, by environment", "", []string{"MCPPROXY_EMBEDDER=openai"}, "MCPPROXY_EMBEDDER" + needs},
		{"neither, by file", "embedder: OPENAI\n", []string{"OPENAI_API_KEY=", "OPENAI_BASE_URL="}, "toolfinch.yaml:2:11: embedder" + needs},
		{"an empty key", "embedder: OPENAI\nopenai_api_key: ${OPENAI_API_KEY:-}\n", nil, "toolfinch.yaml:2:11: embedder" + needs},
		{"a server that is none", "embedder: OPENAI\n", []string{"OPENAI_BASE_URL=h/v1"}, "OPENAI_BASE_URL must be an http or https URL without a query (like http://localhost:11434/v1)"},
		{"a server with a query", "embedder: OPENAI\nopenai_base_url: https://h/v1?x=1\n", nil, "toolfinch.yaml:3:18: openai_base_url must be an http or https URL without a query (like http://localhost:11434/v1)"},
		{"a key of two lines", "embedder: OPENAI\n", []string{"OPENAI_API_KEY=a\nb"}, "OPENAI_API_KEY has a line break or another control character"},
		{"another embedder", "embedder: HF\n", []string{"OPENAI_BASE_URL=h/v1", "OPENAI_API_KEY=a\nb"}, ""},
		{"none by environment", "embedder: OPENAI\n", []string{"MCPPROXY_EMBEDDER=bm25"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, minimal+tt.text, tt.env...)
			if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Nobody prints the key by printing the configuration.
func TestKeyIsNotPrinted(t *testing.T) {
	c := mustLoad(t, minimal+"embedder: OPENAI\n", "OPENAI_API_KEY=hunter2")
	asJSON := must.Get(json.Marshal(c.Embed))(t)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("config", "config", c, "embed", c.Embed, "openai", c.Embed.OpenAI)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q %x", c, *c, *c, c.Embed.OpenAI.APIKey, c.Embed.OpenAI.APIKey, c.Embed.OpenAI.APIKey), fmt.Sprint(&c.Embed.OpenAI), string(asJSON), log.String()} {
		if strings.Contains(text, "hunter2") || !strings.Contains(text, "text-embedding-3-small") {
			t.Errorf("the key is out, or nothing is shown:\n%s", text)
		}
	}
}

func TestNoHome(t *testing.T) {
	_, err := load(t, minimal, "HOME=", "USERPROFILE=")
	if err == nil || !strings.Contains(err.Error(), "set data_dir or MCPPROXY_DATA_DIR") {
		t.Errorf("got %v", err)
	}
	if _, err := load(t, minimal+"data_dir: x\n", "HOME=", "USERPROFILE="); err != nil {
		t.Errorf("with data_dir: %v", err)
	}
	_, err = load(t, "mcp_servers: {a: {command: ~/x, cwd: ~/y}}\ndata_dir: ~/z\n", "HOME=", "USERPROFILE=")
	if errs := (Errors)(nil); !errors.As(err, &errs) || len(errs) != 4 {
		t.Errorf("got %v", err)
	}
}

// The same content reads the same in every dress.
func TestForms(t *testing.T) {
	yaml := "# é\nmcp_servers:\n  ä:\n    command: ünix\ntop_k: 7\n"
	json := "{\n\t\"mcp_servers\": {\"ä\": {\"command\": \"\\u00fcnix\"}},\n\t\"top_k\": 7\n}\n"
	tests := []struct{ name, file, text string }{
		{"YAML", "toolfinch.yaml", yaml},
		{"byte order mark", "toolfinch.yaml", "\ufeff" + yaml},
		{"CRLF", "toolfinch.yaml", strings.ReplaceAll(yaml, "\n", "\r\n")},
		{"document markers", "toolfinch.yaml", "%YAML 1.2\n---\n" + yaml + "...\n"},
		{"flow", "toolfinch.yaml", `{mcp_servers: {ä: {command: ünix}}, top_k: 7}`},
		{"JSON", "toolfinch.json", json},
		{"JSON, byte order mark", "toolfinch.json", "\ufeff" + json},
		{"JSON, CRLF", "toolfinch.json", strings.ReplaceAll(json, "\n", "\r\n")},
		{"JSON in a YAML file, tabs and comments", "toolfinch.yaml", "// x\n" + json},
		{"JSON that ends in a comment", "toolfinch.json", json + "// x"},
		{"tag", "toolfinch.yaml", "mcp_servers: {ä: {command: !!str ünix}}\ntop_k: !!int 7\n"},
		{"block scalar", "toolfinch.yaml", "mcp_servers:\n  ä:\n    command: >-\n      ünix\ntop_k: 7\n"},
		{"explicit key", "toolfinch.yaml", "? mcp_servers\n: ä: {command: ünix}\n? top_k\n: 7\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := must.Get(loadAll(Options{Trusts: trustsAll, Dir: write(t, tt.file, tt.text), Env: environ()}))(t)
			if len(c.Servers) != 1 || c.Servers[0].Name != "ä" || c.Servers[0].Command != "ünix" || c.TopK != 7 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// Columns count characters, whatever the file is dressed in.
func TestPlaces(t *testing.T) {
	tests := []struct {
		name, file, text string
		line, column     int
	}{
		{"YAML after wide characters", "a.yaml", "mcp_servers: {}\nx-é: {ü: 1}\npinned: [é, 5]\n", 3, 13},
		{"CRLF", "a.yaml", "mcp_servers: {}\r\n\r\ntop_k: x\r\n", 3, 8},
		{"byte order mark", "a.yaml", "\ufefftop_k: x\n", 1, 8},
		{"block scalar", "a.yaml", "top_k: |\n  x\n", 1, 8},
		{"JSON after wide characters", "a.json", `{"x-é": "ü", "top_k": "x"}`, 1, 23},
		{"JSON after a comment", "a.json", "/* é\n */ {\"top_k\": /* ü */ \"x\"}", 2, 23},
		{"JSON, CRLF", "a.json", "{\r\n\t\"top_k\": \"x\"\r\n}", 2, 11},
		{"JSON key", "a.json", `{"a": 1}`, 1, 2},
		{"JSON syntax", "a.json", "{\n  \"é\": tru\n}", 2, 8},
		{"JSON syntax after wide characters", "a.json", "{\n  \"é\" \"tru\"\n}", 2, 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadAll(Options{Dir: write(t, tt.file, tt.text), Path: tt.file, Env: environ()})
			var errs Errors
			if !errors.As(err, &errs) || len(errs) != 1 {
				t.Fatalf("got %v, want one error", err)
			}
			if e := errs[0]; e.Line != tt.line || e.Column != tt.column {
				t.Errorf("got %v, want it at %d:%d", e, tt.line, tt.column)
			}
		})
	}
}

func TestAnchors(t *testing.T) {
	c := mustLoad(t, `
x-base: &base
  command: npx
  env: &env {A: "1", B: "2"}
x-slow: &slow
  call_timeout: 10m
  connect_timeout: 9s
mcp_servers:
  one: *base
  two:
    <<: [*base, *slow]
    connect_timeout: 5s
    env:
      <<: *env
      B: "3"
  three: {<<: *slow, command: uvx, args: &args [x]}
  four: {command: uvx, args: *args}
`)
	type row struct {
		command string
		env     map[string]string
		call    time.Duration
		connect time.Duration
		args    []string
	}
	want := []row{
		{"npx", map[string]string{"A": "1", "B": "2"}, 120 * time.Second, 0, nil},
		{"npx", map[string]string{"A": "1", "B": "3"}, 10 * time.Minute, 5 * time.Second, nil},
		{"uvx", nil, 10 * time.Minute, 9 * time.Second, []string{"x"}},
		{"uvx", nil, 120 * time.Second, 0, []string{"x"}},
	}
	for i, s := range c.Servers {
		if got := (row{s.Command, s.Env, s.CallTimeout, s.ConnectTimeout, s.Args}); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s: got %+v, want %+v", s.Name, got, want[i])
		}
	}
}

// Variables reach every kind of value; a value that is wholly one variable
// becomes the number, duration or truth value its key asks for.
func TestVariables(t *testing.T) {
	c := mustLoad(t, `
mcp_servers:
  on:
    command: ${DIR}/run
    args: ["${A}", "${A}-${B:-b}", "$${A}", "$A", "${N}"]
    env: {KEY: "${env:A}", "${A}": "keys stay"}
    description: ${EMPTY:-default} ${EMPTY}.
    connect_timeout: ${N}
    call_timeout: ${D:-90s}
    validate: ${NO}
    enabled: ${YES}
  web:
    url: https://${HOST}/mcp
    headers: {Authorization: "Bearer ${A}"}
  off:
    command: ${NOT_SET}
    args: ["${NOT_SET}"]
    env: {X: "${input:x}"}
    call_timeout: ${NOT_SET}
    transport: ${NOT_SET}
    enabled: ${NO}
  off-too:
    url: ${NOT_SET}
    headers: {X: "${NOT_SET}"}
    enabled: false
top_k: ${N}
pinned: ["${A}_*"]
`, "DIR=/opt", "A=va", "N=7", "EMPTY=", "NO=false", "YES=true", "HOST=mcp.example.com")
	on, web := c.Servers[0], c.Servers[1]
	if want := []string{"va", "va-b", "${A}", "$A", "7"}; !reflect.DeepEqual(on.Args, want) {
		t.Errorf("args: got %q, want %q", on.Args, want)
	}
	if want := (map[string]string{"KEY": "va", "${A}": "keys stay"}); !reflect.DeepEqual(on.Env, want) {
		t.Errorf("env: got %q, want %q", on.Env, want)
	}
	if on.Command != "/opt/run" || on.Description != "default ." || on.ConnectTimeout != 7*time.Second ||
		on.CallTimeout != 90*time.Second || on.Validate {
		t.Errorf("%+v", on)
	}
	if web.URL != "https://mcp.example.com/mcp" || web.Headers["Authorization"] != "Bearer va" {
		t.Errorf("%+v", web)
	}
	if c.TopK != 7 || !reflect.DeepEqual(c.Pinned, []string{"va_*"}) {
		t.Errorf("%+v", c)
	}
	if want := []string{"off", "off-too"}; len(c.Servers) != 2 || !reflect.DeepEqual(c.Disabled, want) {
		t.Errorf("disabled: got %q, want %q", c.Disabled, want)
	}
}

// Whatever is wrong, no message repeats a value of env or headers, a URL, or
// what a variable holds.
func TestNoSecretsInErrors(t *testing.T) {
	const secret = "hunter2"
	tests := []string{
		"mcp_servers:\n  a:\n    command: x\n    env: {A: [hunter2], B: {C: hunter2}}\n    enabled: ${S}\n",
		"mcp_servers:\n  a:\n    command: x\n    env: hunter2\n",
		"mcp_servers:\n  a:\n    command: x\n    env:\n      A: \"hunter2\\\nbroken\n",
		"mcp_servers:\n  a:\n    command: x\n    env:\n      A: *hunter2\n      B: !hunter2 x\n      C: \"${hunter2 x} ${UNSET}\"\n",
		"mcp_servers:\n  a:\n    url: https://x\n    headers: {A: \"hunter2\\n\", B: [hunter2], \"C\": \"${hunter2\"}\n",
		"mcp_servers:\n  a:\n    url: ftp://me:hunter2@example.com\n    headers:\n      A: hunter2: x\n",
		"mcp_servers:\n  a:\n    url: ${S}\n    transport: ${S}\n    protocol: ${S}\n    call_timeout: ${S}\n    validate: ${S}\n    isolate: ${S}\n    ask_timeout: ${S}\n    prefix: ${S}!\n",
		"mcp_servers: {a: {url: \"http://me:hunter2@h:x\"}}\ntop_k: ${S}\nrouting_type: ${S}\nembedder: ${S}\nlog_level: ${S}\npinned: [\"[${S}\"]\nlisten: ${S}\nallowed_origins: [\"${S}\"]\n",
		minimal + "embedder: OPENAI\nopenai_api_key: \"hunter2\\nx\"\nopenai_base_url: \"ftp://me:hunter2@example.com\"\n",
		minimal + "embedder: OPENAI\nopenai_api_key: [hunter2]\nopenai_base_url: {hunter2: hunter2}\n",
		minimal + "embedder: OPENAI\nopenai_api_key: ${S}${UNSET}\n",
		minimal + "embedder: OPENAI\nopenai_api_key: hunter2: x\n",
		minimal + "embedder: OPENAI\nopenai_base_url: \"http://me:hunter2@h:x\"\nhf_model: ${S}\nquery_embed_timeout: ${S}\nlearn: ${S}\nopenai_dimensions: ${S}\n",
	}
	for _, text := range tests {
		c, err := load(t, text, "S="+secret)
		if err == nil {
			t.Errorf("accepted: %+v", c)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the secret is out:\n%v", err)
		}
	}
}

// What has no effect is said, and is no error.
func TestWarnings(t *testing.T) {
	c := mustLoad(t, `
mcp_servers:
  a: {command: x, headers: {A: b}, timeout: 5, env: {}}
  b: {url: "https://x.example.com", args: [x], env: {}, cwd: /x, headers: {}}
`)
	const want = `toolfinch.yaml:3:28: server "a": headers is not used with command
toolfinch.yaml:3:36: server "a": timeout is not used (write connect_timeout or call_timeout)
toolfinch.yaml:4:43: server "b": args is not used with url
toolfinch.yaml:4:62: server "b": cwd is not used with url`
	if got := Errors(c.Warnings).Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, empty := range []string{"mcp_servers: {}", "mcp_servers:", "top_k: 5", `{"mcpServers": {}}`} {
		if c := mustLoad(t, empty); len(c.Warnings) != 1 || c.Warnings[0].Message != "no servers are configured" {
			t.Errorf("%s: %v", empty, Errors(c.Warnings))
		}
	}
}

func TestAHookForListsThatDoNotChangeIsSaid(t *testing.T) {
	const servers = "mcp_servers: {a: {command: x}}\nlist_changed_exec: date\n"
	const want = `toolfinch.yaml:2:20: list_changed_exec is hardly ever run with routing_type CALL_TOOL, which registers no tools (AUTO and DYNAMIC do)`
	for text, want := range map[string]string{
		servers:                             "",
		servers + "routing_type: DYNAMIC":   "",
		servers + "routing_type: CALL_TOOL": want,
		servers + "routing_type: CALL_TOOL\ngating: {max_tokens: 10}":             "",
		servers + "routing_type: CALL_TOOL\ntool_views: {v: {include_all: true}}": want,
	} {
		if got := Errors(mustLoad(t, text).Warnings).Error(); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
	if c := mustLoad(t, servers, "MCPPROXY_ROUTING_TYPE=CALL_TOOL", "MCPPROXY_LIST_CHANGED_EXEC="); len(c.Warnings) > 0 {
		t.Error(Errors(c.Warnings))
	}
}

func TestSettingsOfClientsThatDoNothingAreSaid(t *testing.T) {
	const servers = "mcp_servers: {a: {command: x}}\n"
	for text, want := range map[string]string{
		"clients: {opencode: {register: never}, my-agent: {register: at_once}, 'codex*': {register: never}}": "",
		"clients: {codec: {register: never}}":                        `toolfinch.yaml:2:11: clients.codec is no client that was measured, and is taken for one that names itself so (did you mean "codex"?)`,
		"clients: {codex: {}}":                                       `toolfinch.yaml:2:10: clients.codex says nothing (write register: at_once, best, when_used or never; or era: legacy or auto)`,
		"clients: {codex: {register: never}}\nrouting_type: DYNAMIC": `toolfinch.yaml:2:10: clients (register) is not used with routing_type DYNAMIC (AUTO goes by it)`,
	} {
		if got := Errors(mustLoad(t, servers+text).Warnings).Error(); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// Nesting without end is refused before a parser recurses into it.
func TestDeepNesting(t *testing.T) {
	for _, level := range []string{"[", "{", "- ", "? ", "&a ", "!a ", "a: ", "[- ", "[? ", "{a: ", "[&a ", "{? ", "*a ", "<<: ", `{"a":`, "|\n ", "---\n"} {
		text := strings.Repeat(level, 20_000)
		for _, file := range []string{"a.yaml", "a.json"} {
			if _, err := loadAll(Options{Dir: write(t, file, text), Path: file, Env: environ()}); err == nil {
				t.Errorf("%q in %s: accepted", level, file)
			}
		}
	}
}

func TestExample(t *testing.T) {
	dir := write(t, "toolfinch.yaml", Example())
	c := must.Get(loadAll(Options{Trusts: trustsAll, Dir: dir, Env: environ()}))(t)
	if len(c.Warnings) > 0 {
		t.Errorf("warns: %v", Errors(c.Warnings))
	}
	// It shows the defaults: without it, nothing else would be different.
	bare := must.Get(loadAll(Options{Trusts: trustsAll, Dir: write(t, "toolfinch.yaml", minimal), Env: environ()}))(t)
	got, want := *c, *bare
	for _, c := range []*Config{&got, &want} {
		c.Path, c.Servers, c.Disabled, c.Warnings, c.DataDir, c.Python.Dir, c.fingerprint, c.read = "", nil, nil, nil, filepath.Dir(c.DataDir), "", "", nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example says\n%+v\nthe defaults are\n%+v", got, want)
	}
	s := c.Servers[0]
	s.Name, s.Command, s.Args, s.Env, s.Cwd, s.Description = "a", "a", nil, nil, "", ""
	bare.Servers[0].Cwd = ""
	if !reflect.DeepEqual(s, bare.Servers[0]) {
		t.Errorf("the example server says\n%+v\nthe defaults are\n%+v", s, bare.Servers[0])
	}
	for _, key := range append(topKeys(), serverKeys.names()...) {
		if !regexp.MustCompile(`(?m)^[ #]*` + key + `:`).MatchString(Example()) {
			t.Errorf("the example does not show %s", key)
		}
	}
	for _, k := range top.keys {
		if !strings.Contains(Example(), k.env) {
			t.Errorf("the example does not name %s", k.env)
		}
	}
}

// No input panics, and whatever is wrong with a file has a place in it.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*", "testdata/clients/*"} {
		files := must.Get(filepath.Glob(pattern))(f)
		for _, file := range files {
			data := must.Get(os.ReadFile(file))(f)
			f.Add(data, strings.HasSuffix(file, ".json"))
		}
	}
	f.Add([]byte(Example()), false)
	path := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		opts := Options{Path: path + ".yaml", Env: environ()}
		if isJSON {
			opts.Path = path + ".json"
		}
		must.Do(t, os.WriteFile(opts.Path, data, 0o600))
		c, err := loadAll(opts)
		if err == nil {
			if c == nil || c.TopK < 1 || c.TopK > MaxTopK || c.DataDir == "" {
				t.Errorf("no error and no configuration: %+v", c)
			}
			if _, _, problems := document.Parse("c.yaml", []byte(c.Resolved())); len(problems) > 0 {
				t.Errorf("prints no YAML: %v\n%s", problems, c.Resolved())
			}
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("not Errors: %v", err)
		}
		lines := 1 + bytes.Count(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\n")) + bytes.Count(data, []byte("\r"))
		for _, e := range errs {
			if e.Line < 1 || e.Line > lines || e.Column < 1 || e.File != opts.Path || e.Message == "" {
				t.Errorf("no place: %+v of %d lines", e, lines)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	var text strings.Builder
	text.WriteString("mcp_servers:\n")
	for i := range 50 {
		fmt.Fprintf(&text, "  server-%d:\n    command: npx\n    args: [-y, \"@example/server\"]\n    env: {KEY: \"${HOME}\"}\n", i)
	}
	opts := Options{Trusts: trustsAll, Dir: write(b, "toolfinch.yaml", text.String()), Env: environ()}
	for b.Loop() {
		must.Get(loadAll(opts))(b)
	}
}

// What a running proxy cannot take over is named by its key.
func TestNeedRestart(t *testing.T) {
	first := mustLoad(t, minimal)
	second := mustLoad(t, "mcp_servers: {b: {command: b}}\nlog_level: debug\nmax_sessions: 5\nhf_model: other\ntop_k: 7\npinned: [a]\ngating: true\n")
	second.DataDir = first.DataDir
	if got, want := NeedRestart(first, second), []string{"hf_model", "log_level", "max_sessions"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is wrong with a server costs that server. Everything else is read as if it
// were not there, and messages for clients name no place.
func TestABrokenServerCostsItself(t *testing.T) {
	const text = `
mcp_servers:
  well: {command: a}
  unset: {command: npx, env: {TOKEN: "${GITHUB_TOKEN}"}}
  editors: {command: npx, args: ["${workspaceFolder}", "${input:key}"]}
  key: {command: npx, comand: x}
  url: {url: "ftp://example.com"}
  none: {description: nothing}
  list: [npx]
  "no/good*": {command: a}
  well: {command: b}
  off: {command: "${UNSET}", enabled: false}
top_k: 7
`
	c := must.Get(Load(Options{Trusts: trustsAll, Dir: write(t, "toolfinch.yaml", text), UserDir: t.TempDir(), Env: environ()}))(t)
	faults := map[string]string{}
	for _, s := range c.Servers {
		faults[s.Name] = s.Fault
	}
	want := map[string]string{
		"well":    "",
		"unset":   "env TOKEN: variable GITHUB_TOKEN is not set (set it, or give a default: ${GITHUB_TOKEN:-...})",
		"editors": "args[0]: ${workspaceFolder} is known to editors only (write the value, or use a variable of the environment: ${NAME}), and 1 more",
		"key":     `unknown key "comand" (did you mean "command"?)`,
		"url":     "url must be an http or https URL (like https://mcp.example.com/mcp)",
		"none":    "has neither command nor url",
		"list":    "must be a mapping with command or url, not a list",
	}
	if !reflect.DeepEqual(faults, want) {
		t.Errorf("got  %v\nwant %v", faults, want)
	}
	if c.TopK != 7 || !slices.Equal(c.Disabled, []string{"off"}) || c.Servers[0].Command != "a" {
		t.Errorf("the rest is read as %+v", c)
	}
	for _, message := range []string{"variable GITHUB_TOKEN is not set", `illegal server name "no/good*"`, `duplicate server name "well"`} {
		if !strings.Contains(Errors(c.Broken).Error(), message) {
			t.Errorf("no %s in\n%v", message, Errors(c.Broken))
		}
	}
	if again, err := loadAll(Options{Trusts: trustsAll, Dir: write(t, "toolfinch.yaml", c.Resolved()), Env: environ()}); err != nil || len(again.Servers) != 1 {
		t.Errorf("printed, it is read as %+v, %v", again, err)
	}
}

// What other programs' users write is understood, or has its hint.
func TestWhatIsMeantIsSaid(t *testing.T) {
	c := mustLoad(t, `
mcp_servers:
  whole: {command: "npx -y server", args: [.]}
  quoted: {command: "npx 'a b'"}
  folder: {command: /no such/folder/run}
  dollar: {command: a, env: {TOKEN: $TOKEN, PRICE: 5$}, args: [--key=$KEY, $HOME/x]}
  remote: {url: "http://example.com", headers: {Authorization: Bearer $TOKEN}}
  all: {command: a, inherit_env: all}
`)
	if s := c.Servers[0]; s.Command != "npx" || !slices.Equal(s.Args, []string{"-y", "server", "."}) {
		t.Errorf("whole: %q %q", s.Command, s.Args)
	}
	if s := c.Servers[1]; s.Command != "npx 'a b'" || c.Servers[2].Command != "/no such/folder/run" || !slices.Equal(c.Servers[5].InheritEnv, []string{"*"}) {
		t.Errorf("servers: %+v", c.Servers)
	}
	want := `toolfinch.yaml:3:20: server "whole": command has arguments in it, which are taken as args (write them under args)
toolfinch.yaml:6:37: server "dollar": env TOKEN: $TOKEN is not replaced (write ${TOKEN} for the variable)
toolfinch.yaml:7:64: server "remote": headers Authorization: $TOKEN is not replaced (write ${TOKEN} for the variable)`
	if got := Errors(c.Warnings).Error(); got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
	dir := write(t, "toolfinch.yaml", minimal)
	must.Do(t, os.WriteFile(filepath.Join(dir, "toolfinch.json"), []byte("{}"), 0o600))
	if c, err := Load(Options{Trusts: trustsAll, Dir: dir, Env: environ()}); err != nil || len(c.Warnings) != 1 || c.Warnings[0].Message != "toolfinch.json beside it is not read" {
		t.Errorf("beside: %v, %v", c, err)
	}
	for file, text := range map[string]string{"config.toml": "[mcp_servers.a]\ncommand = 'a'", "opencode.json": `{"mcp": {"a": {"type": "local", "command": ["a"]}}}`} {
		if c, err := Load(Options{Dir: write(t, file, text), Path: file, Env: environ()}); err != nil || len(c.Servers) != 1 || c.Servers[0].Command != "a" {
			t.Errorf("%s: %v", file, err)
		}
	}
}
