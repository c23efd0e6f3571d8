package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/postgres"
	"toolfinch/tool"
)

func def(t testing.TB, server, raw string) *tool.Def {
	t.Helper()
	d, err := tool.ParseDef(server, json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func defs(t testing.TB, server string, raws ...string) []*tool.Def {
	t.Helper()
	var out []*tool.Def
	for _, raw := range raws {
		out = append(out, def(t, server, raw))
	}
	return out
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(context.Background(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t testing.TB, s *Store, server string, defs ...*tool.Def) Diff {
	t.Helper()
	diff, err := s.PutServer(context.Background(), Upstream{Name: server}, defs, nil)
	if err != nil {
		t.Fatal(err)
	}
	diff.Version = 0 // another one each time
	return diff
}

func tools(t testing.TB, s *Store) []*tool.Def {
	t.Helper()
	defs, err := s.Tools(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return defs
}

func ids(defs []*tool.Def) (out []string) {
	for _, d := range defs {
		out = append(out, d.ID.String())
	}
	return out
}

// everywhere runs a test over each kind of store: what they promise is one.
func everywhere(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Run("file", func(t *testing.T) {
		s := open(t, t.TempDir())
		if !s.Durable() {
			t.Fatal("not durable")
		}
		test(t, s)
	})
	t.Run("memory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, file)
		if s.Durable() {
			t.Fatal("durable")
		}
		test(t, s)
	})
	t.Run("postgres", func(t *testing.T) { test(t, open(t, postgres.Start(t))) })
}

// processes runs a test over stores that several processes open.
func processes(t *testing.T, test func(t *testing.T, open func() *Store)) {
	for name, place := range map[string]func(testing.TB) string{"file": func(t testing.TB) string { return t.TempDir() }, "postgres": postgres.Start} {
		t.Run(name, func(t *testing.T) {
			at := place(t)
			test(t, func() *Store { return open(t, at) })
		})
	}
}

func TestDefinitionsComeBackByteForByte(t *testing.T) {
	raws := []string{
		`{"name":"plain"}`,
		" {\n\t\"name\" : \"spaced\", \"x\":1e400, \"n\":12345678901234567890.10 }",
		`{"name":"twice","name":"twice","z":1,"a":2}`,
		`{"name":"\u0041 escaped \u0000","description":"é\u00e9 \ud83d\ude00 </script>"}`,
		"{\"name\":\"not utf-8\",\"description\":\"\xff\xfe\"}",
		`{"name":"no schema at all","inputSchema":"nonsense","annotations":7}`,
		`{"name":"long","description":"` + strings.Repeat("long ", 1<<18) + `"}`,
	}
	everywhere(t, func(t *testing.T, s *Store) {
		want := defs(t, "odd", raws...)
		put(t, s, "odd", want...)
		if got := tools(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", ids(got), ids(want))
		}
	})
}

func TestRealDefinitionsComeBackByteForByteAfterARestart(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "shared", "realtools", "*.json"))
	if len(files) == 0 {
		t.Skip("no definitions of real servers in shared/realtools, beside the repository")
	}
	dir := t.TempDir()
	s := open(t, dir)
	var want []*tool.Def
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Tools []json.RawMessage `json:"tools"`
		}
		if err := json.Unmarshal(content, &list); err != nil || len(list.Tools) == 0 {
			t.Fatalf("%s: %d tools, %v", file, len(list.Tools), err)
		}
		server := strings.TrimSuffix(filepath.Base(file), ".json")
		var listed []*tool.Def
		for _, raw := range list.Tools {
			listed = append(listed, def(t, server, string(raw)))
		}
		if diff := put(t, s, server, listed...); diff.Total != len(listed) {
			t.Fatalf("%s: stored %d of %d tools", file, diff.Total, len(listed))
		}
		want = append(want, listed...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := tools(t, open(t, dir))
	slices.SortStableFunc(want, func(a, b *tool.Def) int { return strings.Compare(a.ID.Server, b.ID.Server) })
	if len(got) != len(want) {
		t.Fatalf("%d tools, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i].Raw, want[i].Raw) || got[i].ID != want[i].ID {
			t.Errorf("%d: got %s, want %s", i, got[i].ID, want[i].ID)
		}
	}
}

func TestServersComeBack(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		full := Upstream{Name: "b", Era: "legacy", Info: json.RawMessage(`{ "name":"b", "x":12345678901234567890}`),
			Capabilities: json.RawMessage(`{"tools":{ },"x":1.0}`), Interactive: true,
			Instructions: "Use it.", UpdatedAt: time.Date(2026, 3, 2, 9, 0, 0, 5e6, time.UTC)}
		if _, err := s.PutServer(t.Context(), Upstream{Name: "b", Era: "2026-07-28"}, nil, nil); err != nil {
			t.Fatal(err)
		}
		for _, srv := range []Upstream{full, {Name: "a"}} {
			if _, err := s.PutServer(t.Context(), srv, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.Servers(t.Context())
		if err != nil || len(got) != 2 {
			t.Fatalf("%v, %v", got, err)
		}
		if got[0].Name != "a" || got[0].Info != nil || got[0].Capabilities != nil || got[0].Interactive || time.Since(got[0].UpdatedAt).Abs() > time.Hour {
			t.Errorf("a server with nothing but a name: %+v", got[0])
		}
		if !reflect.DeepEqual(got[1], full) {
			t.Errorf("got %+v, want %+v", got[1], full)
		}
	})
}

func TestPutServerReplacesToolsAndTellsTheDifference(t *testing.T) {
	const a, a2, b, c = `{"name":"a"}`, `{"name":"a","v":2}`, `{"name":"b"}`, `{"name":"c"}`
	for _, test := range []struct {
		name        string
		before, now []string
		want        Diff
		order       []string
	}{
		{"first", nil, []string{c, a, b}, Diff{Added: []string{"a", "b", "c"}, Total: 3}, []string{"s.c", "s.a", "s.b"}},
		{"same", []string{a, b}, []string{a, b}, Diff{Total: 2}, []string{"s.a", "s.b"}},
		{"moved", []string{a, b}, []string{b, a}, Diff{Total: 2}, []string{"s.b", "s.a"}},
		{"changed", []string{a, b}, []string{a2, b}, Diff{Changed: []string{"a"}, Total: 2}, []string{"s.a", "s.b"}},
		{"all at once", []string{a, b}, []string{c, a2}, Diff{Added: []string{"c"}, Changed: []string{"a"}, Removed: []string{"b"}, Total: 2}, []string{"s.c", "s.a"}},
		{"emptied", []string{b, a}, nil, Diff{Removed: []string{"a", "b"}}, nil},
		{"one name twice", []string{a}, []string{a, b, a2}, Diff{Added: []string{"b"}, Total: 2}, []string{"s.a", "s.b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				put(t, s, "other", def(t, "other", a))
				put(t, s, "s", defs(t, "s", test.before...)...)
				if got := put(t, s, "s", defs(t, "s", test.now...)...); !reflect.DeepEqual(got, test.want) {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
				want := append([]string{"other.a"}, test.order...)
				if got := ids(tools(t, s)); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		})
	}
}

func TestFirstSeenStaysAndLastSeenMoves(t *testing.T) {
	s := open(t, t.TempDir())
	for day, raw := range []string{`{"name":"a"}`, `{"name":"a"}`, `{"name":"a","v":2}`} {
		at := time.Date(2026, 1, 1+day, 0, 0, 0, 0, time.UTC)
		if _, err := s.PutServer(t.Context(), Upstream{Name: "s", UpdatedAt: at}, defs(t, "s", raw), nil); err != nil {
			t.Fatal(err)
		}
		var last int64
		if err := s.db.QueryRow(`SELECT last_seen FROM tools`).Scan(&last); err != nil {
			t.Fatal(err)
		}
		if first, err := s.Pins().Listed(t.Context(), tool.ID{Server: "s", Name: "a"}); err != nil || first.Day() != 1 {
			t.Errorf("day %d: first seen %v, %v", 1+day, first, err)
		}
		if got := time.UnixMilli(last).UTC().Day(); got != 1+day {
			t.Errorf("day %d: last seen on day %d", 1+day, got)
		}
	}
	if first, err := s.Pins().Listed(t.Context(), tool.ID{Server: "s", Name: "b"}); err != nil || !first.IsZero() {
		t.Errorf("what is not listed was first seen %v, %v", first, err)
	}
}

func TestKeepServersForgetsTheOthersWithTheirTools(t *testing.T) {
	for _, test := range []struct{ keep, removed, left []string }{
		{[]string{"a", "b", "unheard of"}, nil, []string{"a.x", "b.x"}},
		{[]string{"b"}, []string{"a"}, []string{"b.x"}},
		{nil, []string{"a", "b"}, nil},
	} {
		t.Run(fmt.Sprint(test.keep), func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				for _, name := range []string{"b", "a"} {
					put(t, s, name, def(t, name, `{"name":"x"}`))
				}
				removed, err := s.KeepServers(t.Context(), test.keep)
				if err != nil || !slices.Equal(removed, test.removed) {
					t.Errorf("removed %v, %v, want %v", removed, err, test.removed)
				}
				if got := ids(tools(t, s)); !slices.Equal(got, test.left) {
					t.Errorf("left %v, want %v", got, test.left)
				}
			})
		})
	}
}

