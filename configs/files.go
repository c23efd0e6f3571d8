package configs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"toolfinch/internal/document"
)

// isFile reports whether a path is a regular file. An unreadable path counts: its reader
// reports why.
func isFile(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular()
}

// isRelativeCommand reports whether a command is a relative path, not a name in PATH.
func isRelativeCommand(command string) bool {
	for _, prefix := range []string{"./", "../", `.\`, `..\`} {
		if strings.HasPrefix(command, prefix) {
			return true
		}
	}
	return false
}

// path makes the path of a file or folder absolute.
func (d *decoder) path(n *document.Node, label string, path *string) bool {
	return notEmpty(d, n, label, path) && d.absolute(n, label, path)
}

func (d *decoder) folder(n *document.Node, label string, dir *string) bool {
	return *dir == "" || d.absolute(n, label, dir)
}

// program makes the path of a program absolute, and leaves a name in PATH as it is.
func (d *decoder) program(n *document.Node, label, name string) string {
	if strings.TrimSpace(name) == "" {
		d.fail(n, label+" is empty", "the program comes first")
		return name
	}
	if !isRelativeCommand(name) && !strings.HasPrefix(name, "~") && !filepath.IsAbs(name) {
		return name
	}
	if d.absolute(n, label, &name) && runtime.GOOS != "windows" && !isFile(name) { // on Windows a program runs without its .exe
		d.fail(n, label+" names a program that is not there: "+asWritten(n), "a relative path starts at the folder of this file")
	}
	return name
}
