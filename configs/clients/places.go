package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
)

func (s System) env(name string) string {
	value, _ := s.Env(name)
	return value
}

func (s System) home() (string, bool) {
	name := "HOME"
	if s.GOOS == "windows" {
		name = "USERPROFILE"
	}
	home := s.env(name)
	return home, home != ""
}

// inHomeDir returns a path below the home directory, "" without one.
func (s System) inHomeDir(parts ...string) string {
	home, ok := s.home()
	if !ok {
		return ""
	}
	return filepath.Join(append([]string{home}, parts...)...)
}

// xdg returns a path below the configuration directory of Linux, which some programs use on
// every system.
func (s System) xdg(parts ...string) string {
	// The base directory specification says that a relative path is ignored.
	if base := s.env("XDG_CONFIG_HOME"); filepath.IsAbs(base) {
		return filepath.Join(append([]string{base}, parts...)...)
	}
	return s.inHomeDir(append([]string{".config"}, parts...)...)
}

// appData returns a path below the system's folder for settings of desktop programs.
func (s System) appData(parts ...string) string {
	switch s.GOOS {
	case "windows":
		if base := s.env("APPDATA"); base != "" {
			return filepath.Join(append([]string{base}, parts...)...)
		}
		return s.inHomeDir(append([]string{"AppData", "Roaming"}, parts...)...)
	case "darwin":
		return s.inHomeDir(append([]string{"Library", "Application Support"}, parts...)...)
	}
	return s.xdg(parts...)
}

// user returns the user's files without unknown (empty) paths.
func user(paths ...string) []File {
	var files []File
	for _, path := range paths {
		if path != "" {
			files = append(files, File{Path: path})
		}
	}
	return files
}

// project returns files of the project by their path in it.
func (s System) project(places ...string) []File {
	if s.Dir == "" {
		return nil
	}
	var files []File
	for _, place := range places {
		files = append(files, File{Path: filepath.Join(s.Dir, filepath.FromSlash(place)), Project: s.Dir})
	}
	return files
}

// inHome returns the places of a client with a file at the same path in the home directory
// and in a project.
func inHome(name, folder string) func(System) []File {
	return func(s System) []File {
		return slices.Concat(user(s.inHomeDir(folder, name)), s.projectApart(folder+"/"+name))
	}
}

// projectApart is project without files if the project is the home directory, whose file is
// the user's.
func (s System) projectApart(place string) []File {
	if home, ok := s.home(); ok && filepath.Clean(home) == s.Dir {
		return nil
	}
	return s.project(place)
}

func claudeDesktop(s System) []File {
	return user(s.appData("Claude", "claude_desktop_config.json"))
}

// claudeCode has one file with the user's servers and the user's private servers of each
// folder. Shared servers of a project are in the project.
func claudeCode(s System) []File {
	own := s.inHomeDir(".claude.json")
	if dir := s.env("CLAUDE_CONFIG_DIR"); dir != "" {
		own = filepath.Join(dir, ".claude.json")
	}
	files := append(user(own), s.project(".mcp.json")...)
	if own == "" {
		return files
	}
	for _, key := range claudeProjects(own) {
		folder := filepath.Clean(key)
		if folder != s.Dir {
			files = append(files, File{Path: filepath.Join(folder, ".mcp.json"), Project: folder})
		}
		files = append(files, File{Path: own, Project: folder, Block: []string{"projects", key, "mcpServers"}})
	}
	return files
}

