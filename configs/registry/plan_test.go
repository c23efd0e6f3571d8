package registry

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
)

// documented are the servers of the registry's own documentation and seed.
func documented(t *testing.T) map[string]Listing {
	t.Helper()
	data := must.Get(os.ReadFile("../../testdata/registry/servers.json"))(t)
	all := map[string]Listing{}
	for raw := range rawjson.Elements(data) {
		l := must.Get(listing(rawjson.Of(map[string]json.RawMessage{"server": raw})))(t)
		all[l.Name] = l
	}
	return all
}

func TestDocumentedServersAreStartedAsTheirPublishersMeantIt(t *testing.T) {
	servers := documented(t)
	for _, c := range []struct {
		name  string
		way   int
		given map[string][]string
		want  string // command line or URL, then variables and headers
	}{
		{"io.modelcontextprotocol.anonymous/brave-search", 0, nil, "npx -y @modelcontextprotocol/server-brave-search@1.0.2 BRAVE_API_KEY=${BRAVE_API_KEY}"},
		{"io.github.modelcontextprotocol/filesystem", 0, map[string][]string{"target_dir": {"/a", "/b"}, "LOG_LEVEL": {"debug"}},
			"npx -y @modelcontextprotocol/server-filesystem@1.0.2 /a /b LOG_LEVEL=debug"},
		{"io.github.modelcontextprotocol/filesystem", 1, map[string][]string{"source_path": {"/a", "/b"}, "target_path": {"/project/a", "/project/b"}},
			"docker run -i --rm -e LOG_LEVEL --mount=type=bind,src=/a,dst=/project/a --mount=type=bind,src=/b,dst=/project/b docker.io/mcp/filesystem:1.0.2 /project LOG_LEVEL=info"},
		{"io.github.example/weather-mcp", 0, nil, "uvx weather-mcp-server==0.5.0 WEATHER_API_KEY=${WEATHER_API_KEY} WEATHER_UNITS=celsius"},
		{"io.github.joelverhagen/knapcode-samplemcpserver", 0, nil, "dnx --yes Knapcode.SampleMcpServer@0.5.0 WEATHER_CHOICES=${WEATHER_CHOICES}"},
		{"io.modelcontextprotocol.anonymous/hybrid-mcp", 1, nil, "https://mcp.anonymous.modelcontextprotocol.io/http X-API-Key=${S_X_API_KEY} X-Region=us-east-1"},
		{"io.snyk/cli-mcp", 0, nil, "npx -y snyk@1.1298.0 mcp -t stdio"},
		{"io.modelcontextprotocol.anonymous/multi-tenant-server", 0, nil, "https://anonymous.modelcontextprotocol.io/mcp/${S_TENANT_ID}"},
		{"io.modelcontextprotocol.anonymous/multi-tenant-server", 0, map[string][]string{"tenant_id": {"eu"}}, "https://anonymous.modelcontextprotocol.io/mcp/eu"},
		{"io.modelcontextprotocol.anonymous/mcp-fs", 0, nil, "https://mcp-fs.anonymous.modelcontextprotocol.io/http"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := must.Get(servers[c.name].Ways[c.way].Plan("s", "", c.given))(t)
			if got := written(p); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func written(p Plan) string {
	words := append([]string{p.Server.Command + p.Server.URL}, p.Server.Args...)
	for _, pairs := range []map[string]string{p.Server.Env, p.Server.Headers} {
		for _, name := range slices.Sorted(maps.Keys(pairs)) {
			words = append(words, name+"="+pairs[name])
		}
	}
	return strings.Join(words, " ")
}

func wayOf(t *testing.T, field, document string) Way {
	t.Helper()
	l := must.Get(listing([]byte(`{"server": {"name": "a/b", "` + field + `": [` + document + `]}}`)))(t)
	return l.Ways[0]
}

func TestInputsBecomeTexts(t *testing.T) {
	for name, c := range map[string]struct {
		field, document string
		given           map[string][]string
		want            string
	}{
		"a fixed value with a default beside it": {"packages", `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "named", "name": "--a", "value": "v", "default": "d"}]}`, nil, "npx -y x --a=v"},
		"a flag without anything is a switch":    {"packages", `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "named", "name": "--stdio"}]}`, nil, "npx -y x --stdio"},
		"an optional one is left out":            {"packages", `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "named", "name": "--a", "description": "an a"}]}`, nil, "npx -y x"},
		"unless it is given":                     {"packages", `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "named", "name": "--a", "description": "an a"}]}`, map[string][]string{"a": {"-1"}}, "npx -y x --a=-1"},
		"unknown braces stay":                    {"packages", `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "positional", "value": "{a}{b}", "variables": {"b": {"default": "B"}}}]}`, nil, "npx -y x {a}B"},
		"numbers and booleans as defaults":       {"packages", `{"registryType": "npm", "identifier": "x", "environmentVariables": [{"name": "P", "default": 80}, {"name": "Q", "default": true}]}`, nil, "npx -y x P=80 Q=true"},
		"npx has its -y already":                 {"packages", `{"registryType": "npm", "identifier": "x", "runtimeHint": "npx", "runtimeArguments": [{"type": "named", "name": "--yes"}]}`, nil, "npx -y x"},
		"an image with registry and version apart, as before October 2025": {"packages",
			`{"registryType": "oci", "registryBaseUrl": "https://ghcr.io", "identifier": "me/x", "version": "1.2", "runtimeArguments": [{"type": "positional", "value": "run"}, {"type": "named", "name": "--rm"}, {"type": "named", "name": "-i"}]}`, nil, "docker run -i --rm ghcr.io/me/x:1.2"},
		"a container gets only variables that are set": {"packages", `{"registryType": "oci", "identifier": "x:1", "environmentVariables": [{"name": "A"}, {"name": "B", "value": "b"}]}`, nil, "docker run -i --rm -e B x:1 B=b"},
		"a container's own variables, and a folder that the user names": {"packages",
			`{"registryType": "oci", "identifier": "x:1", "runtimeArguments": [{"type": "named", "name": "-e", "value": "T={t}", "variables": {"t": {"isRequired": true}}},
				{"type": "named", "name": "-v", "value": "{dir}:/data:ro", "variables": {"dir": {"isRequired": true}}}]}`, map[string][]string{"dir": {"/a"}}, "docker run -i --rm -e T=${S_T} -v /a:/data:ro x:1"},
		"a version of Python":             {"packages", `{"registryType": "pypi", "identifier": "x", "runtimeArguments": [{"type": "named", "name": "--python", "value": "3.12"}]}`, nil, "uvx --python=3.12 x"},
		"a steering variable of the user": {"packages", `{"registryType": "npm", "identifier": "x", "environmentVariables": [{"name": "NODE_OPTIONS"}]}`, map[string][]string{"NODE_OPTIONS": {"--use-system-ca"}}, "npx -y x NODE_OPTIONS=--use-system-ca"},
		"a header with a part of its own": {"remotes", `{"type": "sse", "url": "https://x.example.com", "headers": [{"name": "Authorization", "value": "Bearer {key}", "variables": {"key": {"isRequired": true, "isSecret": true}}}]}`, nil,
			"https://x.example.com Authorization=Bearer ${S_KEY}"},
		"variables of publishers are text": {"remotes", `{"type": "sse", "url": "https://x.example.com/${HOME}", "headers": [{"name": "A", "value": "{d}{h}", "variables": {"d": {"default": "$"}, "h": {"default": "{HOME}"}}}]}`, nil,
			"https://x.example.com/$${HOME} A=$${HOME}"},
	} {
		t.Run(name, func(t *testing.T) {
			p := must.Get(wayOf(t, c.field, c.document).Plan("s", "", c.given))(t)
			if got := written(p); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Publishers are strangers: nothing of theirs may become a program, a flag of the one
// that starts the package, a package from elsewhere, or what nobody sees.
func TestHostilePackagesAreNotStarted(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	for name, document := range map[string]string{
		"a flag as package":          `{"registryType": "npm", "identifier": "--call=evil"}`,
		"a URL as package":           `{"registryType": "npm", "identifier": "https://evil.example.com/x.tgz"}`,
		"a folder as package":        `{"registryType": "npm", "identifier": "../x"}`,
		"an alias as version":        `{"registryType": "npm", "identifier": "x", "version": "npm:evil@1"}`,
		"a requirement as version":   `{"registryType": "pypi", "identifier": "x", "version": "1 @ https://evil.example.com"}`,
		"a URL as requirement":       `{"registryType": "pypi", "identifier": "x @ git+https://evil.example.com"}`,
		"a flag as image":            `{"registryType": "oci", "identifier": "--privileged"}`,
		"a program of choice":        `{"registryType": "npm", "identifier": "x", "runtimeHint": "sh", "runtimeArguments": [{"type": "named", "name": "-c", "value": "evil"}]}`,
		"another registry":           `{"registryType": "npm", "registryBaseUrl": "https://evil.example.com", "identifier": "x"}`,
		"hidden characters":          "{\"registryType\": \"npm\", \"identifier\": \"x\", \"packageArguments\": [{\"type\": \"positional\", \"value\": \"a\u202eb\"}]}",
		"an end of line":             `{"registryType": "npm", "identifier": "x", "environmentVariables": [{"name": "A", "value": "a\nb"}]}`,
		"no name of a variable":      `{"registryType": "npm", "identifier": "x", "environmentVariables": [{"name": "A=B", "value": "a"}]}`,
		"a text without end":         `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "positional", "value": "` + long + `"}]}`,
		"arguments without end":      `{"registryType": "npm", "identifier": "x", "packageArguments": [` + strings.Repeat(`{"type": "positional", "value": "x"},`, maxInputs) + `{}]}`,
		"a value behind a dollar":    `{"registryType": "npm", "identifier": "x", "packageArguments": [{"type": "positional", "value": "${a}", "variables": {"a": {"isRequired": true}}}]}`,
		"a bundle":                   `{"registryType": "mcpb", "identifier": "https://example.com/x.mcpb"}`,
		"an unknown type":            `{"registryType": "cargo", "identifier": "x"}`,
		"a package that serves HTTP": `{"registryType": "npm", "identifier": "x", "transport": {"type": "streamable-http", "url": "http://localhost:1"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := wayOf(t, "packages", document).Plan("s", "", nil)
			if _, ok := errors.AsType[*Unsupported](err); !ok {
				t.Errorf("%v: %s", err, written(p))
			}
		})
	}
	for name, document := range map[string]string{
		"no URL":          `{"type": "sse", "url": "file:///etc/passwd"}`,
		"no transport":    `{"type": "websocket", "url": "wss://x.example.com"}`,
		"two headers":     `{"type": "sse", "url": "https://x.example.com", "headers": [{"name": "A: b\r\nC", "value": "d"}]}`,
		"a split request": `{"type": "sse", "url": "https://x.example.com", "headers": [{"name": "A", "value": "b\r\nC: d"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := wayOf(t, "remotes", document).Plan("s", "", nil)
			if _, ok := errors.AsType[*Unsupported](err); !ok {
				t.Errorf("%v: %s", err, written(p))
			}
		})
	}
}

// The words before a package belong to the program that starts it: a shell command,
// another package or another place to install from would be among them.
func TestPublishersHaveNoOptionsThatStartAnythingElse(t *testing.T) {
	named := func(name, value string) string {
		return string(rawjson.Of(map[string]any{"type": "named", "name": name, "value": value}))
	}
	positional := func(value string) string {
		return string(rawjson.Of(map[string]any{"type": "positional", "value": value}))
	}
	const users = `"variables": {"a": {"isRequired": true}, "b": {"default": "/x,src=/"}}`
	for _, c := range []struct{ kind, hint, argument, want string }{
		{"npm", "npx", named("-c", "touch PWN"), `the option "-c touch PWN"`},
		{"npm", "npx", named("--package", "real@1"), `"--package real@1"`},
		{"npm", "npx", named("--registry", "https://evil.example.com"), "--registry"},
		{"npm", "npx", named("--node-options", "--require=/x"), "--node-options"},
		{"npm", "npx", named("-y", "evil"), "-y evil"},
		{"npm", "npx", positional("evil@1"), `"evil@1"`},
		{"npm", "npx", `{"type": "positional", "valueHint": "a", "default": "evil"}`, `"evil"`},
		{"npm", "npx", `{"type": "positional", "valueHint": "a", "isRequired": true}`, "option"},
		{"npm", "npx", `{"type": "named", "name": "-c"}`, `"-c"`},
		{"npm", "bunx", named("--package", "evil"), "--package"},
		{"pypi", "uvx", named("--from", "git+https://evil.example.com"), "--from"},
		{"pypi", "uvx", named("--index-url", "https://evil.example.com"), "--index-url"},
		{"pypi", "uvx", named("--with", "evil"), "--with"},
		{"pypi", "uvx", named("--python", "/tmp/evil"), "--python /tmp/evil"},
		{"pypi", "uvx", `{"type": "named", "name": "--python"}`, "--python"},
		{"pypi", "pipx", named("--spec", "evil"), "--spec"},
		{"nuget", "dnx", named("--source", "https://evil.example.com"), "--source"},
		{"oci", "docker", positional("evil/image"), `"evil/image"`},
		{"oci", "docker", named("--privileged", "true"), "--privileged"},
		{"oci", "docker", named("--network", "host"), "--network host"},
		{"oci", "docker", named("--entrypoint", "sh"), "--entrypoint"},
		{"oci", "docker", named("-e", "AWS_SECRET_ACCESS_KEY"), "-e AWS_SECRET_ACCESS_KEY"},
		{"oci", "docker", `{"type": "named", "name": "-e"}`, `"-e"`},
		{"oci", "docker", named("-v", "/:/host"), "what of this machine"},
		{"oci", "docker", named("--mount", "type=bind,src=/,dst=/host"), "what of this machine"},
		{"oci", "docker", `{"type": "named", "name": "--volume", "valueHint": "v", "default": "/:/host"}`, "what of this machine"},
		{"oci", "docker", `{"type": "named", "name": "-v", "value": "/{a}:/host", ` + users + `}`, "what of this machine"},
		{"oci", "docker", `{"type": "named", "name": "-v", "value": "{a}:/host", "variables": {"a": {"default": "/"}}}`, "what of this machine"},
		{"oci", "podman", `{"type": "named", "name": "--mount", "value": "type=bind,src={a},dst={b}", ` + users + `}`, "what of this machine"},
		{"oci", "podman", `{"type": "named", "name": "--mount", "value": "type=volume,src={a},volume-opt=device=/", "variables": {"a": {}}}`, "what of this machine"},
	} {
		t.Run(c.hint+" "+c.argument, func(t *testing.T) {
			p, err := wayOf(t, "packages", `{"registryType": "`+c.kind+`", "identifier": "x", "runtimeHint": "`+c.hint+`", "runtimeArguments": [`+c.argument+`]}`).Plan("s", "", nil)
			if _, ok := errors.AsType[*Unsupported](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %s", err, written(p))
			}
		})
	}
}

func TestPublishersSetNoVariablesThatSteerWhatIsRun(t *testing.T) {
	for _, name := range []string{"NODE_OPTIONS", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PATH", "Path", "PYTHONPATH", "PYTHONSTARTUP", "npm_config_registry", "NPM_CONFIG_PREFIX", "Npm_Config_Node_Options",
		"UV_INDEX_URL", "PIP_INDEX_URL", "DOCKER_HOST", "BASH_ENV", "ENV", "JAVA_TOOL_OPTIONS", "PERL5OPT", "RUBYOPT", "HOME", "https_proxy", "GIT_SSH_COMMAND"} {
		for _, field := range []string{"value", "default"} {
			p, err := wayOf(t, "packages", `{"registryType": "npm", "identifier": "x", "environmentVariables": [{"name": "`+name+`", "`+field+`": "v"}]}`).Plan("s", "", nil)
			if want := "its publisher sets " + name + ", which decides what is run or installed"; messageOf(err) != want {
				t.Errorf("%s of %s: %v: %s", field, name, err, written(p))
			}
		}
	}
}

func TestGivenValuesAreChecked(t *testing.T) {
	way := wayOf(t, "packages", `{"registryType": "npm", "identifier": "x", "environmentVariables": [
		{"name": "MODE", "choices": ["a", "b"]}, {"name": "PORT", "format": "number"}, {"name": "ON", "format": "boolean"}, {"name": "KEY", "isSecret": true}]}`)
	for given, want := range map[string]string{
		"MODE=c": "MODE is one of a, b", "PORT=x": "PORT is a number", "ON=yes": "ON is true or false", "MOD=a": `it takes no "MOD"; nearest: MODE`,
		"MODE=a": "", "MODE=${M}": "", "PORT=80": "", "ON=true": "",
	} {
		name, value, _ := strings.Cut(given, "=")
		_, err := way.Plan("s", "", map[string][]string{name: {value}})
		if got := messageOf(err); got != want {
			t.Errorf("%s: %q, want %q", given, got, want)
		}
	}
	if _, err := way.Plan("s", "", map[string][]string{"PORT": {"1", "2"}}); messageOf(err) != "PORT takes one value" {
		t.Error(err)
	}
	for given, secret := range map[string]bool{"${KEY}": false, "k": true} {
		if p, err := way.Plan("s", "", map[string][]string{"KEY": {given}}); err != nil || p.Server.Secret != secret {
			t.Errorf("KEY=%s: secret %t, %v", given, p.Server.Secret, err)
		}
	}
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
