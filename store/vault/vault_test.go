package vault_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/store/vault"
)

const secret = "correct-horse-battery-staple"

// place is a data directory with its keys beside it.
type place struct {
	t         *testing.T
	data, dir string
	ring      *vault.FakeRing
	key       string
	log       *bytes.Buffer
}

func newPlace(t *testing.T) *place {
	base := t.TempDir()
	ring := &vault.FakeRing{}
	ring.Fail(errors.New("no keyring here"))
	return &place{t, filepath.Join(base, "data"), filepath.Join(base, "keys"), ring, "", new(bytes.Buffer)}
}

// open opens the vault as another process would: with no key in memory.
func (p *place) open() *vault.Vault {
	p.t.Helper()
	v, err := vault.Open(p.store(), vault.WithRing(p.options(), p.ring))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (p *place) options() vault.Options {
	return vault.Options{Key: p.key, KeyDir: p.dir, Locks: vault.Locks{Dir: filepath.Join(p.data, "locks")}, Log: slog.New(slog.NewTextHandler(p.log, nil))}
}

func (p *place) store() *store.Sealed {
	p.t.Helper()
	s, err := store.Open(p.t.Context(), p.data, slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.Close() })
	return s.Sealed()
}

func (p *place) put(name, value string) {
	p.t.Helper()
	if err := p.open().Put(p.t.Context(), name, []byte(value)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) want(name, value string) {
	p.t.Helper()
	got, err := p.open().Get(p.t.Context(), name)
	if err != nil || string(got) != value {
		p.t.Fatalf("%s: %q, %v; want %q", name, got, err, value)
	}
}

// refused reads and writes, and wants both to fail for want of the key.
func (p *place) refused(name, why string) {
	p.t.Helper()
	v := p.open()
	before := p.rows()
	_, err := v.Get(p.t.Context(), name)
	for _, err := range []error{err, v.Put(p.t.Context(), name, []byte("other")), v.Put(p.t.Context(), "secret/NEW", []byte("other"))} {
		var keyError *vault.KeyError
		if !errors.As(err, &keyError) || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), p.dir) {
			p.t.Errorf("the error is %v, want one with %q and without a path", err, why)
		}
	}
	if after := p.rows(); after != before {
		p.t.Error("rows were changed")
	}
}

func (p *place) rows() string {
	p.t.Helper()
	s := p.store()
	named, err := s.Names(p.t.Context(), "")
	if err != nil {
		p.t.Fatal(err)
	}
	var all strings.Builder
	for _, row := range named {
		full, err := s.Find(p.t.Context(), row.Name)
		if err != nil {
			p.t.Fatal(err)
		}
		all.WriteString(row.Name + " " + hex.EncodeToString(full.Sealed) + "\n")
	}
	return all.String()
}

func (p *place) keyFiles() []string {
	files, _ := filepath.Glob(filepath.Join(p.dir, "*"))
	return files
}

