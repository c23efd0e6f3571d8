package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"toolfinch/internal/document"
	"toolfinch/internal/rawjson"
)

// Backups keep copies of files from before their edits, and restore them. Each edited file
// has a folder in Dir with a copy and a record of its edits.
type Backups struct {
	Dir string // absolute, readable by its owner only, made when needed
}

// Edit is one change of a file.
type Edit struct {
	File          File     // without a Client for toolfinch's own file
	Before, After []byte   // Before is nil without a file
	Moved         []string // servers of Before that After lacks
	Private       bool     // After has secrets: only the owner may read the file
	Setup         bool     // made by setup
	Made          []string // folders made for the file before the edit, the lowest first
}

// record has the facts that undo needs.
type record struct {
	Path string      `json:"path"`
	Copy string      `json:"copy,omitempty"` // base name of the copy that undo restores; "" for no file
	Mode fs.FileMode `json:"mode,omitempty"` // of the file before its edits
	// Sums are the SHA-256 of the file before and after the last edit. An interrupted edit
	// leaves the first; any other content is another program's.
	Sums  [2]string `json:"sums"`
	Moved []string  `json:"moved,omitempty"` // servers that edits removed; the copy has all of them
	Setup bool      `json:"setup,omitempty"`
	Made  []string  `json:"made,omitempty"` // folders that the edits made for the file, the lowest first
}

// Write makes the edit and returns the path of its new copy, "" if the file is new or has
// a copy already.
func (b Backups) Write(e Edit, now time.Time) (copied string, err error) {
	old, err := b.read(e.File.Path)
	if err != nil {
		return "", err
	}
	r := &record{Path: e.File.Path}
	if old != nil {
		*r = *old
	}
	if old == nil || !old.knows(e.Before) {
		if copied, err = b.copy(r, old, e, now); err != nil {
			return "", err
		}
	}
	r.Sums = [2]string{digest(e.Before), digest(e.After)}
	r.Moved = union(r.Moved, e.Moved)
	r.Setup = r.Setup || e.Setup
	if made := append(missingFolders(e.File.Path), e.Made...); len(made) > 0 {
		r.Made = made
	}
	// The record comes first: an edit without a record could not be undone.
	if err := b.write(r); err != nil {
		return "", err
	}
	write := Replace
	if e.Private {
		write = ReplacePrivate
	}
	if err := write(e.File.Path, e.Before, e.After); err != nil {
		if old == nil {
			return "", errors.Join(err, os.RemoveAll(b.folder(e.File.Path)))
		}
		return "", errors.Join(err, b.write(old))
	}
	return copied, nil
}

// copy makes the copy for undo: the file as it is, or without its earlier edits.
func (b Backups) copy(r, old *record, e Edit, now time.Time) (path string, err error) {
	data := e.Before
	if old != nil && e.File.Client != nil {
		if data, err = b.undone(old, e.File, e.Before); err != nil {
			return "", err
		}
	}
	r.Copy, r.Mode = "", 0
	if data == nil {
		return "", nil
	}
	if info, err := os.Stat(r.Path); err == nil {
		r.Mode = info.Mode().Perm()
	}
	path, err = b.keep(r.Path, data, now)
	r.Copy = filepath.Base(path)
	return path, err
}

// backupMark separates the name of a file from the time of its copy.
const backupMark = ".toolfinch-backup-"

// keep writes a copy of a file, readable by its owner only.
func (b Backups) keep(path string, data []byte, now time.Time) (string, error) {
	if err := os.MkdirAll(b.folder(path), 0o700); err != nil {
		return "", fmt.Errorf("back up %s: %w", filepath.Base(path), reason(err))
	}
	base := filepath.Join(b.folder(path), filepath.Base(path)+backupMark+now.Format("20060102-150405"))
	for n, copied := 2, base; ; n++ {
		err := Replace(copied, nil, data)
		if !errors.Is(err, ErrChanged) || n == 100 {
			return copied, err
		}
		copied = fmt.Sprintf("%s-%d", base, n)
	}
}

// knows reports whether no other program has changed the file since the last edit.
func (r *record) knows(data []byte) bool { return slices.Contains(r.Sums[:], digest(data)) }

// undone returns the file without its edits: its copy, or if another program has changed
// it, data without toolfinch and with the moved servers.
func (b Backups) undone(r *record, f File, data []byte) ([]byte, error) {
	var was []byte
	if r != nil && r.Copy != "" {
		var err error
		if was, err = ReadFile(filepath.Join(b.folder(r.Path), r.Copy)); err != nil {
			return nil, fmt.Errorf("the backup is needed: %w", err)
		}
		was = append([]byte{}, was...) // an empty file is a file
	}
	switch {
	case r != nil && r.knows(data):
		return was, nil
	case f.Client == nil && r != nil:
		return nil, ErrChanged
	case f.Client == nil:
		return data, nil
	}
	clean, err := f.Remove(data, Own)
	if err != nil || r == nil {
		return clean, err
	}
	gone, err := f.missing(clean, r.Moved)
	if err != nil {
		return nil, err
	}
	for _, name := range gone {
		if clean, err = f.putBack(clean, was, name); err != nil {
			return nil, fmt.Errorf("server %q cannot be put back: %w", name, err)
		}
	}
	return clean, nil
}

// Undone is a file after its edits are undone.
type Undone struct {
	Edit           // After is nil if the file is removed
	Exact bool     // After equals the file before the edits
	Back  []string // restored servers, sorted

	mode fs.FileMode
	made []string
}

