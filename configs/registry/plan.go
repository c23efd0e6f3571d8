package registry

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"toolfinch/configs/clients"
	"toolfinch/internal/rawjson"
)

// Plan is a server for the configuration.
type Plan struct {
	Server clients.Server
	Needs  []Need // in the order of the registry, each name once
	Notes  []string
	// Given maps texts of Server with given values to the texts with *** for the values.
	Given map[string]string
}

// runtime describes how packages of a type are started.
type runtime struct {
	base     string // host of the program's registry
	programs map[string]func(p *pack, before, after []string) []string
	first    string // the default program
	name     *regexp.Regexp
}

// Identifiers that a program could take for a flag, a path or a URL are refused.
var runtimes = map[string]runtime{
	"npm": {"registry.npmjs.org", map[string]func(p *pack, before, after []string) []string{
		"npx": func(p *pack, before, after []string) []string {
			return slices.Concat([]string{"-y"}, before, []string{at(p, "@")}, after)
		},
		"bunx": func(p *pack, before, after []string) []string {
			return slices.Concat(before, []string{at(p, "@")}, after)
		},
	}, "npx", regexp.MustCompile(`^(@[A-Za-z0-9][\w.~-]*/)?[A-Za-z0-9][\w.~-]*$`)},
	"pypi": {"pypi.org", map[string]func(p *pack, before, after []string) []string{
		"uvx": func(p *pack, before, after []string) []string {
			return slices.Concat(before, []string{at(p, "==")}, after)
		},
		"pipx": func(p *pack, before, after []string) []string {
			return slices.Concat([]string{"run"}, before, []string{at(p, "==")}, after)
		},
	}, "uvx", regexp.MustCompile(`^[A-Za-z0-9][\w.-]*(\[[\w.,-]+\])?$`)},
	"oci": {"", map[string]func(p *pack, before, after []string) []string{"docker": containerArgs, "podman": containerArgs}, "docker",
		regexp.MustCompile(`^[a-z0-9][\w./:@-]*$`)},
	"nuget": {"api.nuget.org", map[string]func(p *pack, before, after []string) []string{
		"dnx": func(p *pack, before, after []string) []string {
			args := slices.Concat([]string{"--yes"}, before, []string{at(p, "@")})
			if len(after) > 0 {
				args = append(append(args, "--"), after...)
			}
			return args
		},
	}, "dnx", regexp.MustCompile(`^[A-Za-z0-9][\w.-]*$`)},
}

// at returns the package with its version.
func at(p *pack, separator string) string {
	if p.Version == "" {
		return p.Identifier
	}
	return p.Identifier + separator + p.Version
}

// containerArgs starts a container that ends with its client.
func containerArgs(p *pack, before, after []string) []string {
	args := []string{"run", "-i", "--rm"}
	for _, variable := range p.EnvironmentVariables {
		args = append(args, "-e", variable.Name)
	}
	return slices.Concat(args, before, []string{image(p)}, after)
}

// image returns the name of the image with registry and version, which documents before
// October 2025 have separately.
func image(p *pack) string {
	name := p.Identifier
	if u, err := url.Parse(p.RegistryBaseURL); err == nil && u.Host != "" {
		if host, _, ok := strings.Cut(name, "/"); !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
			name = u.Host + "/" + name
		}
	}
	if p.Version != "" && !strings.ContainsAny(name[strings.LastIndex(name, "/")+1:], ":@") {
		name += ":" + p.Version
	}
	return name
}

// Plan returns the server for the configuration. given are values by Need.Name, in which
// ${NAME} is a variable of the environment. An *Unsupported says that the way cannot be used.
func (w Way) Plan(name, description string, given map[string][]string) (Plan, error) {
	f := &filler{prefix: variablePrefix(name), given: given}
	p := Plan{Server: clients.Server{Name: name, Description: literal(description)}}
	var err error
	if w.remote != nil {
		err = w.reach(&p, f)
	} else {
		err = w.start(&p, f)
	}
	if err == nil {
		err = f.unknown()
	}
	p.Needs, p.Given, p.Server.Secret = f.needs, f.masked, f.wroteSecret
	return p, err
}

