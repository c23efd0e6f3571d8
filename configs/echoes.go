package configs

import (
	"net/url"
	"slices"
	"strings"
	"toolfinch/internal/document"
	"toolfinch/upstream"
)

// openHeaders are headers whose literal values are no secrets.
var openHeaders = []string{"accept", "accept-language", "content-type", "user-agent", "cache-control", "host", "origin"}

// openVariables are variables whose values stay visible, because messages about files need
// them.
var openVariables = []string{"PATH", "HOME", "PWD", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM", "TMPDIR"}

// secretsOf returns values that are masked in a server's own words: headers, credentials in
// its URL, env values from variables or with names of secrets, and the configuration's
// variables with names of secrets.
func (d *decoder) secretsOf(s *upstream.Settings, n *document.Node) []string {
	var found []string
	add := func(value string) {
		if parts := authScheme.FindStringSubmatch(value); parts != nil {
			found = append(found, strings.TrimSpace(value[len(parts[1]):])) // without "Bearer"
		}
		found = append(found, value)
	}
	for name, value := range s.Env {
		if isSecretName(name) || d.fromVariable(n.Find("env"), name) {
			add(value)
		}
	}
	for name, value := range s.Headers {
		if !slices.Contains(openHeaders, strings.ToLower(name)) || d.fromVariable(n.Find("headers"), name) {
			add(value)
		}
	}
	add(s.Login.Secret)
	if u, err := url.Parse(s.URL); err == nil {
		password, _ := u.User.Password()
		add(password)
		for _, values := range u.Query() {
			found = append(found, values...)
		}
	}
	if d.secrets != nil {
		found = append(found, d.secrets.values...)
	}
	open := []string{"", "true", "false"}
	for _, name := range openVariables {
		value, _ := d.unnoted(name)
		open = append(open, value)
	}
	found = slices.DeleteFunc(found, func(value string) bool { return len(value) < minSecret || slices.Contains(open, value) })
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// fromVariable reports whether the value of a name in a mapping has a set variable.
func (d *decoder) fromVariable(mapping *document.Node, name string) (found bool) {
	if mapping == nil {
		return false
	}
	if value := mapping.Find(name); value != nil && hasVariables(value) {
		_, _ = expand(value.Text, func(variable string) (string, bool) {
			text, set := d.env(variable)
			found = found || set
			return text, set
		})
	}
	return found
}
