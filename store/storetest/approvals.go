package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/store"
	"toolfinch/tool"
)

// approvals are the promises about what of the lists is approved.
var approvals = []promise{
	{"what changed since it was approved is held", func(t *testing.T, p place) {
		s := p.open(t)
		const a, a2, b = `{"name":"a"}`, `{"name":"a","v":2}`, `{"name":"b"}`
		type step struct {
			say     string
			srv     store.Upstream
			review  *store.Review
			defs    []string
			approve bool // what is held, in place of a list
			want    []string
		}
		for i, test := range []struct {
			name  string
			steps []step
		}{
			{"the first list is the baseline, and what comes after it is not", []step{
				{say: "first", review: Strict, defs: []string{a}},
				{say: "changed and new", review: Strict, defs: []string{a2, b}, want: []string{"tool S.a " + a2 + "<-" + a, "tool S.b " + b + "<-"}},
				{say: "back, and gone", review: Strict, defs: []string{a}},
				{say: "gone", review: Strict, defs: []string{b}, want: []string{"tool S.b " + b + "<-"}},
				{say: "back again", review: Strict, defs: []string{a}},
			}},
			{"approved is what was listed", []step{
				{say: "first", review: Strict, defs: []string{a}},
				{say: "changed", review: Strict, defs: []string{a2, b}, want: []string{"tool S.a " + a2 + "<-" + a, "tool S.b " + b + "<-"}},
				{say: "approved", approve: true},
				{say: "the first one is no more", review: Strict, defs: []string{a, b}, want: []string{"tool S.a " + a + "<-" + a2}},
			}},
			{"an empty list is no baseline", []step{
				{say: "empty", review: Strict},
				{say: "first", review: Strict, defs: []string{a}},
				{say: "second", review: Strict, defs: []string{a, b}, want: []string{"tool S.b " + b + "<-"}},
			}},
			{"the first list can be held", []step{
				{say: "first", review: &store.Review{Approve: Strict.Approve}, defs: []string{a}, want: []string{"tool S.a " + a + "<-"}},
				{say: "approved", approve: true},
			}},
			{"what the review approves is approved", []step{
				{say: "first", review: Strict, defs: []string{a}},
				{say: "allowed", review: &store.Review{First: true, Approve: func(u store.Unpinned) bool { return u.ID.Name == "a" }}, defs: []string{a2, b}, want: []string{"tool S.b " + b + "<-"}},
				{say: "later", review: Strict, defs: []string{a}, want: []string{"tool S.a " + a + "<-" + a2}},
			}},
			{"instructions", []step{
				{say: "first", review: Strict, srv: store.Upstream{Instructions: "be kind"}, defs: []string{a}},
				{say: "changed", review: Strict, srv: store.Upstream{Instructions: "be rude"}, defs: []string{a}, want: []string{"instructions S.instructions be rude<-be kind"}},
				{say: "none is nothing new", review: Strict, defs: []string{a}},
				{say: "back", review: Strict, srv: store.Upstream{Instructions: "be kind"}, defs: []string{a}},
				{say: "changed again", review: Strict, srv: store.Upstream{Instructions: "be rude"}, defs: []string{a}, want: []string{"instructions S.instructions be rude<-be kind"}},
				{say: "approved", approve: true},
			}},
			{"without a review nothing is held", []step{{say: "first", defs: []string{a}}, {say: "second", defs: []string{a2}}}},
		} {
			server := fmt.Sprint("s", i)
			for _, step := range test.steps {
				for i := range step.want {
					step.want[i] = strings.Replace(step.want[i], "S.", server+".", 1)
				}
				if step.approve {
					Must(t, s.Pins().Approve(t.Context(), unpinned(t, s)))
				} else {
					step.srv.Name = server
					if got := said(List(t, s, step.srv, step.review, Defs(t, server, step.defs...)...).Held); !slices.Equal(got, step.want) {
						t.Errorf("%s: %s: held %q, want %q", test.name, step.say, got, step.want)
					}
				}
				if got := said(unpinned(t, s)); !slices.Equal(got, step.want) {
					t.Errorf("%s: %s: %q, want %q", test.name, step.say, got, step.want)
				}
			}
			keepServers(t, s)
		}
	}},
	{"a kind whose list failed has no baseline, and resources have none", func(t *testing.T, p place) {
		s := p.open(t)
		a, file := Def(t, "s", `{"name":"a"}`), ofKind(t, tool.KindResource, "s", `{"uri":"file:///a","name":"a"}`)
		one, two := ofKind(t, tool.KindPrompt, "s", `{"name":"one"}`), ofKind(t, tool.KindPrompt, "s", `{"name":"two"}`)
		late := *Strict
		late.Unheard = []tool.Kind{tool.KindPrompt}
		List(t, s, store.Upstream{Name: "s"}, &late, a)
		List(t, s, store.Upstream{Name: "s"}, Strict, a, one, file)
		List(t, s, store.Upstream{Name: "s"}, Strict, a, one, two)
		if got, want := said(unpinned(t, s)), []string{`prompt s.two {"name":"two"}<-`}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}},
	{"a list that is not stored is compared alike", func(t *testing.T, p place) {
		s := p.open(t)
		const a, a2, b = `{"name":"a"}`, `{"name":"a","v":2}`, `{"name":"b"}`
		List(t, s, store.Upstream{Name: "s", Instructions: "old"}, Strict, Defs(t, "s", a, b)...)
		List(t, s, store.Upstream{Name: "s"}, Strict, Defs(t, "s", a2)...)
		got, err := s.Pins().Compare(t.Context(), "s", Defs(t, "s", a2, b, `{"name":"c"}`), "new", true)
		want := []string{"tool s.a " + a2 + "<-" + a, `tool s.c {"name":"c"}<-`, "instructions s.instructions new<-old"}
		if err != nil || !slices.Equal(said(got), want) {
			t.Errorf("%q, %v, want %q", said(got), err, want)
		}
		for _, first := range []bool{true, false} {
			for instructions, held := range map[string]int{"": 1, "be kind": 2} {
				if first {
					held = 0
				}
				if got, err := s.Pins().Compare(t.Context(), "never met", Defs(t, "s", a), instructions, first); err != nil || len(got) != held {
					t.Errorf("first %v, instructions %q: %q, %v", first, instructions, said(got), err)
				}
			}
		}
		for _, instructions := range []string{"old", ""} {
			if got, err := s.Pins().Compare(t.Context(), "s", Defs(t, "s", a, b), instructions, true); err != nil || len(got) > 0 {
				t.Errorf("what is approved, with the instructions %q: %q, %v", instructions, said(got), err)
			}
		}
	}},
	{"a decision is about what was shown", func(t *testing.T, p place) {
		serving, deciding := p.open(t), p.open(t)
		list := func(version string, defs ...string) {
			List(t, serving, store.Upstream{Name: "s", Info: []byte(version)}, Strict, Defs(t, "s", defs...)...)
		}
		approvedAs := func(want string) {
			t.Helper()
			if got, err := serving.Servers(t.Context()); err != nil || string(got[0].ApprovedInfo) != want {
				t.Errorf("approved as of %s, %v, want %s", got[0].ApprovedInfo, err, want)
			}
		}
		list(`{"version":"1"}`, `{"name":"a"}`)
		list(`{"version":"2"}`, `{"name":"a","v":2}`, `{"name":"b"}`)
		shown := unpinned(t, deciding)
		list(`{"version":"3"}`, `{"name":"a","v":3}`, `{"name":"b"}`)
		if err := deciding.Pins().Approve(t.Context(), shown); !errors.Is(err, store.ErrStale) || !strings.Contains(err.Error(), "s.a") {
			t.Errorf("approved what was not shown: %v", err)
		}
		if got := unpinned(t, serving); len(got) != 2 {
			t.Errorf("a part was approved: %q", said(got))
		}
		before, err := serving.Pins().Decisions(t.Context())
		shown[1].Rejected = "mark"
		Must(t, err, deciding.Pins().Reject(t.Context(), shown[1:]))
		if after, err := serving.Pins().Decisions(t.Context()); err != nil || after != before+1 {
			t.Errorf("the other process sees %d decisions, %v, want %d", after, err, before+1)
		}
		if got := said(unpinned(t, serving)); len(got) != 2 || !strings.HasSuffix(got[1], "<-mark") {
			t.Errorf("rejected: %q", got)
		}
		approvedAs(`{"version":"1"}`)
		Must(t, deciding.Pins().Approve(t.Context(), unpinned(t, deciding)))
		if got := said(unpinned(t, serving)); len(got) > 0 {
			t.Errorf("after all was approved: %q", got)
		}
		approvedAs(`{"version":"3"}`)
	}},
	{"two approve at once while a third lists: nothing is approved that was not listed", func(t *testing.T, p place) {
		serving := p.open(t)
		const rounds = 6
		list := func(version int) store.Diff {
			var defs []*tool.Def
			for i := range 5 {
				defs = append(defs, Def(t, "s", fmt.Sprintf(`{"name":"t%d","v":%d}`, i, version)))
			}
			return List(t, serving, store.Upstream{Name: "s"}, Strict, defs...)
		}
		approve := func(s *store.Store) error {
			return patiently(func() error {
				shown, err := s.Pins().Unpinned(t.Context())
				if err == nil {
					err = s.Pins().Approve(t.Context(), shown)
				}
				return err
			})
		}
		list(0)
		var deciding sync.WaitGroup
		for range 2 {
			other := p.open(t)
			deciding.Go(func() {
				for range rounds {
					if err := approve(other); err != nil && !errors.Is(err, store.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		for version := range rounds {
			list(version)
		}
		deciding.Wait()
		Must(t, approve(serving))
		if got := list(rounds - 1); len(got.Held) > 0 {
			t.Errorf("approved and held: %q", said(got.Held))
		}
		if got := list(rounds); len(got.Held) != 5 || string(got.Held[0].Approved) != fmt.Sprintf(`{"name":"t0","v":%d}`, rounds-1) {
			t.Errorf("held: %q", said(got.Held))
		}
	}},
	{"a list is not stored without its baseline", func(t *testing.T, p place) {
		s := p.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.PutServer(ctx, store.Upstream{Name: "s"}, Many(t, "s", 300), &store.Review{Approve: func(store.Unpinned) bool { cancel(); return true }})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("PutServer: %v", err)
		}
		if servers, err := s.Servers(t.Context()); err != nil || len(servers)+len(IDs(t, s)) > 0 {
			t.Errorf("a part was stored: %v, %v", servers, err)
		}
		if diff := List(t, s, store.Upstream{Name: "s"}, Strict, Many(t, "s", 300)...); !diff.Baseline || len(diff.Held) > 0 {
			t.Errorf("the list after it is not the first: %d held", len(diff.Held))
		}
	}},
	{"what is gone stays approved", func(t *testing.T, p place) {
		s := p.open(t)
		a, a2, b := Def(t, "s", `{"name":"a"}`), Def(t, "s", `{"name":"a","v":2}`), Def(t, "s", `{"name":"b"}`)
		list := func(instructions string, defs ...*tool.Def) []string {
			return said(List(t, s, store.Upstream{Name: "s", Instructions: instructions}, Strict, defs...).Held)
		}
		list("be kind", a, b)
		for _, test := range []struct {
			name string
			do   func() // before a list of both
		}{
			{"it was not listed", func() { list("", b) }},
			{"its server was not named", func() { keepServers(t, s) }},
			{"neither of them", func() { list("", b); keepServers(t, s) }},
		} {
			test.do()
			if held := list("be kind", a, b); len(held) > 0 {
				t.Errorf("%s: what came back unchanged is held: %q", test.name, held)
			}
			test.do()
			want := []string{`tool s.a {"name":"a","v":2}<-{"name":"a"}`, "instructions s.instructions be rude<-be kind"}
			if held := list("be rude", a2, b); !slices.Equal(held, want) {
				t.Errorf("%s: held %q, want %q", test.name, held, want)
			}
		}
		keepServers(t, s)
		if got := unpinned(t, s); len(got) > 0 {
			t.Errorf("of a server that is not named %q is held", said(got))
		}
	}},
	{"where changes are allowed, a server that lists ever new names leaves nothing behind", func(t *testing.T, p place) {
		s := p.open(t)
		allow := &store.Review{First: true, Forget: true, Approve: func(store.Unpinned) bool { return true }}
		for i := range 3 {
			List(t, s, store.Upstream{Name: "s", Instructions: "Be kind."}, allow, Def(t, "s", fmt.Sprintf(`{"name":"t%d"}`, i)))
		}
		if left := p.sql(t, `SELECT count(*) FROM pins`); left != 2 {
			t.Errorf("%d are approved, want one tool and the instructions", left)
		}
	}},
}

func unpinned(t testing.TB, s *store.Store) []store.Unpinned {
	t.Helper()
	all, err := s.Pins().Unpinned(t.Context())
	Must(t, err)
	return all
}

// said says of each definition what is listed and what was approved.
func said(all []store.Unpinned) (out []string) {
	for _, u := range all {
		out = append(out, fmt.Sprintf("%s %s %s<-%s%s", u.ID.Kind, u.ID, u.Raw, u.Approved, u.Rejected))
	}
	return out
}