func TestTokenCountsLiveAsLongAsTheirTools(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		a, b := def(t, "s", `{"name":"a"}`), def(t, "s", `{"name":"b"}`)
		put(t, s, "s", a, b)
		put(t, s, "twin", def(t, "twin", `{"name":"b"}`))
		counts := map[string]int{a.Hash: 11, b.Hash: 12}
		if err := s.PutTokens(t.Context(), counts); err != nil {
			t.Fatal(err)
		}
		holds := func(when string, want map[string]int) {
			t.Helper()
			if got, err := s.Tokens(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, %v, want %v", when, got, err, want)
			}
		}
		holds("stored", counts)
		put(t, s, "s", a, b)
		holds("nothing changed", counts)
		put(t, s, "s", def(t, "s", `{"name":"a","v":2}`))
		holds("a changed, b left one of two servers", map[string]int{b.Hash: 12})
		if err := s.PutTokens(t.Context(), map[string]int{b.Hash: 13}); err != nil {
			t.Fatal(err)
		}
		holds("counted again", map[string]int{b.Hash: 13})
		if _, err := s.KeepServers(t.Context(), []string{"s"}); err != nil {
			t.Fatal(err)
		}
		holds("the other server was forgotten", map[string]int{})
	})
}

func TestClientsAreRememberedWithinBounds(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		remember := func(client string, relists tool.Relists) {
			t.Helper()
			if err := s.Usage().PutClient(t.Context(), client, relists); err != nil {
				t.Fatal(err)
			}
		}
		remember("agent 1", tool.RelistsNever)
		remember("agent 2", tool.RelistsNever)
		remember("agent 1", tool.RelistsMostly)
		if got, err := s.Usage().Clients(t.Context()); err != nil || !reflect.DeepEqual(got, map[string]tool.Relists{"agent 1": tool.RelistsMostly, "agent 2": tool.RelistsNever}) {
			t.Errorf("%v, %v", got, err)
		}
		if err := s.Usage().PutClient(t.Context(), strings.Repeat("x", maxClientName+1), tool.RelistsAlways); err == nil {
			t.Error("a name of any length is kept")
		}
		_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
			INSERT INTO clients SELECT 'flood ' || i, 1, i FROM n`)
		if err != nil {
			t.Fatal(err)
		}
		remember("agent 3", tool.RelistsAlways)
		got, err := s.Usage().Clients(t.Context())
		if _, kept := got["agent 2"]; err != nil || len(got) != maxClients || !kept || got["agent 3"] != tool.RelistsAlways {
			t.Errorf("%d clients, %v, want the latest %d", len(got), err, maxClients)
		}
	})
}

func TestAToolDamagedOnTheDiskIsLeftOut(t *testing.T) {
	for _, damage := range []string{
		`UPDATE tools SET raw = CAST('{"name":"b"' AS BLOB) WHERE name = 'b'`,
		`UPDATE tools SET raw = CAST('{"name":"b","description":"flipped"}' AS BLOB) WHERE name = 'b'`,
		`UPDATE tools SET name = 'q' WHERE name = 'b'`,
		`UPDATE tools SET kind = 'prompts' WHERE name = 'b'`,
	} {
		var log bytes.Buffer
		s, err := Open(t.Context(), t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "s", defs(t, "s", `{"name":"a"}`, `{"name":"b"}`, `{"name":"c"}`)...)
		if _, err := s.db.Exec(damage); err != nil {
			t.Fatal(err)
		}
		if got := ids(tools(t, s)); !slices.Equal(got, []string{"s.a", "s.c"}) {
			t.Errorf("%s: got %v", damage, got)
		}
		if strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%s: log: %s", damage, &log)
		}
		s.Close()
	}
}

func TestTheDatabaseIsPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := filepath.Join(t.TempDir(), "new", "data # 100% ä?")
	s := open(t, dir)
	put(t, s, "s", def(t, "s", `{"name":"a"}`))
	for path, want := range map[string]os.FileMode{
		dir: os.ModeDir | 0o700, filepath.Join(dir, fileName): 0o600,
		filepath.Join(dir, fileName+"-wal"): 0o600, filepath.Join(dir, lockName): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// all calls every method once and returns their errors.
func all(ctx context.Context, s *Store, d *tool.Def) map[string]error {
	out := map[string]error{}
	_, out["PutServer"] = s.PutServer(ctx, Upstream{Name: d.ID.Server}, []*tool.Def{d}, nil)
	_, out["Servers"] = s.Servers(ctx)
	_, out["Tools"] = s.Tools(ctx)
	_, out["KeepServers"] = s.KeepServers(ctx, []string{d.ID.Server})
	_, out["Tokens"] = s.Tokens(ctx)
	out["PutTokens"] = s.PutTokens(ctx, map[string]int{d.Hash: 1})
	_, out["Clients"] = s.Usage().Clients(ctx)
	out["PutClient"] = s.Usage().PutClient(ctx, "agent 1", tool.RelistsAlways)
	return out
}

func works(t testing.TB, s *Store) {
	t.Helper()
	d := def(t, "works", `{"name":"works"}`)
	for method, err := range all(context.Background(), s, d) {
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	if got := ids(tools(t, s)); !slices.Equal(got, []string{"works.works"}) {
		t.Errorf("got %v", got)
	}
}

func TestAClosedStoreAnswersWithErrors(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for method, err := range all(t.Context(), s, def(t, "s", `{"name":"a"}`)) {
			if err == nil || !strings.HasPrefix(err.Error(), "store: ") {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

func TestACancelledContextHarmsOnlyItsCall(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		put(t, s, "works", def(t, "works", `{"name":"works"}`))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for method, err := range all(ctx, s, def(t, "s", `{"name":"a"}`)) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", method, err)
			}
		}
		// Cancelled in the middle, at whatever point that is.
		many := somewhatReal(t, "many", 300)
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
			s.PutServer(ctx, Upstream{Name: "many"}, many, nil)
			cancel()
			if n := len(tools(t, s)); n != 1 && n != 301 {
				t.Fatalf("%d tools: half a server was stored", n)
			}
		}
		works(t, s)
	})
}

func TestAFullDiskFailsTheWriteAndNothingElse(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "s", def(t, "s", `{"name":"a"}`))
	if _, err := s.db.Exec(`PRAGMA max_page_count = 1`); err != nil { // no smaller than it is: no page more
		t.Fatal(err)
	}
	_, err := s.PutServer(t.Context(), Upstream{Name: "many"}, somewhatReal(t, "many", 300), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "store: put server many: ") {
		t.Errorf("got %v", err)
	}
	if got := ids(tools(t, s)); !slices.Equal(got, []string{"s.a"}) {
		t.Errorf("got %v", got)
	}
	if _, err := s.db.Exec(`PRAGMA max_page_count = 1000000`); err != nil {
		t.Fatal(err)
	}
	works(t, s)
}

func TestALockedDatabaseFailsTheWriteAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	put(t, s, "s", def(t, "s", `{"name":"a"}`))
	if _, err := s.db.Exec(`PRAGMA busy_timeout = 1`); err != nil {
		t.Fatal(err)
	}
	tx, err := other.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutServer(t.Context(), Upstream{Name: "t"}, nil, nil); !busy(err) {
		t.Errorf("got %v", err)
	}
	if got := ids(tools(t, s)); !slices.Equal(got, []string{"s.a"}) {
		t.Errorf("got %v", got)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	works(t, s)
}

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
		s := open(t, dir)
		if err := take(filepath.Join(dir, fileName)); err != nil {
			t.Fatal(err)
		}
		for method, err := range all(t.Context(), s, def(t, "s", `{"name":"a"}`)) {
			writes := strings.HasPrefix(method, "Put") || method == "KeepServers"
			if writes && (err == nil || !strings.Contains(err.Error(), "restart")) {
				t.Errorf("%s: %s: %v", name, method, err)
			}
		}
	}
}

func TestManyGoroutinesShareAStore(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		var group sync.WaitGroup
		for g := range 8 {
			name := fmt.Sprint("server", g)
			group.Go(func() {
				for i := range 10 {
					put(t, s, name, defs(t, name, fmt.Sprintf(`{"name":"a","v":%d}`, i), `{"name":"b"}`)...)
					if n := len(tools(t, s)); n%2 != 0 {
						t.Errorf("%d tools: half a server was seen", n)
					}
					if err := s.Usage().PutClient(t.Context(), name, tool.RelistsAlways); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		if n := len(tools(t, s)); n != 16 {
			t.Errorf("%d tools, want 16", n)
		}
	})
}

func ofKind(t testing.TB, kind tool.Kind, server, raw string) *tool.Def {
	t.Helper()
	d, err := tool.ParseKind(kind, server, json.RawMessage(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDefinitionsOfAllKinds(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		toolA := def(t, "s", `{"name":"a"}`)
		promptA := ofKind(t, tool.KindPrompt, "s", `{"name":"a","arguments":[{"name":"x"}]}`) // the name of a tool
		promptB := ofKind(t, tool.KindPrompt, "s", `{"name":"b"}`)
		file := ofKind(t, tool.KindResource, "s", `{"uri":"file:///a","name":"A"}`)
		files := ofKind(t, tool.KindTemplate, "s", `{"uriTemplate":"file:///{path}","name":"F"}`)
		other := def(t, "other", `{"name":"z"}`)

		holds := func(when string, want ...*tool.Def) {
			t.Helper()
			if got := tools(t, s); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		put(t, s, "other", other)
		if got, want := put(t, s, "s", files, promptB, promptA, toolA, file), (Diff{Added: []string{"a"}, Total: 1, Others: 4}); !reflect.DeepEqual(got, want) {
			t.Errorf("first: %+v, want %+v", got, want)
		}
		holds("first", other, toolA, promptB, promptA, file, files)

		if err := s.PutTokens(t.Context(), map[string]int{toolA.Hash: 7}); err != nil {
			t.Fatal(err)
		}
		changed := ofKind(t, tool.KindPrompt, "s", `{"name":"a","description":"new"}`)
		if got, want := put(t, s, "s", toolA, changed, promptB, promptB), (Diff{Total: 1, Others: 2}); !reflect.DeepEqual(got, want) {
			t.Errorf("prompts changed, resources gone: %+v, want %+v", got, want)
		}
		holds("prompts changed, resources gone", other, toolA, changed, promptB)
		if got, err := s.Tokens(t.Context()); err != nil || got[toolA.Hash] != 7 {
			t.Errorf("the tool's token count went with a prompt: %v, %v", got, err)
		}

		if got, want := put(t, s, "s", promptB), (Diff{Removed: []string{"a"}, Others: 1}); !reflect.DeepEqual(got, want) {
			t.Errorf("the tool is gone: %+v, want %+v", got, want)
		}
		holds("the tool is gone", other, promptB)
		if _, err := s.KeepServers(t.Context(), []string{"other"}); err != nil {
			t.Fatal(err)
		}
		holds("the server was forgotten", other)
	})
}