func TestWhatIsStoredComesBack(t *testing.T) {
	p, ctx := newPlace(t), t.Context()
	p.put("secret/A", secret)
	p.put("login/github/https://issuer|alice", "token")
	p.put("login/github", "shared")
	p.put("secret/A", "newer")
	p.want("secret/A", "newer")
	p.want("login/github/https://issuer|alice", "token")
	v := p.open()
	names, err := v.Names(ctx, "login/github")
	if err != nil || len(names) != 2 || names[0].Name != "login/github" || names[1].At.IsZero() || names[1].Sealed != nil {
		t.Errorf("names: %v, %v", names, err)
	}
	if all, _ := v.Names(ctx, ""); len(all) != 3 {
		t.Errorf("the row of the key is among the names: %v", all)
	}
	if err := errors.Join(v.Delete(ctx, "secret/A"), v.Delete(ctx, "secret/A"), v.Delete(ctx, "key")); err != nil {
		t.Error(err)
	}
	if _, err := v.Get(ctx, "secret/A"); !errors.Is(err, vault.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	p.want("login/github", "shared")
}

func TestNamesAndValuesAreBounded(t *testing.T) {
	v := newPlace(t).open()
	for name, size := range map[string]int{"key": 1, "": 1, "secret/" + strings.Repeat("n", 2048): 1, "secret/A": 1<<20 + 1} {
		if err := v.Put(t.Context(), name, make([]byte, size)); err == nil {
			t.Errorf("%.20s with %d bytes is stored", name, size)
		}
	}
}

// Whoever has the files of the store has neither secrets nor key.
func TestTheStoreAloneRevealsNothing(t *testing.T) {
	p := newPlace(t)
	p.put("secret/A", secret)
	p.put("secret/A", secret+secret)
	key := must.Get(os.ReadFile(p.keyFiles()[0]))(t)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(key)))
	if err != nil || len(raw) != 32 {
		t.Fatalf("the key file has %d bytes, %v", len(raw), err)
	}
	read := 0
	err = filepath.WalkDir(p.data, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		read += len(data)
		for _, hidden := range [][]byte{[]byte(secret), []byte(base64.StdEncoding.EncodeToString([]byte(secret))), raw, bytes.TrimSpace(key)} {
			if bytes.Contains(data, hidden) {
				t.Errorf("%s has %q in it", d.Name(), hidden)
			}
		}
		return err
	})
	if err != nil || read < 4096 {
		t.Fatalf("%d bytes were read, %v", read, err)
	}
}

func TestRowsCannotBeSwapped(t *testing.T) {
	p, ctx := newPlace(t), t.Context()
	p.put("secret/A", "a")
	p.put("secret/B", "b")
	s := p.store()
	row := must.Get(s.Find(ctx, "secret/A"))(t)
	row.Name = "secret/B"
	must.Do(t, s.Put(ctx, *row))
	if got, err := p.open().Get(ctx, "secret/B"); err == nil || !strings.Contains(err.Error(), "altered or belongs to another name") {
		t.Errorf("%q, %v", got, err)
	}
	p.want("secret/A", "a")
	for i := range row.Sealed { // no bit of a row is without meaning
		altered := vault.Row{Name: "secret/A", Sealed: bytes.Clone(row.Sealed), At: row.At}
		altered.Sealed[i] ^= 1
		must.Do(t, s.Put(ctx, altered))
		if _, err := p.open().Get(ctx, "secret/A"); err == nil {
			t.Errorf("byte %d may be altered", i)
		}
	}
}

func TestWithoutAKeyringTheKeyIsInAFileOfItsOwner(t *testing.T) {
	p := newPlace(t)
	p.put("secret/A", secret)
	p.put("secret/B", secret)
	files := p.keyFiles()
	if len(files) != 1 {
		t.Fatalf("key files: %v", files)
	}
	info, err := os.Stat(files[0])
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if said := strings.Count(p.log.String(), files[0]); said != 1 {
		t.Errorf("the file is named %d times in the log:\n%s", said, p.log)
	}

	if runtime.GOOS != "windows" {
		_ = os.Chmod(files[0], 0o640)
		p.refused("secret/A", "chmod 600")
		_ = os.Chmod(files[0], 0o600)
		p.want("secret/A", secret)
	}
	kept, _ := os.ReadFile(files[0])
	_ = os.WriteFile(files[0], []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600)
	p.refused("secret/A", "its file has another one in it")
	_ = os.Remove(files[0])
	p.refused("secret/A", "a file, which is gone: bring it back")
	if len(p.keyFiles()) != 0 {
		t.Error("another key was made")
	}
	_ = os.WriteFile(files[0], kept, 0o600)
	p.want("secret/A", secret)
}

