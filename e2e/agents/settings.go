package agents

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
)

type object = map[string]any

// entry is the server as most files have it, with the URL under a key.
func (s Server) entry(url string, more object) object {
	if s.Command == nil {
		more[url] = s.URL
		return more
	}
	delete(more, "type") // which is the URL's
	more["command"], more["args"] = s.Command[0], s.Command[1:]
	return more
}

// entries are the servers by name.
func (r Run) entries(entry func(Server) object) object {
	all := object{}
	for _, s := range r.Servers {
		all[s.Name] = entry(s)
	}
	return all
}

func opencode(r Run) (arguments, env []string, err error) {
	port, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	entry := func(s Server) object {
		switch {
		case s.Command != nil:
			return object{"type": "local", "command": s.Command, "enabled": true}
		case s.Key != "":
			return object{"type": "remote", "url": s.URL, "enabled": true, "headers": object{"Authorization": "Bearer " + s.Key}}
		}
		// If no port is named, all logins end at the same one.
		return object{"type": "remote", "url": s.URL, "enabled": true, "oauth": object{"callbackPort": port}}
	}
	err = writeJSON(filepath.Join(r.Home, "xdg", "config", "opencode", "opencode.json"), object{
		"autoupdate": false,
		"share":      "disabled",
		"permission": "allow",
		"provider": object{"scripted": object{
			"npm":     "@ai-sdk/openai-compatible",
			"options": object{"baseURL": r.Base + "/v1", "apiKey": "none"},
			"models":  object{"model": object{"name": "model", "tool_call": true}},
		}},
		"mcp": r.entries(entry),
	})
	return []string{"run", "--model", "scripted/model", "--title", "note", r.Prompt},
		[]string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1"}, err
}

func gemini(r Run) (arguments, env []string, err error) {
	err = writeJSON(filepath.Join(r.Home, ".gemini", "settings.json"), object{
		"security":  object{"auth": object{"selectedType": "gemini-api-key"}},
		"general":   object{"enableAutoUpdate": false, "disableAutoUpdate": true, "disableUpdateNag": true},
		"privacy":   object{"usageStatisticsEnabled": false},
		"telemetry": object{"enabled": false},
		"mcpServers": r.entries(func(s Server) object {
			more := object{"trust": true}
			if s.Key != "" {
				more["headers"] = object{"Authorization": "Bearer " + s.Key}
			}
			return s.entry("httpUrl", more)
		}),
	})
	return []string{"--model", "gemini-2.5-flash", "--yolo", "--skip-trust", "--prompt", r.Prompt},
		[]string{"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL=" + r.Base, "GEMINI_CLI_NO_RELAUNCH=1"}, err
}

func codex(r Run) (arguments, env []string, err error) {
	config := fmt.Sprintf(`model = "model"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
mcp_oauth_credentials_store = "file"

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = %q
wire_api = "responses"
env_key = "SCRIPTED_KEY"
`, r.Base+"/v1")
	for _, server := range r.Servers {
		config += fmt.Sprintf("\n[mcp_servers.%s]\n", server.Name)
		if server.Command == nil {
			config += fmt.Sprintf("url = %q\n", server.URL)
			if server.Key != "" {
				config += "bearer_token_env_var = \"SERVER_KEY\"\n"
				env = append(env, "SERVER_KEY="+server.Key)
			}
			if server.Scopes != nil {
				config += fmt.Sprintf("scopes = [\"%s\"]\n", strings.Join(server.Scopes, `", "`))
			}
			continue
		}
		arguments, err := json.Marshal(server.Command[1:]) // JSON is TOML here
		if err != nil {
			return nil, nil, err
		}
		config += fmt.Sprintf("command = %q\nargs = %s\n", server.Command[0], arguments)
	}
	settings := filepath.Join(r.Home, "codex")
	err = write(filepath.Join(settings, "config.toml"), []byte(config))
	return []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", r.Prompt},
		append(env, "CODEX_HOME="+settings, "SCRIPTED_KEY=none"), err
}

