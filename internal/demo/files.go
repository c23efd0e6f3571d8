package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/server"
)

const (
	maxFile    = 1 << 20 // bytes of a file
	maxListed  = 1000    // listed files in one answer
	maxVisited = 100_000 // visited files in one call
	maxFound   = 200_000 // bytes of matching lines in one answer
	maxLine    = 500     // bytes that are shown of a matching line
)

// files serves one folder. os.Root keeps every path inside the folder, also paths with links.
type files struct{ root *os.Root }

type pathArgs struct {
	Path string `json:"path" jsonschema:"Path relative to the folder, with forward slashes, for example reports/may.txt"`
}

type folderArgs struct {
	Path string `json:"path,omitempty" jsonschema:"Folder to look in; the whole folder of this server if left out"`
}

type writeArgs struct {
	pathArgs
	Content string `json:"content" jsonschema:"The text, up to 1 MiB"`
}

type listArgs struct {
	folderArgs
	Pattern   string `json:"pattern,omitempty" jsonschema:"Pattern for the names, where * stands for any characters and ? for one, for example *.txt"`
	Recursive bool   `json:"recursive,omitempty" jsonschema:"Also list what is in the folders below"`
}

type grepArgs struct {
	folderArgs
	Pattern string `json:"pattern" jsonschema:"Regular expression (RE2 syntax) to look for in each line; (?i) ignores case"`
}

type deleteArgs struct {
	pathArgs
	Recursive bool `json:"recursive,omitempty" jsonschema:"Also delete a folder that is not empty with everything in it"`
}

type fileInfo struct {
	Path     string `json:"path" jsonschema:"Path relative to the folder of the server"`
	Type     string `json:"type" jsonschema:"file or directory or other"`
	Size     int64  `json:"size" jsonschema:"Size in bytes; 0 for a directory"`
	Modified string `json:"modified" jsonschema:"When it was last changed (RFC 3339)"`
}

type listing struct {
	Entries   []fileInfo `json:"entries" jsonschema:"What was found, by path"`
	Truncated bool       `json:"truncated" jsonschema:"Whether there is more than the 1000 entries shown"`
}

func newFiles(dir string) (*server.MCPServer, func() error, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	f := &files{root}
	s := newServer("files", "Works on the files of one folder. Paths are relative to it; nothing outside it can be reached.")
	add(s, "read_file", "Read a file", "Returns the content of a text file.", reads, f.read)
	add(s, "write_file", "Write a file", "Creates a text file, with the folders it needs, or replaces the content of an existing one.", replaces, f.write)
	add(s, "list_files", "List files", "Lists the files and folders in a folder with type, size and date: all, or those that match a wildcard pattern.", reads, f.list)
	add(s, "grep_files", "Search in files", "Searches the lines of all text files below a folder with a regular expression.", reads, f.grep)
	add(s, "delete_file", "Delete a file or folder", "Deletes a file or an empty folder for good; with recursive also a folder and everything in it.", replaces, f.delete)
	return s, root.Close, nil
}

// where cleans a path. It refuses paths that lead outside, although os.Root does so too, because its error is clearer.
func where(p string) (string, error) {
	clean := path.Clean(p) // "" becomes "."
	if !filepath.IsLocal(filepath.FromSlash(clean)) {
		return "", fmt.Errorf("%q is outside the folder of this server; use a path relative to it", p)
	}
	return clean, nil
}

// plain returns an error about p that does not name the system call.
func plain(p string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p, err)
	}
	return err
}

// text returns the content of a text file of at most maxFile bytes.
func (f *files) text(p string) (string, error) {
	info, err := f.root.Stat(p)
	switch {
	case err != nil:
		return "", plain(p, err)
	case !info.Mode().IsRegular(): // reading a pipe could block forever
		return "", fmt.Errorf("%s is not a file", p)
	}
	file, err := f.root.Open(p)
	if err != nil {
		return "", plain(p, err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return "", plain(p, err)
	case len(content) > maxFile:
		return "", fmt.Errorf("%s is larger than %d bytes", p, maxFile)
	case !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0:
		return "", fmt.Errorf("%s is not a text file", p)
	}
	return string(content), nil
}

func (f *files) read(_ context.Context, in pathArgs) (string, error) {
	p, err := where(in.Path)
	if err != nil {
		return "", err
	}
	return f.text(p)
}

func (f *files) write(_ context.Context, in writeArgs) (pathArgs, error) {
	p, err := where(in.Path)
	if err != nil {
		return pathArgs{}, err
	}
	if err := atMost(maxFile, "content", in.Content); err != nil {
		return pathArgs{}, err
	}
	if info, err := f.root.Stat(p); err == nil && !info.Mode().IsRegular() {
		return pathArgs{}, fmt.Errorf("%s is not a file", p)
	}
	if err := f.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return pathArgs{}, plain(path.Dir(p), err)
	}
	return pathArgs{p}, plain(p, f.root.WriteFile(p, []byte(in.Content), 0o644))
}

