package storetest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/store"
	"toolfinch/store/vault"
	"toolfinch/tool"
)

// kept are the promises about large results, secrets, API keys, and what was computed or written of tools.
var kept = []promise{
	{"an output is its owner's until it expires", func(t *testing.T, p place) {
		s := p.open(t)
		content := []byte("{\"big\":12345678901234567890,\"f\":1.0}\x00\xff")
		keep(t, s, "token", "owner", content, noon, time.Hour)
		for _, test := range []struct {
			what, token, owner string
			at                 time.Duration
			want               []byte
		}{
			{"at once", "token", "owner", 0, content},
			{"just before the end", "token", "owner", time.Hour - time.Millisecond, content},
			{"at the end", "token", "owner", time.Hour, nil},
			{"another owner", "token", "other", 0, nil},
			{"another token", "tokem", "owner", 0, nil},
		} {
			if got := output(t, s, test.token, test.owner, noon.Add(test.at)); !bytes.Equal(got, test.want) {
				t.Errorf("%s: got %q, want %q", test.what, got, test.want)
			}
		}
	}},
	{"expired outputs are dropped, however many", func(t *testing.T, p place) {
		s := p.open(t)
		rows := func(want int64) {
			t.Helper()
			if n := p.sql(t, `SELECT count(*) FROM outputs`); n != want {
				t.Errorf("%d rows are left, want %d", n, want)
			}
		}
		const n = 25 // more than are dropped at once
		for i := range n {
			keep(t, s, string(rune('a'+i)), "o", []byte("x"), noon, time.Minute)
		}
		keep(t, s, "long", "o", []byte("x"), noon, time.Hour)
		if dropped, err := s.Outputs().Drop(t.Context(), noon.Add(time.Minute)); dropped != n || err != nil || output(t, s, "long", "o", noon) == nil {
			t.Errorf("dropped %d, %v", dropped, err)
		}
		rows(1)
		keep(t, s, "later", "o", []byte("x"), noon.Add(time.Hour), time.Minute)
		rows(1)
	}},
	{"of too many outputs the oldest go", func(t *testing.T, p place) {
		s := p.open(t)
		bytes := "BLOB"
		if store.InPostgres(p.at) {
			bytes = "BYTEA"
		}
		for _, test := range []struct {
			what            string
			n, size, owners int   // size stands for content
			left, first     int64 // with the new one, the oldest of them
		}{
			{"an owner's bytes", 10, 8 << 20, 1, 8, 3},
			{"an owner's rows", 1003, 1, 1, 1000, 4},
			{"all bytes", 40, 16 << 20, 40, 32, 9},
			{"all rows", 10_005, 1, 100, 10_000, 6},
		} {
			later := noon.Add(time.Hour).UnixMilli()
			p.sql(t, `DELETE FROM outputs`)
			p.sql(t, count(test.n)+` INSERT INTO outputs (token, owner, expires_at, size, content)
				SELECT CAST('t' || CAST(i AS TEXT) AS %[1]s), CAST('o' || CAST(i %% %[2]d AS TEXT) AS %[1]s), %[3]d + i, %[4]d, CAST('' AS %[1]s) FROM n ORDER BY i`,
				bytes, test.owners, later-1, test.size)
			owner := [32]byte{'o', '0'}
			if test.owners == 1 {
				p.sql(t, `UPDATE outputs SET owner = CAST('oooooooooooooooooooooooooooooooo' AS %s)`, bytes)
				owner = [32]byte(slices.Repeat([]byte("o"), 32))
			}
			Must(t, s.Outputs().Put(t.Context(), name("new"), owner, []byte("x"), noon, noon.Add(100*time.Hour)))
			if n, oldest := p.sql(t, `SELECT count(*) FROM outputs`), p.sql(t, `SELECT min(expires_at) FROM outputs`)-later; n != test.left || oldest != test.first {
				t.Errorf("%s: %d rows from %d on, want %d from %d on", test.what, n, oldest, test.left, test.first)
			}
			if content, err := s.Outputs().Find(t.Context(), name("new"), owner, noon); content == nil {
				t.Errorf("%s: the new one is gone: %v", test.what, err)
			}
		}
	}},
	{"an output that is too large is an error", func(t *testing.T, p place) {
		s := p.open(t)
		if err := s.Outputs().Put(t.Context(), name("t"), name("o"), make([]byte, 64<<20+1), noon, noon.Add(time.Hour)); err == nil || output(t, s, "t", "o", noon) != nil {
			t.Errorf("error %v", err)
		}
	}},
	{"sealed rows come back as they were put, and go when they are dropped", func(t *testing.T, p place) {
		s := p.open(t)
		put := func(name, sealed string) {
			t.Helper()
			Must(t, s.Sealed().Put(t.Context(), vault.Row{Name: name, Sealed: []byte(sealed), At: noon}))
		}
		names := func(prefix string, want ...string) {
			t.Helper()
			rows, err := s.Sealed().Names(t.Context(), prefix)
			var got []string
			for _, row := range rows {
				got = append(got, row.Name)
				if row.Sealed != nil {
					t.Errorf("%s comes with what is sealed", row.Name)
				}
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("names %q, %v, want %q", got, err, want)
			}
		}
		put("secret/a", "one")
		put("secret/Ä", "\x00\xff")
		put("login/a", "three")
		put("login/a/b", "four")
		put("log%", "five")
		put("secret/a", "six")
		WantSealed(t, s, "secret/a", "six", noon)
		WantSealed(t, s, "secret/Ä", "\x00\xff", noon)
		names("secret/", "secret/a", "secret/Ä")
		Must(t, s.Sealed().Drop(t.Context(), "login/a"))
		if row, err := s.Sealed().Find(t.Context(), "login/a"); row != nil || err != nil {
			t.Errorf("a dropped row is %+v, %v", row, err)
		}
		names("log", "log%", "login/a/b")
		Must(t, s.Sealed().Drop(t.Context(), ""))
		names("")
	}},
	{"API keys are shared between processes at once", func(t *testing.T, p place) {
		running, command := p.open(t), p.open(t)
		now := time.Now().UTC().Truncate(time.Millisecond)
		ci := identity.Key{Name: "ci", ID: "key|ci|1", Hash: name("one"), View: "github", Scopes: []string{"mcp:read"}, Groups: []string{"bots"}, Created: now, Expires: now.Add(time.Hour)}
		ops := identity.Key{Name: "ops", ID: "key|ops|1", Hash: name("two"), Created: now}
		Must(t, command.Keys().Add(t.Context(), ops), command.Keys().Add(t.Context(), ci))
		if err := command.Keys().Add(t.Context(), identity.Key{Name: "ci", ID: "key|ci|2", Hash: name("three")}); !errors.Is(err, store.ErrKeyExists) {
			t.Errorf("a second key of the same name: %v", err)
		}
		if got, err := running.Keys().Find(t.Context(), ci.Hash); err != nil || !reflect.DeepEqual(got, &ci) {
			t.Errorf("Find = %+v, %v, want %+v", got, err, ci)
		}
		if got, err := running.Keys().Find(t.Context(), name("other")); got != nil || err != nil {
			t.Errorf("an unknown key is %+v, %v", got, err)
		}
		ci.Used = now.Add(time.Minute)
		Must(t, running.Keys().Used(t.Context(), map[[32]byte]time.Time{ci.Hash: ci.Used}))
		if got, err := command.Keys().All(t.Context()); err != nil || !reflect.DeepEqual(got, []identity.Key{ci, ops}) {
			t.Errorf("All = %+v, %v", got, err)
		}
		for _, want := range []*identity.Key{&ci, nil} {
			if got, err := command.Keys().Revoke(t.Context(), "ci"); !reflect.DeepEqual(got, want) || err != nil {
				t.Errorf("Revoke = %+v, %v, want %+v", got, err, want)
			}
		}
		if got, err := running.Keys().Find(t.Context(), ci.Hash); got != nil || err != nil {
			t.Errorf("a revoked key is %+v, %v", got, err)
		}
	}},
	{"a key that is revoked leaves nothing behind, and other principals keep what they have", func(t *testing.T, p place) {
		s := p.open(t)
		all := []string{"key|ci", "key|ci|2", "https://idp|alice"}
		for _, id := range all {
			own(t, s, id)
		}
		Must(t, s.Keys().Add(t.Context(), identity.Key{Name: "ci", ID: "key|ci|2", Hash: name("key"), Created: noon}))
		owners(t, s, all...)
		_, err := s.Keys().Revoke(t.Context(), "ci")
		Must(t, err)
		owners(t, s, "key|ci", "https://idp|alice")
	}},
	{"what keys had that are not there any more, or have expired, is swept away", func(t *testing.T, p place) {
		s := p.open(t)
		for _, key := range []identity.Key{
			{Name: "lasts", ID: "key|lasts", Hash: name("lasts")},
			{Name: "ends", ID: "key|ends", Hash: name("ends"), Expires: noon.Add(time.Hour)},
		} {
			Must(t, s.Keys().Add(t.Context(), key))
		}
		all := []string{"key|lasts", "key|ends", "key|gone", "alice", "https://idp|alice"}
		for _, id := range all {
			own(t, s, id)
		}
		for _, test := range []struct {
			at   time.Time
			gone []string
		}{
			{noon, []string{"key|gone"}},
			{noon.Add(time.Hour), []string{"key|gone", "key|ends"}},
		} {
			gone, err := s.Keys().Gone(t.Context(), all, test.at)
			Must(t, err, s.Keys().Sweep(t.Context(), test.at))
			slices.Sort(gone)
			if want := slices.Sorted(slices.Values(test.gone)); !slices.Equal(gone, want) {
				t.Errorf("at %s %q are gone, want %q", test.at, gone, want)
			}
			owners(t, s, slices.DeleteFunc(slices.Clone(all), func(id string) bool { return slices.Contains(test.gone, id) })...)
		}
	}},
	{"a key without an ID is refused: it would be nobody's in particular", func(t *testing.T, p place) {
		if err := p.open(t).Keys().Add(t.Context(), identity.Key{Name: "ci", Hash: name("key")}); err == nil {
			t.Error("it was stored")
		}
	}},
	{"vectors are kept while they are asked for", func(t *testing.T, p place) {
		s := p.open(t)
		many, keys := map[store.Key][]float32{}, []store.Key{}
		for i := range 266 { // more than one statement reads
			key := store.Key{byte(i), byte(i >> 8), 1}
			many[key], keys = []float32{float32(i), -0.5}, append(keys, key)
		}
		read := func(space string, want map[store.Key][]float32, keys ...store.Key) {
			t.Helper()
			if got, err := s.Vectors(t.Context(), space, keys); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("in %s: %d vectors, %v, want %d", space, len(got), err, len(want))
			}
		}
		Must(t, s.PutVectors(t.Context(), "many", many),
			s.PutVectors(t.Context(), "few", map[store.Key][]float32{{1}: {1}, {2}: {}}),
			s.PutVectors(t.Context(), "few", map[store.Key][]float32{{1}: {2}}))
		read("many", many, append(keys, store.Key{9, 9, 9})...)
		read("few", map[store.Key][]float32{{1}: {2}, {2}: {}}, store.Key{1}, store.Key{2}, store.Key{3})
		read("none", map[store.Key][]float32{}, store.Key{1})
		p.sql(t, `UPDATE vectors SET seen_on = seen_on - CASE length(vector) WHEN 0 THEN 31 WHEN 4 THEN 1 ELSE 0 END`)
		read("few", map[store.Key][]float32{{1}: {2}}, store.Key{1})
		Must(t, s.ForgetVectors(t.Context()))
		read("few", map[store.Key][]float32{{1}: {2}}, store.Key{1}, store.Key{2})
		read("many", many, keys...)
	}},
	{"segments of the index are kept while a process uses them", func(t *testing.T, p place) {
		s := p.open(t)
		stored := func(want string) {
			t.Helper()
			for begin, has := range map[string]bool{"data": true, "other": false} {
				keys := ""
				Must(t, s.Segments(t.Context(), []byte(begin), func(one store.Segment) {
					key := string(one.Key[0])
					if want := "data of " + key; has && string(one.Data) != want || !has && one.Data != nil {
						t.Errorf("segment %s has %q", key, one.Data)
					}
					keys += key
				}))
				if keys != want {
					t.Errorf("stored are %q, want %q", keys, want)
				}
			}
		}
		for _, data := range []string{"damage of ", "data of "} { // what is stored again is replaced
			for i, key := range "abc" {
				Must(t, s.PutSegment(t.Context(), store.Segment{Key: store.Key{byte(key)}, Docs: i, Data: []byte(data + string(key))}))
			}
		}
		stored("cba") // the largest first
		Must(t, s.KeepSegments(t.Context(), [][32]byte{{'b'}, {'x'}}, [][32]byte{{'a'}, {'y'}}))
		stored("cb")
		// Other processes may have used c until a week ago, where there are others.
		for _, step := range []struct {
			ago  int64
			want string
		}{{7, "cb"}, {8, "b"}} {
			p.sql(t, `UPDATE segments SET seen_on = %d`, time.Now().Unix()/(24*60*60)-step.ago)
			Must(t, s.KeepSegments(t.Context(), [][32]byte{{'b'}}, nil))
			if !store.InPostgres(p.at) {
				step.want = "cb"
			}
			stored(step.want)
		}
	}},
}

