package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/store"
	. "toolfinch/store/storetest"
	"toolfinch/store/vault"
	"toolfinch/tool"
)

// sqlite are folders with a database of SQLite.
var sqlite = Database{
	Empty:  func(t testing.TB) string { return t.TempDir() },
	Driver: "sqlite",
	Source: func(dir string) string {
		return (&url.URL{Scheme: "file", Path: file(dir), RawQuery: "_busy_timeout=60000&_synchronous=off"}).String()
	},
}

func file(dir string) string { return filepath.Join(dir, "toolfinch.db") }

func TestSQLiteKeepsTheContract(t *testing.T) { Run(t, sqlite) }

func BenchmarkSQLite(b *testing.B) { Benchmark(b, sqlite) }

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	s := Open(b, dir)
	for i := range 50 {
		name := fmt.Sprint("server", i)
		Put(b, s, name, Many(b, name, 100)...)
	}
	for b.Loop() {
		must.Do(b, s.Close())
		s = Open(b, dir)
	}
}

// TestMain lets the test binary be another process with the same directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TOOLFINCH_TEST_OTHER_PROCESS"); dir != "" {
		var t process
		another(&t, dir)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	Must(t, os.WriteFile(path, content, 0o600))
}

// movedAside lists what replaced databases became, without -wal and -shm.
func movedAside(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(file(dir) + ".*")
	Must(t, err)
	return slices.DeleteFunc(found, func(path string) bool { return strings.HasSuffix(path, "-wal") || strings.HasSuffix(path, "-shm") })
}

func TestRealDefinitionsComeBackByteForByteAfterARestart(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "shared", "realtools", "*.json"))
	if len(files) == 0 {
		t.Skip("no definitions of real servers in shared/realtools, beside the repository")
	}
	dir := t.TempDir()
	s := Open(t, dir)
	var want []*tool.Def
	for _, file := range files {
		content, err := os.ReadFile(file)
		var list struct {
			Tools []json.RawMessage `json:"tools"`
		}
		Must(t, err, json.Unmarshal(content, &list))
		server := strings.TrimSuffix(filepath.Base(file), ".json")
		var listed []*tool.Def
		for _, raw := range list.Tools {
			listed = append(listed, Def(t, server, string(raw)))
		}
		if diff := Put(t, s, server, listed...); diff.Total != len(listed) || diff.Total == 0 {
			t.Fatalf("%s: stored %d of %d tools", file, diff.Total, len(listed))
		}
		want = append(want, listed...)
	}
	Must(t, s.Close())
	slices.SortStableFunc(want, func(a, b *tool.Def) int { return strings.Compare(a.ID.Server, b.ID.Server) })
	same := func(a, b *tool.Def) bool { return a.ID == b.ID && bytes.Equal(a.Raw, b.Raw) }
	if got := Tools(t, Open(t, dir)); !slices.EqualFunc(got, want, same) {
		t.Errorf("%d tools, want %d", len(got), len(want))
	}
}

// A row that was damaged costs its tool, and one warning.
func TestAToolDamagedOnTheDiskIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	s, err := store.Open(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
	Must(t, err)
	defer s.Close()
	for _, damage := range []string{
		`raw = CAST('{"name":"b"' AS BLOB)`,
		`raw = CAST('{"name":"b","description":"flipped"}' AS BLOB)`,
		`name = 'q'`,
		`kind = 'prompts'`,
	} {
		Put(t, s, "s", Defs(t, "s", `{"name":"a"}`, `{"name":"b"}`, `{"name":"c"}`)...)
		sqlite.Exec(t, dir, `UPDATE tools SET `+damage+` WHERE name = 'b'`)
		log.Reset()
		WantIDs(t, s, "s.a", "s.c")
		if strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%s: log: %s", damage, &log)
		}
	}
}

func TestTheDatabaseIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := filepath.Join(t.TempDir(), "new", "data # 100% ä?")
	Put(t, Open(t, dir), "s", Def(t, "s", `{"name":"a"}`))
	for path, want := range map[string]os.FileMode{
		dir: os.ModeDir | 0o700, file(dir): 0o600, file(dir) + "-wal": 0o600, filepath.Join(dir, "toolfinch.lock"): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// SQLite would go on writing into a file that has no name any more.
func TestAFileTakenAwayFailsEveryWrite(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let go of an open file")
	}
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		dir := t.TempDir()
		s := Open(t, dir)
		Must(t, take(file(dir)))
		if _, err := s.PutServer(t.Context(), store.Upstream{Name: "a"}, nil, nil); err == nil || !strings.Contains(err.Error(), "restart") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func readOnly(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.OpenReadOnly(t.Context(), dir, slog.New(slog.DiscardHandler))
	Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAReadOnlyStoreOfNothingIsEmpty(t *testing.T) {
	damaged, none := t.TempDir(), filepath.Join(t.TempDir(), "none")
	write(t, file(damaged), []byte("no database, whatever its name says"))
	for _, dir := range []string{damaged, none} {
		WantIDs(t, readOnly(t, dir))
		if got, err := store.Examine(t.Context(), dir); dir == none && (err != nil || got.Known || len(got.Wrong) > 0) || dir == damaged && err == nil && len(got.Wrong) == 0 {
			t.Errorf("%s: examined: %+v, %v", dir, got, err)
		}
		if s, err := store.OpenExisting(t.Context(), dir, slog.New(slog.DiscardHandler)); err == nil { // a copy would be one of nothing
			t.Errorf("%s: it exists", dir)
			_ = s.Close()
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a folder was made")
	}
	if left, _ := os.ReadDir(damaged); len(left) != 1 {
		t.Errorf("files were made: %v", left)
	}
}

// A store of another version of the program stays as it is.
func TestAReadOnlyStoreIsNotMigrated(t *testing.T) {
	dir := t.TempDir()
	Open(t, dir)
	sqlite.Exec(t, dir, "PRAGMA user_version = 1")
	WantIDs(t, readOnly(t, dir))
	if got := version(t, sqlite.Open(t, dir)); got != 1 {
		t.Errorf("the schema has version %d", got)
	}
}

// A database that was closed in order is read whole at its next opening only if its file
// was changed since.
func TestADatabaseIsCheckedWhereItMayHaveChanged(t *testing.T) {
	for name, test := range map[string]struct {
		touched bool // by whoever damaged it
		aside   int  // databases that are set aside
	}{"as it was closed": {false, 0}, "changed since": {true, 1}} {
		dir := t.TempDir()
		s := Open(t, dir)
		Must(t, s.PutSegment(t.Context(), store.Segment{Key: store.Key{1}, Docs: 1, Data: bytes.Repeat([]byte("x"), 1<<20)}), s.Close())
		before, err := os.Stat(file(dir))
		Must(t, err)
		data, err := os.ReadFile(file(dir))
		Must(t, err)
		at := bytes.Index(data, []byte("xxxx")) &^ 4095 // the first page with nothing but the row's data
		copy(data[at+3*4096:], "\xff\xff\xff\xff")      // the number of the page that follows it
		write(t, file(dir), data)
		if test.touched {
			Must(t, os.Chtimes(file(dir), before.ModTime().Add(time.Second), before.ModTime().Add(time.Second)))
		} else {
			Must(t, os.Chtimes(file(dir), before.ModTime(), before.ModTime()))
		}
		Must(t, Open(t, dir).Close())
		if aside := movedAside(t, dir); len(aside) != test.aside {
			t.Errorf("%s: set aside are %v, not %d", name, aside, test.aside)
		}
	}
}

func TestFolders(t *testing.T) {
	base := t.TempDir()
	if folders, err := store.Folders(filepath.Join(base, "none")); len(folders) != 0 || err != nil {
		t.Fatalf("got %v, %v of a folder that is not there", folders, err)
	}
	a, b := Open(t, filepath.Join(base, "a")), Open(t, filepath.Join(base, "b"))
	Must(t, a.MadeFor("/home/ada/toolfinch.yaml"), a.MadeFor("/home/ada/toolfinch.yaml"))
	if err := store.Remove(t.Context(), filepath.Join(base, "a")); !errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	Must(t, a.Close(), b.Close(), os.Mkdir(filepath.Join(base, "c"), 0o700))
	write(t, filepath.Join(base, "b", "mine.txt"), nil)
	folders, err := store.Folders(base)
	if err != nil || len(folders) != 2 {
		t.Fatalf("got %+v, %v", folders, err)
	}
	for i, want := range []string{"/home/ada/toolfinch.yaml", ""} {
		if f := folders[i]; f.Configuration != want || f.Bytes == 0 || f.Written.IsZero() {
			t.Errorf("got %+v, want a store of %q", f, want)
		}
		Must(t, store.Remove(t.Context(), folders[i].Path))
	}
	if _, err := os.Stat(filepath.Join(base, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a is still there: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(base, "b")); err != nil || len(left) != 1 || left[0].Name() != "mine.txt" {
		t.Errorf("of b is left %v, %v", left, err)
	}
}

func TestRemoveTakesTheLocksWithIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := Open(t, dir)
	v, err := vault.Open(s.Sealed(), vault.Options{Locks: s.Sealed().Locks(), KeyDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	Must(t, err)
	Must(t, v.Locked(t.Context(), "login/a", func(context.Context) error { return nil }), s.Close(), store.Remove(t.Context(), dir))
	if left, err := os.ReadDir(dir); err == nil {
		t.Errorf("left behind: %v", left)
	}
}

var then = time.UnixMilli(7)

func seal(t *testing.T, s *store.Store, name, sealed string) {
	t.Helper()
	Must(t, s.Sealed().Put(t.Context(), vault.Row{Name: name, Sealed: []byte(sealed), At: then}))
}

// The configuration is read before the store is brought to this version.
func TestSealedRowsAreReadWhateverTheVersion(t *testing.T) {
	dir := t.TempDir()
	read := func(want string) {
		t.Helper()
		s, err := store.OpenSealed(t.Context(), dir)
		Must(t, err)
		defer s.Close()
		if want != "" {
			WantSealed(t, s, "secret/A", want, then)
		} else if names, err := s.Sealed().Names(t.Context(), ""); err != nil || len(names) > 0 {
			t.Errorf("there are %v, %v", names, err)
		}
	}
	read("")
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("reading made %v", files)
	}
	s := Open(t, dir)
	seal(t, s, "secret/A", "a")
	read("a") // while the store is open
	Must(t, s.Close())
	for _, version := range []int{1, 9999} {
		sqlite.Exec(t, dir, fmt.Sprintf("PRAGMA user_version = %d", version))
		read("a")
	}
	sqlite.Exec(t, dir, "DROP TABLE vault; PRAGMA user_version = 3")
	read("")
	write(t, file(dir), []byte("no database, whatever its name says"))
	if _, err := store.OpenSealed(t.Context(), dir); err == nil {
		t.Error("what is no database has no secrets")
	}
}

// Everything else is learned again; secrets and API keys are not.
func TestSealedRowsAndKeysOutliveADatabaseThatIsMovedAside(t *testing.T) {
	dir := t.TempDir()
	s := Open(t, dir)
	seal(t, s, "key", "k")
	seal(t, s, "login/a", "a")
	Must(t, s.Keys().Add(t.Context(), identity.Key{Name: "ci", ID: "key|ci", Hash: [32]byte{1}, Scopes: []string{"x"}, Created: then}))
	for n, harm := range []string{"PRAGMA user_version = -1", "DROP TABLE tools"} {
		Must(t, s.Close())
		sqlite.Exec(t, dir, harm)
		s = Open(t, dir)
		WantSealed(t, s, "key", "k", then)
		WantSealed(t, s, "login/a", "a", then)
		if key, err := s.Keys().Find(t.Context(), [32]byte{1}); err != nil || key == nil || key.Name != "ci" {
			t.Errorf("the API key: %+v, %v", key, err)
		}
		if aside := movedAside(t, dir); len(aside) != n+1 {
			t.Errorf("%s: moved aside: %v", harm, aside)
		}
	}
}

// What a user has erased is not in any file, while another process has the database open.
func TestWhatIsForgottenLeavesTheDisk(t *testing.T) {
	dir := t.TempDir()
	s, other := Open(t, dir), Open(t, dir)
	const secret = "my very private question"
	use := store.LearnedUse{Tool: tool.ID{Server: "s", Name: "t"}, Count: 1, At: then}
	for i := range 50 {
		use.Query = fmt.Sprintf("%s %d", secret, i)
		Must(t, s.Usage().PutLearned(t.Context(), use))
	}
	if onDisk(t, dir, secret) == 0 {
		t.Fatal("it was never on the disk: the test looks in the wrong place")
	}
	_, err := s.Usage().ForgetLearned(t.Context(), secret, "")
	Must(t, err)
	if n := onDisk(t, dir, secret); n != 0 {
		t.Errorf("%d copies are left", n)
	}
	Must(t, other.Usage().PutLearned(t.Context(), use)) // forgetting harms nobody
	if got, err := s.Usage().Learned(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestADroppedOutputLeavesTheDisk(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SQLite lets nobody else read its file here")
	}
	dir := t.TempDir()
	s := Open(t, dir)
	Must(t, s.Outputs().Put(t.Context(), [32]byte{1}, [32]byte{2}, bytes.Repeat([]byte("the secret of it "), 5000), then, then.Add(time.Minute)))
	_, err := s.Outputs().Drop(t.Context(), then.Add(time.Hour))
	Must(t, err, s.Close()) // which moves the log into the file
	if n := onDisk(t, dir, "secret of it"); n != 0 {
		t.Errorf("%d copies are left", n)
	}
}

// onDisk is how often a text is in the files of a folder.
func onDisk(t testing.TB, dir, text string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	Must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		Must(t, err)
		n += bytes.Count(content, []byte(text))
	}
	return n
}

func TestCopy(t *testing.T) {
	there, here := t.TempDir(), t.TempDir()
	source, target := Open(t, there), Open(t, here)
	Fill(t, source)
	var tables []store.Rows
	for _, replace := range []bool{false, true} {
		copied, err := store.Copy(t.Context(), source, target, replace)
		Must(t, err)
		for _, table := range copied {
			if table.Rows == 0 {
				t.Errorf("the test has nothing in %s", table.Table)
			}
		}
		want := Contents(t, sqlite.Open(t, there), copied)
		if got := Contents(t, sqlite.Open(t, here), copied); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if _, err := store.Copy(t.Context(), source, target, false); !errors.Is(err, store.ErrNotEmpty) {
			t.Errorf("again: %v", err)
		}
		tables = copied
	}
	Works(t, target)
	var n int // a table that a migration adds is copied
	Must(t, sqlite.Open(t, there).QueryRow(`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`).Scan(&n))
	if n != len(tables) {
		t.Errorf("%d tables of %d are copied", len(tables), n)
	}
}

// No URL of a database that cannot be opened shows its password.
func TestPostgresThatCannotBeOpened(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://ann:Geheim123@127.0.0.1:1/x":               "refused",
		"postgres://ann:Gehei m123@127.0.0.1:x/x":              "cannot be read",
		"postgres://ann:Geheim123@127.0.0.1/x?sslmode=strange": "sslmode",
		"postgres://ann:x@Geheim123@127.0.0.1/x":               "%40",
		"postgres://ann:x@Geheim:123@127.0.0.1/x":              "%40",
		"postgres://ann:x?y@Geheim123@127.0.0.1/x":             "%40",
		"postgres://ann:1/Geheim123@127.0.0.1/x":               "%2F",
		"postgres://ann:Geheim/123@127.0.0.1/x":                "%2F",
		"postgres://ann:x%40Geheim%2F123@127.0.0.1:1/x":        "refused",
		"postgres://127.0.0.1:1/x?user=a@b":                    "refused",
		"postgres:///x?host=" + t.TempDir():                    "check that it runs",
	} {
		_, writing := store.Open(t.Context(), url, slog.New(slog.DiscardHandler))
		_, reading := store.OpenReadOnly(t.Context(), url, slog.New(slog.DiscardHandler))
		_, sealed := store.OpenSealed(t.Context(), url) // it is none without secrets
		_, examined := store.Examine(t.Context(), url)
		for name, err := range map[string]error{"writing": writing, "reading": reading, "secrets": sealed, "store check": examined} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Gehei") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s for %s: %v", url, name, err)
			}
		}
	}
}

