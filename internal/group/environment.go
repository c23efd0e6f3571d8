package group

import (
	"cmp"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"
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

// needed are globs of variables by which programs find other programs, accounts and services.
var needed = []string{
	"DOCKER_*", "CONTAINER_HOST", "KUBECONFIG", "SSH_AUTH_SOCK", "AWS_*", "AZURE_*", "GOOGLE_*", "CLOUDSDK_*", "JAVA_HOME", "ANDROID_HOME", "ANDROID_SDK_ROOT",
	"CARGO_HOME", "RUSTUP_HOME", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "NODE_PATH", "NVM_DIR", "PNPM_HOME", "DISPLAY",
	"WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "DATABASE_URL", "PGHOST", "PGUSER", "PGPASSWORD", "PGSERVICE",
}

// Withheld returns up to five names of variables that are set here, that Environment does not give, and that a child may
// miss: it names them in words, or they are of the usual ones.
func Withheld(own map[string]string, inherit []string, words string) (names []string) {
	given := map[string]bool{}
	for _, pair := range Environment(own, inherit) {
		name, _, _ := strings.Cut(pair, "=")
		given[name] = true
	}
	named := map[string]bool{}
	for _, word := range strings.FieldsFunc(words, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		named[word] = true
	}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && !given[name] && (named[name] && len(name) > 3 || matchesAny(needed, name)) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { // the named first
		return cmp.Or(cmp.Compare(map[bool]int{false: 1}[named[a]], map[bool]int{false: 1}[named[b]]), cmp.Compare(a, b))
	})
	return names[:min(len(names), 5)]
}

func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { ok, _ := path.Match(glob, name); return ok })
}
