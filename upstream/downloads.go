package upstream

import (
	"path/filepath"
	"slices"
	"strings"
)

// launchers are the programs that download a server before they run it, each with the
// subcommands that do so; none: any.
var launchers = map[string][]string{
	"npx": nil, "pnpx": nil, "bunx": nil, "uvx": nil,
	"npm": {"exec", "x"}, "pnpm": {"dlx"}, "yarn": {"dlx"}, "bun": {"x"}, "uv": {"tool"}, "pipx": {"run"},
	"docker": {"run"}, "podman": {"run"},
}

// downloads reports whether a server's command may have to download the server.
func (s Settings) downloads() bool {
	program, args := s.Command, s.Args
	if name := programName(program); (name == "cmd" || name == "wsl") && len(args) > 0 {
		if strings.EqualFold(args[0], "/c") {
			args = args[1:]
		}
		if len(args) == 0 {
			return false
		}
		program, args = args[0], args[1:]
	}
	subcommands, known := launchers[programName(program)]
	if !known || len(subcommands) == 0 {
		return known
	}
	at := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	return at >= 0 && slices.Contains(subcommands, args[at])
}

// programName returns the name of a program without its folder and the endings of Windows.
func programName(command string) string {
	name := strings.ToLower(filepath.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, ending := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}