func keep(t testing.TB, s *store.Store, token, owner string, content []byte, now time.Time, ttl time.Duration) {
	t.Helper()
	Must(t, s.Outputs().Put(t.Context(), name(token), name(owner), content, now, now.Add(ttl)))
}

func output(t testing.TB, s *store.Store, token, owner string, now time.Time) []byte {
	t.Helper()
	content, err := s.Outputs().Find(t.Context(), name(token), name(owner), now)
	Must(t, err)
	return content
}

// WantSealed checks a sealed row.
func WantSealed(t testing.TB, s *store.Store, name, want string, at time.Time) {
	t.Helper()
	row, err := s.Sealed().Find(t.Context(), name)
	if err != nil || row == nil || string(row.Sealed) != want || !row.At.Equal(at) {
		t.Errorf("%s: %+v, %v; want %q", name, row, err, want)
	}
}

// own gives a principal something of each kind.
func own(t testing.TB, s *store.Store, id string) {
	t.Helper()
	owner := tool.PrincipalOwner(id)
	provision(t, s, "v", owner, tool.Provisioned{ID: tool.ID{Server: "s", Name: "a"}})
	keep(t, s, id, owner, []byte("result"), noon, time.Hour)
	Must(t, s.Usage().PutLearned(t.Context(), store.LearnedUse{Principal: id, Query: "q", Tool: tool.ID{Server: "s", Name: "a"}, Count: 1, At: noon}),
		s.Usage().PutCalled(t.Context(), "v", tool.Caller{Principal: id, Client: "c"}, []tool.Called{{Name: "a", Sessions: 1}}))
	if sessions, shared := s.Sessions(); shared {
		_, err := sessions.Put(t.Context(), store.Session{Hash: name(id), Replica: "r", View: "v", Principal: id, Initialize: []byte("{}"), State: []byte("{}")})
		Must(t, err)
	}
}

