package group

import (
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

// subjects are words of programs that miss a variable, in lower case, and globs of such variables.
var subjects = map[string][]string{
	"docker":             {"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"},
	"podman":             {"CONTAINER_HOST"},
	"kube":               {"KUBECONFIG"},
	"server localhost:8": {"KUBECONFIG"}, // of kubectl without one
	"credential":         {"AWS_PROFILE", "AWS_[AS]*", "AZURE_*", "GOOGLE_*"},
	"config profile":     {"AWS_PROFILE", "AWS_CONFIG_FILE"},
	"a region":           {"AWS_*REGION"},
	"publickey":          {"SSH_AUTH_SOCK"},
	"ssh agent":          {"SSH_AUTH_SOCK"},
	"java:":              {"JAVA_HOME"},
	"java runtime":       {"JAVA_HOME"},
	"android sdk":        {"ANDROID_*"},
	"no module named":    {"PYTHONPATH", "VIRTUAL_ENV"},
	"cannot find module": {"NODE_PATH"},
	"open display":       {"DISPLAY", "WAYLAND_DISPLAY"},
	"d-bus":              {"DBUS_*"},
}

// Withheld returns up to five names of variables that are set here, that Environment does not give, and that the last
// words of a child name, themselves or by their subject.
func Withheld(own map[string]string, inherit []string, words string) (names []string) {
	var globs []string
	for subject, more := range subjects {
		if strings.Contains(strings.ToLower(words), subject) {
			globs = append(globs, more...)
		}
	}
	named := strings.FieldsFunc(words, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	given := Environment(own, inherit)
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		says := len(name) > 3 && slices.Contains(named, name) || matchesAny(globs, name)
		if says && value != "" && !slices.ContainsFunc(given, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), 5)]
}

func matchesAny(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool { ok, _ := path.Match(glob, name); return ok })
}