func TestTheKeyIsNotMadeTwiceWhileTheKeyringIsAway(t *testing.T) {
	p := newPlace(t)
	p.ring.Fail(nil)
	p.put("secret/A", secret)
	if len(p.keyFiles()) != 0 || p.log.Len() > 0 {
		t.Errorf("there is a keyring, and yet %v, %s", p.keyFiles(), p.log)
	}
	p.ring.Fail(errors.New("locked"))
	p.refused("secret/A", "the keyring, where it cannot be read: unlock the keyring")
	p.ring.Fail(nil)
	p.want("secret/A", secret)
	p.put("secret/B", "b")
	p.want("secret/A", secret)

	p.ring.Replace(strings.Repeat("ab", 32))
	p.refused("secret/A", "the keyring has another one under its name")
	p.ring.Replace("no key")
	p.refused("secret/A", "the keyring has another one under its name")
	p.ring.Empty()
	p.refused("secret/A", "bring the key back")
	if len(p.keyFiles()) != 0 {
		t.Error("another key was made")
	}

	// What cannot be opened any more is given up by whoever says so.
	must.Do(t, p.open().Reset(t.Context()))
	p.put("secret/A", "again")
	p.want("secret/A", "again")
}

// A process that has a key in memory notices that another one has begun anew.
func TestAResetIsNoticed(t *testing.T) {
	p := newPlace(t)
	p.put("secret/A", "a")
	old := p.open()
	_ = must.Get(old.Get(t.Context(), "secret/A"))(t)
	must.Do(t, p.open().Reset(t.Context()))
	p.put("secret/A", "anew")
	if got, err := old.Get(t.Context(), "secret/A"); err != nil || string(got) != "anew" {
		t.Errorf("%q, %v", got, err)
	}
	if err := old.Put(t.Context(), "secret/B", []byte("b")); err != nil {
		t.Error(err)
	}
	p.want("secret/B", "b")
}

func TestTheKeyOfTheEnvironment(t *testing.T) {
	raw := []byte("0123456789abcdef0123456789abcde\xff")
	for _, form := range []string{
		base64.StdEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw), hex.EncodeToString(raw), " " + base64.StdEncoding.EncodeToString(raw) + "\n",
	} {
		p := newPlace(t)
		p.key = base64.StdEncoding.EncodeToString(raw)
		p.ring.Fail(nil)
		p.put("secret/A", secret)
		p.key = form
		p.want("secret/A", secret)
		if len(p.keyFiles()) != 0 {
			t.Error("a key file was made")
		}
		p.key = ""
		p.refused("secret/A", "given by MCPPROXY_VAULT_KEY, which is not set: set it")
		p.key = strings.Repeat("ab", 32)
		p.refused("secret/A", "MCPPROXY_VAULT_KEY has another key")
	}
	for _, malformed := range []string{"password", strings.Repeat("a", 63), base64.StdEncoding.EncodeToString(raw[:16]), "\n"} {
		_, err := vault.Open(nil, vault.Options{Key: malformed})
		if err == nil || !strings.Contains(err.Error(), "32 bytes in base64") || strings.Contains(err.Error(), malformed) {
			t.Errorf("%q: %v", malformed, err)
		}
	}
}

// Stores and key files of all versions name a key alike.
func TestTheNameOfAKeyStays(t *testing.T) {
	p := newPlace(t)
	p.key = strings.Repeat("ab", 32)
	p.put("secret/A", secret)
	row, err := p.store().Find(t.Context(), "key")
	if err != nil || string(row.Sealed) != `{"id":"43801cf078ed898a","holder":"environment"}` {
		t.Errorf("%s, %v", row.Sealed, err)
	}
}

func TestAKeyFileCanMoveIntoTheEnvironment(t *testing.T) {
	p := newPlace(t)
	p.put("secret/A", secret)
	text := must.Get(os.ReadFile(p.keyFiles()[0]))(t)
	p.key = string(text)
	must.Do(t, os.Remove(p.keyFiles()[0]))
	p.want("secret/A", secret)
	p.put("secret/B", "b")
	p.want("secret/B", "b")
}