// owners checks who has something. Results and sessions are looked at where a key is revoked: they end by themselves.
func owners(t testing.TB, s *store.Store, want ...string) {
	t.Helper()
	has := map[string][]string{}
	provisions, err := s.Usage().Provisions(t.Context(), "v")
	Must(t, err)
	for _, one := range provisions {
		has["provisions"] = append(has["provisions"], one.Owner[len("principal "):])
	}
	learned, err := s.Usage().Learned(t.Context())
	Must(t, err)
	for _, one := range learned {
		has["learned"] = append(has["learned"], one.Principal)
	}
	called, err := s.Usage().Called(t.Context(), "v")
	Must(t, err)
	for by := range called {
		has["called"] = append(has["called"], by.Principal)
	}
	for _, id := range []string{"key|ci", "key|ci|2", "key|lasts", "key|ends", "key|gone", "alice", "https://idp|alice"} {
		if output(t, s, id, tool.PrincipalOwner(id), noon) != nil {
			has["outputs"] = append(has["outputs"], id)
		}
		sessions, shared := s.Sessions()
		if !shared {
			has["sessions"] = want
			continue
		}
		_, found, err := sessions.Take(t.Context(), name(id), "v", id, "r")
		Must(t, err)
		if found {
			has["sessions"] = append(has["sessions"], id)
		}
	}
	slices.Sort(want)
	for _, what := range []string{"provisions", "learned", "called", "outputs", "sessions"} {
		if got := slices.Sorted(slices.Values(has[what])); !slices.Equal(got, want) {
			t.Errorf("%s are of %q, want %q", what, got, want)
		}
	}
}
