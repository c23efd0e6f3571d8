// Package models owns the local embedding models: where they are stored, how they are fetched, and whether they are
// complete. It does not interpret their content.
package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"
)

// DefaultModel is the model used if none is named, short for "sentence-transformers/all-MiniLM-L6-v2".
const DefaultModel = "all-MiniLM-L6-v2"

// defaultOrg may be left out of a name.
const defaultOrg = "sentence-transformers/"

// Errors that callers distinguish.
var (
	ErrMissing = errors.New("not there")        // no model of this name is installed
	ErrName    = errors.New("not a model name") // malformed name
)

// DamagedError says that an installed model cannot be used.
type DamagedError struct {
	Name   string
	Dir    string
	Reason string // "model.safetensors is missing"
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("model %s in %s is damaged: %s; run: %s", e.Name, e.Dir, e.Reason, pullCommand(e.Name))
}

// Bytes is a size. It prints in decimal units, as the hub and npm do: "90.9 MB".
type Bytes int64

func (b Bytes) String() string {
	switch {
	case b >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(b)/1e9)
	case b >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(b)/1e6)
	case b >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(b)/1e3)
	}
	return fmt.Sprintf("%d bytes", int64(b))
}

// Manifest is the file manifest.json in a model's folder.
type Manifest struct {
	Name     string          `json:"name"`
	Source   string          `json:"source"`   // URL at the hub, "npm:PACKAGE" or "dir:PATH"
	Revision string          `json:"revision"` // commit or version; "" for a folder
	PulledAt time.Time       `json:"pulled_at"`
	Files    map[string]File `json:"files"` // by path inside the folder, with slashes
}

// File describes a file of a model.
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // lower-case hex
}

// Info describes an installed model.
type Info struct {
	Name     string
	Dir      string
	Source   string
	Revision string
	PulledAt time.Time
	Size     Bytes
	Err      error // nil if intact
}

// Dir returns the folder of all models: $MCPPROXY_MODELS_DIR, else
// toolfinch/models in the user's cache folder. It may not exist yet.
func Dir() (string, error) {
	if dir := os.Getenv("MCPPROXY_MODELS_DIR"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for models: %w; set MCPPROXY_MODELS_DIR", err)
	}
	return filepath.Join(cache, "toolfinch", "models"), nil
}

// Same reports whether two names mean the same model.
func Same(a, b string) bool {
	return strings.TrimPrefix(a, defaultOrg) == strings.TrimPrefix(b, defaultOrg)
}

// Locate returns the folder of a model. It checks names and sizes only, which takes microseconds; Verify reads the
// content. The error wraps ErrMissing or ErrName, or is a *DamagedError.
func Locate(name string) (string, error) {
	p, err := placeOf(name)
	if err != nil {
		return "", err
	}
	if _, err := p.check(); err != nil {
		return "", err
	}
	return p.dir, nil
}

// Verify reads a whole model and compares it with its manifest. Errors are those of Locate.
func Verify(ctx context.Context, name string) error {
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	manifest, err := p.check()
	if err != nil {
		return err
	}
	for file, want := range manifest.Files {
		got, err := sumFile(ctx, filepath.Join(p.dir, filepath.FromSlash(file)))
		if err != nil {
			return fmt.Errorf("verify model %s: %w", p.name, err)
		}
		if got.SHA256 != want.SHA256 {
			return &DamagedError{p.name, p.dir, "the content of " + file + " has changed"}
		}
	}
	return nil
}

// List returns the installed models by name, damaged ones too.
func List() ([]Info, error) {
	root, err := Dir()
	if err != nil {
		return nil, err
	}
	found, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list models: %w", err)
	}
	var all []Info
	for _, item := range found {
		p := place{strings.Replace(item.Name(), "--", "/", 1), filepath.Join(root, item.Name())}
		if same, err := placeOf(p.name); item.IsDir() && err == nil && same == p { // other folders are not ours
			all = append(all, p.info())
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all, nil
}

// Remove deletes a model and the remains of interrupted pulls. The error wraps ErrMissing if there is neither.
func Remove(name string) error {
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	root := filepath.Dir(p.dir)
	gone := filepath.Join(root, p.tempPrefix()+"gone")
	err = os.RemoveAll(gone)
	if renamed := os.Rename(p.dir, gone); !errors.Is(renamed, fs.ErrNotExist) { // a rename, so that the model is never half deleted
		err = errors.Join(err, renamed)
	}
	left, _ := fs.Glob(os.DirFS(root), p.tempPrefix()+"*")
	if err == nil && len(left) == 0 {
		return fmt.Errorf("model %s: %w", p.name, ErrMissing)
	}
	for _, temp := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(root, temp)))
	}
	if err != nil {
		return fmt.Errorf("remove model %s: %w", p.name, err)
	}
	return nil
}

