package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/store"
	. "toolfinch/store/storetest"
)

func baselinesOf(dir string) string { return filepath.Join(dir, "toolfinch.baselines") }

// lists stores what "known", or another server, lists first, and says which tools are held.
func lists(t *testing.T, s *store.Store, server string, raws ...string) (held []string) {
	t.Helper()
	for _, u := range List(t, s, store.Upstream{Name: server}, Strict, Defs(t, server, raws...)...).Held {
		held = append(held, u.ID.Name)
	}
	return held
}

// Whatever happens to a database, what was not approved is not served as if it were a first list.
func TestApprovalsOutliveTheirDatabase(t *testing.T) {
	remove := func(paths ...string) {
		for _, path := range paths {
			Must(t, os.RemoveAll(path))
		}
	}
	const all, changed, nothing = "tool changed", "changed", ""
	for name, test := range map[string]struct {
		harm       func(dir string)
		known, new string // what is held of a server that was known, and of another
	}{
		"nothing happened":         {func(string) {}, changed, nothing},
		"the database is removed":  {func(dir string) { remove(file(dir)) }, all, nothing},
		"the folder is removed":    {func(dir string) { remove(dir) }, nothing, nothing},
		"it cannot be read":        {func(dir string) { write(t, file(dir), []byte(strings.Repeat("no database\n", 1000))) }, all, nothing},
		"a part of it can be read": {func(dir string) { sqlite.Exec(t, dir, `DROP TABLE tools`) }, changed, nothing},
		"an older one is put back": {func(dir string) { sqlite.Exec(t, dir, `DELETE FROM servers; DELETE FROM pins; DELETE FROM baselines`) }, all, nothing},
		"no database can be there": {func(dir string) { remove(file(dir)); Must(t, os.Mkdir(file(dir), 0o700)) }, all, nothing},
		"it cannot be read, and it was never noted whose lists were approved": {func(dir string) { remove(baselinesOf(dir)); write(t, file(dir), []byte("no database, for sure")) }, all, all},
		"it cannot be read whose lists were approved":                         {func(dir string) { remove(file(dir), baselinesOf(dir)); Must(t, os.Mkdir(baselinesOf(dir), 0o700)) }, all, all},
		"too many lists were approved":                                        {func(dir string) { remove(file(dir)); write(t, baselinesOf(dir), make([]byte, 2<<20)) }, all, all},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			s := Open(t, dir)
			lists(t, s, "a known one", `{"name":"tool"}`, `{"name":"changed"}`)
			Must(t, s.Close())
			test.harm(dir)
			for _, start := range []string{"the first start", "the second start"} {
				s := Open(t, dir)
				for server, want := range map[string]string{"a known one": test.known, start: test.new} {
					if test.known == nothing && start == "the second start" && server == "a known one" {
						want = changed // it was known by then
					}
					raws := []string{`{"name":"tool"}`, `{"name":"changed","v":2}`}
					compared, err := s.Pins().Compare(t.Context(), server, Defs(t, server, raws...), "", true)
					if got := lists(t, s, server, raws...); err != nil || strings.Join(got, " ") != want || len(compared) != len(got) {
						t.Errorf("%s: of %s %q is held, %d without storing it, %v, want %q", start, server, got, len(compared), err, want)
					}
				}
				Must(t, s.Close())
				if test.known == nothing { // the first start approved the changed list
					break
				}
			}
		})
	}
}

// The file grows by the servers that it lacks, and not with each start and list.
func TestBaselinesAreNotedOnce(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := Open(t, dir)
		for range 2 {
			lists(t, s, "b", `{"name":"x"}`)
			lists(t, s, "a", `{"name":"x"}`)
			lists(t, s, "empty")
		}
		Must(t, s.Close())
	}
	want := "b\na\n"
	if got, err := os.ReadFile(baselinesOf(dir)); err != nil || string(got) != want {
		t.Errorf("noted %q, %v, want %q", got, err, want)
	}
	Must(t, os.Remove(baselinesOf(dir))) // as before there was the file
	Must(t, Open(t, dir).Close())
	want = "a\nb\n"
	if got, err := os.ReadFile(baselinesOf(dir)); err != nil || string(got) != want {
		t.Errorf("noted at the start %q, %v, want %q", got, err, want)
	}
	Must(t, store.Remove(t.Context(), dir))
	if _, err := os.Stat(dir); err == nil {
		t.Error("what is noted stays when the store is removed")
	}
}

