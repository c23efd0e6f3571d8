package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/server"
)

const (
	maxFile    = 16 << 20 // bytes of a file that append may grow and grep reads
	maxContent = 1 << 20  // bytes in one call
	maxListed  = 1000     // entries, paths or matching lines in one answer
	maxVisited = 100_000  // entries looked at in one call
	maxLine    = 500      // bytes of a matching line that are shown
)

// files serves one folder. os.Root keeps every path inside it, links included.
type files struct{ root *os.Root }

type pathArgs struct {
	Path string `json:"path" jsonschema:"Path relative to the folder, with forward slashes, for example reports/may.txt"`
}

type folderArgs struct {
	Path string `json:"path,omitempty" jsonschema:"Folder to look in; the whole folder of this server if left out"`
}

type readArgs struct {
	pathArgs
	FirstLine int `json:"first_line,omitempty" jsonschema:"First line to return, counting from 1 (default 1)"`
	MaxLines  int `json:"max_lines,omitempty" jsonschema:"Most lines to return, 1 to 100000 (default 2000)"`
}

type writeArgs struct {
	pathArgs
	Content string `json:"content" jsonschema:"The text, up to 1 MiB"`
}

type findArgs struct {
	folderArgs
	Pattern string `json:"pattern" jsonschema:"Pattern for the file or folder name, where * stands for any characters and ? for one, for example *.txt"`
}

type grepArgs struct {
	folderArgs
	Pattern    string `json:"pattern" jsonschema:"Regular expression (RE2 syntax) to look for in each line"`
	Name       string `json:"name,omitempty" jsonschema:"Only files whose name matches this pattern, for example *.md"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"Treat capital and small letters alike"`
}

type moveArgs struct {
	From string `json:"from" jsonschema:"Path of the file or folder to move or rename"`
	To   string `json:"to" jsonschema:"New path; nothing may be there yet"`
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

type grepMatch struct {
	Path string `json:"path" jsonschema:"File that contains the line"`
	Line int    `json:"line" jsonschema:"Line number counting from 1"`
	Text string `json:"text" jsonschema:"The line; cut after 500 bytes"`
}

type grepResult struct {
	Matches   []grepMatch `json:"matches" jsonschema:"Matching lines, by path and line"`
	Truncated bool        `json:"truncated" jsonschema:"Whether there is more than the 1000 matches shown"`
	Skipped   int         `json:"skipped" jsonschema:"Files not searched because they are binary, larger than 16 MiB or cannot be read"`
}

type written struct {
	Path string `json:"path" jsonschema:"The file"`
	Size int64  `json:"size" jsonschema:"Its size in bytes now"`
}

type done struct {
	Path string `json:"path" jsonschema:"The path that was changed"`
}

func newFiles(dir string) (*server.MCPServer, func() error, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	f := &files{root}
	s := newServer("files", "Works on the files of one folder. Paths are relative to it; nothing outside it can be reached.")
	add(s, "read_file", "Read a file", "Returns the content of a text file, or some of its lines.", reads, f.read)
	add(s, "write_file", "Write a file", "Creates a text file, with the folders it needs, or replaces the content of an existing one.", replaces, f.write)
	add(s, "append_file", "Append to a file", "Adds text to the end of a file, which is created if it does not exist.", adds, f.append)
	add(s, "list_directory", "List a folder", "Lists the files and folders directly in a folder, with type, size and date.", reads, f.list)
	add(s, "find_files", "Find files by name", "Finds files and folders by name anywhere below a folder, with a wildcard pattern.", reads, f.find)
	add(s, "grep_files", "Search in files", "Searches the lines of all text files below a folder with a regular expression.", reads, f.grep)
	add(s, "move_file", "Move or rename", "Moves or renames a file or folder. It never replaces anything.", adds, f.move)
	add(s, "delete_file", "Delete a file or folder", "Deletes a file or an empty folder for good; with recursive also a folder and everything in it.", replaces, f.delete)
	add(s, "make_directory", "Make a folder", "Creates a folder and the folders above it. It is no error if it exists.", sets, f.mkdir)
	add(s, "file_info", "File details", "Tells type, size and date of last change of a file or folder.", reads, f.info)
	return s, root.Close, nil
}

// where cleans a path. os.Root refuses what leads outside; the words are better here.
func where(p string) (string, error) {
	if path.IsAbs(p) {
		return "", fmt.Errorf("%q is an absolute path; use a path relative to the folder of this server", p)
	}
	clean := path.Clean(p) // "" becomes "."
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%q is outside the folder of this server", p)
	}
	return clean, nil
}