// Who waits for something that is in use may be served later.
func TestWhatPasses(t *testing.T) {
	for code, want := range map[string]bool{"55P03": true, "53300": true, "57014": true, "25P03": true, "53100": true, "53200": true, "58030": true, "25006": true, "40001": true, "57P01": true, "42P01": false, "28P01": false} {
		if got := store.Transient(fmt.Errorf("store: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s passes: %t", code, got)
		}
	}
}

// process is a test that is another process.
type process struct{ testing.TB }

func (*process) Helper()                   {}
func (*process) Context() context.Context  { return context.Background() }
func (*process) Cleanup(func())            {}
func (*process) Fatal(args ...any)         { fmt.Fprintln(os.Stderr, args...); os.Exit(1) }
func (*process) Fatalf(f string, a ...any) { fmt.Fprintf(os.Stderr, f, a...); os.Exit(1) }

const rounds = 8

// another is what another process does in a folder.
func another(t testing.TB, dir string) {
	s := Open(t, dir)
	if !s.Durable() {
		t.Fatal("not durable")
	}
	own := fmt.Sprint("process", os.Getpid())
	for i := range rounds {
		for _, name := range []string{own, "both"} {
			Put(t, s, name, Def(t, name, fmt.Sprintf(`{"name":"tool%d","by":%q}`, i, own)))
			Must(t, s.Usage().ChangeProvisions(t.Context(), "v", name, func(was []tool.Provisioned) ([]tool.Provisioned, error) {
				return append(was, tool.Provisioned{ID: tool.ID{Server: "s", Name: fmt.Sprint(len(was))}}), nil
			}))
		}
		Must(t, s.Usage().AddSavings(t.Context(), "2126-11-20", []store.Savings{{View: "v", Sessions: 1}}))
		Tools(t, s)
	}
	Must(t, s.Close())
}