// place is the location of one model.
type place struct{ name, dir string }

// tempPrefix begins the names of temporary folders beside the model. It ends with a character that no model name
// may have.
func (p place) tempPrefix() string { return "." + filepath.Base(p.dir) + "~" }

const manifestFile = "manifest.json"

var segment = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?$`)

// placeOf checks a name and returns the location of its model. The hub allows no "--" and no ".." in a name, so two
// names never share a folder.
func placeOf(name string) (place, error) {
	short := strings.TrimPrefix(name, defaultOrg)
	folder := strings.Replace(short, "/", "--", 1)
	ok := strings.Count(folder, "--") == strings.Count(short, "/") && !strings.Contains(short, "..") &&
		filepath.IsLocal(folder)
	for _, part := range strings.Split(short, "/") {
		ok = ok && segment.MatchString(part)
	}
	if !ok {
		return place{}, fmt.Errorf("%w: %q; it is like %s or org/name", ErrName, name, DefaultModel)
	}
	root, err := Dir()
	if err != nil {
		return place{}, err
	}
	return place{short, filepath.Join(root, folder)}, nil
}

// repo returns the model's name at the hub.
func (p place) repo() string {
	if strings.Contains(p.name, "/") {
		return p.name
	}
	return defaultOrg + p.name
}

// check reads the manifest and compares it with the sizes of the files.
func (p place) check() (*Manifest, error) {
	if !exists(p.dir) {
		return nil, fmt.Errorf("model %s is %w; run: %s", p.name, ErrMissing, pullCommand(p.name))
	}
	damaged := func(format string, args ...any) error {
		return &DamagedError{p.name, p.dir, fmt.Sprintf(format, args...)}
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("%s is missing", manifestFile)
	}
	if err != nil {
		return nil, damaged("%v", err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, damaged("%s is not readable: %v", manifestFile, err)
	}
	if lacking := missing(func(file string) bool { _, ok := m.Files[file]; return ok }); lacking != nil {
		return nil, damaged("%s names no %s", manifestFile, strings.Join(lacking, ", "))
	}
	for file, want := range m.Files {
		path := filepath.FromSlash(file)
		if !filepath.IsLocal(path) {
			return nil, damaged("%s names %q", manifestFile, file)
		}
		switch got, err := os.Stat(filepath.Join(p.dir, path)); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, damaged("%s is missing", file)
		case err != nil:
			return nil, damaged("%v", err)
		case !got.Mode().IsRegular():
			return nil, damaged("%s is not a file", file)
		case got.Size() != want.Size:
			return nil, damaged("%s has %d bytes instead of %d", file, got.Size(), want.Size)
		}
	}
	return m, nil
}

func (p place) info() Info {
	info := Info{Name: p.name, Dir: p.dir, Size: diskSize(p.dir)}
	m, err := p.check()
	if err != nil {
		info.Err = err
		return info
	}
	info.Source, info.Revision, info.PulledAt = m.Source, m.Revision, m.PulledAt
	return info
}

func pullCommand(name string) string {
	if name == DefaultModel {
		return "toolfinch model pull"
	}
	return "toolfinch model pull " + name
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// diskSize returns a size for people: unreadable files count nothing.
func diskSize(dir string) Bytes {
	var sum Bytes
	_ = filepath.WalkDir(dir, func(_ string, item fs.DirEntry, err error) error {
		if err == nil && item.Type().IsRegular() {
			if info, err := item.Info(); err == nil {
				sum += Bytes(info.Size())
			}
		}
		return nil
	})
	return sum
}

func sumFile(ctx context.Context, path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, reader{ctx, f})
	if err != nil {
		return File{}, err
	}
	return File{n, hex.EncodeToString(hash.Sum(nil))}, nil
}

// reader ends with the context.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
