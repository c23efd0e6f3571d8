// Package skills reads the owner's folders of Agent Skills (agentskills.io) as definitions, and their files. It serves
// nothing and watches nothing.
package skills

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/view"
)

// Server is the name of the server whose skills these are.
const Server = "skills"

// Capabilities are what that server declares.
const Capabilities = `{"resources":{},"extensions":{"` + tool.ExtensionSkills + `":{}}}`

// Bounds of all folders together; package tool has those of a skill.
const (
	maxSkills   = 1000
	maxDepth    = 8      // of directories below a folder
	maxEntries  = 20_000 // directories and files that are looked at, so that a home directory costs little
	maxProblems = 100
	maxWatched  = 1000 // files and directories whose changes are noticed at once
)

const skillFile = "SKILL.md"

// Folders are the skills of folders as they were read. They never change.
type Folders struct {
	Defs     []*tool.Def
	Problems []view.Problem
	Watched  []string // absolute paths; a change of one of them may change the skills

	dirs map[string]place // by URI of SKILL.md
}

// place is a directory below a folder.
type place struct{ folder, dir string }

// Read reads folders. A folder is a skill, if it has a SKILL.md, or has skills in its directories. A broken skill is
// left out with a problem.
func Read(folders []string) *Folders {
	r := &reader{Folders: &Folders{dirs: map[string]place{}}}
	for _, folder := range folders {
		r.Watched = append(r.Watched, folder)
		root, err := os.OpenRoot(folder)
		if err != nil {
			r.problem(folder, reason(err), "make it, or remove it from skills")
			continue
		}
		before := len(r.Defs) + len(r.Problems)
		r.root, r.folder = root, folder
		r.search(".", 0)
		if before == len(r.Defs)+len(r.Problems) && !r.full {
			r.problem(folder, "no directory in it has a "+skillFile, "")
		}
		_ = root.Close() // it was only read
	}
	return r.Folders
}

// reader makes Folders.
type reader struct {
	*Folders
	root    *os.Root // of folder: nothing outside of it is opened, whatever links say
	folder  string
	entries int
	full    bool // a bound of all folders is reached
}

// problem reports what costs a skill, or a file of it.
func (r *reader) problem(path, message, hint string) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, view.Problem{Message: fmt.Sprintf("skills: %q: %s", path, message), Hint: hint, Warning: true})
	}
}

func (r *reader) path(dir string) string { return filepath.Join(r.folder, filepath.FromSlash(dir)) }

func (r *reader) watch(dir string) {
	if len(r.Watched) < maxWatched {
		r.Watched = append(r.Watched, r.path(dir))
	}
}

// search reads the skills in and below a directory.
func (r *reader) search(dir string, depth int) {
	entries, err := r.list(dir, depth)
	isSkill := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == skillFile })
	switch {
	case err != nil:
	case isSkill && len(r.Defs) == maxSkills:
		r.full, err = true, fmt.Errorf("there are more than %d skills, the rest is left out", maxSkills)
	case isSkill:
		err = r.skill(dir, entries, depth)
	default:
		r.watch(path.Join(dir, skillFile)) // watching a file watches its directory
		for _, e := range entries {
			if e.IsDir() && !r.full {
				r.search(path.Join(dir, e.Name()), depth+1)
			}
		}
	}
	if err != nil {
		r.problem(r.path(dir), "it is left out: "+reason(err), "")
	}
}