// plain says what went wrong with p, without the system call that noticed.
func plain(p string, err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", p)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists already", p)
	case errors.As(err, &pathErr):
		return fmt.Errorf("%s: %w", p, pathErr.Err)
	case errors.As(err, &linkErr):
		return fmt.Errorf("%s: %w", p, linkErr.Err)
	}
	return fmt.Errorf("%s: %w", p, err)
}

// open opens an ordinary file to read; a pipe would block for ever.
func (f *files) open(p string) (*os.File, fs.FileInfo, error) {
	info, err := f.root.Stat(p)
	if err != nil {
		return nil, nil, plain(p, err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a file", p)
	}
	file, err := f.root.Open(p)
	return file, info, plain(p, err)
}

func (f *files) read(_ context.Context, in readArgs) (string, error) {
	p, err := where(in.Path)
	if err != nil {
		return "", err
	}
	first, err := within("first_line", in.FirstLine, 1, 1<<30)
	if err != nil {
		return "", err
	}
	most, err := within("max_lines", in.MaxLines, 2000, 100_000)
	if err != nil {
		return "", err
	}
	file, _, err := f.open(p)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var out []byte
	for lines, n := bufio.NewReader(file), 1; n < first+most; n++ {
		line, err := readLine(lines, maxContent-len(out), n >= first)
		if err != nil && err != io.EOF {
			return "", plain(p, err)
		}
		out = append(out, line...)
		if err == io.EOF {
			break
		}
	}
	if !utf8.Valid(out) || bytes.IndexByte(out, 0) >= 0 {
		return "", fmt.Errorf("%s is not a text file", p)
	}
	return string(out), nil
}

// readLine returns the next line with its end, of at most limit bytes; one that
// is not wanted is skipped, however long.
func readLine(r *bufio.Reader, limit int, wanted bool) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if wanted {
			if len(line)+len(part) > limit {
				return nil, fmt.Errorf("what was asked for is larger than %d bytes; ask for fewer lines with first_line and max_lines", maxContent)
			}
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func (f *files) write(_ context.Context, in writeArgs) (written, error) {
	return f.put(in, os.O_TRUNC)
}

func (f *files) append(_ context.Context, in writeArgs) (written, error) {
	return f.put(in, os.O_APPEND)
}

func (f *files) put(in writeArgs, how int) (written, error) {
	p, err := where(in.Path)
	if err != nil {
		return written{}, err
	}
	if err := atMost(maxContent, "content", in.Content); err != nil {
		return written{}, err
	}
	info, err := f.root.Stat(p)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return written{}, fmt.Errorf("%s is not a file", p)
	case err == nil && how == os.O_APPEND && info.Size()+int64(len(in.Content)) > maxFile:
		return written{}, fmt.Errorf("%s would become larger than %d bytes", p, maxFile)
	}
	if err := f.root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return written{}, plain(path.Dir(p), err)
	}
	file, err := f.root.OpenFile(p, os.O_CREATE|os.O_WRONLY|how, 0o644)
	if err != nil {
		return written{}, plain(p, err)
	}
	_, err = file.WriteString(in.Content)
	if err := errors.Join(err, file.Close()); err != nil {
		return written{}, plain(p, err)
	}
	info, err = f.root.Stat(p)
	if err != nil {
		return written{}, plain(p, err)
	}
	return written{p, info.Size()}, nil
}

func describe(p string, info fs.FileInfo) fileInfo {
	out := fileInfo{Path: p, Type: "other", Modified: info.ModTime().UTC().Format(time.RFC3339)}
	switch {
	case info.Mode().IsRegular():
		out.Type, out.Size = "file", info.Size()
	case info.IsDir():
		out.Type = "directory"
	}
	return out
}

func (f *files) list(_ context.Context, in folderArgs) (listing, error) {
	out := listing{Entries: []fileInfo{}}
	p, err := where(in.Path)
	if err != nil {
		return out, err
	}
	entries, err := fs.ReadDir(f.root.FS(), p)
	if err != nil {
		return out, plain(p, err)
	}
	for _, entry := range entries {
		if len(out.Entries) == maxListed {
			out.Truncated = true
			break
		}
		info, err := entry.Info()
		if err != nil {
			continue // deleted meanwhile
		}
		out.Entries = append(out.Entries, describe(path.Join(p, entry.Name()), info))
	}
	return out, nil
}

var errEnough = errors.New("enough")