// An owner learns where the key is, and where it should be.
func TestTheOwnerLearnsWhereTheKeyIs(t *testing.T) {
	p := newPlace(t)
	where := func(place, path string) {
		t.Helper()
		if gotPlace, gotPath, err := p.open().KeyPlace(t.Context()); err != nil || gotPlace != place || gotPath != path {
			t.Errorf("%q, %q, %v; want %q, %q", gotPlace, gotPath, err, place, path)
		}
	}
	missing := func(path string) {
		t.Helper()
		var keyError *vault.KeyError
		if place, at, err := p.open().KeyPlace(t.Context()); !errors.As(err, &keyError) || keyError.Path != path || place != "" || at != "" {
			t.Errorf("%q, %q, %+v; want an error with the path %q", place, at, err, path)
		}
	}
	where("", "") // there is none yet
	p.put("secret/A", secret)
	file := p.keyFiles()[0]
	where("a file", file)
	text := must.Get(os.ReadFile(file))(t)
	p.key = string(text)
	where("the variable "+vault.EnvKey, "")
	p.key = strings.Repeat("ab", 32)
	missing(file)
	p.refused("secret/A", "which is in a file")
	p.key = ""
	_ = os.Remove(file)
	missing(file)

	p = newPlace(t)
	p.ring.Fail(nil)
	p.put("secret/A", secret)
	where("the keyring of the operating system", "")
	p.ring.Empty()
	missing("")
}

// Where the system's keyring cannot be reached, which is asked by default, the key is in a file.
func TestTheKeyIsInAFileWhereTheSystemHasNoKeyring(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the keyring of this system needs no bus")
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "none"))
	p := newPlace(t)
	options := p.options()
	options.Log = nil // nobody is told
	v := must.Get(vault.Open(p.store(), options))(t)
	if err := v.Put(t.Context(), "secret/A", []byte(secret)); err != nil || len(p.keyFiles()) != 1 {
		t.Errorf("%v, key files: %v", err, p.keyFiles())
	}
}

// another runs something after the first look for the key, which finds none.
type another struct {
	vault.Rows
	once sync.Once
	do   func()
}

func (a *another) Find(ctx context.Context, name string) (*vault.Row, error) {
	row, err := a.Rows.Find(ctx, name)
	if name == "key" {
		a.once.Do(a.do)
	}
	return row, err
}

// Whoever sees no key makes none if somebody else has made one meanwhile: what that one sealed stays readable.
func TestAKeyThatAnotherProcessMadeMeanwhileIsTaken(t *testing.T) {
	p := newPlace(t)
	rows := &another{Rows: p.store(), do: func() { p.put("secret/B", "theirs") }}
	v := must.Get(vault.Open(rows, vault.WithRing(p.options(), p.ring)))(t)
	must.Do(t, v.Put(t.Context(), "secret/A", []byte("ours")))
	p.want("secret/A", "ours")
	p.want("secret/B", "theirs")
	if len(p.keyFiles()) != 1 {
		t.Errorf("key files: %v", p.keyFiles())
	}
}

// unwritableRows are those of a store that fails.
type unwritableRows struct{ vault.Rows }

var errUnwritable = errors.New("the disk is full")

func (unwritableRows) Put(context.Context, vault.Row) error               { return errUnwritable }
func (unwritableRows) Drop(context.Context, string) error                 { return errUnwritable }
func (unwritableRows) Names(context.Context, string) ([]vault.Row, error) { return nil, errUnwritable }

