package clients

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
)

// Backups are bounded, and the one that undo needs stays whatever comes after it.
func TestJournalKeepsFewBackups(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	j := Journal{Dir: filepath.Join(dir, "undo")}
	f := File{Client: Find("cursor"), Path: path, block: mcpServers}
	now := time.Date(2026, 7, 28, 9, 5, 0, 0, time.UTC)
	first := []byte(`{"mcpServers": {"moved": {"command": "m"}}}`)
	must.Do(t, Replace(path, nil, first))
	edit := Edit{Path: path, Before: first, After: []byte(`{}`), Moved: []string{"moved"}}
	for n := range 20 {
		if _, err := j.Write(edit, now.Add(time.Duration(n)*time.Minute)); err != nil {
			t.Fatal(err)
		}
		other := []byte(strings.Repeat(" ", n) + "{}\n")
		must.Do(t, Replace(path, edit.After, other))
		edit = Edit{Path: path, Before: other, After: []byte(`{"n": 1}`)}
	}
	backups, err := filepath.Glob(path + backupMark + "*")
	if err != nil || len(backups) > maxBackups+2 {
		t.Errorf("%d backups: %v", len(backups), err)
	}
	u, err := j.Undo(f, "toolfinch")
	if err != nil || !strings.Contains(string(u.After), `"moved"`) || u.Exact {
		t.Fatalf("undone: %s, %v", u.After, err)
	}
	if _, err := j.Restore(u, now); err != nil {
		t.Fatal(err)
	}
	if u, err = j.Undo(f, "toolfinch"); err != nil || u.Back != nil {
		t.Errorf("undone twice: %v, %v", u.Back, err)
	}
}

// fileOfA is a file that has "a" in it, and a journal.
func fileOfA(t *testing.T) (j Journal, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "c.yaml")
	must.Do(t, Replace(path, nil, []byte("a")))
	return Journal{Dir: filepath.Join(dir, "undo")}, path
}

// Without the backup nothing is written, and the error says what is missing.
func TestJournalWithoutItsBackup(t *testing.T) {
	j, path := fileOfA(t)
	backup := must.Get(j.Write(Edit{Path: path, Before: []byte("a"), After: []byte("b"), Setup: true}, time.Now()))(t)
	if paths, err := j.Setup(); err != nil || len(paths) != 1 || paths[0] != path {
		t.Errorf("edited by setup: %v, %v", paths, err)
	}
	must.Do(t, os.Rename(backup, backup+"x"))
	if _, err := j.UndoFile(path); err == nil || !strings.Contains(err.Error(), "the backup is needed") || strings.Contains(err.Error(), filepath.Dir(path)) {
		t.Errorf("error = %v", err)
	}
	must.Do(t, Replace(path, []byte("b"), []byte("c")))
	if _, err := j.UndoFile(path); !errors.Is(err, ErrChanged) {
		t.Errorf("error = %v, want %v", err, ErrChanged)
	}
}

