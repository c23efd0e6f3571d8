package clients

import (
	"path/filepath"
	"slices"
	"strings"
)

// AnyFile reads a file of any program.
var AnyFile = &Client{ID: "file", Name: "the file", Block: mcpServers, Notation: anyNotation}

// byName are names of files that only one client has.
var byName = map[string]string{
	"claude_desktop_config.json": "claude-desktop", ".claude.json": "claude-code", ".mcp.json": "claude-code", "mcp_config.json": "windsurf",
	"cline_mcp_settings.json": "cline", "mcp_settings.json": "roo", "mcp-config.json": "copilot",
}

// projectFiles are the ends of paths of files that clients have in projects.
var projectFiles = []string{
	"/.mcp.json", "/.vscode/mcp.json", "/.cursor/mcp.json", "/.roo/mcp.json", "/.github/mcp.json", "/.amp/settings.json", "/.zed/settings.json",
	"/.gemini/settings.json", "/.qwen/settings.json", "/.codex/config.toml", "/.kiro/settings/mcp.json", "/.junie/mcp/mcp.json",
}

// FileAt returns the file at a path with its client. known is true if the place tells the
// client; otherwise the name suggests it.
func FileAt(path string, sys System) (f File, known bool) {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(sys.Dir, path)
	}
	for _, c := range All {
		for _, f := range c.Files(sys) {
			if f.Path == path && len(f.Block) == len(c.Block) {
				return f, true
			}
		}
	}
	home, _ := sys.home()
	return FileNamed(path, home), false
}

// FileNamed returns the file at an absolute path with the client that its name suggests.
func FileNamed(path, home string) File {
	name, _, _ := strings.Cut(filepath.Base(path), backupMark)
	id := byName[name]
	switch folder := filepath.Base(filepath.Dir(path)); {
	case strings.EqualFold(filepath.Ext(name), ".toml"):
		id = "codex"
	case folder == ".gemini" || folder == ".qwen":
		id = folder[1:]
	}
	f := File{Client: AnyFile, Path: path, Project: projectOf(path), Guessed: true}
	for _, end := range projectFiles {
		if project, is := strings.CutSuffix(filepath.ToSlash(path), end); is {
			f.Project, f.Guessed = filepath.FromSlash(project), false
		}
	}
	if f.Project == filepath.Clean(home) { // the user's file
		f.Guessed = true
	}
	if id != "" {
		f.Client = Find(id)
	}
	f.Block = slices.Clone(f.Client.Block)
	return f
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
