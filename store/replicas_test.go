package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
	"toolfinch/tool"
	"toolfinch/trust"
)

// sit opens a connection by which a replica is there.
func sit(t *testing.T, s *Store, id string) (*Membership, []Replica, func(string) bool) {
	t.Helper()
	session, err := s.Replicas().Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	all, led := told(t, session, id)
	return session, all, led
}

func told(t *testing.T, s *Membership, id string, leads ...string) (ids []Replica, led func(string) bool) {
	t.Helper()
	all, led, err := s.Tell(t.Context(), Replica{ID: id, Name: "host", Version: "v1", Leads: leads})
	if err != nil {
		t.Fatal(err)
	}
	return all, led
}

func idsOf(all []Replica) (ids []string) {
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	return ids
}

// A replica is there, and leads, as long as its connection is there.
func TestReplicas(t *testing.T) {
	url := postgres.Start(t)
	one, two := open(t, url), open(t, url)
	a, all, led := sit(t, one, "a")
	if got := idsOf(all); !slices.Equal(got, []string{"a"}) || led("x") {
		t.Errorf("at first there are %v", got)
	}
	b, _, _ := sit(t, two, "b")
	lead := func(s *Membership, want ...string) {
		t.Helper()
		got, err := s.Lead(t.Context(), []string{"x", "y"})
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("it leads %v, %v; want %v", got, err, want)
		}
	}
	lead(a, "x", "y")
	lead(b)
	all, led = told(t, b, "b")
	if got := idsOf(all); !slices.Equal(got, []string{"a", "b"}) || !led("x") || !led("y") || led("z") {
		t.Errorf("there are %v; x is led: %t", got, led("x"))
	}
	told(t, a, "a", "x", "y")
	all, _ = told(t, b, "b")
	if r := all[0]; !slices.Equal(r.Leads, []string{"x", "y"}) || r.Name != "host" || r.Version != "v1" || r.Started.IsZero() || r.Up < 0 || r.Up > time.Hour {
		t.Errorf("a is %+v", r)
	}
	ending := all[0]
	ending.Ending = true
	if all, _, err := a.Tell(t.Context(), ending); err != nil || !all[0].Ending || !slices.Equal(all[0].Leads, []string{"x", "y"}) || all[1].Ending {
		t.Errorf("after a has said that it is about to end: %+v, %v", all, err)
	}
	if err := a.Leave(t.Context(), []string{"y"}); err != nil {
		t.Fatal(err)
	}
	lead(b, "y")
	// It ends without a word.
	if err := a.conn.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool {
		got, err := b.Lead(t.Context(), []string{"x"})
		return err == nil && len(got) == 1
	})
	if all, _ := told(t, b, "b"); !slices.Equal(idsOf(all), []string{"b"}) {
		t.Errorf("after a has gone there are %v", idsOf(all))
	}
	if all, err := one.Replicas().All(t.Context()); err != nil || !slices.Equal(idsOf(all), []string{"b"}) {
		t.Errorf("All = %v, %v", idsOf(all), err)
	}
	// Its row goes with time.
	if _, err := one.db.Exec(`UPDATE replicas SET seen_at = seen_at - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	told(t, b, "b", "x", "y")
	var n int
	if err := one.db.QueryRow(`SELECT count(*) FROM replicas`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if all, err := one.Replicas().All(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after both have gone: %v, %v", all, err)
	}
	if sqlite := open(t, t.TempDir()); sqlite.Replicas() != nil {
		t.Error("a store in SQLite has replicas")
	}
}

// A database that stores nothing at present keeps its replicas, and who leads what.
func TestReplicasOfADatabaseThatStoresNothing(t *testing.T) {
	s := open(t, postgres.Start(t))
	a, _, _ := sit(t, s, "a")
	if _, err := s.db.Exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no space' USING ERRCODE = '53100'; END$$`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(`CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON replicas EXECUTE FUNCTION full_disk()`); err != nil {
		t.Fatal(err)
	}
	if got, err := a.Lead(t.Context(), []string{"x"}); err != nil || len(got) != 1 {
		t.Fatalf("it leads %v, %v", got, err)
	}
	if all, led := told(t, a, "a", "x"); !slices.Equal(idsOf(all), []string{"a"}) || !led("x") {
		t.Errorf("there are %v; x is led: %t", idsOf(all), led("x"))
	}
	b, all, led := sit(t, s, "b")
	if !slices.Equal(idsOf(all), []string{"a", "b"}) || !led("x") {
		t.Errorf("for one that came there are %v; x is led: %t", idsOf(all), led("x"))
	}
	if _, err := s.db.Exec(`DROP TRIGGER full_disk ON replicas`); err != nil {
		t.Fatal(err)
	}
	told(t, b, "b")
	if all, _ := told(t, a, "a", "x"); !slices.Equal(idsOf(all), []string{"a", "b"}) || !slices.Equal(all[0].Leads, []string{"x"}) {
		t.Errorf("once it stores again there are %+v", all)
	}
	// Some hosters have a database that is nearly full refuse what does not insist.
	if _, err := s.db.Exec(`DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END$$`); err != nil {
		t.Fatal(err)
	}
	sit(t, s, "c")
	if all, _ := told(t, a, "a", "x"); !slices.Equal(idsOf(all), []string{"a", "b", "c"}) {
		t.Errorf("after one has come to a database whose transactions only read, there are %v", idsOf(all))
	}
}

