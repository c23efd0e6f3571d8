package clients

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"toolfinch/rawjson"
)

// Journal remembers what edits replaced, so that they can be undone. Dir has one
// record for each edited file; the bytes are in backups beside the files.
type Journal struct {
	Dir string // absolute, made when it is needed
}

// Edit is one change of a file.
type Edit struct {
	Path          string
	Before, After []byte   // Before is nil where there is no file
	Moved         []string // servers that Before has and After has not
	Private       bool     // After has secrets: only the owner may read the file
	Setup         bool     // it is a part of setup
}

// record is what undoes the edits of one file.
type record struct {
	Path   string            `json:"path"`
	Backup string            `json:"backup,omitempty"` // the file as it was before the edits; "" for none
	Sums   map[string]string `json:"sums,omitempty"`   // SHA-256 of backups, by path
	Before string            `json:"before,omitempty"` // SHA-256 of what the last edit replaced, noFile for none
	After  string            `json:"after"`            // SHA-256 of what the last edit wrote
	Mode   fs.FileMode       `json:"mode,omitempty"`   // of the file as it was
	Moved  map[string]string `json:"moved,omitempty"`  // servers that were taken out, and the backups that have them
	Setup  bool              `json:"setup,omitempty"`
	// Edited says that somebody changed the file between two edits, so that the backup
	// has the first one in it.
	Edited bool `json:"edited,omitempty"`
	// Earlier undoes what was done before setup; setup is undone without it.
	Earlier *record `json:"earlier,omitempty"`
}

// noFile is the sum of a file that is not there.
const noFile = "none"

// knows reports whether data is what the last edit wrote, what it was to replace when it
// was interrupted, or what was there before all edits. Nobody else has changed the file then.
func (r *record) knows(data []byte) bool {
	sum := digest(data)
	return sum == r.After || sum == r.Before || r.Backup != "" && sum == r.Sums[r.Backup]
}

// maxBackups is how many backups are kept beside a file, beside those that undo needs.
const maxBackups = 5

// Write makes the edit and returns the path of the backup that was made for it, "" if
// there was nothing to back up or an earlier backup has it.
func (j Journal) Write(e Edit, now time.Time) (backup string, err error) {
	old, err := j.read(e.Path)
	if err != nil {
		return "", err
	}
	r := old.next(e)
	if r.After == "" && e.Before != nil {
		if backup, err = Backup(e.Path, e.Before, now); err != nil {
			return "", err
		}
		r.Backup = backup
		r.sum(backup, e.Before)
		if info, err := os.Stat(e.Path); err == nil {
			r.Mode = info.Mode().Perm()
		}
	}
	for _, name := range e.Moved {
		set(&r.Moved, name, r.Backup)
	}
	r.Before, r.After = digest(e.Before), digest(e.After)
	// The record is first: an edit that nothing remembers could not be undone.
	if err := j.write(r); err != nil {
		return backup, err
	}
	write := Replace
	if e.Private {
		write = ReplacePrivate
	}
	if err := write(e.Path, e.Before, e.After); err != nil {
		return "", errors.Join(err, j.forget(r, old))
	}
	r.prune()
	return backup, nil
}

// next is the record of an edit after those of r, which may be nil. It has no After if
// the file as it is now is to be backed up.
func (r *record) next(e Edit) *record {
	switch {
	case r == nil:
		return &record{Path: e.Path, Setup: e.Setup}
	case e.Setup && !r.Setup:
		return &record{Path: e.Path, Setup: true, Earlier: r}
	case r.knows(e.Before):
		same := *r
		same.Moved, same.Sums = maps.Clone(r.Moved), maps.Clone(r.Sums)
		return &same
	}
	return &record{Path: e.Path, Moved: maps.Clone(r.Moved), Sums: maps.Clone(r.Sums), Setup: r.Setup, Edited: true, Earlier: r.Earlier}
}

// sum notes what a backup has in it: it lies where others may write.
func (r *record) sum(backup string, data []byte) {
	set(&r.Sums, backup, digest(data))
}

// Undone is what a file is once its edits are undone.
type Undone struct {
	Edit           // After is nil if there is to be no file
	Exact bool     // After is every byte of what was there before the edits
	Back  []string // servers that come back, sorted

	mode fs.FileMode
}

