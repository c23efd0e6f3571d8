package clients

import (
	"errors"
	"path/filepath"
	"strings"

	"toolfinch/rawjson"
)

// anyFile reads a file of whichever program.
var anyFile = &Client{ID: "file", Name: "the file", block: mcpServers, notation: ours}

// ErrNoServers says that a file has nothing that any known client keeps servers in.
var ErrNoServers = errors.New("has none of the keys that clients keep servers under: mcpServers, servers, mcp, context_servers, amp.mcpServers, mcp_servers, extensions")

// FileAt returns the file at a path and tells by its place, its name and its contents
// in which client's format it is.
func FileAt(path string, sys System) (File, error) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(sys.Dir, path)
	}
	for _, c := range All {
		for _, f := range c.Files(sys) {
			if f.Path == path && len(f.block) == len(c.block) {
				return f, nil
			}
		}
	}
	f := File{Client: anyFile, Path: path, Project: projectOf(path), block: mcpServers, yaml: sys.YAML}
	data, err := ReadFile(path)
	if err != nil {
		return f, err
	}
	name, _, _ := strings.Cut(filepath.Base(path), backupMark)
	folder := filepath.Base(filepath.Dir(path))
	if strings.EqualFold(filepath.Ext(name), ".toml") {
		f.Client = Find("codex")
		f.block = f.Client.block
		return f, nil
	}
	plain, err := f.plain(data)
	if err != nil {
		return f, f.wrap(err)
	}
	has := func(path ...string) bool {
		value := plain
		for _, key := range path {
			value = rawjson.Member(value, key)
		}
		return rawjson.IsObject(value) || f.isYAML() && len(value) > 0 && value[0] == '['
	}
	client := ""
	switch {
	case f.isYAML() && has("extensions"):
		client = "goose"
	case f.isYAML() && has("mcpServers"):
		client = "continue"
	case has("mcpServers"):
		client = map[string]string{
			"claude_desktop_config.json": "claude-desktop", ".claude.json": "claude-code", ".mcp.json": "claude-code", "mcp_config.json": "windsurf",
			"cline_mcp_settings.json": "cline", "mcp_settings.json": "roo", "mcp-config.json": "copilot",
		}[name]
		switch folder {
		case ".gemini":
			client = "gemini"
		case ".qwen":
			client = "qwen"
		}
	case has("amp.mcpServers"):
		client = "amp"
	case has("context_servers"):
		client = "zed"
	case has("mcp", "servers"): // in the settings of VS Code
		client, f.block = "vscode", []string{"mcp", "servers"}
	case has("servers"):
		client = "vscode"
	case has("mcp"):
		client = "opencode"
	case has("mcp_servers"):
		f.block = []string{"mcp_servers"}
	default:
		return f, f.wrap(ErrNoServers)
	}
	if client != "" {
		f.Client = Find(client)
		if len(f.block) == 1 {
			f.block = f.Client.block
		}
	}
	return f, nil
}

// projectOf is the folder that relative paths of a file start at: its own, or for a
// file in a client's folder the one that this is in.
func projectOf(path string) string {
	dir := filepath.Dir(path)
	if base := filepath.Base(dir); strings.HasPrefix(base, ".") && len(base) > 1 {
		return filepath.Dir(dir)
	}
	return dir
}