// The locks of a standby keep nobody out who uses the database itself.
func TestAStandbyHasNoReplicas(t *testing.T) {
	cluster := postgres.New(t)
	s := open(t, cluster.Database(t))
	sit(t, s, "a")
	cluster.Standby(t)
	await.True(t, func() bool {
		_, err := s.Replicas().Join(t.Context())
		return err != nil && strings.Contains(err.Error(), "it is a standby")
	})
}

// What a replica has listed that was stopped for a while does not replace what the next leader of
// the server has written.
func TestWhoLeadsAServerNoMoreDoesNotWriteItsList(t *testing.T) {
	url := postgres.Start(t)
	stopped, next, command := open(t, url), open(t, url), open(t, url)
	one, _, _ := sit(t, stopped, "a")
	two, _, _ := sit(t, next, "b")
	put := func(s *Store, want error) {
		t.Helper()
		if _, err := s.PutServer(t.Context(), Upstream{Name: "x"}, nil, nil); !errors.Is(err, want) {
			t.Errorf("the list is stored: %v, want %v", err, want)
		} else if want != nil && (!Passes(err) || Level(err) != slog.LevelDebug) {
			t.Errorf("%v does not pass, though this replica may lead the server again", err)
		}
	}
	lead := func(s *Membership) {
		t.Helper()
		await.True(t, func() bool { got, err := s.Lead(t.Context(), []string{"x"}); return err == nil && len(got) == 1 })
	}
	put(stopped, errNotLed)
	lead(one)
	put(stopped, nil)
	put(next, errNotLed)
	if err := one.conn.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	lead(two)
	put(stopped, errNotLed)
	put(next, nil)
	put(command, nil) // it is no replica
}