// Undo returns how the edits of a client's file are undone: its bytes as they were if
// nobody has changed them since, else the bytes of now without the named server and
// with the servers that were moved out. It writes nothing.
func (j Journal) Undo(f File, name string) (Undone, error) {
	u := Undone{Edit: Edit{Path: f.Path}}
	var err error
	if u.Before, err = f.Read(); err != nil {
		return u, err
	}
	r, err := j.read(f.Path)
	if err != nil {
		return u, err
	}
	if u.After = u.Before; r != nil && r.knows(u.Before) {
		if u.After, err = r.original(); err != nil {
			return u, err
		}
		u.Exact, u.mode = true, r.Mode
		if u.After == nil || !r.Edited {
			u.Back, err = f.missing(u.Before, slices.Sorted(maps.Keys(r.Moved)))
			return u, err
		}
	}
	clean, err := f.Remove(u.After, name)
	if err != nil {
		return u, err
	}
	u.Exact = u.Exact && bytes.Equal(clean, u.After)
	u.After = clean
	if r == nil {
		return u, nil
	}
	moved := slices.Sorted(maps.Keys(r.Moved))
	if u.Back, err = f.missing(u.Before, moved); err != nil {
		return u, err
	}
	gone, err := f.missing(u.After, moved)
	if err != nil {
		return u, err
	}
	for _, name := range gone {
		was, err := r.load(r.Moved[name])
		if err != nil {
			return u, fmt.Errorf("server %q cannot be put back: %w", name, err)
		}
		after, err := f.putBack(u.After, was, name)
		if err != nil {
			return u, fmt.Errorf("server %q cannot be put back: %w", name, err)
		}
		u.Exact = u.Exact && bytes.Equal(after, u.After)
		u.After = after
	}
	return u, nil
}

// UndoFile returns how the edits of any other file are undone. It is ErrChanged if
// somebody has changed the file since.
func (j Journal) UndoFile(path string) (Undone, error) {
	u := Undone{Edit: Edit{Path: path}, Exact: true}
	var err error
	if u.Before, err = (File{Path: path}).Read(); err != nil {
		return u, err
	}
	r, err := j.read(path)
	if err != nil || r == nil {
		u.After = u.Before
		return u, err
	}
	if !r.knows(u.Before) || r.Edited { // what it was before the first edit is not known, or not what the user wants back
		return u, ErrChanged
	}
	u.mode = r.Mode
	u.After, err = r.original()
	return u, err
}

// Restore writes what Undo returned, and forgets the edits, with their backups if u is
// exact. Where bytes are lost by it, a backup is made.
func (j Journal) Restore(u Undone, now time.Time) (backup string, err error) {
	switch {
	case u.Before == nil && u.After == nil:
	case u.After == nil:
		if err := unchanged(u.Path, u.Before); err != nil {
			return "", named(u.Path, err)
		}
		if err := os.Remove(target(u.Path)); err != nil {
			return "", named(u.Path, err)
		}
	default:
		if !u.Exact && u.Before != nil {
			if backup, err = Backup(u.Path, u.Before, now); err != nil {
				return "", err
			}
		}
		if err := Replace(u.Path, u.Before, u.After); err != nil {
			return backup, err
		}
		if u.mode != 0 {
			if err := os.Chmod(u.Path, u.mode); err != nil {
				return backup, named(u.Path, err)
			}
		}
	}
	r, err := j.read(u.Path)
	if err != nil || r == nil {
		return backup, err
	}
	if !u.Exact {
		return backup, j.drop(r, r.Earlier) // its backups have comments that this could not put back
	}
	return backup, j.forget(r, r.Earlier)
}

// drop is forget that leaves the backups.
func (j Journal) drop(r, left *record) error {
	if left != nil {
		return j.write(left)
	}
	if err := os.Remove(j.place(r.Path)); err != nil {
		return fmt.Errorf("forget what was undone: %w", reason(err))
	}
	return nil
}

// forget puts the record left in place of r, nil for none, and removes the backups that
// only r needs.
func (j Journal) forget(r, left *record) error {
	if err := j.drop(r, left); err != nil {
		return err
	}
	var needed []string
	if left != nil {
		needed = left.backups()
	}
	for _, path := range r.backups() {
		if slices.Contains(needed, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the backup: %w", reason(err))
		}
	}
	return nil
}

