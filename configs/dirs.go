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

// homeDir returns the user's home directory, "" if the environment names none.
func homeDir(goos string, env lookup) string {
	name := "HOME"
	if goos == "windows" {
		name = "USERPROFILE"
	}
	home, _ := env(name)
	return home
}

// UserDataDir returns the folder of the user's data that no single configuration owns. It
// need not exist.
func UserDataDir() (string, error) { return defaultDataDir(runtime.GOOS, os.LookupEnv) }

// defaultDataDir returns the folder of user data on a system.
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
		// The base directory specification says that a relative path is ignored.
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

// storeName names the folder of a configuration's store. Configurations share no store,
// because a store forgets servers that its configuration does not name.
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

// tilde expands ~ at the beginning of a path.
func tilde(path, home string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") && !strings.HasPrefix(path, `~\`) {
		return path, nil
	}
	if home == "" {
		return "", errNoHome
	}
	return filepath.Join(home, path[1:]), nil
}

// within makes a path absolute; relative paths start at dir.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
