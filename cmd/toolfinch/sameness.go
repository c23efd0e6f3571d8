package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/internal/group"
	"toolfinch/store/vault"
	"toolfinch/view"
)

// sameness is what decides whether two agents can share a toolfinch: texts by the name that people know them by. They
// include secrets, so they never leave this process: see digests.
type sameness map[string]string

// Names of parts of a sameness.
const (
	partProgram       = "the program"
	partConfiguration = "the configuration"
	partSecret        = "the variable secret:" // prefix
)

// ofTerminal are globs of variables that agents, terminals and npm set for themselves, in upper case. They are no reason
// to start servers twice. PATH is one: what counts is which programs it finds.
var ofTerminal = []string{
	"PATH", "PWD", "OLDPWD", "SHLVL", "_", "TERM*", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "TMUX*", "STY", "SSH_TTY", "SSH_CLIENT", "SSH_CONNECTION", "SHELL",
	"LANG", "LANGUAGE", "LC_*", "TMPDIR", "TEMP", "TMP", "XDG_SESSION_*", "XDG_RUNTIME_DIR",
	"NPM_CONFIG_LOCAL_PREFIX", "NPM_CONFIG_USER_AGENT", "NPM_CONFIG_NPM_VERSION", "NPM_CONFIG_NODE_GYP", "NPM_CONFIG_INIT_MODULE",
}

// ofToolfinch are globs of the variables that toolfinch itself acts by, besides those that servers get.
var ofToolfinch = []string{"OTEL_*", chainVar}

// ofThisProcess are variables that concern one process only.
var ofThisProcess = []string{"MCPPROXY_CONFIG", "MCPPROXY_LOG_LEVEL", "MCPPROXY_LOG_FORMAT", "MCPPROXY_SHARED"}

// samenessOf returns the sameness of a toolfinch with this configuration and the environment of this process. A working
// folder counts only as a variable: paths of the configuration start at its file.
func samenessOf(config *configs.Config, vaultKey string) sameness {
	hash, read := config.Read()
	s := sameness{partConfiguration: fmt.Sprintf("%q %q %q %t", config.Path, hash, config.DataDir, config.Found), partProgram: thisProgram()}
	for name, value := range read {
		if !slices.Contains(ofThisProcess, name) {
			s["the variable "+name] = value
		}
	}
	if vaultKey != "" {
		s["the variable "+vault.EnvKey] = vaultKey
	}
	inherited := slices.Concat(config.Python.InheritEnv, ofToolfinch)
	if runsCommands(config) { // with the whole environment
		inherited = append(inherited, "*")
	}
	for _, server := range config.Servers {
		if server.Command == "" {
			continue
		}
		inherited = append(inherited, server.InheritEnv...)
		s["the program "+server.Command] = programOf(server.Command)
	}
	for _, pair := range group.Environment(nil, inherited) {
		name, value, _ := strings.Cut(pair, "=")
		if !matches(ofTerminal, strings.ToUpper(name)) && !slices.Contains(ofThisProcess, name) {
			s["the variable "+name] = value
		}
	}
	return s
}

// runsCommands reports whether the configuration has programs as hooks.
func runsCommands(config *configs.Config) bool {
	return config.ListChangedExec != "" || slices.ContainsFunc(config.Views, func(v view.Settings) bool {
		pre, post := v.Hooks.PreCall, v.Hooks.PostCall
		return pre != nil && len(pre.Command) > 0 || post != nil && len(post.Command) > 0
	})
}

// programOf returns the file of a command. Relative folders of PATH do not count: they differ by working folder.
func programOf(command string) string {
	if strings.ContainsRune(command, filepath.Separator) {
		return command
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if program, err := exec.LookPath(filepath.Join(dir, command)); err == nil {
			return program
		}
	}
	return ""
}

func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { ok, _ := path.Match(glob, name); return ok })
}

// startedAs is the program of this process, as it was when the process started: an upgrade replaces the file.
var startedAs = thisProgram()

// thisProgram describes the program's file as it is now.
func thisProgram() string {
	own, err := os.Executable()
	if err != nil {
		return ""
	}
	info, err := os.Stat(own)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
}

// digests returns a keyed hash of each part. Two processes compare hashes with a key of one use: neither learns a value
// of the other, and no hash is stored.
func (s sameness) digests(key []byte) map[string][]byte {
	all := make(map[string][]byte, len(s))
	for part, value := range s {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%q %q", part, value)
		all[part] = mac.Sum(nil)
	}
	return all
}

// differs returns the names of the parts that differ from another sameness, sorted.
func (s sameness) differs(key []byte, other map[string][]byte) (parts []string) {
	own := s.digests(key)
	for part, sum := range own {
		if !hmac.Equal(sum, other[part]) {
			parts = append(parts, part)
		}
	}
	for part := range other {
		if own[part] == nil {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}
