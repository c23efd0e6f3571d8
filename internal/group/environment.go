package group

import (
	"os"
	"path"
	"slices"
	"strings"
)

// kept are globs of the variables that every child inherits, in upper case. A child needs them to run, and to reach
// registries and servers as its owner does.
var kept = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TEMP", "TMP", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_*", "REQUESTS_CA_BUNDLE",
	"NPM_CONFIG_*", "PIP_*INDEX*", "PIP_TRUSTED_HOST", "PIP_CERT", "UV_*INDEX*", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
	// Windows
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "ALLUSERSPROFILE", "PROGRAMFILES*", "PROGRAMW6432",
	"COMMONPROGRAMFILES*", "COMMONPROGRAMW6432", "USERPROFILE", "USERNAME", "USERDOMAIN", "PUBLIC", "HOMEDRIVE", "HOMEPATH", "PATHEXT",
	"COMSPEC", "OS", "PROCESSOR_*", "NUMBER_OF_PROCESSORS", "PSMODULEPATH",
}

// Environment returns the variables in kept, the variables that inherit matches, and own. Children get no other
// variables, because these may contain secrets.
func Environment(own map[string]string, inherit []string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if matchesAny(kept, strings.ToUpper(name)) || matchesAny(inherit, name) {
			env = append(env, pair)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { ok, _ := path.Match(glob, name); return ok })
}
