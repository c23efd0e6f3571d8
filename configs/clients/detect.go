package clients

import (
	"path/filepath"
	"strings"
)

// AnyFile reads a file of any program.
var AnyFile = &Client{ID: "file", Name: "the file", Block: mcpServers, Notation: anyNotation}

// byName are names of files that only one client has.
var byName = map[string]string{
	"claude_desktop_config.json": "claude-desktop", ".claude.json": "claude-code", ".mcp.json": "claude-code", "mcp_config.json": "windsurf",
	"cline_mcp_settings.json": "cline", "mcp_settings.json": "roo", "mcp-config.json": "copilot",
}

// FileAt returns the file at a path with its client. known is true if the place tells the
// client, in the home directory or in a project; otherwise the name suggests it.
func FileAt(path string, sys System) (f File, known bool) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(sys.Dir, path)
	}
	dir := path
	for range 4 { // no client's file is deeper in a project
		for _, c := range All {
			for _, f := range c.Files(sys) {
				if f.Path == path && len(f.Block) == len(c.Block) {
					return f, true
				}
			}
		}
		dir = filepath.Dir(dir)
		sys = System{GOOS: sys.GOOS, Env: func(string) (string, bool) { return "", false }, Dir: dir}
	}
	name, _, _ := strings.Cut(filepath.Base(path), backupMark)
	id := byName[name]
	switch folder := filepath.Base(filepath.Dir(path)); {
	case strings.EqualFold(filepath.Ext(name), ".toml"):
		id = "codex"
	case folder == ".gemini" || folder == ".qwen":
		id = folder[1:]
	}
	f = File{Client: AnyFile, Path: path, Project: projectOf(path), Guessed: true}
	if id != "" {
		f.Client = Find(id)
	}
	f.Block = f.Client.Block
	return f, false
}

// projectOf returns the folder at which relative paths of a file start: its own, or the
// parent of a client's folder.
func projectOf(path string) string {
	dir := filepath.Dir(path)
	if base := filepath.Base(dir); strings.HasPrefix(base, ".") && len(base) > 1 {
		return filepath.Dir(dir)
	}
	return dir
}
