package store_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/store"
	. "toolfinch/store/storetest"
	"toolfinch/tool"
)

var then = time.UnixMilli(1767268800000)

// join has a replica be there.
func join(t *testing.T, s *store.Store, id string, leads ...string) *store.Membership {
	t.Helper()
	member, err := s.Replicas().Join(t.Context())
	Must(t, err)
	t.Cleanup(func() { member.Close() })
	tell(t, member, id, leads...)
	return member
}

func tell(t *testing.T, member *store.Membership, id string, leads ...string) []store.Replica {
	t.Helper()
	all, err := member.Tell(t.Context(), store.Replica{ID: id, Name: "host", Version: "v1", Leads: leads})
	Must(t, err)
	return all
}

func wantReplicas(t *testing.T, all []store.Replica, want ...string) {
	t.Helper()
	var got []string
	for _, replica := range all {
		got = append(got, replica.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("there are %v, want %v", got, want)
	}
}

// lead waits until a replica leads a server.
func lead(t *testing.T, member *store.Membership, server string) {
	t.Helper()
	await.True(t, func() bool {
		got, err := member.Lead(t.Context(), []string{server})
		return err == nil && len(got) == 1
	})
}

// A replica is there, and leads, as long as its connection is there; what it listed does not replace what
// the next leader of the server has written.
func TestReplicas(t *testing.T) {
	at := postgres.Start(t)
	one, two, three, command := Open(t, with(at, "application_name", "stopped")), Open(t, at), Open(t, at), Open(t, at)
	a, b := join(t, one, "a"), join(t, two, "b")
	list := func(s *store.Store, stored bool) {
		t.Helper()
		_, err := s.PutServer(t.Context(), store.Upstream{Name: "x"}, nil, nil)
		if (err == nil) != stored || err != nil && (!store.Transient(err) || store.Level(err) != slog.LevelDebug) {
			t.Errorf("the list is stored: %v", err)
		}
	}
	list(one, false)
	lead(t, a, "x")
	list(one, true)
	list(two, false)
	if got, err := b.Lead(t.Context(), []string{"x"}); err != nil || len(got) > 0 {
		t.Errorf("the other one leads %v, %v", got, err)
	}
	tell(t, a, "a", "x")
	all := tell(t, b, "b")
	wantReplicas(t, all, "a", "b")
	if r := all[0]; !slices.Equal(r.Leads, []string{"x"}) || r.Name != "host" || r.Version != "v1" || r.Started.IsZero() {
		t.Errorf("a is %+v", r)
	}
	// A database that stores nothing at present keeps its replicas.
	pg.Exec(t, at, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no space' USING ERRCODE = '53100'; END$$;
		CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON replicas EXECUTE FUNCTION full_disk()`)
	all = tell(t, join(t, three, "c"), "c")
	wantReplicas(t, all, "a", "b", "c")
	if got, err := b.Lead(t.Context(), []string{"x"}); err != nil || len(got) > 0 {
		t.Errorf("x is not led any more: %v, %v", got, err)
	}
	pg.Exec(t, at, `DROP TRIGGER full_disk ON replicas`)
	// It ends without a word.
	pg.Exec(t, at, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stopped'`)
	lead(t, b, "x")
	list(one, false)
	list(two, true)
	list(command, true) // it is no replica
	all, err := command.Replicas().All(t.Context())
	Must(t, err)
	wantReplicas(t, all, "b") // what c said of itself was not stored
}

// Whatever other processes have in memory is notified when it changes, once for each
// transaction, and not when it stays as it was.
func TestChangesAreNotified(t *testing.T) {
	s := Open(t, postgres.Start(t))
	l, err := s.Replicas().Listen(t.Context())
	Must(t, err)
	defer l.Close()
	x, x2, y := Def(t, "a", `{"name":"x"}`), Def(t, "a", `{"name":"x","v":2}`), Def(t, "a", `{"name":"y"}`)
	list := func(defs ...*tool.Def) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.PutServer(ctx, store.Upstream{Name: "a", Instructions: "Use it."}, defs, Strict)
			return err
		}
	}
	changed := func(kind string) []store.Notice { return []store.Notice{{Topic: store.Topic{Kind: kind}}} }
	server := []store.Notice{{Topic: store.Topic{Kind: store.TopicServer, Key: "a"}}}
	versions := map[store.Topic]int64{}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
		want []store.Notice // without versions
	}{
		{"a first list", list(x, y), server},
		{"the same list", list(x, y), nil},
		{"in another order", list(y, x), server},
		{"a changed definition", list(y, x2), server},
		{"it is approved", func(ctx context.Context) error {
			all, err := s.Pins().Unpinned(ctx)
			return errors.Join(err, s.Pins().Approve(ctx, all))
		}, server},
		{"a tool is gone", list(x2), server},
		{"it asks clients", func(ctx context.Context) error { return s.Asks(ctx, "a") }, server},
		{"it asks them again", func(ctx context.Context) error { return s.Asks(ctx, "a") }, nil},
		{"it is forgotten", func(ctx context.Context) error { _, err := s.KeepServers(ctx, nil); return err }, server},
		{"provisioned", func(ctx context.Context) error {
			return s.Usage().ChangeProvisions(ctx, "v", `o"1`, func([]tool.Provisioned) ([]tool.Provisioned, error) {
				return []tool.Provisioned{{ID: x.ID}, {ID: y.ID}}, nil
			})
		}, []store.Notice{{Topic: store.Topic{Kind: store.TopicProvisions}, Detail: `["v", "o\"1"]`}}},
		{"learned", func(ctx context.Context) error {
			return s.Usage().PutLearned(ctx, store.LearnedUse{Query: "q", Tool: x.ID, Count: 1, At: then})
		}, changed(store.TopicLearned)},
		{"called", func(ctx context.Context) error {
			return s.Usage().PutCalled(ctx, "v", tool.Caller{Client: "c"}, []tool.Called{{Name: "x", Sessions: 1}})
		}, changed(store.TopicCalled)},
		{"embedded", func(ctx context.Context) error {
			return s.PutVectors(ctx, "m", map[store.Key][]float32{{1}: {1}, {2}: {1}})
		}, changed(store.TopicVectors)},
		{"a key is made", func(ctx context.Context) error {
			return s.Keys().Add(ctx, identity.Key{Name: "k", ID: "key|k", Hash: [32]byte{1}})
		}, changed(store.TopicKeys)},
		{"and revoked, with all that it had", func(ctx context.Context) error { _, err := s.Keys().Revoke(ctx, "k"); return err },
			slices.Concat(changed(store.TopicKeys), changed(store.TopicLearned), changed(store.TopicCalled))},
		{"to be listed", func(ctx context.Context) error { return s.Replicas().Relist(ctx, "a") }, []store.Notice{{Topic: store.Topic{Kind: store.TopicRelist, Key: "a"}}}},
	} {
		Must(t, step.do(t.Context()), s.Replicas().Notify(t.Context(), store.Topic{Kind: "end"}, ""))
		var got []store.Notice
		for {
			n, err := l.Next(t.Context())
			Must(t, err)
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
}
