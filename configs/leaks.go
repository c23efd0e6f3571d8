package configs

import "toolfinch/trust/leaks"

var leaksWords = choice[leaks.Mode]{words: leaks.Modes}

const leaksDoc = "what happens to an answer with a secret: " +
	"`mark` adds a note, `redact` replaces the secret, `block` withholds the answer"

// SecretsIn returns the handling of secrets in a server's answers to clients of a view: the
// view's own setting, else the server's. The view's own tools have the server "".
func (c *Config) SecretsIn(viewName, server string) leaks.Mode {
	mode := c.Secrets
	for _, u := range c.Tools {
		if u.Name == server && u.Secrets != "" {
			mode = u.Secrets
		}
	}
	for _, v := range c.Views {
		if v.Name == viewName && v.Secrets != "" {
			mode = v.Secrets
		}
	}
	return mode
}
