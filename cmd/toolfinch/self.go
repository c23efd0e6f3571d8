package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"toolfinch/configs"
	"toolfinch/upstream"
)

// chainVar names the configurations of the proxies that started this process, to find rings of proxies.
const chainVar = "TOOLFINCH_CHAIN"

// leaveOutSelf removes this proxy from the configuration's servers, with a warning. It fails if a proxy that started
// this process has the same configuration. It sets chainVar for children, so that longer rings fail, too.
func leaveOutSelf(config *configs.Config) error {
	chain := filepath.SplitList(os.Getenv(chainVar))
	if config.Path != "" {
		path, err := filepath.Abs(config.Path)
		if err == nil {
			if slices.Contains(chain, path) {
				return fmt.Errorf("%s: this proxy would be its own upstream: it was started by one that runs the same configuration", config.Path)
			}
			chain = append(chain, path)
		}
	}
	config.Servers = slices.DeleteFunc(config.Servers, func(s upstream.Settings) bool {
		here := s.URL != "" && config.Transport == configs.TransportHTTP && isOwnAddress(s.URL, config.Listen)
		if !here && (s.Command == "" || !isSelf(config, s)) {
			return false
		}
		warning := &configs.Error{File: config.Path, Message: fmt.Sprintf("server %q is left out: it is this proxy itself", s.Name)}
		if here {
			warning.Message = fmt.Sprintf("server %q is left out: it is at %s, where this proxy listens", s.Name, config.Listen)
			warning.Hint = "if it is another server, choose another address with --listen"
		}
		config.Warnings = append(config.Warnings, warning)
		return true
	})
	for i, s := range config.Servers {
		if s.Command != "" && len(chain) > 0 {
			env := map[string]string{chainVar: strings.Join(chain, string(os.PathListSeparator))}
			for key, value := range s.Env {
				env[key] = value
			}
			config.Servers[i].Env = env
		}
	}
	return nil
}

func isSelf(config *configs.Config, s upstream.Settings) bool {
	program, err := exec.LookPath(s.Command)
	own, errOwn := os.Executable()
	if err != nil || errOwn != nil || !samePath(program, own) || !slices.Contains(s.Args, "serve") {
		return false
	}
	for i, arg := range s.Args {
		if path, ok := strings.CutPrefix(arg, "--config="); ok {
			return samePath(path, config.Path)
		}
		if (arg == "--config" || arg == "-c") && i+1 < len(s.Args) {
			return samePath(s.Args[i+1], config.Path)
		}
	}
	return true // without a path, the program finds our own configuration
}

func isOwnAddress(rawURL, listen string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return false
	}
	urlPort := u.Port()
	if urlPort == "" {
		urlPort = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if urlPort != port || (u.Path != "/mcp" && u.Path != "/sse") {
		return false
	}
	local := func(h string) bool {
		ip := net.ParseIP(h)
		return h == "localhost" || h == "" || (ip != nil && (ip.IsLoopback() || ip.IsUnspecified()))
	}
	return u.Hostname() == host || (local(u.Hostname()) && local(host))
}