func (w Way) start(p *Plan, f *filler) error {
	pkg := w.pkg
	kind, known := runtimes[w.Kind]
	switch base, err := url.Parse(pkg.RegistryBaseURL); {
	case w.Kind == "mcpb":
		return unsupported("an MCP bundle is unpacked and started by the client that it is installed in, which toolfinch cannot do")
	case !known:
		return unsupported("toolfinch does not know how a package of type %q is started", w.Kind)
	case !kind.name.MatchString(pkg.Identifier) || len(pkg.Identifier) > maxAbout:
		return unsupported("%q is not the name of a package of type %s", rawjson.Clip(pkg.Identifier, 80), w.Kind)
	case pkg.Version != "" && !versionForm.MatchString(pkg.Version) || len(pkg.Version) > maxAbout:
		return unsupported("%q is not a version", rawjson.Clip(pkg.Version, 80))
	case kind.base != "" && pkg.RegistryBaseURL != "" && (err != nil || base.Hostname() != kind.base):
		return unsupported("the package is published at %q, and %s installs from %s: another package may have its name there", rawjson.Clip(pkg.RegistryBaseURL, 80), kind.first, kind.base)
	case pkg.Transport.Type != "" && pkg.Transport.Type != "stdio":
		return unsupported("it serves HTTP once somebody has started it: start it, then toolfinch server add NAME --url URL (the registry has %q)", rawjson.Clip(pkg.Transport.URL, 80))
	case len(pkg.EnvironmentVariables)+len(pkg.RuntimeArguments)+len(pkg.PackageArguments) > maxInputs:
		return unsupported("it has more than %d arguments and variables", maxInputs)
	}
	// The hint names a program to run, so only known programs are accepted.
	program := cmp.Or(pkg.RuntimeHint, kind.first)
	if kind.programs[program] == nil {
		if len(pkg.RuntimeArguments) > 0 {
			return unsupported("it has arguments for %q, and toolfinch starts packages of type %s with %s only", rawjson.Clip(program, 80), w.Kind, kind.first)
		}
		p.Notes = append(p.Notes, fmt.Sprintf("the registry hints at %q to start it; %s is used", rawjson.Clip(program, 80), kind.first))
		program = kind.first
	}
	before, err := f.options(program, pkg.RuntimeArguments)
	if err != nil {
		return err
	}
	after, err := f.arguments(pkg.PackageArguments)
	if err != nil {
		return err
	}
	if err := refuseSteering(pkg.EnvironmentVariables); err != nil {
		return err
	}
	if p.Server.Env, err = f.pairs(pkg.EnvironmentVariables, InEnvironment, variableForm); err != nil {
		return err
	}
	if w.Kind == "oci" { // the container gets only these variables
		named := *pkg
		named.EnvironmentVariables = slices.DeleteFunc(slices.Clone(pkg.EnvironmentVariables), func(in input) bool {
			_, ok := p.Server.Env[in.Name]
			return !ok
		})
		pkg = &named
	}
	p.Server.Command, p.Server.Args = program, kind.programs[program](pkg, before, after)
	if w.Kind == "oci" && len(before) > 0 {
		p.Notes = append(p.Notes, "its publisher chose options of the container")
	}
	return nil
}

func (w Way) reach(p *Plan, f *filler) error {
	r := w.remote
	if r.Type != "streamable-http" && r.Type != "sse" {
		return unsupported("toolfinch does not know the transport %q", rawjson.Clip(r.Type, 80))
	}
	if len(r.Headers)+len(r.Variables) > maxInputs {
		return unsupported("it has more than %d headers and variables", maxInputs)
	}
	where, err := f.texts(input{Value: text(r.URL), IsRequired: true, Variables: r.Variables}, "", InURL)
	if err != nil {
		return err
	}
	p.Server.URL, p.Server.Transport = where[0], r.Type
	if u, err := url.Parse(p.Server.URL); !strings.Contains(p.Server.URL, "${") && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return unsupported("%q is not the URL of a server", rawjson.Clip(p.Server.URL, 80))
	} else if err == nil && u.Scheme == "http" && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1" {
		p.Notes = append(p.Notes, "nothing is encrypted on the way to it: the URL begins with http:")
	}
	p.Server.Headers, err = f.pairs(r.Headers, InHeader, headerForm)
	return err
}

// variablePrefix begins the names of variables for arguments, headers and URLs, because a
// variable HOST or PATH has another meaning.
func variablePrefix(name string) string {
	return strings.Trim(variableOf(name), "_") + "_"
}
