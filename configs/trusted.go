package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"toolfinch/configs/clients"
	"toolfinch/internal/rawjson"
)

// Trusted is the list of configurations that its user trusts: a configuration starts programs
// and reads the environment, so one found in a working folder is not read without trust. An
// entry has the file's path and the SHA-256 of its bytes. Other files that the configuration
// names are not in the hash.
type Trusted struct {
	Path string // of the list; readable by its owner only
}

// UserTrusted returns the user's list.
func UserTrusted() (Trusted, error) {
	dir, err := UserDataDir()
	if err != nil {
		return Trusted{}, fmt.Errorf("no place for the list of trusted configurations: %w", err)
	}
	return Trusted{filepath.Join(dir, "trusted.json")}, nil
}

type trustedFile struct {
	Path string `json:"path"` // absolute; links in its folder are resolved
	Sum  string `json:"sha256"`
}

// The bounds of the list. The oldest entries go first. A file has several, for the branches
// of a repository.
const (
	maxTrusted        = 1000
	maxTrustedContent = 8
)

// Has reports whether the file with these bytes is trusted. known reports that the path is
// trusted with any bytes.
func (t Trusted) Has(path string, data []byte) (has, known bool) {
	files, _, err := t.read()
	if err != nil {
		return false, false // an unreadable list trusts nothing
	}
	one := trustedFileOf(path, data)
	return slices.Contains(files, one), slices.ContainsFunc(files, func(f trustedFile) bool { return f.Path == one.Path })
}

// Add trusts the file with these bytes.
func (t Trusted) Add(path string, data []byte) error {
	one := trustedFileOf(path, data)
	return t.change(func(files []trustedFile) []trustedFile {
		if slices.Contains(files, one) {
			return files
		}
		files = append(files, one)
		same := 0
		for i := len(files) - 1; i >= 0; i-- {
			if files[i].Path != one.Path {
				continue
			}
			if same++; same > maxTrustedContent {
				files = slices.Delete(files, i, i+1)
			}
		}
		return files[max(0, len(files)-maxTrusted):]
	})
}

// Remove ends the trust in the file with any bytes.
func (t Trusted) Remove(path string) error {
	one := trustedFileOf(path, nil)
	return t.change(func(files []trustedFile) []trustedFile {
		return slices.DeleteFunc(files, func(f trustedFile) bool { return f.Path == one.Path })
	})
}

func trustedFileOf(path string, data []byte) trustedFile {
	// Links of the folder are resolved, because a shell may name it by another path. A link in
	// place of the file is not: relative paths in it start at the folder of the link.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return trustedFile{path, hash(string(data))}
}

func (t Trusted) read() (files []trustedFile, data []byte, err error) {
	data, err = clients.ReadFile(t.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	var list struct {
		Trusted []trustedFile `json:"trusted"`
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the list of trusted configurations cannot be read: %w", err)
	}
	return list.Trusted, data, nil
}

// change edits the list. It tries again if another process has changed it meanwhile.
func (t Trusted) change(edit func([]trustedFile) []trustedFile) error {
	if err := os.MkdirAll(filepath.Dir(t.Path), 0o700); err != nil {
		return fmt.Errorf("write the list of trusted configurations: %w", err)
	}
	for tries := 0; ; tries++ {
		files, before, err := t.read()
		if err != nil {
			return err
		}
		after := rawjson.Of(map[string][]trustedFile{"trusted": edit(slices.Clone(files))})
		if bytes.Equal(before, after) {
			return nil
		}
		err = clients.ReplacePrivate(t.Path, before, after)
		if !errors.Is(err, clients.ErrChanged) || tries == 10 {
			return err
		}
	}
}

// UntrustedError says that a configuration was found in the working folder, and its user does
// not trust its present bytes.
type UntrustedError struct {
	Path  string // absolute
	Known bool   // the file was trusted with other bytes
	Data  []byte
}

// Error returns one line with the command that trusts the file.
func (e *UntrustedError) Error() string {
	path := e.Path
	if strings.ContainsAny(path, " '\"$&;()") {
		path = strconv.Quote(path)
	}
	why := "is in the working folder, and is not trusted: it could start programs"
	if e.Known {
		why = "has changed since it was trusted"
	}
	return fmt.Sprintf("%s %s; if it is yours: toolfinch trust %s", filepath.Base(e.Path), why, path)
}

// KeepTrust trusts the file with the bytes after if its user trusts it with the bytes before:
// for edits that the user makes through toolfinch.
func KeepTrust(path string, before, after []byte) error {
	list, err := UserTrusted()
	if err != nil {
		return nil // without a home there is no list: the file stays untrusted
	}
	if has, _ := list.Has(path, before); !has {
		return nil
	}
	return list.Add(path, after)
}
