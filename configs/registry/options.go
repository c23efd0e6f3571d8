package registry

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
)

// alwaysGiven are options that toolfinch adds itself; a publisher's are dropped.
var alwaysGiven = map[string][]string{
	"npx":    {"-y", "--yes"},
	"bunx":   {"-y", "--yes"}, // bunx never asks
	"dnx":    {"-y", "--yes"},
	"docker": {"-i", "--interactive", "--rm"},
	"podman": {"-i", "--interactive", "--rm"},
}

var (
	pythonForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+){0,2}$`)
	assigned   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// options returns the options of the program that starts a package. An option could start
// another program, or open the machine to a container, so only harmless options pass; any
// other is refused.
func (f *filler) options(program string, inputs []input) ([]string, error) {
	var words []string
	for i, in := range inputs {
		name, fixed := in.Name, string(cmp.Or(in.Value, in.Default))
		if in.Type != "named" {
			name, fixed = fixed, ""
		}
		container := program == "docker" || program == "podman"
		var err error
		switch {
		case fixed == "" && slices.Contains(alwaysGiven[program], name), container && i == 0 && in.Type != "named" && name == "run":
			continue
		case in.Type != "named" || in.isSwitch():
			err = foreign(program, name)
		case container && (name == "-e" || name == "--env") && (fixed == "" || assigned.MatchString(fixed)):
		case container && slices.Contains([]string{"-v", "--volume", "--mount"}, name):
			if !in.mountsWhatIsGiven() {
				err = unsupported("its publisher chose what of this machine its container gets (%s %q)", name, rawjson.Clip(fixed, 80))
			}
		case (program == "uvx" || program == "pipx") && name == "--python" && pythonForm.MatchString(fixed):
		default:
			err = foreign(program, name+" "+fixed)
		}
		if err != nil {
			return nil, err
		}
		more, err := f.arguments([]input{in})
		if err != nil {
			return nil, err
		}
		words = append(words, more...)
	}
	return words, nil
}

func foreign(program, words string) error {
	return unsupported("its publisher gives %s the option %q, which could do more than start the package", program, rawjson.Clip(strings.TrimSpace(words), 80))
}

// mountsWhatIsGiven reports whether the user alone chooses the mounted folder, and the
// publisher only its path in the container.
func (in input) mountsWhatIsGiven() bool {
	if in.Value == "" {
		return in.Default == ""
	}
	for _, variable := range in.Variables { // a value with a comma would add options
		if strings.ContainsAny(string(orValue(variable)), `,:"`) {
			return false
		}
	}
	users := func(text string) bool {
		variable, ok := in.Variables[strings.Trim(text, "{}")]
		return ok && braced.FindString(text) == text && orValue(variable) == ""
	}
	if in.Name != "--mount" {
		parts := strings.Split(string(in.Value), ":")
		return len(parts) == 2 && users(parts[0]) || len(parts) == 3 && users(parts[0]) && parts[2] == "ro"
	}
	source := false
	for part := range strings.SplitSeq(string(in.Value), ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "src", "source":
			if !users(value) {
				return false
			}
			source = true
		case "type":
			if value != "bind" && value != "volume" {
				return false
			}
		case "dst", "destination", "target", "readonly", "ro":
		default:
			return false
		}
	}
	return source && !strings.Contains(string(in.Value), `"`)
}

// steering are variables that make an interpreter, a program or an installer use other code
// than the package's.
var steering = regexp.MustCompile(`(?i)^(` + strings.Join([]string{
	"PATH", "PATHEXT", "ENV", "BASH_ENV", "SHELL", "COMSPEC", "HOME", "USERPROFILE", "APPDATA", "XDG_.*", "LD_.*", "DYLD_.*", "GCONV_PATH", "GLIBC_TUNABLES",
	"NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)", "NPM_CONFIG_.*", "BUN_.*", "PYTHON.*", "UV_.*", "PIP_.*", "PIPX_.*", "DOCKER_.*", "PODMAN_.*", "CONTAINERS?_.*",
	"DOTNET_.*", "CORECLR_.*", "NUGET_.*", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "PERL5.*", "RUBY.*", "GIT_.*", "(HTTPS?|ALL)_PROXY", "SSL_CERT_.*",
}, "|") + `)$`)

// refuseSteering refuses a publisher's value for a steering variable.
func refuseSteering(inputs []input) error {
	for _, in := range inputs {
		if (in.Value != "" || in.Default != "") && steering.MatchString(in.Name) {
			return unsupported("its publisher sets %s, which decides what is run or installed", in.Name)
		}
	}
	return nil
}
