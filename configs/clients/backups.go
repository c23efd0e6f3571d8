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

	"toolfinch/configs/document"
	"toolfinch/internal/rawjson"
)

// Backups keep files as they were before they were edited, and give them back. Each
// edited file has a folder in Dir, with a copy of it and what tells who changed it since.
type Backups struct {
	Dir string // absolute, only for its owner, made when it is needed
}

// Edit is one change of a file.
type Edit struct {
	File          File     // without a Client if it is no client's
	Before, After []byte   // Before is nil where there is no file
	Moved         []string // servers that Before has and After has not
	Private       bool     // After has secrets: only the owner may read the file
	Setup         bool     // it is a part of setup
}

// record says how the edits of a file are undone.
type record struct {
	Path string      `json:"path"`
	Copy string      `json:"copy,omitempty"` // base name, of what undo gives back; "" for no file
	Mode fs.FileMode `json:"mode,omitempty"` // of the file as it was
	// Sums are the SHA-256 of what the last edit replaced and of what it wrote. The first
	// is there when the edit was interrupted; any other content is somebody else's.
	Sums  [2]string `json:"sums"`
	Moved []string  `json:"moved,omitempty"` // servers that edits took out, all of which the copy has
	Setup bool      `json:"setup,omitempty"`
}

// Write makes the edit and returns the path of the copy that was made for it, "" if
// there was nothing to copy or an earlier copy has it.
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
	// The record is first: an edit that nothing remembers could not be undone.
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

// copy makes the copy that undo is to give back: the file as it is, or as undo would
// leave it if it was edited before.
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

// backupMark stands between the name of a file and the time of its copy.
const backupMark = ".toolfinch-backup-"

// keep writes a copy of a file, which only its owner may read.
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

// knows reports whether nobody else has changed the file since the last edit.
func (r *record) knows(data []byte) bool { return slices.Contains(r.Sums[:], digest(data)) }

// undone is the file without its edits: its copy, or where somebody has edited data
// since, data without toolfinch and with the servers that were moved out.
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

// Undone is what a file is once its edits are undone.
type Undone struct {
	Edit           // After is nil if there is to be no file
	Exact bool     // After is every byte of what was there before the edits
	Back  []string // servers that come back, sorted

	mode fs.FileMode
}

// Undo returns how the edits of a file are undone: its bytes as they were if nobody has
// changed them since, else a client's bytes of now without toolfinch and with the
// servers that were moved out. Of any other file that is ErrChanged. It writes nothing.
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
	if u.Exact = r.knows(u.Before); u.Exact {
		u.mode = r.Mode
	}
	if len(r.Moved) > 0 {
		u.Back, err = f.missing(u.Before, r.Moved)
	}
	return u, err
}

// Restore writes what Undo returned and forgets the edits. The copies go with them if u
// is exact: otherwise they have comments that could not be put back.
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
	} else if err = os.Remove(b.place(path)); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return copied, fmt.Errorf("forget what was undone: %w", reason(err))
	}
	return copied, nil
}

// Setup returns the paths of the files that setup edited, sorted. Records that cannot be
// read are the error; the others are returned all the same.
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

// folder is where the copies of a file are.
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

// digest is the SHA-256 of a file, "none" for one that is not there.
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

// missing are those of the names that no server in the bytes of the file has.
func (f File) missing(data []byte, names []string) ([]string, error) {
	var servers map[string]any
	if f.Client.TOML {
		file, err := PlainTOML(data)
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
		_ = json.Unmarshal(value, &servers) // what is no object has none
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := servers[name]; return ok }), nil
}

// putBack returns data, which has no server of that name, with it as was has it.
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
