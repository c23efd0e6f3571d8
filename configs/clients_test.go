package configs

import (
	"reflect"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/upstream"
)

// The files of other programs work as they are; what they say beyond servers
// is named, and harms nothing.
func TestClientFiles(t *testing.T) {
	type server struct {
		name, command, url string
		args               []string
		env, headers       map[string]string
		transport          upstream.Transport
	}
	tests := []struct {
		file     string
		servers  []server
		disabled []string
		warnings string
	}{
		{
			file: "claude_desktop_config.json",
			servers: []server{
				{name: "filesystem", command: "npx", args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"}, transport: "auto"},
				{name: "brave-search", command: "npx", args: []string{"-y", "@modelcontextprotocol/server-brave-search"}, env: map[string]string{"BRAVE_API_KEY": "abc/dé"}, transport: "auto"},
			},
			warnings: `
claude_desktop_config.json:2:3: key "globalShortcut" is not used
claude_desktop_config.json:3:3: key "preferences" is not used`,
		},
		{
			file: "cursor_mcp.json",
			servers: []server{
				{name: "github", url: "https://api.example.com/mcp/", headers: map[string]string{"Authorization": "Bearer t0ken"}, transport: "auto"},
				{name: "python", command: home + "/bin/server", args: []string{"--port", "8080", "--debug", "true"}, env: map[string]string{"LEVEL": "3"}, transport: "stdio"},
			},
			warnings: `
cursor_mcp.json:12:4: server "python": envFile is not used (write the variables under env)`,
		},
		{
			file: "vscode_mcp.json",
			servers: []server{
				{name: "github", url: "https://api.example.com/mcp/", transport: "streamable-http"},
				{name: "old", url: "https://old.example.com/sse", transport: "sse"},
				{name: "playwright", command: "npx", args: []string{"-y", "@playwright/mcp@latest", "--see=https://example.com//x,]"}, transport: "stdio"},
			},
			warnings: `
vscode_mcp.json:14:7: server "playwright": dev is not used`,
		},
		{
			file:     "windsurf_mcp_config.json",
			servers:  []server{{name: "figma", url: "https://mcp.example.com/sse", headers: map[string]string{"X-Key": "k"}, transport: "auto"}},
			disabled: []string{"off"},
			warnings: `
windsurf_mcp_config.json:4:79: server "off": alwaysAllow is not used`,
		},
		{
			file: "gemini_settings.json",
			servers: []server{
				{name: "streaming", url: "https://mcp.example.com/mcp", transport: "streamable-http"},
				{name: "guess", url: "https://mcp.example.com/sse", transport: "auto"},
			},
			warnings: `
gemini_settings.json:2:3: key "theme" is not used
gemini_settings.json:4:61: server "streaming": timeout is not used (write connect_timeout or call_timeout)
gemini_settings.json:4:78: server "streaming": trust is not used`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			c := must.Get(loadAll(Options{Dir: "testdata/clients", Path: tt.file, Env: environ("GITHUB_TOKEN=t0ken")}))(t)
			var got []server
			for _, s := range c.Servers {
				got = append(got, server{s.Name, s.Command, s.URL, s.Args, s.Env, s.Headers, s.Transport})
			}
			if !reflect.DeepEqual(got, tt.servers) {
				t.Errorf("servers:\ngot  %+v\nwant %+v", got, tt.servers)
			}
			if !reflect.DeepEqual(c.Disabled, tt.disabled) {
				t.Errorf("disabled: got %q, want %q", c.Disabled, tt.disabled)
			}
			if got, want := Errors(c.Warnings).Error(), strings.TrimSpace(tt.warnings); got != want {
				t.Errorf("warnings:\ngot\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Clients write the same way to a server in many words.
func TestTransportNames(t *testing.T) {
	tests := []struct {
		server string
		want   upstream.Transport
	}{
		{"{command: x}", upstream.TransportAuto},
		{"{command: x, type: stdio}", upstream.TransportStdio},
		{"{command: x, type: local}", upstream.TransportStdio},
		{"{command: x, transport: stdio, type: stdio}", upstream.TransportStdio},
		{"{url: 'http://x', type: http}", upstream.TransportHTTP},
		{"{url: 'http://x', type: streamable-http}", upstream.TransportHTTP},
		{"{url: 'http://x', type: streamableHttp}", upstream.TransportHTTP},
		{"{url: 'http://x', type: sse}", upstream.TransportSSE},
		{"{url: 'http://x', transport: STREAMABLE-HTTP}", upstream.TransportHTTP},
		{"{serverUrl: 'http://x'}", upstream.TransportAuto},
		{"{httpUrl: 'http://x'}", upstream.TransportHTTP},
		{"{httpUrl: 'http://x', type: http}", upstream.TransportHTTP},
	}
	for _, tt := range tests {
		c, err := load(t, "mcp_servers: {a: "+tt.server+"}")
		if err != nil {
			t.Errorf("%s: %v", tt.server, err)
			continue
		}
		if got := c.Servers[0].Transport; got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.server, got, tt.want)
		}
	}
}

// A key of ours misspelt in such a file is most likely that.
func TestMisspeltKeyInClientFile(t *testing.T) {
	dir := write(t, "a.json", `{"mcpServers": {"a": {"command": "x"}}, "topK": 3}`)
	c := must.Get(loadAll(Options{Dir: dir, Path: "a.json", Env: environ()}))(t)
	if got, want := Errors(c.Warnings).Error(), `a.json:1:41: key "topK" is not used (did you mean "top_k"?)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A stray key is a warning in the file of another program, and an error in ours.
func TestStrayTopLevelKeys(t *testing.T) {
	tests := []struct {
		name, file, text string
		wantErr          bool
	}{
		{"client's JSON", "a.json", `{"mcpServers": {}, "theme": "dark"}`, false},
		{"client's server", "a.json", `{"mcpServers": {"a": {"command": "a", "headersHelper": "x"}}}`, false},
		{"misspelt there", "a.json", `{"mcpServers": {"a": {"command": "a", "arg": ["x"]}}}`, false},
		{"our server", "a.json", `{"mcp_servers": {"a": {"command": "a", "alwaysLoad": "x"}}}`, true},
		{"VS Code's JSON", "a.json", `{"servers": {}, "theme": "dark"}`, false},
		{"our JSON", "a.json", `{"mcp_servers": {}, "theme": "dark"}`, true},
		{"client's YAML", "a.yaml", "mcpServers: {}\ntheme: dark\n", false},
		{"YAML with a key of ours", "a.yaml", "mcpServers: {}\ntop_k: 3\ntheme: dark\n", true},
		{"YAML with our name", "toolfinch.yaml", "mcpServers: {}\ntheme: dark\n", true},
		{"schema of an editor", "a.json", `{"$schema": "https://example.com/s.json", "mcp_servers": {}}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadAll(Options{Dir: write(t, tt.file, tt.text), Path: tt.file, Env: environ()})
			if (err != nil) != tt.wantErr {
				t.Errorf("got %v, want an error: %v", err, tt.wantErr)
			}
		})
	}
}
