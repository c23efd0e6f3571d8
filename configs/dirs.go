package configs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

var errNoHome = errors.New("no home directory is known")

// homeDir is the user's home directory, "" when the environment has none.
func homeDir(goos string, env lookup) string {
	name := "HOME"
	if goos == "windows" {
		name = "USERPROFILE"
	}
	home, _ := env(name)
	return home
}

// UserFile returns the path of the configuration that is the user's, and found in
// whatever folder a command runs. It need not exist.
func UserFile() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "toolfinch", fileNames[0]), err
}

// UserDataDir returns the folder below which toolfinch keeps what is the user's and
// no one configuration's. It need not exist.
func UserDataDir() (string, error) { return defaultDataDir(runtime.GOOS, os.LookupEnv) }

// defaultDataDir is where programs of the user keep data on this system.
func defaultDataDir(goos string, env lookup) (string, error) {
	home := homeDir(goos, env)
	base := ""
	switch goos {
	case "windows":
		if base, _ = env("LOCALAPPDATA"); base == "" && home != "" {
			base = filepath.Join(home, "AppData", "Local")
		}
	case "darwin", "ios":
		if home != "" {
			base = filepath.Join(home, "Library", "Application Support")
		}
	default:
		// The base directory specification tells to ignore a relative path.
		if base, _ = env("XDG_DATA_HOME"); !filepath.IsAbs(base) {
			base = ""
		}
		if base == "" && home != "" {
			base = filepath.Join(home, ".local", "share")
		}
	}
	if base == "" {
		return "", errNoHome
	}
	return filepath.Join(base, "toolfinch"), nil
}

// tilde expands ~ and ~/ at the beginning of a path.
func tilde(path, home string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") && !strings.HasPrefix(path, `~\`) {
		return path, nil
	}
	if home == "" {
		return "", errNoHome
	}
	return filepath.Join(home, path[1:]), nil
}

// within makes a path absolute, seen from dir.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// isRelativeCommand reports whether a command names a file seen from somewhere,
// not a program to look for in PATH.
func isRelativeCommand(command string) bool {
	for _, prefix := range []string{"./", "../", `.\`, `..\`} {
		if strings.HasPrefix(command, prefix) {
			return true
		}
	}
	return false
}