// walk calls do with everything below p, in the order of paths, until do
// returns errEnough. What cannot be read is left out.
func (f *files) walk(ctx context.Context, p string, do func(p string, entry fs.DirEntry) error) error {
	visited := 0
	err := fs.WalkDir(f.root.FS(), p, func(at string, entry fs.DirEntry, err error) error {
		visited++
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case visited > maxVisited:
			return fmt.Errorf("there are more than %d files below %s; look in a folder of it", maxVisited, p)
		case err != nil && at == p:
			return plain(p, err)
		case err != nil || at == p && entry.IsDir():
			return nil
		}
		return do(at, entry)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (f *files) find(ctx context.Context, in findArgs) (listing, error) {
	out := listing{Entries: []fileInfo{}}
	p, err := where(in.Path)
	if err != nil {
		return out, err
	}
	if _, err := path.Match(in.Pattern, ""); err != nil {
		return out, fmt.Errorf("pattern %q: a [ without its ]", in.Pattern)
	}
	err = f.walk(ctx, p, func(at string, entry fs.DirEntry) error {
		if ok, _ := path.Match(in.Pattern, entry.Name()); !ok {
			return nil
		}
		if len(out.Entries) == maxListed {
			out.Truncated = true
			return errEnough
		}
		if info, err := entry.Info(); err == nil {
			out.Entries = append(out.Entries, describe(at, info))
		}
		return nil
	})
	return out, err
}

func (f *files) grep(ctx context.Context, in grepArgs) (grepResult, error) {
	out := grepResult{Matches: []grepMatch{}}
	p, err := where(in.Path)
	if err != nil {
		return out, err
	}
	re, err := expression(in.Pattern, in.IgnoreCase)
	if err != nil {
		return out, err
	}
	if _, err := path.Match(in.Name, ""); err != nil {
		return out, fmt.Errorf("name %q: a [ without its ]", in.Name)
	}
	err = f.walk(ctx, p, func(at string, entry fs.DirEntry) error {
		if ok, _ := path.Match(in.Name, entry.Name()); entry.IsDir() || in.Name != "" && !ok {
			return nil
		}
		content, err := f.text(at)
		if err != nil {
			out.Skipped++
			return nil
		}
		n := 0
		for line := range strings.Lines(content) {
			n++
			if line = strings.TrimRight(line, "\r\n"); !re.MatchString(line) {
				continue
			}
			if len(out.Matches) == maxListed {
				out.Truncated = true
				return errEnough
			}
			if len(line) > maxLine {
				line = strings.ToValidUTF8(line[:maxLine], "")
			}
			out.Matches = append(out.Matches, grepMatch{at, n, line})
		}
		return nil
	})
	return out, err
}

var errNotText = errors.New("not a text file")

// text returns the content of a text file of at most maxFile bytes.
func (f *files) text(p string) (string, error) {
	file, info, err := f.open(p)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info.Size() > maxFile {
		return "", errNotText
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return "", err
	}
	if !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
		return "", errNotText
	}
	return string(content), nil
}

func (f *files) move(_ context.Context, in moveArgs) (done, error) {
	from, err := where(in.From)
	if err != nil {
		return done{}, err
	}
	to, err := where(in.To)
	if err != nil {
		return done{}, err
	}
	if from == "." {
		return done{}, errors.New("the folder of this server itself cannot be moved")
	}
	if _, err := f.root.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return done{}, plain(to, err)
	}
	if err := f.root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return done{}, plain(path.Dir(to), err)
	}
	return done{to}, plain(from, f.root.Rename(from, to))
}

func (f *files) delete(_ context.Context, in deleteArgs) (done, error) {
	p, err := where(in.Path)
	if err != nil {
		return done{}, err
	}
	if p == "." {
		return done{}, errors.New("the folder of this server itself cannot be deleted")
	}
	info, err := f.root.Lstat(p)
	if err != nil {
		return done{}, plain(p, err)
	}
	if in.Recursive {
		return done{p}, plain(p, f.root.RemoveAll(p))
	}
	if info.IsDir() {
		if entries, err := fs.ReadDir(f.root.FS(), p); err == nil && len(entries) > 0 {
			return done{}, fmt.Errorf("%s is a folder that is not empty; set recursive to delete it with everything in it", p)
		}
	}
	return done{p}, plain(p, f.root.Remove(p))
}

func (f *files) mkdir(_ context.Context, in pathArgs) (done, error) {
	p, err := where(in.Path)
	if err != nil {
		return done{}, err
	}
	return done{p}, plain(p, f.root.MkdirAll(p, 0o755))
}

func (f *files) info(_ context.Context, in pathArgs) (fileInfo, error) {
	p, err := where(in.Path)
	if err != nil {
		return fileInfo{}, err
	}
	info, err := f.root.Stat(p)
	if err != nil {
		return fileInfo{}, plain(p, err)
	}
	return describe(p, info), nil
}

// expression compiles a regular expression of a caller.
func expression(pattern string, ignoreCase bool) (*regexp.Regexp, error) {
	if err := atMost(10_000, "pattern", pattern); err != nil {
		return nil, err
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	return re, nil
}
