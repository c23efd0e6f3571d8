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

// chainVar names the configurations of the proxies that this process is an
// upstream of, so that a ring of them is found whatever way it is closed.
const chainVar = "TOOLFINCH_CHAIN"

// refuseSelf refuses a configuration that would make this proxy an upstream of
// itself, and marks its children so that a longer ring is refused too.
func refuseSelf(config *configs.Config) error {
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
	for i, s := range config.Servers {
		if s.URL != "" && config.Transport == "http" && isOwnAddress(s.URL, config.Listen) {
			return fmt.Errorf("%s: server %q is at %s, where this proxy is to listen: choose another address with --listen, or remove the server if it is this proxy", config.Path, s.Name, config.Listen)
		}
		if s.Command != "" && isSelf(config, s) {
			return fmt.Errorf("%s: server %q is this proxy itself; remove it", config.Path, s.Name)
		}
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
	return true // it would find the configuration that we found
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