// claudeProjects returns the existing folders in which Claude Code was used, as it writes
// them: on Windows with slashes. An unreadable file is reported when its servers are read.
func claudeProjects(own string) []string {
	data, err := ReadFile(own)
	if err != nil {
		return nil
	}
	all, err := document.PlainJSON(data)
	if err != nil {
		return nil
	}
	var folders []string
	for folder := range rawjson.Members(rawjson.Member(all, "projects")) {
		if info, err := os.Stat(folder); err == nil && info.IsDir() && filepath.IsAbs(folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

func vsCode(s System) []File {
	return append(user(s.appData("Code", "User", "mcp.json")), s.project(".vscode/mcp.json")...)
}

func windsurf(s System) []File {
	return user(s.inHomeDir(".codeium", "windsurf", "mcp_config.json"))
}

func codex(s System) []File {
	own := s.inHomeDir(".codex", "config.toml")
	if dir := s.env("CODEX_HOME"); dir != "" {
		own = filepath.Join(dir, "config.toml")
	}
	return append(user(own), s.projectApart(".codex/config.toml")...)
}

func opencode(s System) []File {
	files := user(s.env("OPENCODE_CONFIG"), s.xdg("opencode", "opencode.json"), s.xdg("opencode", "opencode.jsonc"))
	return append(files, s.project("opencode.json", "opencode.jsonc")...)
}

func zed(s System) []File {
	own := s.xdg("zed", "settings.json")
	switch s.GOOS {
	case "windows":
		own = s.appData("Zed", "settings.json")
	case "darwin":
		own = s.inHomeDir(".config", "zed", "settings.json")
	}
	return append(user(own), s.project(".zed/settings.json")...)
}

// cline and roo are extensions of VS Code, which stores their files.
func cline(s System) []File {
	return user(s.appData("Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json"))
}

func clineCLI(s System) []File {
	dir := s.inHomeDir(".cline", "data")
	if own := s.env("CLINE_DATA_DIR"); own != "" {
		dir = own
	}
	return user(filepath.Join(dir, "settings", "cline_mcp_settings.json"))
}

func roo(s System) []File {
	own := s.appData("Code", "User", "globalStorage", "rooveterinaryinc.roo-cline", "settings", "mcp_settings.json")
	return append(user(own), s.project(".roo/mcp.json")...)
}

// copilot also reads a project's .mcp.json, which counts as Claude Code's.
func copilot(s System) []File {
	own := s.inHomeDir(".copilot", "mcp-config.json")
	if dir := s.env("COPILOT_HOME"); dir != "" {
		own = filepath.Join(dir, "mcp-config.json")
	}
	return append(user(own), s.project(".github/mcp.json")...)
}

func amp(s System) []File {
	return append(user(s.inHomeDir(".config", "amp", "settings.json")), s.projectApart(".amp/settings.json")...)
}

func lmStudio(s System) []File { return user(s.inHomeDir(".lmstudio", "mcp.json")) }

func goose(s System) []File {
	if s.GOOS == "windows" {
		return user(s.appData("Block", "goose", "config", "config.yaml"))
	}
	return user(s.xdg("goose", "config.yaml"))
}

// continues are the files of Continue: one for all servers, and folders of further files.
func continues(s System) []File {
	home := s.inHomeDir(".continue")
	if dir := s.env("CONTINUE_GLOBAL_DIR"); dir != "" {
		home = dir
	}
	if home == "" {
		return nil
	}
	files := user(filepath.Join(home, "config.yaml"))
	for _, path := range serverFiles(filepath.Join(home, "mcpServers")) {
		files = append(files, File{Path: path})
	}
	if own, ok := s.home(); s.Dir == "" || ok && filepath.Clean(own) == s.Dir {
		return files
	}
	for _, path := range serverFiles(filepath.Join(s.Dir, ".continue", "mcpServers")) {
		files = append(files, File{Path: path, Project: s.Dir})
	}
	return files
}

// serverFiles returns up to 100 files with servers in a folder.
func serverFiles(dir string) (paths []string) {
	entries, _ := os.ReadDir(dir) // an unreadable folder has no files
	for _, entry := range entries[:min(len(entries), 100)] {
		switch filepath.Ext(entry.Name()) {
		case ".yaml", ".yml", ".json":
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	return paths
}

// ours is the notation ${NAME}, ${NAME:-default} or ${env:NAME}.
func ours(text string) string { return text }

// literal is a notation without variables: ${ is text.
func literal(text string) string { return strings.ReplaceAll(text, "${", "$${") }

var (
	bareName   = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
	bracedName = regexp.MustCompile(`\{env:([^}]*)\}`)
)

// dollar is the notation $NAME besides ours.
func dollar(text string) string { return bareName.ReplaceAllString(text, "$${${1}}") }

// braces is the notation {env:NAME}; ${ is text.
func braces(text string) string { return bracedName.ReplaceAllString(literal(text), "$${${1}}") }

var mustacheName = regexp.MustCompile(`\$\$?\{\{\s*(?:secrets|inputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}`)

// mustache is the notation ${{ secrets.NAME }}; ${ is text.
func mustache(text string) string { return anyNotation(literal(text)) }

// anyNotation is ours with ${{ secrets.NAME }} besides.
func anyNotation(text string) string { return mustacheName.ReplaceAllString(text, "$${${1}}") }

func set(texts *map[string]string, name, text string) {
	if *texts == nil {
		*texts = map[string]string{}
	}
	(*texts)[name] = text
}