// Nothing that a process adds to is lost where several do it, whatever was there.
func TestProcessesShareADirectory(t *testing.T) {
	for name, before := range map[string]string{"new": "", "damaged": "no database"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if before != "" {
				write(t, file(dir), []byte(before))
			}
			var others [3]*exec.Cmd
			var output [3]bytes.Buffer
			for i := range others {
				others[i] = exec.CommandContext(t.Context(), os.Args[0])
				others[i].Env = append(os.Environ(), "TOOLFINCH_TEST_OTHER_PROCESS="+dir)
				others[i].Stderr = &output[i]
				Must(t, others[i].Start())
			}
			for i, cmd := range others {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %s", err, &output[i])
				}
			}
			s := Open(t, dir)
			if got := IDs(t, s); len(got) != len(others)+1 || got[0] != fmt.Sprint("both.tool", rounds-1) {
				t.Errorf("got %v", got)
			}
			if got, err := s.Usage().Provisions(t.Context(), "v"); err != nil || len(got) != 2*rounds*len(others) {
				t.Errorf("%d are provisioned, %v", len(got), err)
			}
			if got, err := s.Usage().Savings(t.Context(), time.Time{}); err != nil || len(got) != 1 || got[0].Sessions != int64(rounds*len(others)) {
				t.Errorf("savings %+v, %v", got, err)
			}
			if aside := movedAside(t, dir); (len(aside) == 1) != (before != "") {
				t.Errorf("moved aside: %v", aside)
			}
		})
	}
}