func TestAStoreThatFailsIsReported(t *testing.T) {
	p, ctx := newPlace(t), t.Context()
	p.put("secret/A", secret)
	v := must.Get(vault.Open(unwritableRows{p.store()}, vault.WithRing(p.options(), p.ring)))(t)
	_, failed := v.Names(ctx, "")
	for what, err := range map[string]error{"Put": v.Put(ctx, "secret/A", []byte("x")), "Delete": v.Delete(ctx, "secret/A"), "Names": failed, "Reset": v.Reset(ctx)} {
		if !errors.Is(err, errUnwritable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.want("secret/A", secret)
}

func TestTheKeyIsTakenOutOfTheEnvironment(t *testing.T) {
	t.Setenv(vault.EnvKey, "value")
	if got := vault.TakeKey(); got != "value" {
		t.Errorf("taken: %q", got)
	}
	if value, set := os.LookupEnv(vault.EnvKey); set {
		t.Errorf("what is started would get %q", value)
	}
}

func TestAStoreInMemoryHasItsKeyThere(t *testing.T) {
	s := must.Get(store.OpenReadOnly(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	defer s.Close()
	v := must.Get(vault.Open(s.Sealed(), vault.Options{Locks: s.Sealed().Locks(), ReadOnly: true}))(t)
	if err := v.Put(t.Context(), "secret/A", []byte("a")); err == nil {
		t.Error("a store for reading is written to")
	}
	memory := must.Get(store.Open(t.Context(), filepath.Join(os.DevNull, "x"), slog.New(slog.DiscardHandler)))(t)
	defer memory.Close()
	v = must.Get(vault.Open(memory.Sealed(), vault.Options{Locks: memory.Sealed().Locks()}))(t)
	must.Do(t, v.Put(t.Context(), "secret/A", []byte("a")))
	if got, err := v.Get(t.Context(), "secret/A"); err != nil || string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLockedIsBoundedAndPerName(t *testing.T) {
	p := newPlace(t)
	s := p.store()
	open := func() *vault.Vault {
		return must.Get(vault.Open(s, vault.WithWait(p.options(), 50*time.Millisecond)))(t)
	}
	one, other := open(), open() // other is as another process is
	locked := func(ctx context.Context) error {
		for _, v := range []*vault.Vault{one, other} {
			if err := v.Locked(ctx, "login/a", func(context.Context) error { return nil }); !errors.Is(err, vault.ErrLocked) {
				t.Errorf("locked twice: %v", err)
			}
			await.Nil(t, func() error { return v.Locked(ctx, "login/b", func(context.Context) error { return nil }) }) // another name
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := other.Locked(ended, "login/a", func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller has left: %v", err)
		}
		return errors.New("its own error")
	}
	await.True(t, func() bool { // what is free may take longer than the wait on a busy machine
		err := one.Locked(t.Context(), "login/a", locked)
		return err != nil && err.Error() == "its own error"
	})
	await.Nil(t, func() error { return other.Locked(t.Context(), "login/a", func(context.Context) error { return nil }) }) // free again
}

// A store that several machines share has locks of its own.
func TestLocksOfTheStore(t *testing.T) {
	var taken, released []string
	var failed error
	v, err := vault.Open(nil, vault.Options{Locks: vault.Locks{Take: func(_ context.Context, name string) (func(), error) {
		taken = append(taken, name)
		return func() { released = append(released, name) }, failed
	}}})
	if err != nil {
		t.Fatal(err)
	}
	locked := func() error {
		return v.Locked(t.Context(), "login/a", func(context.Context) error {
			if len(taken) != len(released)+1 {
				t.Errorf("taken %q, released %q", taken, released)
			}
			return nil
		})
	}
	if err := errors.Join(locked(), locked()); err != nil || len(released) != 2 {
		t.Errorf("%v, released %q", err, released)
	}
	failed = errUnwritable
	for range 2 { // what failed holds nothing
		if err := locked(); !errors.Is(err, errUnwritable) || len(released) != 2 {
			t.Errorf("%v, released %q", err, released)
		}
	}
}

// Whoever gives up waiting leaves the name locked. In one process no file keeps others out.
func TestANameStaysLockedWhenOthersGiveUp(t *testing.T) {
	v := must.Get(vault.Open(nil, vault.Options{}))(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := v.Locked(t.Context(), "login/a", func(context.Context) error {
		for range 20 {
			if err := v.Locked(ended, "login/a", func(context.Context) error { t.Error("it is locked twice"); return nil }); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestProcesses is what the processes of the next test run.
func TestProcesses(t *testing.T) {
	dir := os.Getenv("VAULT_TEST_DIR")
	if dir == "" {
		t.Skip("it is run by TestProcessesShareOneKeyAndOneLock")
	}
	p := &place{t, filepath.Join(dir, "data"), filepath.Join(dir, "keys"), &vault.FakeRing{}, "", new(bytes.Buffer)}
	p.ring.Fail(errors.New("no keyring here"))
	v := p.open()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				err := v.Locked(t.Context(), "login/counter", func(ctx context.Context) error {
					old, err := v.Get(ctx, "login/counter")
					if err != nil && !errors.Is(err, vault.ErrNotFound) {
						return err
					}
					return v.Put(ctx, "login/counter", append(old, 'x'))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestProcessesShareOneKeyAndOneLock(t *testing.T) {
	const processes = 3
	p := newPlace(t)
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcesses$")
			cmd.Env = append(os.Environ(), "VAULT_TEST_DIR="+filepath.Dir(p.data))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	p.want("login/counter", strings.Repeat("x", processes*4*5))
	if len(p.keyFiles()) != 1 {
		t.Errorf("key files: %v", p.keyFiles())
	}
}

// On a server there is no session bus, and that is known at once.
func TestWithoutASessionBusTheKeyringIsNotWaitedFor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the keyring of this system needs no bus")
	}
	if _, err := os.Stat("/run/user"); err == nil {
		t.Skip("there may be a session bus")
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	if _, err := vault.OSKeyring(time.Minute)(t.Context(), "toolfinch-test", "x"); err == nil || !strings.Contains(err.Error(), "there is no session bus") {
		t.Errorf("%v", err)
	}
}

func BenchmarkGet(b *testing.B) {
	s := must.Get(store.Open(b.Context(), b.TempDir(), slog.New(slog.DiscardHandler)))(b)
	defer s.Close()
	v := must.Get(vault.Open(s.Sealed(), vault.Options{Key: strings.Repeat("ab", 32), Locks: s.Sealed().Locks()}))(b)
	must.Do(b, v.Put(b.Context(), "login/a", make([]byte, 4096)))
	for b.Loop() {
		_ = must.Get(v.Get(b.Context(), "login/a"))(b)
	}
}

// A bus that takes connections and never answers costs a bounded time, and only once.
func TestAKeyringThatDoesNotAnswerIsNotWaitedForLong(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the keyring of this system needs no bus")
	}
	path := filepath.Join(t.TempDir(), "bus")
	bus := must.Get(net.Listen("unix", path))(t)
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if c, err := bus.Accept(); err == nil {
			accepted <- c
		}
	}()
	t.Cleanup(func() {
		_ = bus.Close()
		if c := <-accepted; c != nil {
			_ = c.Close() // ends what still waits
		}
	})
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+path)
	use := vault.OSKeyring(50 * time.Millisecond)
	for range 2 {
		if _, err := use(t.Context(), "toolfinch-test", "x"); err == nil || err.Error() != "the keyring does not answer" {
			t.Errorf("%v", err)
		}
	}
}

// A keyring that fails is asked again the next time.
func TestAKeyringThatFailsIsAskedAgain(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the keyring of this system needs no bus")
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+filepath.Join(t.TempDir(), "none"))
	use := vault.OSKeyring(time.Minute)
	for range 2 {
		if _, err := use(t.Context(), "toolfinch-test", "x"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
}

// A keyring is its user's: it is written to only where a test says that it may be.
// One for the test: dbus-run-session -- sh -c 'echo | gnome-keyring-daemon --unlock; VAULT_TEST_KEYRING=1 go test ./store/vault'
func TestTheKeyringOfTheOperatingSystem(t *testing.T) {
	if os.Getenv("VAULT_TEST_KEYRING") == "" {
		t.Skip("VAULT_TEST_KEYRING is not set")
	}
	p := newPlace(t)
	for range 2 {
		v := must.Get(vault.Open(p.store(), p.options()))(t)
		must.Do(t, v.Put(t.Context(), "secret/A", []byte(secret)))
		if got, err := v.Get(t.Context(), "secret/A"); err != nil || string(got) != secret {
			t.Errorf("%q, %v", got, err)
		}
	}
	if len(p.keyFiles()) != 0 || p.log.Len() > 0 {
		t.Errorf("the keyring was not used: %v, %s", p.keyFiles(), p.log)
	}
}