// What was edited between two edits is nobody's to undo.
func TestWhatWasEditedBetweenIsLeft(t *testing.T) {
	j, path := fileOfA(t)
	for i, edit := range [][2]string{{"a", "b"}, {"mine", "theirs"}} {
		if i > 0 {
			must.Do(t, Replace(path, []byte("b"), []byte("mine")))
		}
		if _, err := j.Write(Edit{Path: path, Before: []byte(edit[0]), After: []byte(edit[1]), Setup: true}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.UndoFile(path); !errors.Is(err, ErrChanged) {
		t.Errorf("error = %v, want %v", err, ErrChanged)
	}
}

// journaled is a client's file with the servers in it, and a journal of its own.
func journaled(t *testing.T, servers string) (Journal, File, []byte) {
	t.Helper()
	dir := t.TempDir()
	f := File{Client: Find("cursor"), Path: filepath.Join(dir, "mcp.json"), block: mcpServers}
	before := []byte(`{"mcpServers": {` + servers + `}}`)
	must.Do(t, Replace(f.Path, nil, before))
	return Journal{Dir: filepath.Join(dir, "undo")}, f, before
}

func beside(t *testing.T, f File) []string {
	t.Helper()
	return must.Get(filepath.Glob(f.Path + backupMark + "*"))(t)
}

// An edit of a file that changed meanwhile is as if it had never been asked for.
func TestJournalForgetsWhatItCouldNotWrite(t *testing.T) {
	j, f, before := journaled(t, `"a": {"command": "a"}`)
	edit := Edit{Path: f.Path, Before: []byte("something else"), After: []byte("{}"), Moved: []string{"a"}, Setup: true}
	if _, err := j.Write(edit, time.Now()); !errors.Is(err, ErrChanged) {
		t.Fatalf("error = %v", err)
	}
	if paths, err := j.Setup(); len(paths) > 0 || err != nil || len(beside(t, f)) > 0 {
		t.Errorf("remembered: %v, %v, backups %v", paths, err, beside(t, f))
	}
	if u, err := j.Undo(f, "toolfinch"); err != nil || string(u.After) != string(before) {
		t.Errorf("undone: %s, %v", u.After, err)
	}
}

// The program may be killed between two steps: undo then gives back what was there, and
// takes out nothing that was the user's.
func TestJournalOfAnInterruptedEdit(t *testing.T) {
	j, f, before := journaled(t, `"toolfinch": {"command": "my own"}, "a": {"command": "a"}`)
	first := []byte(`{"mcpServers": {"toolfinch": {"command": "ours"}}}`)
	if _, err := j.Write(Edit{Path: f.Path, Before: before, After: first, Moved: []string{"a"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	second := []byte(`{"mcpServers": {"toolfinch": {"command": "ours", "args": []}}}`)
	if _, err := j.Write(Edit{Path: f.Path, Before: first, After: second}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, now := range map[string][]byte{"written": second, "the second edit was not written": first, "restored and not forgotten": before} {
		must.Do(t, os.WriteFile(f.Path, now, 0o600))
		if u, err := j.Undo(f, "toolfinch"); err != nil || string(u.After) != string(before) || !u.Exact {
			t.Errorf("%s: %s, exact %t, %v", name, u.After, u.Exact, err)
		}
	}
}

// Who puts one of the moved servers back by hand gets the others.
func TestJournalPutsBackWhatIsStillMissing(t *testing.T) {
	j, f, before := journaled(t, `"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}`)
	after := []byte(`{"mcpServers": {"toolfinch": {"command": "ours"}}}`)
	if _, err := j.Write(Edit{Path: f.Path, Before: before, After: after, Moved: []string{"a", "b", "c"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	byHand := []byte(`{"mcpServers": {"a": {"command": "other"}, "toolfinch": {"command": "ours"}}}`)
	must.Do(t, Replace(f.Path, after, byHand))
	u := must.Get(j.Undo(f, "toolfinch"))(t)
	servers, err := f.Servers(u.After)
	if err != nil || len(servers) != 3 || servers[0].Command != "other" || strings.Join(u.Back, " ") != "b c" {
		t.Errorf("%s, back %v, %v", u.After, u.Back, err)
	}
}

// A backup lies where others may write, as in a project that is shared: what they put
// into it is not started.
func TestJournalRefusesAChangedBackup(t *testing.T) {
	j, f, before := journaled(t, `"a": {"command": "a"}`)
	after := []byte(`{"mcpServers": {}}`)
	backup := must.Get(j.Write(Edit{Path: f.Path, Before: before, After: after, Moved: []string{"a"}}, time.Now()))(t)
	must.Do(t, os.WriteFile(backup, []byte(`{"mcpServers": {"a": {"command": "evil"}}}`), 0o600))
	for _, now := range []string{string(after), `{"mcpServers": {"edited": {"command": "e"}}}`} {
		must.Do(t, os.WriteFile(f.Path, []byte(now), 0o600))
		if u, err := j.Undo(f, "toolfinch"); err == nil || !strings.Contains(err.Error(), "somebody has changed it") {
			t.Errorf("undone: %s, %v", u.After, err)
		}
	}
}

// One record that cannot be read does not keep the others from being undone, and what an
// interrupted write has left is no record.
func TestJournalWithABrokenRecord(t *testing.T) {
	j, f, before := journaled(t, "")
	if _, err := j.Write(Edit{Path: f.Path, Before: before, After: []byte("{}"), Setup: true}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"broken.json": "{", ".half.json.123": "{", "note": "x"} {
		must.Do(t, os.WriteFile(filepath.Join(j.Dir, name), []byte(content), 0o600))
	}
	paths, err := j.Setup()
	if len(paths) != 1 || err == nil || !strings.Contains(err.Error(), "broken.json") || strings.Contains(err.Error(), "half") {
		t.Errorf("%v, %v", paths, err)
	}
}

// A link whose target is not there yet stays a link, and so after undo.
func TestJournalWritesThroughLinks(t *testing.T) {
	j, f, _ := journaled(t, "")
	link := filepath.Join(filepath.Dir(f.Path), "link.json")
	if err := os.Symlink(filepath.Join("dotfiles", "cursor.json"), link); err != nil {
		t.Skip(err)
	}
	f.Path = link
	if _, err := j.Write(Edit{Path: link, After: []byte("{}")}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(filepath.Dir(link), "dotfiles", "cursor.json")); err != nil || string(data) != "{}" {
		t.Errorf("target: %s, %v", data, err)
	}
	u := must.Get(j.Undo(f, "toolfinch"))(t)
	if _, err := j.Restore(u, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Readlink(link); err != nil || f.Exists() {
		t.Errorf("the link: %v, its target is there: %t", err, f.Exists())
	}
}

// Only backups of its own are tidied away.
func TestJournalLeavesOtherFilesAlone(t *testing.T) {
	j, f, data := journaled(t, "")
	mine := f.Path + backupMark + "0000-mine"
	must.Do(t, os.WriteFile(mine, nil, 0o600))
	for n := range 3 * maxBackups {
		next := []byte(strings.Repeat(" ", n) + "{}")
		if _, err := j.Write(Edit{Path: f.Path, Before: data, After: next}, time.Now()); err != nil {
			t.Fatal(err)
		}
		data = append(next, '\n')
		must.Do(t, Replace(f.Path, next, data))
	}
	if _, err := os.Stat(mine); err != nil || len(beside(t, f)) > maxBackups+3 {
		t.Errorf("%v, %d backups", err, len(beside(t, f)))
	}
}
