package clients

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
)

// backedUp is a client's file with the servers in it, and backups of its own.
func backedUp(t *testing.T, servers string) (Backups, File, []byte) {
	t.Helper()
	dir := t.TempDir()
	f := File{Client: Find("cursor"), Path: filepath.Join(dir, "mcp.json"), Block: mcpServers}
	before := []byte(`{"mcpServers": {` + servers + `}}`)
	must.Do(t, Replace(f.Path, nil, before))
	return Backups{Dir: filepath.Join(dir, "undo")}, f, before
}

// copies are those of the file.
func copies(t *testing.T, b Backups, f File) []string {
	t.Helper()
	return must.Get(filepath.Glob(filepath.Join(b.folder(f.Path), "*"+backupMark+"*")))(t)
}

// What is edited in between and connected again comes back with all that was ever moved.
func TestEditedBetweenTwoEdits(t *testing.T) {
	b, f, before := backedUp(t, `"moved": {"command": "m"}`)
	edit := Edit{File: f, Before: before, After: []byte(`{}`), Moved: []string{"moved"}}
	copied := must.Get(b.Write(edit, time.Now()))(t)
	if info, err := os.Stat(copied); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("a copy: %v, %v", info.Mode(), err)
	}
	other := []byte("{\"mcpServers\": {\"late\": {\"command\": \"l\"}}, // mine\n}")
	must.Do(t, Replace(f.Path, edit.After, other))
	edit = Edit{File: f, Before: other, After: []byte(`{"mcpServers": {"toolfinch": {}}}`), Moved: []string{"late"}}
	must.Get(b.Write(edit, time.Now()))(t)
	u := must.Get(b.Undo(f))(t)
	for _, part := range []string{`"moved"`, `"late"`, "// mine"} {
		if !strings.Contains(string(u.After), part) {
			t.Errorf("undone without %s: %s", part, u.After)
		}
	}
	must.Get(b.Restore(u, time.Now()))(t)
	if u, err := b.Undo(f); err != nil || u.Back != nil || string(u.After) != string(u.Before) {
		t.Errorf("undone twice: %v, %v", u.Back, err)
	}
}

// An undo removes the folders that were made for a file, unless they have other files now.
func TestFoldersThatWereMadeAreRemoved(t *testing.T) {
	for _, used := range []bool{false, true} {
		b, f, _ := backedUp(t, "")
		top := filepath.Join(filepath.Dir(f.Path), "there")
		must.Do(t, os.Mkdir(top, 0o755))
		f.Path = filepath.Join(top, "made", "too", "mcp.json")
		must.Get(b.Write(Edit{File: f, After: []byte(`{}`)}, time.Now()))(t)
		must.Get(b.Write(Edit{File: f, Before: []byte(`{}`), After: []byte(`{"mcpServers": {"toolfinch": {}}}`)}, time.Now()))(t)
		if used {
			must.Write(t, filepath.Join(top, "made", "other"), "")
		}
		must.Get(b.Restore(must.Get(b.Undo(f))(t), time.Now()))(t)
		_, made := os.Stat(filepath.Join(top, "made"))
		_, too := os.Stat(filepath.Join(top, "made", "too"))
		_, there := os.Stat(top)
		if (made == nil) != used || too == nil || there != nil {
			t.Errorf("used %v: made: %v, made/too: %v, there: %v", used, made, too, there)
		}
	}
}

// A file that is no client's is given back, unless somebody has edited it since.
func TestOtherFilesAreGivenBack(t *testing.T) {
	b, f, before := backedUp(t, "")
	f.Client = nil
	copied := must.Get(b.Write(Edit{File: f, Before: before, After: []byte("b"), Setup: true}, time.Now()))(t)
	if paths, err := b.Setup(); err != nil || len(paths) != 1 || paths[0] != f.Path {
		t.Errorf("edited by setup: %v, %v", paths, err)
	}
	if u, err := b.Undo(f); err != nil || string(u.After) != string(before) || !u.Exact {
		t.Errorf("undone: %s, %v", u.After, err)
	}
	must.Do(t, os.Rename(copied, copied+"x"))
	if _, err := b.Undo(f); err == nil || !strings.Contains(err.Error(), "the backup is needed") || strings.Contains(err.Error(), b.Dir) {
		t.Errorf("without its copy: %v", err)
	}
	must.Do(t, os.Rename(copied+"x", copied))
	must.Do(t, Replace(f.Path, []byte("b"), []byte("mine")))
	if _, err := b.Undo(f); !errors.Is(err, ErrChanged) {
		t.Errorf("error = %v, want %v", err, ErrChanged)
	}
}

