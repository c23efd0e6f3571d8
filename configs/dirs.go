package configs

import (
	"crypto/sha256"
	"encoding/hex"
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

// storeName is the name of the folder of a configuration's store. Each has its own: a
// store forgets the servers that its configuration does not name, and users have several.
func storeName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:4])
}

// DefaultDataDir returns the folder of the store of a configuration without data_dir;
// path is the absolute path of its file.
func DefaultDataDir(path string) (string, error) {
	dir, err := UserDataDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, storeName(path)), nil
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