// Undo returns a file without its edits: its earlier bytes if it is unchanged since, else a
// client's present bytes without toolfinch and with the moved servers. For any other changed
// file it returns ErrChanged. It writes nothing.
func (b Backups) Undo(f File) (Undone, error) {
	u := Undone{Edit: Edit{File: f}}
	var err error
	if u.Before, err = f.Read(); err != nil {
		return u, err
	}
	r, err := b.read(f.Path)
	if err != nil {
		return u, err
	}
	if u.After, err = b.undone(r, f, u.Before); err != nil || r == nil {
		return u, err
	}
	u.made = r.Made
	if u.Exact = r.knows(u.Before); u.Exact {
		u.mode = r.Mode
	}
	if len(r.Moved) > 0 {
		u.Back, err = f.missing(u.Before, r.Moved)
	}
	return u, err
}

// Restore writes the result of Undo and forgets the edits. It removes the copies only if u
// is exact, because otherwise they have comments that are not restored.
func (b Backups) Restore(u Undone, now time.Time) (copied string, err error) {
	path := u.File.Path
	switch {
	case u.Before == nil && u.After == nil:
	case u.After == nil:
		if err := unchanged(path, u.Before); err != nil {
			return "", named(path, err)
		}
		if err := os.Remove(target(path)); err != nil {
			return "", named(path, err)
		}
		RemoveFolders(u.made)
	default:
		if !u.Exact && u.Before != nil {
			if copied, err = b.keep(path, u.Before, now); err != nil {
				return "", err
			}
		}
		if err := Replace(path, u.Before, u.After); err != nil {
			return copied, err
		}
		if u.mode != 0 {
			if err := os.Chmod(path, u.mode); err != nil {
				return copied, named(path, err)
			}
		}
	}
	if u.Exact {
		err = os.RemoveAll(b.folder(path))
		_ = os.Remove(b.Dir) // fails while other files have edits
	} else if err = os.Remove(b.place(path)); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return copied, fmt.Errorf("forget what was undone: %w", reason(err))
	}
	return copied, nil
}

// Setup returns the paths of the files that setup edited, sorted. err joins the errors of
// unreadable records.
func (b Backups) Setup() ([]string, error) {
	entries, err := os.ReadDir(b.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what setup did cannot be read: %w", reason(err))
	}
	var paths []string
	var broken []error
	for _, entry := range entries {
		if !entry.IsDir() {
			continue // of an older version
		}
		if r, err := readRecord(filepath.Join(b.Dir, entry.Name(), recordName)); err != nil {
			broken = append(broken, err)
		} else if r != nil && r.Setup {
			paths = append(paths, r.Path)
		}
	}
	slices.Sort(paths)
	return paths, errors.Join(broken...)
}

const recordName = "record.json"

// folder returns the folder of a file's copies.
func (b Backups) folder(path string) string {
	return filepath.Join(b.Dir, digest([]byte(path))[:32])
}

func (b Backups) place(path string) string { return filepath.Join(b.folder(path), recordName) }

func (b Backups) read(path string) (*record, error) { return readRecord(b.place(path)) }

func readRecord(place string) (*record, error) {
	data, err := ReadFile(place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := new(record)
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("the record %s of what was edited cannot be read: %w", place, err)
	}
	return r, nil
}

func (b Backups) write(r *record) error {
	if err := os.MkdirAll(b.folder(r.Path), 0o700); err != nil {
		return fmt.Errorf("remember how %s is undone: %w", filepath.Base(r.Path), reason(err))
	}
	before, err := File{Path: b.place(r.Path)}.Read()
	if err != nil {
		return err
	}
	return Replace(b.place(r.Path), before, rawjson.Of(r))
}

// MakeFolders makes the folders above a file that do not exist, and returns them, the lowest
// first.
func MakeFolders(path string) ([]string, error) {
	made := missingFolders(path)
	if err := os.MkdirAll(filepath.Dir(target(path)), 0o755); err != nil {
		return nil, named(path, err)
	}
	return made, nil
}

// RemoveFolders removes folders that are empty, in this order.
func RemoveFolders(dirs []string) {
	for _, dir := range dirs {
		_ = os.Remove(dir) // fails for a folder that has files: it stays
	}
}

func missingFolders(path string) (dirs []string) {
	for dir := filepath.Dir(target(path)); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dirs
		}
		dirs = append(dirs, dir)
	}
}

// digest is the SHA-256 of a file, "none" without a file.
func digest(data []byte) string {
	if data == nil {
		return "none"
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// missing returns the names that no server in the bytes of the file has.
func (f File) missing(data []byte, names []string) ([]string, error) {
	var servers map[string]any
	if f.Client.TOML {
		file, _, err := PlainTOML(data)
		if err != nil {
			return nil, f.wrap(err)
		}
		servers, _ = file[tomlBlock].(map[string]any)
	} else {
		value, err := document.PlainJSON(data)
		if err != nil {
			return nil, f.wrap(err)
		}
		for _, key := range f.Block {
			value = rawjson.Member(value, key)
		}
		_ = json.Unmarshal(value, &servers) // another value has no servers
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := servers[name]; return ok }), nil
}

// putBack returns data with the server of that name in was.
func (f File) putBack(data, was []byte, name string) ([]byte, error) {
	if f.Client.TOML {
		data, err := tomlPutBack(data, was, name)
		return data, f.wrap(err)
	}
	value, err := document.PlainJSON(was)
	if err != nil {
		return nil, f.wrap(err)
	}
	path := append(slices.Clone(f.Block), name)
	for _, key := range path {
		value = rawjson.Member(value, key)
	}
	if value == nil {
		return nil, f.wrap(errors.New("the backup does not have it"))
	}
	data, err = document.SetJSON(data, path, value)
	return data, f.wrap(err)
}