// Setup returns the paths of the files that setup edited, sorted. Records that cannot be
// read are the error; the others are returned all the same.
func (j Journal) Setup() ([]string, error) {
	entries, err := os.ReadDir(j.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("what setup did cannot be read: %w", reason(err))
	}
	var paths []string
	var broken []error
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, ".") || filepath.Ext(name) != ".json" {
			continue // an interrupted write
		}
		r, err := readRecord(filepath.Join(j.Dir, entry.Name()))
		if err != nil {
			broken = append(broken, err)
		} else if r != nil && r.Setup {
			paths = append(paths, r.Path)
		}
	}
	slices.Sort(paths)
	return paths, errors.Join(broken...)
}

func (j Journal) place(path string) string {
	return filepath.Join(j.Dir, digest([]byte(path))[:32]+".json")
}

func (j Journal) read(path string) (*record, error) { return readRecord(j.place(path)) }

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
		return nil, fmt.Errorf("the record %s of what was edited cannot be read: %w", filepath.Base(place), err)
	}
	return r, nil
}

func (j Journal) write(r *record) error {
	before, err := File{Path: j.place(r.Path)}.Read()
	if err != nil {
		return err
	}
	return Replace(j.place(r.Path), before, rawjson.Of(r))
}

// original is the file before the edits, nil for none.
func (r *record) original() ([]byte, error) {
	if r.Backup == "" {
		return nil, nil
	}
	return r.load(r.Backup)
}

// load reads a backup, which nobody may have changed: it lies beside the file, and what
// it has in it will be started.
func (r *record) load(backup string) ([]byte, error) {
	data, err := ReadFile(backup)
	if err != nil {
		return nil, fmt.Errorf("the backup is needed: %w", err)
	}
	if data == nil {
		data = []byte{}
	}
	if digest(data) != r.Sums[backup] {
		return nil, fmt.Errorf("the backup is needed: %s: somebody has changed it", filepath.Base(backup))
	}
	return data, nil
}

// backups are those that undo needs.
func (r *record) backups() []string {
	paths := slices.Collect(maps.Values(r.Moved))
	if r.Backup != "" {
		paths = append(paths, r.Backup)
	}
	if r.Earlier != nil {
		paths = append(paths, r.Earlier.backups()...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// backupTime is what ends the name of a backup.
var backupTime = regexp.MustCompile(regexp.QuoteMeta(backupMark) + `\d{8}-\d{6}(-\d+)?$`)

// prune removes the oldest backups beside the file but for those that undo needs.
// Errors are ignored: a backup too many does no harm.
func (r *record) prune() {
	entries, err := os.ReadDir(filepath.Dir(r.Path))
	if err != nil {
		return
	}
	needed := r.backups()
	var others []string // by name, and so by time
	for _, entry := range entries {
		path := filepath.Join(filepath.Dir(r.Path), entry.Name())
		if backupTime.ReplaceAllString(entry.Name(), "") == filepath.Base(r.Path) && entry.Name() != filepath.Base(r.Path) && !slices.Contains(needed, path) {
			others = append(others, path)
		}
	}
	for _, path := range others[:max(0, len(others)-maxBackups)] {
		_ = os.Remove(path)
	}
}

func digest(data []byte) string {
	if data == nil {
		return noFile
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// names are the servers in the bytes of the file.
func (f File) names(data []byte) ([]string, error) {
	servers, err := f.Servers(data)
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
	}
	return names, err
}

// missing are those of the names that no server in the bytes of the file has.
func (f File) missing(data []byte, names []string) ([]string, error) {
	there, err := f.names(data)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(there, name) }), err
}

// putBack returns data, which has no server of that name, with it as was has it.
func (f File) putBack(data, was []byte, name string) ([]byte, error) {
	if f.Client.toml {
		data, err := tomlPutBack(data, was, name)
		return data, f.wrap(err)
	}
	value, err := PlainJSON(was)
	if err != nil {
		return nil, f.wrap(err)
	}
	path := append(slices.Clone(f.block), name)
	for _, key := range path {
		value = rawjson.Member(value, key)
	}
	if value == nil {
		return nil, f.wrap(errors.New("the backup does not have it"))
	}
	data, err = SetJSON(data, path, value)
	return data, f.wrap(err)
}