// list returns the entries of a directory by name, without hidden ones and links.
func (r *reader) list(dir string, depth int) ([]fs.DirEntry, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	r.watch(dir)
	f, err := r.root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxEntries - r.entries + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if r.entries += len(entries); r.entries > maxEntries {
		r.full = true
		return nil, fmt.Errorf("there are more than %d files and directories, the rest is left out", maxEntries)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	var kept []fs.DirEntry
	for _, e := range entries {
		switch name := e.Name(); {
		case name[0] == '.':
		case strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name):
			return nil, fmt.Errorf("%q has characters that no URI has: rename it", name)
		case e.Type()&fs.ModeSymlink != 0:
			r.problem(r.path(path.Join(dir, name)), "symbolic links are not followed", "copy what it points to")
		default:
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// skill reads the skill of a directory.
func (r *reader) skill(dir string, entries []fs.DirEntry, depth int) error {
	within := dir
	if dir == "." {
		within = filepath.Base(r.folder)
	}
	root := "skill://" + escape(within)
	uri := root + tool.SkillFile
	if first, taken := r.dirs[uri]; taken {
		return fmt.Errorf("%s is also the URI of %q: rename one of them", uri, filepath.Join(first.folder, first.dir))
	}
	files := files{main: path.Join(dir, skillFile), left: tool.MaxSkillBytes}
	if err := r.add(&files, dir, root, entries, depth); err != nil {
		return err
	}
	frontmatter, err := document.Frontmatter(files.markdown)
	if err != nil {
		return fmt.Errorf("%s: %w", skillFile, err)
	}
	var entry rawjson.Object
	entry.AddText("uri", uri)
	entry.Add("frontmatter", frontmatter)
	entry.Add("resources", rawjson.Array(files.entries))
	def, _, err := tool.TakeIn(tool.KindSkill, Server, entry.JSON())
	if err != nil {
		return err
	}
	def.Headings = document.Headings(files.markdown)
	r.Defs, r.dirs[uri] = append(r.Defs, def), place{r.folder, dir}
	return nil
}

// files are those of a skill while they are read.
type files struct {
	entries  [][]byte
	main     string // the path of SKILL.md
	markdown []byte // of main
	left     int64  // bytes
}

// add reads the files below a directory.
func (r *reader) add(to *files, dir, uri string, entries []fs.DirEntry, depth int) error {
	for _, e := range entries {
		name, uri := path.Join(dir, e.Name()), uri+"/"+escape(e.Name())
		if e.IsDir() {
			below, err := r.list(name, depth+1)
			if err == nil {
				err = r.add(to, name, uri, below, depth+1)
			}
			if err != nil {
				return err
			}
			continue
		}
		r.watch(name)
		content, err := readFile(r.root, name, to.left)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", e.Name(), err)
		case len(to.entries) == tool.MaxSkillFiles:
			return fmt.Errorf("it has more than %d files", tool.MaxSkillFiles)
		case name == to.main:
			to.markdown = content
		}
		to.left -= int64(len(content))
		to.entries = append(to.entries, rawjson.Of(tool.SkillResource{URI: uri, Digest: tool.SkillDigest(content), Size: new(int64(len(content)))}))
	}
	return nil
}

var errNoFile = errors.New("it is no regular file")

// readFile reads a file of at most left bytes. A FIFO does not block it, and what became a link after Lstat is refused.
func readFile(root *os.Root, name string, left int64) ([]byte, error) {
	before, err := root.Lstat(name)
	if err != nil || !before.Mode().IsRegular() {
		return nil, cmp.Or(err, errNoFile)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil || !os.SameFile(before, opened) {
		return nil, cmp.Or(err, errNoFile)
	}
	content, err := io.ReadAll(io.LimitReader(f, left+1))
	if int64(len(content)) > left {
		return nil, fmt.Errorf("the files have more than %d bytes", tool.MaxSkillBytes)
	}
	return content, err
}

// reason is the text of an error without paths, which the problem names.
func reason(err error) string {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return strings.Replace(err.Error(), inner.Error(), inner.Err.Error(), 1)
	}
	return err.Error()
}

// escape returns a path of names as a part of a URI. The first name stands where other URIs have a host.
func escape(names string) string {
	parts := strings.Split(names, "/")
	for i, name := range parts {
		parts[i] = strings.NewReplacer(":", "%3A", "@", "%40").Replace(url.PathEscape(name))
	}
	return strings.Join(parts, "/")
}

// Handler returns the handler that reads a file of a skill: the URI that is called, else SKILL.md. changed is called
// if the file is not as it was listed.
func (f *Folders) Handler(changed func()) func(*tool.Def) tool.Handler {
	return func(def *tool.Def) tool.Handler {
		at, skill := f.dirs[def.ID.Name], tool.SkillOf(def)
		return func(_ context.Context, call *tool.Call) (tool.Result, error) {
			file, ok := skill.File(cmp.Or(call.Name, def.ID.Name))
			if !ok {
				return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: fmt.Sprintf("the skill has no file %.200q", call.Name)}
			}
			content, err := at.read(skill, file)
			if err != nil {
				changed()
				return nil, fmt.Errorf("the skill %q has changed since it was listed: list it again", skill.Name)
			}
			return contents(file.URI, content), nil
		}
	}
}

// read reads a file of a skill, and checks that it is as listed.
func (p place) read(skill tool.Skill, file tool.SkillResource) ([]byte, error) {
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name, err := url.PathUnescape(strings.TrimPrefix(file.URI, skill.Root()+"/"))
	if err != nil {
		return nil, err
	}
	content, err := readFile(root, path.Join(p.dir, name), tool.MaxSkillBytes)
	return content, cmp.Or(err, file.Verify(content))
}

// mimeTypes are by extension; those of the machine would differ from machine to machine.
var mimeTypes = map[string]string{
	".md": "text/markdown", ".csv": "text/csv", ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".py": "text/x-python",
	".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml", ".xml": "application/xml", ".sh": "application/x-sh",
	".pdf": "application/pdf", ".zip": "application/zip", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
}

// contents is the answer of resources/read.
func contents(uri string, content []byte) tool.Result {
	var item, result rawjson.Object
	item.AddText("uri", uri)
	mime := mimeTypes[strings.ToLower(path.Ext(uri))]
	if utf8.Valid(content) {
		item.AddText("mimeType", cmp.Or(mime, "text/plain"))
		item.AddText("text", string(content))
	} else {
		item.AddText("mimeType", cmp.Or(mime, "application/octet-stream"))
		item.AddText("blob", base64.StdEncoding.EncodeToString(content))
	}
	result.Add("contents", rawjson.Array([][]byte{item.JSON()}))
	return tool.Result(result.JSON())
}
