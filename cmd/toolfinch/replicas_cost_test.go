//go:build linux

package main_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"toolfinch/internal/postgres"
)

// ticks is the processor time that all replicas have used, in ticks of the kernel (10 ms).
func (f *fleet) ticks(t *testing.T) (all int64) {
	t.Helper()
	for _, r := range f.replicas {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), ") ") // the name may have spaces
		var user, system int64
		if _, err := fmt.Sscan(strings.Join(strings.Fields(after)[11:13], " "), &user, &system); err != nil {
			t.Fatal(err)
		}
		all += user + system
	}
	return all
}

// What a call costs in processor time through one replica and through three, in turns, for each
// era and for both at once. It judges nothing, and runs only with TOOLFINCH_COST set.
func TestCostOfReplicas(t *testing.T) {
	if os.Getenv("TOOLFINCH_COST") == "" {
		t.Skip("TOOLFINCH_COST is not set")
	}
	const upstreams, clients, calls, turns = 10, 8, 3000, 2
	servers := map[string]any{}
	for i := range upstreams {
		url, _, _ := grower(t, fmt.Sprintf("up%d", i))
		servers[fmt.Sprintf("up%d", i)] = map[string]any{"url": url}
	}
	for _, eras := range [][]string{{modernRevision}, {legacyRevision}, {legacyRevision, modernRevision}} {
		perCall := map[int]float64{}
		for range turns {
			for _, size := range []int{1, 3} {
				f := fleetOver(t, size, postgres.Start(t), nil, map[string]any{"mcp_servers": servers})
				c := &crowd{t: t, fleet: f}
				c.ctx, c.stop = context.WithCancel(t.Context())
				for _, era := range eras {
					c.join(era, clients/len(eras))
				}
				from := f.ticks(t)
				c.work(upstreams)
				c.progress(calls)
				spent, done := f.ticks(t)-from, c.calls.Load()
				c.stop()
				c.working.Wait()
				for _, m := range c.all {
					_ = m.Close()
				}
				f.stop(t)
				perCall[size] += float64(spent) * 10 / float64(done) / turns
			}
		}
		t.Logf("%v: %.3f ms a call through one replica, %.3f ms through three: %.2f times", eras, perCall[1], perCall[3], perCall[3]/perCall[1])
	}
}