func claude(r Run) (arguments, env []string, err error) {
	file := filepath.Join(r.Home, "mcp.json")
	err = writeJSON(file, object{"mcpServers": r.entries(func(s Server) object { return s.entry("url", object{"type": "http"}) })})
	var allowed []string
	for _, s := range r.Servers {
		allowed = append(allowed, "mcp__"+s.Name)
	}
	return []string{"-p", r.Prompt, "--mcp-config", file, "--strict-mcp-config", "--allowedTools", strings.Join(allowed, ","), "--output-format", "json"},
		[]string{"ANTHROPIC_BASE_URL=" + r.Base, "ANTHROPIC_API_KEY=none", "MCP_TIMEOUT=180000", "MCP_CONNECT_TIMEOUT_MS=180000", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1"}, err
}

func qwen(r Run) (arguments, env []string, err error) {
	err = writeJSON(filepath.Join(r.Home, ".qwen", "settings.json"), object{
		"security":   object{"auth": object{"selectedType": "openai"}},
		"general":    object{"enableAutoUpdate": false, "disableAutoUpdate": true},
		"privacy":    object{"usageStatisticsEnabled": false},
		"telemetry":  object{"enabled": false},
		"mcpServers": r.entries(func(s Server) object { return s.entry("httpUrl", object{"trust": true, "alwaysLoadTools": true}) }),
	})
	return []string{"--yolo", r.Prompt},
		[]string{"OPENAI_API_KEY=none", "OPENAI_BASE_URL=" + r.Base + "/v1", "OPENAI_MODEL=model"}, err
}

func copilot(r Run) (arguments, env []string, err error) {
	settings := filepath.Join(r.Home, "copilot")
	err = writeJSON(filepath.Join(settings, "mcp-config.json"), object{"mcpServers": r.entries(func(s Server) object { return s.entry("url", object{"type": "http", "tools": []string{"*"}}) })})
	return []string{"--allow-all-tools", "--allow-all-paths", "--no-auto-update", "-p", r.Prompt},
		[]string{"COPILOT_HOME=" + settings, "COPILOT_OFFLINE=true", "COPILOT_PROVIDER_BASE_URL=" + r.Base + "/v1", "COPILOT_MODEL=model"}, err
}

func cline(r Run) (arguments, env []string, err error) {
	settings := filepath.Join(r.Home, ".cline", "data", "settings")
	err = writeJSON(filepath.Join(settings, "providers.json"), object{
		"version": 1, "lastUsedProvider": "openai-compatible", "modes": object{},
		"providers": object{"openai-compatible": object{
			"settings":  object{"provider": "openai-compatible", "apiKey": "none", "model": "model", "baseUrl": r.Base + "/v1"},
			"updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual",
		}},
	})
	if err != nil {
		return nil, nil, err
	}
	err = writeJSON(filepath.Join(settings, "cline_mcp_settings.json"), object{"mcpServers": r.entries(func(s Server) object {
		if s.Command == nil {
			return object{"transport": object{"type": "streamableHttp", "url": s.URL}}
		}
		return object{"transport": object{"type": "stdio", "command": s.Command[0], "args": s.Command[1:]}}
	})})
	return []string{"--auto-approve", "true", r.Prompt},
		[]string{"CLINE_SESSION_BACKEND_MODE=local"}, err // without a daemon that stays
}

func continueCLI(r Run) (arguments, env []string, err error) {
	file := filepath.Join(r.Home, "continue.yaml") // JSON is YAML
	var servers []object
	for _, s := range r.Servers {
		servers = append(servers, s.entry("url", object{"name": s.Name, "type": "streamable-http"}))
	}
	err = writeJSON(file, object{
		"name": "scripted", "version": "1.0.0", "schema": "v1",
		"models": []object{{"name": "model", "provider": "openai", "model": "model", "apiBase": r.Base + "/v1", "apiKey": "none",
			"roles": []string{"chat"}, "capabilities": []string{"tool_use"}}},
		"mcpServers": servers,
	})
	return []string{"--config", file, "--auto", "-p", r.Prompt},
		[]string{"CONTINUE_TELEMETRY_ENABLED=0", "CONTINUE_GLOBAL_DIR=" + filepath.Join(r.Home, "continue")}, err
}

// freePort is a TCP port that nothing listens at now, below those that the system gives to connections.
func freePort() (port int, err error) {
	for range 100 {
		port = 10_000 + rand.IntN(20_000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return write(path, text)
}

func write(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
