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

// Options before a subcommand or a program whose value is the next argument.
var (
	launcherOptions = []string{
		"--context", "-c", "--host", "-H", "--config", "--log-level", "-l", "--connection", "--url", // docker, podman
		"--prefix", "-C", "--dir", "--filter", "-F", "--registry", "--cache", "--userconfig", "--cwd", // npm and the like
		"--directory", "--project", "--cache-dir", "--config-file", // uv
	}
	wslOptions = []string{"-d", "--distribution", "-u", "--user", "--cd", "--shell-type"}
)

// downloads reports whether a server's command may have to download the server.
func (s Settings) downloads() bool {
	program, args := s.Command, s.Args
	if name := programName(program); name == "cmd" || name == "wsl" {
		if args = operands(args, map[string]string{"cmd": "/", "wsl": "-"}[name], wslOptions); len(args) == 0 {
			return false
		}
		program, args = args[0], args[1:]
	}
	subcommands, known := launchers[programName(program)]
	if !known || len(subcommands) == 0 {
		return known
	}
	args = operands(args, "-", launcherOptions)
	return len(args) > 0 && slices.Contains(subcommands, args[0])
}

// operands returns the arguments after the first options, which begin with a prefix; valued are those that have a value.
func operands(args []string, prefix string, valued []string) []string {
	for len(args) > 0 && strings.HasPrefix(args[0], prefix) {
		if slices.Contains(valued, args[0]) {
			args = args[1:]
		}
		args = args[min(1, len(args)):]
	}
	return args
}

// programName returns the name of a program without its folder and the endings of Windows.
func programName(command string) string {
	name := strings.ToLower(filepath.Base(strings.ReplaceAll(command, `\`, "/")))
	for _, ending := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}
