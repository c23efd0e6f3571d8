package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/store/vault"
)

// sameness is what decides whether two agents can share a toolfinch: texts by the name that people know them by. They
// include secrets, so they never leave this process: see digests.
type sameness map[string]string

// Names of parts of a sameness.
const (
	partProgram       = "the program"
	partConfiguration = "the configuration"
)

// environment are globs of the variables that servers and toolfinch itself act by, in upper case. PATH is left out:
// agents change it, and what counts is which programs it finds.
var environment = []string{"HOME", "USERPROFILE", "APPDATA", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "*PROXY", "*CERT*", "*CA_BUNDLE", "*INDEX*", "*REGISTRY*", "OTEL_*", chainVar, vault.EnvKey}

// ofTerminal are globs of variables that differ for each terminal, and are no reason to start servers twice.
var ofTerminal = []string{"PATH", "PWD", "OLDPWD", "SHLVL", "_", "TERM*", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "TMUX*", "STY", "SSH_TTY", "SSH_CLIENT", "SSH_CONNECTION", "XDG_SESSION_*", "XDG_RUNTIME_DIR"}

// ofThisProcess are variables that concern one process only.
var ofThisProcess = []string{"MCPPROXY_CONFIG", "MCPPROXY_LOG_LEVEL", "MCPPROXY_LOG_FORMAT", "MCPPROXY_SHARED"}

// samenessOf returns the sameness of a toolfinch with this configuration and the environment of this process. A working
// folder counts only as a variable: paths of the configuration start at its file.
func samenessOf(config *configs.Config, vaultKey string) sameness {
	hash, read := config.Read()
	s := sameness{partConfiguration: config.Path + " " + hash + " " + config.DataDir, partProgram: thisProgram()}
	for name, value := range read {
		if !slices.Contains(ofThisProcess, name) {
			s["the variable "+name] = value
		}
	}
	if vaultKey != "" {
		s["the variable "+vault.EnvKey] = vaultKey
	}
	inherited := slices.Clone(config.Python.InheritEnv)
	for _, server := range config.Servers {
		if server.Command == "" {
			continue
		}
		inherited = append(inherited, server.InheritEnv...)
		if program, err := exec.LookPath(server.Command); err == nil {
			s["the program "+server.Command] = program
		}
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if matches(environment, strings.ToUpper(name)) || matches(inherited, name) && !matches(ofTerminal, name) {
			s["the variable "+name] = value
		}
	}
	return s
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
