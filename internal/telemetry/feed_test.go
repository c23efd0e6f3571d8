package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
)

// call has an operation of a name begin and end.
func call(f *telemetry.Feed, name, outcome string) *telemetry.Operation {
	_, running := f.Begin(context.Background(), telemetry.Operation{Kind: identity.EventCall, Name: name})
	return running.End(outcome, "", 0)
}

func TestOwnShareIsTheWholeWithoutTheTimeOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := telemetry.NewFeed()
		ctx, outer := f.Begin(t.Context(), telemetry.Operation{Name: "composite"})
		time.Sleep(time.Millisecond)
		_, hooked := telemetry.Start(ctx, telemetry.StageHook, "mask")
		time.Sleep(2 * time.Millisecond)
		hooked(errors.New("it failed"))
		var steps sync.WaitGroup // two at once: 10 ms together
		for _, step := range []struct {
			name string
			took time.Duration
		}{{"a", 4 * time.Millisecond}, {"b", 10 * time.Millisecond}} {
			steps.Go(func() {
				ctx, inner := f.Begin(ctx, telemetry.Operation{Name: step.name, Depth: 1})
				_, called := telemetry.Start(ctx, telemetry.StageUpstream, "up."+step.name)
				time.Sleep(step.took)
				called(nil)
				if done := inner.End(identity.Success, "", 1); done.Own != 0 || done.Duration != step.took || len(done.Stages) != 1 {
					t.Errorf("%s: %+v", step.name, done)
				}
			})
		}
		steps.Wait()
		_, held := telemetry.Start(ctx, telemetry.StageHold, "")
		time.Sleep(20 * time.Millisecond)
		held(nil)
		done := outer.End(identity.Success, "", 3)
		if done.Duration != 33*time.Millisecond || done.Own != 3*time.Millisecond {
			t.Errorf("it took %s, %s of them ours; want 33ms and 3ms", done.Duration, done.Own)
		}
		if len(done.Stages) != 4 || done.Stages[0] != (telemetry.Stage{Name: "hook", Target: "mask", Start: time.Millisecond, Duration: 2 * time.Millisecond, Failed: true}) {
			t.Errorf("stages: %+v", done.Stages)
		}
	})
}

func TestStagesOfOneOperationAreBounded(t *testing.T) {
	f := telemetry.NewFeed()
	ctx, running := f.Begin(t.Context(), telemetry.Operation{})
	for range 100 {
		_, end := telemetry.Start(ctx, telemetry.StageHook, "")
		end(nil)
	}
	if done := running.End(identity.Success, "", 0); len(done.Stages) != 32 || done.Left != 68 {
		t.Errorf("%d stages, %d left out", len(done.Stages), done.Left)
	}
}

// A goroutine that outlives its call must not change what readers of the feed have.
func TestAFinishedOperationNeverChanges(t *testing.T) {
	f := telemetry.NewFeed()
	ctx, running := f.Begin(t.Context(), telemetry.Operation{})
	_, late := telemetry.Start(ctx, telemetry.StageUpstream, "")
	done := running.End(identity.Cancelled, "", 0)
	late(nil)
	telemetry.Start(ctx, telemetry.StageHook, "")
	telemetry.Searched(ctx, 1, true, true)
	if len(done.Stages) != 1 || done.Stages[0].Duration != telemetry.Unfinished || done.Retrieval != nil {
		t.Errorf("%+v", done)
	}
}

func TestNothingIsNotedWithoutAnOperation(t *testing.T) {
	ctx, end := telemetry.Start(t.Context(), telemetry.StageHook, "")
	end(nil)
	telemetry.Searched(ctx, 1, true, false)
	if ctx != t.Context() {
		t.Error("another context")
	}
}

func TestFeedKeepsTheLastThousand(t *testing.T) {
	f := telemetry.NewFeed()
	for i := range 1500 {
		outcome := identity.Success
		if i%2 == 1 {
			outcome = identity.Failed
		}
		call(f, fmt.Sprint(i), outcome)
	}
	all := f.Recent(5000, nil)
	if len(all) != 1000 || all[0].Name != "1499" || all[999].Name != "500" {
		t.Errorf("%d operations, from %s", len(all), all[0].Name)
	}
	failed := f.Recent(2, func(o *telemetry.Operation) bool { return o.Outcome != identity.Success })
	if len(failed) != 2 || failed[0].Name != "1499" || failed[1].Name != "1497" {
		t.Errorf("failed: %v", failed)
	}
}

func TestFeedCountsAnHourByMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := telemetry.NewFeed()
		call(f, "long ago", identity.Failed)
		time.Sleep(90 * time.Minute) // its place in the ring is another minute's now
		call(f, "a", identity.Success)
		_, running := f.Begin(t.Context(), telemetry.Operation{Depth: 1})
		running.End(identity.Success, "", 0) // a step of a
		call(f, "b", identity.Denied)
		time.Sleep(2 * time.Minute)
		call(f, "c", identity.Timeout)
		hour := f.Hour(time.Now())
		if len(hour) != 60 || !hour[59].Start.Equal(time.Now().Truncate(time.Minute)) {
			t.Fatalf("%d minutes, the last is %s", len(hour), hour[59].Start)
		}
		for i, m := range hour {
			switch {
			case i == 57 && (m.All != 2 || m.Failed() != 1 || m.Outcomes[identity.Denied] != 1):
				t.Errorf("two minutes ago: %+v", m)
			case i == 59 && (m.All != 1 || m.Outcomes[identity.Timeout] != 1):
				t.Errorf("now: %+v", m)
			case i != 57 && i != 59 && m.All != 0:
				t.Errorf("minute %d: %+v", i, m)
			}
		}
	})
}

func TestInFlightIsWhatRuns(t *testing.T) {
	f := telemetry.NewFeed()
	var all []*telemetry.Running
	var ctx context.Context
	for range 1100 {
		c, running := f.Begin(t.Context(), telemetry.Operation{Name: "waits"})
		all = append(all, running)
		if ctx == nil {
			ctx = c
		}
	}
	telemetry.Start(ctx, telemetry.StageUpstream, "up.slow")
	shown, n := f.InFlight()
	if n != 1100 || len(shown) != 1000 || len(shown[0].Stages) != 1 || shown[0].Stages[0].Duration != telemetry.Unfinished {
		t.Errorf("%d in flight, %d shown, the oldest %+v", n, len(shown), shown[0])
	}
	for _, running := range all {
		running.End(identity.Success, "", 0)
	}
	if shown, n := f.InFlight(); n != 0 || len(shown) != 0 {
		t.Errorf("%d in flight, %d shown", n, len(shown))
	}
}

// BenchmarkOperation is what watching adds to a call with an upstream's answer.
func BenchmarkOperation(b *testing.B) {
	f := telemetry.NewFeed()
	b.ReportAllocs()
	for b.Loop() {
		ctx, running := f.Begin(b.Context(), telemetry.Operation{Kind: identity.EventCall, Server: "up", Tool: "up.echo", Name: "up_echo", Client: "agent 1"})
		_, end := telemetry.Start(ctx, telemetry.StageUpstream, "up.echo")
		end(nil)
		running.End(identity.Success, "", 100)
	}
}