// An edit of a file that changed meanwhile is as if it had never been asked for.
func TestBackupsForgetWhatWasNotWritten(t *testing.T) {
	b, f, before := backedUp(t, `"a": {"command": "a"}`)
	edit := Edit{File: f, Before: []byte("something else"), After: []byte("{}"), Moved: []string{"a"}, Setup: true}
	if _, err := b.Write(edit, time.Now()); !errors.Is(err, ErrChanged) {
		t.Fatalf("error = %v", err)
	}
	if paths, err := b.Setup(); len(paths) > 0 || err != nil || len(copies(t, b, f)) > 0 {
		t.Errorf("remembered: %v, %v, copies %v", paths, err, copies(t, b, f))
	}
	if u, err := b.Undo(f); err != nil || string(u.After) != string(before) {
		t.Errorf("undone: %s, %v", u.After, err)
	}
}

// The program may be killed between two steps: undo then gives back what was there, and
// takes out nothing that was the user's.
func TestUndoOfAnInterruptedEdit(t *testing.T) {
	b, f, before := backedUp(t, `"toolfinch": {"command": "my own"}, "a": {"command": "a"}`)
	first := []byte(`{"mcpServers": {"toolfinch": {"command": "ours"}}}`)
	must.Get(b.Write(Edit{File: f, Before: before, After: first, Moved: []string{"a"}}, time.Now()))(t)
	check := func(name string, now []byte) {
		must.Do(t, os.WriteFile(f.Path, now, 0o600))
		if u, err := b.Undo(f); err != nil || string(u.After) != string(before) || !u.Exact {
			t.Errorf("%s: %s, exact %t, %v", name, u.After, u.Exact, err)
		}
	}
	check("the first edit was not written", before)
	check("the first edit", first)
	second := []byte(`{"mcpServers": {"toolfinch": {"command": "ours", "args": []}}}`)
	must.Get(b.Write(Edit{File: f, Before: first, After: second}, time.Now()))(t)
	check("the second edit", second)
	check("the second edit was not written", first)
}

// Who puts one of the moved servers back by hand gets the others.
func TestUndoPutsBackWhatIsStillMissing(t *testing.T) {
	b, f, before := backedUp(t, `"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}`)
	after := []byte(`{"mcpServers": {"toolfinch": {"command": "ours"}}}`)
	must.Get(b.Write(Edit{File: f, Before: before, After: after, Moved: []string{"a", "b", "c"}}, time.Now()))(t)
	byHand := []byte(`{"mcpServers": {"a": {"command": "other"}, "toolfinch": {"command": "ours"}}}`)
	must.Do(t, Replace(f.Path, after, byHand))
	u := must.Get(b.Undo(f))(t)
	want := `{"mcpServers": {"a": {"command": "other"}, "b": {"command": "b"}, "c": {"command": "c"}}}`
	if string(u.After) != want || strings.Join(u.Back, " ") != "b c" || u.Exact {
		t.Errorf("%s, back %v", u.After, u.Back)
	}
	must.Get(b.Restore(u, time.Now()))(t)
	if len(copies(t, b, f)) != 2 { // with comments that could not be put back
		t.Errorf("copies: %v", copies(t, b, f))
	}
}

// One record that cannot be read does not keep the others from being undone.
func TestBackupsWithABrokenRecord(t *testing.T) {
	b, f, before := backedUp(t, "")
	must.Get(b.Write(Edit{File: f, Before: before, After: []byte("{}"), Setup: true}, time.Now()))(t)
	must.Do(t, os.Mkdir(filepath.Join(b.Dir, "broken"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(b.Dir, "broken", recordName), []byte("{"), 0o600))
	paths, err := b.Setup()
	if len(paths) != 1 || err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v, %v", paths, err)
	}
}

// A link whose target is not there yet stays a link, and so after undo.
func TestEditsGoThroughLinks(t *testing.T) {
	b, f, _ := backedUp(t, "")
	link := filepath.Join(filepath.Dir(f.Path), "link.json")
	if err := os.Symlink(filepath.Join("dotfiles", "cursor.json"), link); err != nil {
		t.Skip(err)
	}
	f.Path = link
	must.Get(b.Write(Edit{File: f, After: []byte("{}")}, time.Now()))(t)
	if data, err := os.ReadFile(filepath.Join(filepath.Dir(link), "dotfiles", "cursor.json")); err != nil || string(data) != "{}" {
		t.Errorf("target: %s, %v", data, err)
	}
	must.Get(b.Restore(must.Get(b.Undo(f))(t), time.Now()))(t)
	if _, err := os.Readlink(link); err != nil || f.Exists() {
		t.Errorf("the link: %v, its target is there: %t", err, f.Exists())
	}
	if _, err := os.Stat(b.folder(f.Path)); err == nil {
		t.Error("something is left")
	}
}

func TestBackupsDoNotReplaceEachOther(t *testing.T) {
	b := Backups{Dir: t.TempDir()}
	at := time.Date(2026, 7, 28, 9, 5, 0, 0, time.UTC)
	for i, want := range []string{"f.json.toolfinch-backup-20260728-090500", "f.json.toolfinch-backup-20260728-090500-2"} {
		got, err := b.keep("/p/f.json", []byte{byte('a' + i)}, at)
		if err != nil || filepath.Base(got) != want || must.Read(t, got) != string(rune('a'+i)) {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
