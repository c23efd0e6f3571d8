package rate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestCallsPerMinute(t *testing.T) {
	limits := New([]Rule{{Name: "rate_limits.1", Tool: "github.*", Principals: true, PerMinute: 3}}, nil)
	call := func(who, id string, at time.Duration) error {
		server, _, _ := strings.Cut(id, ".")
		end, err := limits.Begin(Call{who, server, id}, start.Add(at))
		if err == nil {
			end()
		}
		return err
	}
	for i := range 3 {
		if err := call("alice", "github.search", 0); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	err := call("alice", "github.list", 0)
	var refused *Error
	if !errors.As(err, &refused) || refused.Wait != 20*time.Second || err.Error() != "rate limit: 3 calls a minute of github.* for each principal; wait 20 s and call again" {
		t.Fatalf("the fourth call: %v", err)
	}
	if err := call("alice", "github.list", 19*time.Second); err == nil {
		t.Error("a second too early it is let through")
	}
	for who, id := range map[string]string{"bob": "github.list", "alice": "files.read"} {
		if err := call(who, id, 0); err != nil {
			t.Errorf("%s, %s: %v", who, id, err)
		}
	}
	if err := call("alice", "github.list", 20*time.Second); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	if hits := limits.Limits()[0].Hits(); hits != 2 {
		t.Errorf("%d refusals are counted, want 2", hits)
	}
	if limits = New([]Rule{limits.rules[0].Rule}, limits); call("alice", "github.list", 20*time.Second) == nil {
		t.Error("a reload made the rule forget")
	}
}

func TestConcurrency(t *testing.T) {
	limits := New([]Rule{{Name: "b", PerMinute: 3}, {Name: "a", Server: "db", Concurrency: 2}}, nil)
	var ends []func()
	for range 2 {
		end := must.Get(limits.Begin(Call{Server: "db"}, start))(t)
		ends = append(ends, end)
	}
	if _, err := limits.Begin(Call{Server: "db"}, start); err == nil || err.Error() != "rate limit: 2 calls at once at db; call again when one of them has ended" {
		t.Fatalf("the third at once: %v", err)
	}
	ends[0]()
	if _, err := limits.Begin(Call{Server: "db"}, start); err != nil {
		t.Errorf("after one has ended: %v; a call that one rule refuses is counted by another", err)
	}
	if _, err := limits.Begin(Call{Server: "other"}, start); err == nil {
		t.Error("the fourth call of a minute is let through")
	}
}

// Principals may be many: what is counted is bounded, and those who call stay counted.
func TestCountsAreBounded(t *testing.T) {
	limits := New([]Rule{{Name: "a", Principals: true, PerMinute: 1, Concurrency: 1}}, nil)
	must.Get(limits.Begin(Call{Principal: "runs"}, start))(t)
	for i := range maxCounted + 100 {
		end := must.Get(limits.Begin(Call{Principal: fmt.Sprint(i)}, start))(t)
		end()
	}
	one := limits.rules[0]
	if n := one.recent.Len(); n != maxCounted || len(one.counts) != n {
		t.Errorf("%d are counted, %d of them listed", len(one.counts), n)
	}
	if _, err := limits.Begin(Call{Principal: "runs"}, start.Add(time.Hour)); err == nil {
		t.Error("a call that runs was forgotten")
	}
	if New(nil, limits) != nil {
		t.Error("no rules are limits")
	}
}

func BenchmarkBegin(b *testing.B) {
	limits := New([]Rule{{Name: "a", Principals: true, PerMinute: 1 << 30, Concurrency: 4}}, nil)
	for b.Loop() {
		end := must.Get(limits.Begin(Call{"alice", "github", "github.list"}, time.Now()))(b)
		end()
	}
}

// Replicas share what a rule allows; each has at least one call.
func TestReplicasShareBounds(t *testing.T) {
	rules := []Rule{{Name: "a", PerMinute: 6}, {Name: "b", Server: "db", Concurrency: 4}}
	limits := New(rules, nil)
	burst := func(server string, at time.Duration) (n int) {
		var ends []func()
		for {
			end, err := limits.Begin(Call{Server: server}, start.Add(at))
			if err != nil {
				break
			}
			ends, n = append(ends, end), n+1
		}
		for _, end := range ends {
			end()
		}
		return n
	}
	for _, step := range []struct {
		among   int
		at      time.Duration
		a, both int
	}{{1, 0, 6, 4}, {3, 3 * time.Hour, 2, 2}, {100, 6 * time.Hour, 1, 1}, {0, 9 * time.Hour, 6, 4}} {
		limits.Share(step.among, start.Add(step.at))
		limits = New(rules, limits)
		if got := burst("other", step.at+time.Hour); got != step.a {
			t.Errorf("among %d it takes %d calls, want %d", step.among, got, step.a)
		}
		if got := burst("db", step.at+2*time.Hour); got != step.both {
			t.Errorf("among %d it takes %d calls of db at once, want %d", step.among, got, step.both)
		}
	}
	(*Limits)(nil).Share(3, start)
}