// Whatever other processes have in memory is notified when it changes, once for each
// transaction, and not when it stays as it was.
func TestChangesAreNotified(t *testing.T) {
	s := open(t, postgres.Start(t))
	l, err := s.Replicas().Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	x, x2 := def(t, "a", `{"name":"x"}`), def(t, "a", `{"name":"x","v":2}`)
	y := def(t, "a", `{"name":"y"}`)
	a := func() Upstream { return Upstream{Name: "a", Instructions: "Use it."} }
	server := Notice{Topic: Topic{TopicServer, "a"}}
	versions := map[Topic]int64{}
	for _, step := range []struct {
		what string
		do   func() error
		want []Notice // without versions
	}{
		{"a first list", func() error { putReviewed(t, s, a(), strict, x, y); return nil }, []Notice{server}},
		{"the same list", func() error { putReviewed(t, s, a(), strict, x, y); return nil }, nil},
		{"in another order", func() error { putReviewed(t, s, a(), strict, y, x); return nil }, []Notice{server}},
		{"a changed definition", func() error { putReviewed(t, s, a(), strict, y, x2); return nil }, []Notice{server}},
		{"it is approved", func() error {
			all, err := s.Pins().Unpinned(t.Context())
			if err == nil {
				err = s.Pins().Approve(t.Context(), all, "")
			}
			return err
		}, []Notice{server}},
		{"a tool is gone", func() error { putReviewed(t, s, a(), strict, x2); return nil }, []Notice{server}},
		{"it asks clients", func() error { return s.Asks(t.Context(), "a") }, []Notice{server}},
		{"it asks them again", func() error { return s.Asks(t.Context(), "a") }, nil},
		{"it is forgotten", func() error { _, err := s.KeepServers(t.Context(), nil); return err }, []Notice{server}},
		{"provisioned", func() error {
			return putProvisions(s, t.Context(), "v", `o"1`, []tool.Provisioned{never(`o"1`, "a", "x"), never(`o"1`, "a", "y")})
		}, []Notice{{Topic: Topic{Kind: TopicProvisions}, Detail: `["v", "o\"1"]`}}},
		{"learned", func() error {
			return s.Usage().PutLearned(t.Context(), LearnedUse{Query: "q", Tool: tool.ID{Server: "a", Name: "x"}, Count: 1, At: time.Now()})
		}, []Notice{{Topic: Topic{Kind: TopicLearned}}}},
		{"called", func() error {
			return s.Usage().PutCalled(t.Context(), "v", tool.Caller{Client: "c"}, []tool.Called{{Name: "x", Sessions: 1}})
		}, []Notice{{Topic: Topic{Kind: TopicCalled}}}},
		{"embedded", func() error { return s.PutVectors(t.Context(), "m", map[Key][]float32{{1}: {1}, {2}: {1}}) }, []Notice{{Topic: Topic{Kind: TopicVectors}}}},
		{"a key is made", func() error { return s.Keys().Add(t.Context(), trust.Key{Name: "k", Hash: sha256.Sum256([]byte("k"))}) }, []Notice{{Topic: Topic{Kind: TopicKeys}}}},
		{"and revoked", func() error { _, err := s.Keys().Revoke(t.Context(), "k"); return err }, []Notice{{Topic: Topic{Kind: TopicKeys}}}},
		{"to be listed", func() error { return s.Replicas().Relist(t.Context(), "a") }, []Notice{{Topic: Topic{TopicRelist, "a"}}}},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if err := s.Replicas().Ask(t.Context(), Topic{Kind: "end"}, ""); err != nil {
			t.Fatal(err)
		}
		var got []Notice
		for {
			n, err := l.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Kind == "end" {
				break
			}
			if n.Version == versions[n.Topic] {
				t.Errorf("%s: %v has the version it had", step.what, n.Topic)
			}
			versions[n.Topic] = n.Version
			n.Version = 0
			got = append(got, n)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: notified %v, want %v", step.what, got, step.want)
		}
	}
	if got, err := l.Versions(t.Context()); err != nil || !maps.Equal(got, versions) {
		t.Errorf("the versions are %v, %v; want %v", got, err, versions)
	}
	// Who stores a list is told the version of its own notification.
	for _, def := range []*tool.Def{x, x2, x2} {
		diff, err := s.PutServer(t.Context(), a(), []*tool.Def{def}, strict)
		if err != nil {
			t.Fatal(err)
		}
		if same := versions[server.Topic] != 0 && diff.Version == 0; same {
			versions[server.Topic] = 0
			continue
		}
		if n, err := l.Next(t.Context()); err != nil || n.Topic != server.Topic || n.Version != diff.Version {
			t.Errorf("stored version %d, notified %v, %v", diff.Version, n, err)
		}
	}
	if versions[server.Topic] != 0 {
		t.Error("a list that changes nothing has a version of its own")
	}
	// A wait that ends leaves the connection as it was.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	if n, err := l.Next(ctx); err == nil {
		t.Errorf("heard of %v", n)
	}
	cancel()
	if err := s.Replicas().Ask(t.Context(), Topic{TopicRelist, "a"}, ""); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Next(t.Context()); err != nil || n.Kind != TopicRelist {
		t.Errorf("after a wait that ended: %v, %v", n, err)
	}
}