type opener = func(context.Context, string, *slog.Logger) (*store.Store, error)

func TestANewerDatabaseIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	Must(t, Open(t, dir).Close())
	sqlite.Exec(t, dir, `CREATE TABLE future (x); INSERT INTO future VALUES (1); PRAGMA user_version = 1000`)
	before := contents(t, dir)
	for name, open := range map[string]opener{"Open": store.Open, "OpenOrReplace": store.OpenOrReplace, "OpenReadOnly": store.OpenReadOnly, "OpenExisting": store.OpenExisting} {
		s, err := open(t.Context(), dir, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "update this one, or name another data_dir") {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := store.Check(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("Check: %v", err)
	}
	wantContents(t, dir, before)
}

// A process that does not serve leaves a damaged database where it is, and one that only reads any database.
func TestOnlyAProcessThatServesMovesADatabase(t *testing.T) {
	reading := map[string]opener{"OpenReadOnly": store.OpenReadOnly, "OpenExisting": store.OpenExisting,
		"OpenSealed": func(ctx context.Context, at string, _ *slog.Logger) (*store.Store, error) {
			return store.OpenSealed(ctx, at)
		},
		"Check": func(ctx context.Context, at string, _ *slog.Logger) (*store.Store, error) {
			_, err := store.Check(ctx, at)
			return nil, err
		}}
	writing := maps.Clone(reading)
	writing["Open"] = store.Open
	for name, test := range map[string]struct {
		harm    func(dir string)
		openers map[string]opener
		held    string // what reading says is held of the list of a known server
	}{
		"text":            {func(dir string) { write(t, file(dir), []byte(strings.Repeat("no database\n", 1000))) }, writing, "tool changed"},
		"a table is gone": {func(dir string) { sqlite.Exec(t, dir, `DROP TABLE vectors`) }, writing, "changed"},
		"older":           {func(dir string) { sqlite.Exec(t, dir, `PRAGMA user_version = 24`) }, reading, "changed"},
		"removed":         {func(dir string) { Must(t, os.Remove(file(dir))) }, reading, "tool changed"},
		"as it should be": {func(string) {}, reading, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := Open(t, dir)
			lists(t, s, "s", `{"name":"tool"}`, `{"name":"changed"}`)
			Must(t, s.Close())
			test.harm(dir)
			before := contents(t, dir)
			for name, open := range test.openers {
				s, err := open(t.Context(), dir, slog.New(slog.DiscardHandler))
				if name == "Open" && (err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "toolfinch serve moves it aside")) {
					t.Errorf("Open: %v", err)
				}
				if s == nil {
					continue
				}
				if name == "OpenReadOnly" {
					var held []string
					all, err := s.Pins().Compare(t.Context(), "s", Defs(t, "s", `{"name":"tool"}`, `{"name":"changed","v":2}`), "", true)
					for _, u := range all {
						held = append(held, u.ID.Name)
					}
					if err != nil || strings.Join(held, " ") != test.held {
						t.Errorf("%q is held, %v, want %q", held, err, test.held)
					}
				}
				Must(t, s.Close())
			}
			wantContents(t, dir, before)
		})
	}
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	Must(t, err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		Must(t, err)
		if name := entry.Name(); name != "toolfinch.lock" && name != "toolfinch.checked" && !strings.HasSuffix(name, "-shm") && !(strings.HasSuffix(name, "-wal") && len(text) == 0) {
			all[name] = string(text)
		}
	}
	return all
}

func wantContents(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if got := contents(t, dir); !maps.Equal(got, want) {
		t.Errorf("files %v have other content, or other names than %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// Who can write to the folder can forge what is approved.
func TestAFolderThatOthersCanWriteToCostsAWarning(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
	for mode, warns := range map[os.FileMode]bool{0o700: false, 0o755: false, 0o770: true, 0o777: true} {
		dir := t.TempDir()
		Must(t, os.Chmod(dir, mode))
		var log bytes.Buffer
		s, err := store.Open(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
		Must(t, err, s.Close())
		if got := strings.Contains(log.String(), "chmod go-w"); got != warns || strings.Count(log.String(), "\n") > 1 {
			t.Errorf("%s: %s", fmt.Sprintf("%o", mode), &log)
		}
	}
}
