package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/tool"
)

// strict approves the first list and nothing else.
var strict = &Review{First: true, Approve: func(Unpinned) bool { return false }}

func putReviewed(t testing.TB, s *Store, srv Upstream, review *Review, defs ...*tool.Def) Diff {
	t.Helper()
	var diff Diff
	err := patiently(func() (err error) {
		diff, err = s.PutServer(t.Context(), srv, defs, review)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	diff.Version = 0
	return diff
}

// patiently does what may take too long on a busy machine, and then has changed nothing.
func patiently(do func() error) error {
	for {
		began := time.Now()
		if err := do(); !tooLate(began, err) {
			return err
		}
	}
}

// tooLate reports whether somebody has waited for another's lock since then, for as long as they may.
func tooLate(began time.Time, err error) bool {
	return time.Since(began) >= leeway.Of(patience) && (busy(err) || Passes(err) && !errors.Is(err, errUnknown))
}

// unpinned says of each definition what is listed and what was approved.
func unpinned(t testing.TB, s *Store) (out []string) {
	t.Helper()
	all, err := s.Pins().Unpinned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return said(all)
}

func said(all []Unpinned) (out []string) {
	for _, u := range all {
		out = append(out, fmt.Sprintf("%s %s %s<-%s%s", u.ID.Kind, u.ID, u.Raw, u.Approved, u.Rejected))
	}
	return out
}

func TestPins(t *testing.T) {
	a, a2, b := `{"name":"a"}`, `{"name":"a","v":2}`, `{"name":"b"}`
	prompt := func(t *testing.T, raw string) *tool.Def {
		d, err := tool.ParseKind(tool.KindPrompt, "s", []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	type step struct {
		say    string
		srv    Upstream
		review *Review
		defs   []string
		decide func(*testing.T, *Store)
		want   []string
	}
	approve := func(t *testing.T, s *Store) {
		all, err := s.Pins().Unpinned(t.Context())
		if err == nil {
			err = s.Pins().Approve(t.Context(), all, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"the first list is the baseline, and what comes after it is not", []step{
			{say: "first", review: strict, defs: []string{a}},
			{say: "changed and new", review: strict, defs: []string{a2, b}, want: []string{"tool s.a " + a2 + "<-" + a, "tool s.b " + b + "<-"}},
			{say: "back, and gone", review: strict, defs: []string{a}},
			{say: "gone", review: strict, defs: []string{b}, want: []string{"tool s.b " + b + "<-"}},
			{say: "back again", review: strict, defs: []string{a}},
		}},
		{"approved is what was listed", []step{
			{say: "first", review: strict, defs: []string{a}},
			{say: "changed", review: strict, defs: []string{a2, b}, want: []string{"tool s.a " + a2 + "<-" + a, "tool s.b " + b + "<-"}},
			{say: "approved", decide: approve},
			{say: "the first one is no more", review: strict, defs: []string{a, b}, want: []string{"tool s.a " + a + "<-" + a2}},
		}},
		{"an empty list is no baseline", []step{
			{say: "empty", review: strict},
			{say: "first", review: strict, defs: []string{a}},
			{say: "second", review: strict, defs: []string{a, b}, want: []string{"tool s.b " + b + "<-"}},
		}},
		{"the first list can be held", []step{
			{say: "first", review: &Review{Approve: strict.Approve}, defs: []string{a}, want: []string{"tool s.a " + a + "<-"}},
			{say: "approved", decide: approve},
		}},
		{"what is approved without the owner is what is approved", []step{
			{say: "first", review: strict, defs: []string{a}},
			{say: "allowed", review: &Review{First: true, Approve: func(u Unpinned) bool { return u.ID.Name == "a" }}, defs: []string{a2, b}, want: []string{"tool s.b " + b + "<-"}},
			{say: "later", review: strict, defs: []string{a}, want: []string{"tool s.a " + a + "<-" + a2}},
		}},
		{"instructions", []step{
			{say: "first", review: strict, srv: Upstream{Instructions: "be kind"}, defs: []string{a}},
			{say: "changed", review: strict, srv: Upstream{Instructions: "be rude"}, defs: []string{a}, want: []string{"instructions s.instructions be rude<-be kind"}},
			{say: "none is nothing new", review: strict, defs: []string{a}},
			{say: "back", review: strict, srv: Upstream{Instructions: "be kind"}, defs: []string{a}},
			{say: "changed", review: strict, srv: Upstream{Instructions: "be rude"}, defs: []string{a}, want: []string{"instructions s.instructions be rude<-be kind"}},
			{say: "approved", decide: approve},
		}},
		{"without a review nothing is pinned", []step{{say: "first", defs: []string{a}}, {say: "second", defs: []string{a2}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Store) {
				for _, step := range test.steps {
					if step.decide != nil {
						step.decide(t, s)
					} else {
						step.srv.Name = "s"
						diff := putReviewed(t, s, step.srv, step.review, defs(t, "s", step.defs...)...)
						if got := said(diff.Held); !slices.Equal(got, step.want) {
							t.Errorf("%s: held %q, want %q", step.say, got, step.want)
						}
					}
					if got := unpinned(t, s); !slices.Equal(got, step.want) {
						t.Errorf("%s: %q, want %q", step.say, got, step.want)
					}
				}
			})
		})
	}

	t.Run("a kind whose list failed has no baseline, and resources have none", func(t *testing.T) {
		everywhere(t, func(t *testing.T, s *Store) {
			file, err := tool.ParseKind(tool.KindResource, "s", []byte(`{"uri":"file:///a","name":"a"}`))
			if err != nil {
				t.Fatal(err)
			}
			one, two := prompt(t, `{"name":"one"}`), prompt(t, `{"name":"two"}`)
			late := *strict
			late.Unheard = []tool.Kind{tool.KindPrompt}
			putReviewed(t, s, Upstream{Name: "s"}, &late, def(t, "s", a))
			putReviewed(t, s, Upstream{Name: "s"}, strict, def(t, "s", a), one, file)
			putReviewed(t, s, Upstream{Name: "s"}, strict, def(t, "s", a), one, two)
			if got, want := unpinned(t, s), []string{`prompt s.two {"name":"two"}<-`}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	})

	t.Run("what is not stored is compared alike", func(t *testing.T) {
		everywhere(t, func(t *testing.T, s *Store) {
			putReviewed(t, s, Upstream{Name: "s", Instructions: "old"}, strict, defs(t, "s", a, b)...)
			putReviewed(t, s, Upstream{Name: "s"}, strict, defs(t, "s", a2)...)
			got, err := s.Pins().Compare(t.Context(), "s", defs(t, "s", a2, b, `{"name":"c"}`), "new", true)
			want := []string{"tool s.a " + a2 + "<-" + a, `tool s.c {"name":"c"}<-`, "instructions s.instructions new<-old"}
			if err != nil || !slices.Equal(said(got), want) {
				t.Errorf("%q, %v, want %q", said(got), err, want)
			}
			for _, first := range []bool{true, false} {
				got, err := s.Pins().Compare(t.Context(), "never met", defs(t, "s", a), "", first)
				if err != nil || (len(got) == 0) != first {
					t.Errorf("first %v: %q, %v", first, said(got), err)
				}
			}
		})
	})
}

func TestDecisionsAreAboutWhatWasShown(t *testing.T) {
	processes(t, func(t *testing.T, open func() *Store) {
		serving, deciding := open(), open()
		putReviewed(t, serving, Upstream{Name: "s", Info: []byte(`{"version":"1"}`)}, strict, defs(t, "s", `{"name":"a"}`)...)
		putReviewed(t, serving, Upstream{Name: "s", Info: []byte(`{"version":"2"}`)}, strict, defs(t, "s", `{"name":"a","v":2}`, `{"name":"b"}`)...)
		shown, err := deciding.Pins().Unpinned(t.Context())
		if err != nil || len(shown) != 2 {
			t.Fatal(shown, err)
		}
		putReviewed(t, serving, Upstream{Name: "s", Info: []byte(`{"version":"3"}`)}, strict, defs(t, "s", `{"name":"a","v":3}`, `{"name":"b"}`)...)
		if err := deciding.Pins().Approve(t.Context(), shown, ""); !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "s.a") {
			t.Errorf("approved what was not shown: %v", err)
		}
		if got := unpinned(t, serving); len(got) != 2 {
			t.Errorf("a part was approved: %q", got)
		}
		before, err := serving.Pins().Decisions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shown[1].Rejected = "mark"
		if err := deciding.Pins().Reject(t.Context(), shown[1:], ""); err != nil {
			t.Fatal(err)
		}
		if after, err := serving.Pins().Decisions(t.Context()); err != nil || after != before+1 {
			t.Errorf("the other process sees %d decisions, %v, want %d", after, err, before+1)
		}
		if got := unpinned(t, serving); len(got) != 2 || !strings.HasSuffix(got[1], "<-mark") {
			t.Errorf("rejected: %q", got)
		}
		version := func(want string) {
			t.Helper()
			if got, err := serving.Servers(t.Context()); err != nil || string(got[0].ApprovedInfo) != want {
				t.Errorf("approved as of %s, %v, want %s", got[0].ApprovedInfo, err, want)
			}
		}
		version(`{"version":"1"}`)
		shown, err = deciding.Pins().Unpinned(t.Context())
		if err == nil {
			err = deciding.Pins().Approve(t.Context(), shown, "")
		}
		if err != nil || len(unpinned(t, serving)) != 0 {
			t.Errorf("%q, %v", unpinned(t, serving), err)
		}
		version(`{"version":"3"}`)
	})
}

// Two processes that approve at the same time, while a third lists the server anew, leave
// nothing approved that is not listed.
func TestProcessesDecideAtTheSameTime(t *testing.T) {
	processes(t, func(t *testing.T, open func() *Store) {
		serving := open()
		listed := func(version int) []*tool.Def {
			var all []*tool.Def
			for i := range 20 {
				all = append(all, def(t, "s", fmt.Sprintf(`{"name":"t%d","v":%d}`, i, version)))
			}
			return all
		}
		putReviewed(t, serving, Upstream{Name: "s"}, strict, listed(0)...)
		var deciding sync.WaitGroup
		for range 2 {
			other := open()
			deciding.Go(func() {
				for range 20 {
					began := time.Now()
					shown, err := other.Pins().Unpinned(t.Context())
					if err == nil {
						err = other.Pins().Approve(t.Context(), shown, "")
					}
					if err != nil && !errors.Is(err, ErrStale) && !tooLate(began, err) {
						t.Error(err)
					}
				}
			})
		}
		for version := range 20 {
			putReviewed(t, serving, Upstream{Name: "s"}, strict, listed(version)...)
		}
		deciding.Wait()
		err := patiently(func() error {
			shown, err := serving.Pins().Unpinned(t.Context())
			if err != nil {
				return err
			}
			return serving.Pins().Approve(t.Context(), shown, "")
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := putReviewed(t, serving, Upstream{Name: "s"}, strict, listed(19)...); len(got.Held) > 0 {
			t.Errorf("approved and held: %q", said(got.Held))
		}
		if got := putReviewed(t, serving, Upstream{Name: "s"}, strict, listed(20)...); len(got.Held) != 20 || string(got.Held[0].Approved) != `{"name":"t0","v":19}` {
			t.Errorf("%d held: %q", len(got.Held), said(got.Held[:1]))
		}
	})
}

// A list and what is approved of it are stored together or not at all.
func TestAListIsNotStoredWithoutItsBaseline(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.PutServer(ctx, Upstream{Name: "s"}, somewhatReal(t, "s", 5000), &Review{Approve: func(Unpinned) bool { cancel(); return true }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("PutServer: %v", err)
		}
		if servers, err := s.Servers(t.Context()); err != nil || len(servers)+len(tools(t, s)) > 0 {
			t.Errorf("a part was stored: %v, %v", servers, err)
		}
		if diff := putReviewed(t, s, Upstream{Name: "s"}, strict, somewhatReal(t, "s", 5000)...); !diff.Baseline || len(diff.Held) > 0 {
			t.Errorf("the list after it is not the first: %d held", len(diff.Held))
		}
	})
}

func TestWhatIsGoneIsRemembered(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		putReviewed(t, s, Upstream{Name: "s"}, strict, defs(t, "s", `{"name":"a"}`, `{"name":"b"}`)...)
		putReviewed(t, s, Upstream{Name: "s"}, strict, defs(t, "s", `{"name":"b"}`)...)
		gone, err := s.Pins().Gone(t.Context(), "s")
		if err != nil || len(gone) != 1 || string(gone[0].Approved) != `{"name":"a"}` {
			t.Errorf("%q, %v", said(gone), err)
		}
		if _, err := s.KeepServers(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if gone, err := s.Pins().Gone(t.Context(), "s"); err != nil || len(gone) != 0 {
			t.Errorf("of a forgotten server: %q, %v", said(gone), err)
		}
	})
}

// Where changes are allowed, a server that lists ever new names leaves nothing behind.
func TestWhatIsGoneIsForgottenWhereChangesAreAllowed(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		allow := &Review{First: true, Forget: true, Approve: func(Unpinned) bool { return true }}
		for i := range 3 {
			putReviewed(t, s, Upstream{Name: "s", Instructions: "Be kind."}, allow, def(t, "s", fmt.Sprintf(`{"name":"t%d"}`, i)))
		}
		var left int
		if err := s.db.QueryRow(`SELECT count(*) FROM pins`).Scan(&left); err != nil || left != 2 {
			t.Errorf("%d are approved, want one tool and the instructions: %v", left, err)
		}
		if gone, err := s.Pins().Gone(t.Context(), "s"); err != nil || len(gone) > 0 {
			t.Errorf("gone are %v, %v", gone, err)
		}
	})
}

func TestWhatWasKnownBeforeThereWerePinsIsTheBaseline(t *testing.T) {
	dir := t.TempDir()
	names, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	before := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "_pins.sql") })
	var old strings.Builder
	for _, name := range names[:before] {
		statements, err := migrations.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		old.Write(statements)
	}
	listed := def(t, "s", `{"name":"a"}`)
	for _, server := range []string{"s", "unchecked", "empty"} {
		fmt.Fprintf(&old, `INSERT INTO servers (name, era, instructions, updated_at, checked) VALUES ('%s', 'legacy', 'Use it.', 5, %v);`, server, server != "unchecked")
		if server != "empty" {
			fmt.Fprintf(&old, `INSERT INTO tools (server, name, position, hash, first_seen, last_seen, raw) VALUES ('%s', 'a', 0, '%s', 1, 2, CAST('%s' AS BLOB));`, server, listed.Hash, listed.Raw)
		}
	}
	fmt.Fprintf(&old, `PRAGMA user_version = %d`, before)
	execute(t, filepath.Join(dir, fileName), old.String())

	s := open(t, dir)
	if got := unpinned(t, s); len(got) != 0 {
		t.Errorf("after the migration: %q", got)
	}
	for server, want := range map[string][]string{
		"s":         {`tool s.a {"name":"a","v":2}<-{"name":"a"}`, "instructions s.instructions Obey it.<-Use it."},
		"unchecked": nil, // what is stored was not taken in as lists are now: the next list is the first
		"empty":     nil,
	} {
		diff := putReviewed(t, s, Upstream{Name: server, Instructions: "Obey it."}, strict, def(t, server, `{"name":"a","v":2}`))
		if got := said(diff.Held); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", server, got, want)
		}
	}
}