// walk calls do for each file and folder below p, like fs.WalkDir, in the order of paths. It skips unreadable entries.
func (f *files) walk(ctx context.Context, p string, do func(p string, entry fs.DirEntry) error) error {
	p, err := where(p)
	if err != nil {
		return err
	}
	visited := 0
	return fs.WalkDir(f.root.FS(), p, func(at string, entry fs.DirEntry, err error) error {
		visited++
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case visited > maxVisited:
			return fmt.Errorf("there are more than %d files below %s; look in a folder of it", maxVisited, p)
		case err != nil && at == p:
			return plain(p, err)
		case at == p && !entry.IsDir():
			return fmt.Errorf("%s is not a folder", p)
		case err != nil || at == p:
			return nil
		}
		return do(at, entry)
	})
}

func (f *files) list(ctx context.Context, in listArgs) (listing, error) {
	out := listing{Entries: []fileInfo{}}
	if _, err := path.Match(in.Pattern, ""); err != nil {
		return out, fmt.Errorf("pattern %q: a [ without its ]", in.Pattern)
	}
	err := f.walk(ctx, in.Path, func(at string, entry fs.DirEntry) error {
		matches, _ := path.Match(in.Pattern, entry.Name())
		info, err := entry.Info()
		switch {
		case err != nil: // the file was deleted during the walk
		case len(out.Entries) == maxListed:
			out.Truncated = true
			return fs.SkipAll
		case matches || in.Pattern == "":
			found := fileInfo{Path: at, Type: "other", Modified: info.ModTime().UTC().Format(time.RFC3339)}
			if info.IsDir() {
				found.Type = "directory"
			} else if info.Mode().IsRegular() {
				found.Type, found.Size = "file", info.Size()
			}
			out.Entries = append(out.Entries, found)
		}
		if entry.IsDir() && !in.Recursive {
			return fs.SkipDir
		}
		return nil
	})
	return out, err
}

func (f *files) grep(ctx context.Context, in grepArgs) (string, error) {
	re, err := regexp.Compile(in.Pattern)
	if err != nil {
		return "", fmt.Errorf("pattern: %w", err)
	}
	var out strings.Builder
	err = f.walk(ctx, in.Path, func(at string, entry fs.DirEntry) error {
		if entry.IsDir() {
			return nil
		}
		if out.Len() > maxFound {
			out.WriteString("... and maybe more\n")
			return fs.SkipAll
		}
		content, err := f.text(at)
		if err != nil {
			fmt.Fprintf(&out, "not searched: %v\n", err)
		}
		n := 0
		for line := range strings.Lines(content) {
			n++
			if line = strings.TrimRight(line, "\r\n"); !re.MatchString(line) || out.Len() > maxFound {
				continue
			}
			fmt.Fprintf(&out, "%s:%d: %s\n", at, n, strings.ToValidUTF8(line[:min(len(line), maxLine)], ""))
		}
		return nil
	})
	return out.String(), err
}

func (f *files) delete(_ context.Context, in deleteArgs) (pathArgs, error) {
	p, err := where(in.Path)
	if err != nil {
		return pathArgs{}, err
	}
	if p == "." {
		return pathArgs{}, errors.New("the folder of this server itself cannot be deleted")
	}
	if _, err := f.root.Lstat(p); err != nil {
		return pathArgs{}, plain(p, err)
	}
	if in.Recursive {
		return pathArgs{p}, plain(p, f.root.RemoveAll(p))
	}
	return pathArgs{p}, plain(p, f.root.Remove(p))
}
