package storetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/store"
	"toolfinch/store/vault"
	"toolfinch/tool"
)

// definitions are the promises about servers and what they list, and about all methods.
var definitions = []promise{
	{"definitions come back byte for byte", func(t *testing.T, p place) {
		s := p.open(t)
		want := Defs(t, "odd",
			`{"name":"plain"}`,
			" {\n\t\"name\" : \"spaced\", \"x\":1e400, \"n\":12345678901234567890.10 }",
			`{"name":"twice","name":"twice","z":1,"a":2}`,
			`{"name":"\u0041 escaped \u0000","description":"é\u00e9 \ud83d\ude00 </script>"}`,
			"{\"name\":\"not utf-8\",\"description\":\"\xff\xfe\"}",
			`{"name":"no schema at all","inputSchema":"nonsense","annotations":7}`,
			`{"name":"long","description":"`+strings.Repeat("long ", 1<<18)+`"}`)
		Put(t, s, "odd", want...)
		if got := Tools(t, s); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", IDs(t, s))
		}
	}},
	{"names may be as long as tool.TakeIn lets them be", func(t *testing.T, p place) {
		s := p.open(t)
		random := make([]byte, 1000) // it does not compress
		_, _ = rand.Read(random)
		long := hex.EncodeToString(random)
		List(t, s, store.Upstream{Name: "a"}, Strict, Defs(t, "a", `{"name":"`+long+`"}`, `{"name":"x"}`)...)
		WantIDs(t, s, "a."+long, "a.x")
		owner := strings.Repeat(long, 2)[:longestOwner]
		provision(t, s, "v", owner, never(owner, "a", long), never(owner, "a", "x"))
		wantProvisions(t, s, "v", never(owner, "a", long), never(owner, "a", "x"))
	}},
	{"servers come back", func(t *testing.T, p place) {
		s := p.open(t)
		full := store.Upstream{Name: "b", Era: "legacy", Info: json.RawMessage(`{ "name":"b", "x":12345678901234567890}`),
			Capabilities: json.RawMessage(`{"tools":{ },"x":1.0}`), Interactive: true,
			Instructions: "Use it.", UpdatedAt: time.Date(2026, 3, 2, 9, 0, 0, 5e6, time.UTC)}
		for _, srv := range []store.Upstream{{Name: "b", Era: "2026-07-28"}, full, {Name: "a"}} {
			List(t, s, srv, nil)
		}
		got, err := s.Servers(t.Context())
		if err != nil || len(got) != 2 || !reflect.DeepEqual(got[1], full) {
			t.Fatalf("got %+v, %v, want %+v", got, err, full)
		}
		if a := got[0]; a.Name != "a" || a.Info != nil || a.Capabilities != nil || a.Interactive || a.UpdatedAt.IsZero() {
			t.Errorf("a server with nothing but a name: %+v", a)
		}
	}},
	{"a list replaces the one before, and the difference is told", func(t *testing.T, p place) {
		s := p.open(t)
		const a, a2, b, c = `{"name":"a"}`, `{"name":"a","v":2}`, `{"name":"b"}`, `{"name":"c"}`
		for _, test := range []struct {
			name        string
			before, now []string
			want        store.Diff
			order       []string
		}{
			{"first", nil, []string{c, a, b}, store.Diff{Added: []string{"a", "b", "c"}, Total: 3}, []string{"s.c", "s.a", "s.b"}},
			{"same", []string{a, b}, []string{a, b}, store.Diff{Total: 2}, []string{"s.a", "s.b"}},
			{"moved", []string{a, b}, []string{b, a}, store.Diff{Total: 2}, []string{"s.b", "s.a"}},
			{"changed", []string{a, b}, []string{a2, b}, store.Diff{Changed: []string{"a"}, Total: 2}, []string{"s.a", "s.b"}},
			{"all at once", []string{a, b}, []string{c, a2}, store.Diff{Added: []string{"c"}, Changed: []string{"a"}, Removed: []string{"b"}, Total: 2}, []string{"s.c", "s.a"}},
			{"emptied", []string{b, a}, nil, store.Diff{Removed: []string{"a", "b"}}, nil},
			{"one name twice", []string{a}, []string{a, b, a2}, store.Diff{Added: []string{"b"}, Total: 2}, []string{"s.a", "s.b"}},
		} {
			Put(t, s, "other", Def(t, "other", a))
			Put(t, s, "s", Defs(t, "s", test.before...)...)
			if got := Put(t, s, "s", Defs(t, "s", test.now...)...); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
			}
			WantIDs(t, s, append([]string{"other.a"}, test.order...)...)
			keepServers(t, s)
		}
	}},
	{"definitions of all kinds", func(t *testing.T, p place) {
		s := p.open(t)
		a, other := Def(t, "s", `{"name":"a"}`), Def(t, "other", `{"name":"z"}`)
		promptA := ofKind(t, tool.KindPrompt, "s", `{"name":"a","arguments":[{"name":"x"}]}`) // the name of a tool
		promptB := ofKind(t, tool.KindPrompt, "s", `{"name":"b"}`)
		changed := ofKind(t, tool.KindPrompt, "s", `{"name":"a","description":"new"}`)
		file := ofKind(t, tool.KindResource, "s", `{"uri":"file:///a","name":"A"}`)
		files := ofKind(t, tool.KindTemplate, "s", `{"uriTemplate":"file:///{path}","name":"F"}`)
		grouped := *promptB
		grouped.Group = "reports: All of them"
		Put(t, s, "other", other)
		for _, step := range []struct {
			name         string
			listed, left []*tool.Def
			want         store.Diff
		}{
			{"first", []*tool.Def{files, promptB, promptA, a, file}, []*tool.Def{other, a, promptB, promptA, file, files}, store.Diff{Added: []string{"a"}, Total: 1, Others: 4}},
			{"a prompt has changed, resources are gone", []*tool.Def{a, changed, promptB, promptB}, []*tool.Def{other, a, changed, promptB}, store.Diff{Total: 1, Others: 2}},
			{"a prompt is in a group", []*tool.Def{a, changed, &grouped}, []*tool.Def{other, a, changed, &grouped}, store.Diff{Total: 1, Others: 2}},
			{"the tool is gone", []*tool.Def{promptB}, []*tool.Def{other, promptB}, store.Diff{Removed: []string{"a"}, Others: 1}},
		} {
			if got := Put(t, s, "s", step.listed...); !reflect.DeepEqual(got, step.want) {
				t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
			}
			if got := Tools(t, s); !reflect.DeepEqual(got, step.left) {
				t.Errorf("%s: %v, want %v", step.name, got, step.left)
			}
		}
		keepServers(t, s, "other")
		WantIDs(t, s, "other.z")
	}},
	{"a server that is forgotten takes its definitions along", func(t *testing.T, p place) {
		s := p.open(t)
		for _, name := range []string{"b", "a"} {
			Put(t, s, name, Def(t, name, `{"name":"x"}`))
		}
		for _, test := range []struct{ keep, removed, left []string }{
			{[]string{"a", "b", "unheard of"}, nil, []string{"a.x", "b.x"}},
			{[]string{"b"}, []string{"a"}, []string{"b.x"}},
			{nil, []string{"b"}, nil},
		} {
			if removed := keepServers(t, s, test.keep...); !slices.Equal(removed, test.removed) {
				t.Errorf("removed %v, want %v", removed, test.removed)
			}
			WantIDs(t, s, test.left...)
		}
	}},
	{"a token count lives as long as a tool has its definition", func(t *testing.T, p place) {
		s := p.open(t)
		a, b := Def(t, "s", `{"name":"a"}`), Def(t, "s", `{"name":"b"}`)
		Put(t, s, "s", a, b)
		Put(t, s, "twin", Def(t, "twin", `{"name":"b"}`))
		prompt := ofKind(t, tool.KindPrompt, "s", `{"name":"a"}`)
		for _, step := range []struct {
			name string
			do   func()
			want map[string]int
		}{
			{"counted", func() { Must(t, s.PutTokens(t.Context(), map[string]int{a.Hash: 11, b.Hash: 12})) }, map[string]int{a.Hash: 11, b.Hash: 12}},
			{"nothing has changed", func() { Put(t, s, "s", a, b, prompt) }, map[string]int{a.Hash: 11, b.Hash: 12}},
			{"a prompt is gone", func() { Put(t, s, "s", a, b) }, map[string]int{a.Hash: 11, b.Hash: 12}},
			{"a has changed, b has left one of two servers", func() { Put(t, s, "s", Def(t, "s", `{"name":"a","v":2}`)) }, map[string]int{b.Hash: 12}},
			{"counted again", func() { Must(t, s.PutTokens(t.Context(), map[string]int{b.Hash: 13})) }, map[string]int{b.Hash: 13}},
			{"the other server is forgotten", func() { keepServers(t, s, "s") }, map[string]int{}},
		} {
			step.do()
			if got, err := s.Tokens(t.Context()); err != nil || !reflect.DeepEqual(got, step.want) {
				t.Errorf("%s: %v, %v, want %v", step.name, got, err, step.want)
			}
		}
	}},
	{"what is stored of one server is what the methods for all servers say of it", func(t *testing.T, p place) {
		s := p.open(t)
		List(t, s, store.Upstream{Name: "a", Instructions: "Use it."}, Strict, Def(t, "a", `{"name":"x"}`))
		List(t, s, store.Upstream{Name: "b", Instructions: "Use it."}, Strict, Defs(t, "b", `{"name":"x"}`, `{"name":"y"}`)...)
		List(t, s, store.Upstream{Name: "b", Instructions: "Use that."}, Strict, Defs(t, "b", `{"name":"x","v":2}`, `{"name":"y"}`)...)
		Must(t, s.Asks(t.Context(), "b"))
		servers, err := s.Servers(t.Context())
		if err != nil || servers[0].Interactive || !servers[1].Interactive {
			t.Fatalf("servers = %+v, %v", servers, err)
		}
		want := &store.Listed{Upstream: servers[1], Defs: Tools(t, s)[1:], Unpinned: unpinned(t, s)}
		if got, err := s.Listed(t.Context(), "b"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Listed = %+v, %v\nwant %+v", got, err, want)
		}
		if got, err := s.Listed(t.Context(), "c"); got != nil || err != nil {
			t.Errorf("of a server that is not stored: %+v, %v", got, err)
		}
	}},
	{"a closed store answers with errors", func(t *testing.T, p place) {
		s := p.open(t)
		Must(t, s.Close(), s.Close())
		wantErrors(t, s, func(err error) bool { return strings.HasPrefix(err.Error(), "store: ") })
	}},
	{"a cancelled context harms only its call", func(t *testing.T, p place) {
		s := p.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, all := range []map[string]error{writes(ctx, s, Def(t, "s", `{"name":"a"}`)), reads(ctx, s)} {
			for method, err := range all {
				if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "store: ") {
					t.Errorf("%s: %v", method, err)
				}
			}
		}
		Works(t, s)
	}},
	{"a store that is open for reading only tells everything and writes nothing", func(t *testing.T, p place) {
		read := func() *store.Store {
			s, err := store.OpenReadOnly(t.Context(), p.at, slog.New(slog.DiscardHandler))
			Must(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		}
		WantIDs(t, read())
		Fill(t, p.open(t))
		s := read()
		WantIDs(t, s, "a.x", "a.y", "b.z")
		for method, err := range writes(t.Context(), s, Def(t, "s", `{"name":"a"}`)) {
			if !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("%s: %v", method, err)
			}
		}
		for method, err := range reads(t.Context(), s) {
			if err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		WantIDs(t, s, "a.x", "a.y", "b.z")
	}},
	{"many write at once, and nobody sees half of it", func(t *testing.T, p place) {
		const processes, goroutines, rounds = 2, 2, 4
		var group sync.WaitGroup
		for process := range processes {
			s := p.open(t)
			for g := range goroutines {
				name := fmt.Sprint("server", process, g)
				group.Go(func() {
					for i := range rounds {
						List(t, s, store.Upstream{Name: "shared"}, Strict, Many(t, "shared", 2*(1+(i+g)%3))...)
						Put(t, s, name, Defs(t, name, fmt.Sprintf(`{"name":"a","v":%d}`, i), `{"name":"b"}`)...)
						if n := len(IDs(t, s)); n%2 != 0 {
							t.Errorf("%d tools: half a server was seen", n)
						}
						err := errors.Join(
							patiently(func() error {
								return s.Usage().AddSavings(t.Context(), today(), []store.Savings{{View: "v", Steps: 1}})
							}),
							patiently(func() error {
								return s.Usage().PutLearned(t.Context(), store.LearnedUse{Query: "q", Tool: tool.ID{Server: "s", Name: "t"}, Count: 0.125, At: noon})
							}),
							patiently(func() error { return s.Usage().ChangeProvisions(t.Context(), "v", "o", more) }),
							patiently(func() error { return s.PutVectors(t.Context(), "m", map[store.Key][]float32{{byte(i)}: {1}}) }),
							patiently(func() error { return s.Pins().Approve(t.Context(), nil) }))
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		group.Wait()
		const n = processes * goroutines * rounds
		s := p.open(t)
		if got := len(IDs(t, s)) - 2*processes*goroutines; got != 2 && got != 4 && got != 6 {
			t.Errorf("the shared server has %d tools: two lists are mixed", got)
		}
		if got := savings(t, s, time.Time{}); len(got) != 1 || got[0].Steps != n {
			t.Errorf("savings %+v", got)
		}
		if got := learned(t, s); len(got) != 1 || got[0].Count != 0.125*n {
			t.Errorf("learned %+v", got)
		}
		if got := provisions(t, s, "v"); len(got) != n {
			t.Errorf("%d are provisioned, want %d: changes of a set are lost", len(got), n)
		}
		if got, err := s.Pins().Decisions(t.Context()); err != nil || got != n {
			t.Errorf("decisions %d, %v", got, err)
		}
	}},
	{"a failure is kept until its server is listed or removed", func(t *testing.T, p place) {
		s := p.open(t)
		fail := func(server, reason string) store.Failure {
			f := store.Failure{Server: server, Reason: reason, At: noon.UTC()}
			Must(t, s.PutFailure(t.Context(), f))
			return f
		}
		want := func(when string, want ...store.Failure) {
			t.Helper()
			if got, err := s.Failures(t.Context()); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v, want %v", when, got, err, want)
			}
		}
		fail("a", "no such program")
		a, b := fail("a", "timed out"), fail("b", "refused")
		if err := s.PutFailure(t.Context(), store.Failure{Server: "c", Reason: strings.Repeat("x", 1001), At: noon}); err == nil {
			t.Error("a reason without end was stored")
		}
		want("the last one counts", a, b)
		List(t, s, store.Upstream{Name: "a"}, Strict)
		want("a was listed", b)
		keepServers(t, s, "b")
		want("a is gone", b)
		keepServers(t, s)
		want("b is gone")
	}},
	{"Examine finds nothing wrong, and counts", func(t *testing.T, p place) {
		Fill(t, p.open(t))
		if got, err := store.Examine(t.Context(), p.at); err != nil || !got.Known || len(got.Wrong) > 0 || got.Rows[1] != (store.Rows{Table: "tools", Rows: 3}) {
			t.Errorf("%+v, %v", got, err)
		}
	}},
}

// more adds one to what is provisioned.
func more(was []tool.Provisioned) ([]tool.Provisioned, error) {
	return append(was, never("", "s", fmt.Sprint(len(was)))), nil
}

func keepServers(t testing.TB, s *store.Store, names ...string) []string {
	t.Helper()
	removed, err := s.KeepServers(t.Context(), names)
	Must(t, err)
	return removed
}

// wantErrors checks that every method has an error that is right.
func wantErrors(t testing.TB, s *store.Store, right func(error) bool) {
	t.Helper()
	for _, all := range []map[string]error{writes(t.Context(), s, Def(t, "s", `{"name":"a"}`)), reads(t.Context(), s)} {
		for method, err := range all {
			if err == nil || !right(err) {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
}

// writes calls every method that writes, and returns their errors.
func writes(ctx context.Context, s *store.Store, def *tool.Def) map[string]error {
	all := map[string]error{}
	_, all["PutServer"] = s.PutServer(ctx, store.Upstream{Name: def.ID.Server}, []*tool.Def{def}, nil)
	_, all["KeepServers"] = s.KeepServers(ctx, []string{def.ID.Server})
	all["Asks"] = s.Asks(ctx, def.ID.Server)
	all["PutFailure"] = s.PutFailure(ctx, store.Failure{Server: def.ID.Server, At: noon})
	all["PutTokens"] = s.PutTokens(ctx, map[string]int{def.Hash: 1})
	all["PutVectors"] = s.PutVectors(ctx, "m", map[store.Key][]float32{{1}: {1}})
	all["PutSegment"] = s.PutSegment(ctx, store.Segment{Key: store.Key{1}, Data: []byte{1}})
	all["Pins.Approve"] = s.Pins().Approve(ctx, nil)
	all["Usage.PutClient"] = s.Usage().PutClient(ctx, "agent 1", tool.RelistsAlways)
	all["Usage.PutCalled"] = s.Usage().PutCalled(ctx, "v", tool.Caller{Client: "c"}, []tool.Called{{Name: "x"}})
	all["Usage.PutLearned"] = s.Usage().PutLearned(ctx, used("q", "s", "t", 1, noon))
	_, all["Usage.ForgetLearned"] = s.Usage().ForgetLearned(ctx, "q", "")
	all["Usage.ChangeProvisions"] = s.Usage().ChangeProvisions(ctx, "v", "o", more)
	all["Usage.AddSavings"] = s.Usage().AddSavings(ctx, today(), []store.Savings{{View: "v"}})
	all["Usage.ResetSavings"] = s.Usage().ResetSavings(ctx)
	all["Outputs.Put"] = s.Outputs().Put(ctx, name("writes"), name("o"), []byte("x"), noon, noon.Add(time.Hour))
	_, all["Outputs.Drop"] = s.Outputs().Drop(ctx, noon.Add(time.Hour))
	all["Keys.Add"] = s.Keys().Add(ctx, identity.Key{Name: "writes", ID: "key|writes", Hash: name("writes")})
	_, all["Keys.Revoke"] = s.Keys().Revoke(ctx, "writes")
	all["Sealed.Put"] = s.Sealed().Put(ctx, vault.Row{Name: "secret/writes", Sealed: []byte("x")})
	all["Sealed.Drop"] = s.Sealed().Drop(ctx, "secret/writes")
	return all
}

// reads calls every method that reads, and returns their errors.
func reads(ctx context.Context, s *store.Store) map[string]error {
	all := map[string]error{}
	_, all["Servers"] = s.Servers(ctx)
	_, all["Failures"] = s.Failures(ctx)
	_, all["Tools"] = s.Tools(ctx)
	_, all["Listed"] = s.Listed(ctx, "s")
	_, all["Tokens"] = s.Tokens(ctx)
	_, all["Vectors"] = s.Vectors(ctx, "m", []store.Key{{1}})
	all["Segments"] = s.Segments(ctx, nil, func(store.Segment) {})
	_, all["Pins.Unpinned"] = s.Pins().Unpinned(ctx)
	_, all["Pins.Decisions"] = s.Pins().Decisions(ctx)
	_, all["Usage.Clients"] = s.Usage().Clients(ctx)
	_, all["Usage.Called"] = s.Usage().Called(ctx, "v")
	_, all["Usage.Learned"] = s.Usage().Learned(ctx)
	_, all["Usage.Provisions"] = s.Usage().Provisions(ctx, "v")
	_, all["Usage.Savings"] = s.Usage().Savings(ctx, time.Time{})
	_, all["Outputs.Find"] = s.Outputs().Find(ctx, name("t"), name("o"), noon)
	_, all["Keys.All"] = s.Keys().All(ctx)
	_, all["Keys.Find"] = s.Keys().Find(ctx, name("k"))
	_, all["Sealed.Find"] = s.Sealed().Find(ctx, "secret/a")
	_, all["Sealed.Names"] = s.Sealed().Names(ctx, "")
	return all
}

func name(s string) [32]byte { return sha256.Sum256([]byte(s)) }

// Fill puts something into every table.
func Fill(t testing.TB, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	List(t, s, store.Upstream{Name: "a"}, Strict, Def(t, "a", `{"name":"y","title":"Y"}`))
	List(t, s, store.Upstream{Name: "a", Era: "legacy", Info: []byte(`{"name":"a"}`), Instructions: "Use\x00 it.", Capabilities: []byte(`{}`), Interactive: true, LeftOut: 2}, Strict,
		Defs(t, "a", `{"name":"x","description":"naïve 漢字"}`, `{"name":"y"}`)...)
	held := unpinned(t, s)
	Put(t, s, "b", Def(t, "b", `{"name":"z"}`))
	provision(t, s, "v", "o", never("o", "a", "y"), never("o", "a", "x"))
	Must(t,
		s.PutTokens(ctx, map[string]int{Tools(t, s)[0].Hash: 7}),
		s.PutFailure(ctx, store.Failure{Server: "c", Reason: "timed out", At: noon}),
		s.Usage().PutClient(ctx, "agent 1", tool.RelistsAlways),
		s.PutVectors(ctx, "m", map[store.Key][]float32{{1}: {0.5, -1}, {2}: {}}),
		s.Usage().PutLearned(ctx, store.LearnedUse{Principal: "p", Query: "q", Tool: tool.ID{Server: "a", Name: "x"}, Count: 0.1, At: noon}),
		s.Usage().PutCalled(ctx, "v", tool.Caller{Principal: "p", Client: "c"}, []tool.Called{{Name: "x"}}),
		s.Outputs().Put(ctx, name("token"), name("owner"), []byte("content"), noon, noon.Add(time.Hour)),
		s.Usage().AddSavings(ctx, today(), []store.Savings{{View: "v", Steps: 3}}),
		s.Sealed().Put(ctx, vault.Row{Name: "secret/A", Sealed: []byte{0, 1}, At: noon}),
		s.Keys().Add(ctx, identity.Key{Name: "k", ID: "key|k", Hash: name("key"), Created: noon, Scopes: []string{"read"}}),
		s.PutSegment(ctx, store.Segment{Key: store.Key{3}, Docs: 1, Data: []byte{9}}),
		s.Pins().Approve(ctx, held))
}
