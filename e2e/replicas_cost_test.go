//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/postgres"
)

// tick is in what the kernel counts processor time.
const tick = 10 * time.Millisecond

// processorTime is what a process has used.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ") // the name may have spaces
	var user, system int64
	if _, err := fmt.Sscan(strings.Join(strings.Fields(after)[11:13], " "), &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * tick
}

// ticks is the processor time that all replicas have used.
func (f *fleet) ticks(t *testing.T) (all int64) {
	t.Helper()
	for _, r := range f.replicas {
		all += int64(processorTime(t, r.cmd.Process.Pid) / tick)
	}
	return all
}

// costs is a way to run toolfinch, with its clients, and what was measured of it.
type costs struct {
	*crowd
	name    string
	fleets  []*fleet // each has a share of the clients
	clients int

	calls     int64
	forwarded float64
	// For how long it worked, and was idle, and what it used meanwhile, in ticks.
	worked, idled time.Duration
	used, wasted  int64
}

// ticks is the processor time that all replicas have used.
func (c *costs) ticks() (all int64) {
	for _, f := range c.fleets {
		all += f.ticks(c.t)
	}
	return all
}

// forwards is how many requests replicas have handed to others.
func (c *costs) forwards() (all float64) {
	for _, f := range c.fleets {
		all += f.forwards(c.t)
	}
	return all
}

// idle is what is used while nobody calls, in milliseconds a second.
func (c *costs) idle() float64 { return float64(c.wasted) * 10 / c.idled.Seconds() }

// perCall is the processor time of a call in milliseconds, without what is used anyway.
func (c *costs) perCall() float64 {
	return (float64(c.used)*10 - c.idle()*c.worked.Seconds()) / float64(c.calls)
}

// calling has the clients make calls, and returns how many they made, and in what time.
func (c *costs) calling(upstreams int, calls int64) (made int64, took time.Duration) {
	c.ctx, c.stop = context.WithCancel(c.t.Context())
	from, began := c.crowd.calls.Load(), time.Now()
	c.work(upstreams)
	c.progress(calls)
	c.stop()
	c.working.Wait()
	return c.crowd.calls.Load() - from, time.Since(began)
}

// What a call costs in processor time, for each era and for both at once: through one replica; through
// one with a third of the clients, which is as busy as each of three; through three that are no replicas,
// with a third of the clients each; through three replicas; through three behind a balancer that sticks;
// and through such of which each runs on one processor at a time. They are called in turns once everything
// is connected, so that what one uses in the turns of the others is what it uses idle. It judges nothing,
// and runs only where TOOLFINCH_COST says how many clients there are: a multiple of 6.
func TestCostOfReplicas(t *testing.T) {
	clients, err := strconv.Atoi(os.Getenv("TOOLFINCH_COST"))
	if err != nil {
		t.Skip("TOOLFINCH_COST does not say how many clients there are")
	}
	const upstreams, warm, calls, turns = 10, 2000, 2000, 5
	servers := map[string]any{}
	for i := range upstreams {
		url, _, _ := grower(t, fmt.Sprintf("up%d", i))
		servers[fmt.Sprintf("up%d", i)] = map[string]any{"url": url}
	}
	for _, eras := range [][]string{{modernRevision}, {legacyRevision}, {legacyRevision, modernRevision}} {
		t.Run(strings.Join(eras, " and "), func(t *testing.T) {
			start := func(size int) *fleet {
				return fleetOver(t, size, postgres.Start(t), nil, map[string]any{"mcp_servers": servers})
			}
			sticky, shares := start(3), start(3)
			for _, r := range shares.replicas {
				r.end(t)
				r.house.env = append(r.house.env, "GOMAXPROCS=1") // of two
				r.start(t)
			}
			sticky.stick(t)
			shares.stick(t)
			all := []*costs{
				{name: "one", fleets: []*fleet{start(1)}, clients: clients},
				{name: "a third of it", fleets: []*fleet{start(1)}, clients: clients / 3},
				{name: "three apart", fleets: []*fleet{start(1), start(1), start(1)}, clients: clients},
				{name: "three replicas", fleets: []*fleet{start(3)}, clients: clients},
				{name: "three, sticky", fleets: []*fleet{sticky}, clients: clients},
				{name: "GOMAXPROCS=1", fleets: []*fleet{shares}, clients: clients},
			}
			for _, c := range all {
				c.crowd = &crowd{t: t}
				for _, era := range eras {
					for i := range c.clients / len(eras) {
						c.fleet = c.fleets[i%len(c.fleets)]
						c.join(era, 1)
					}
				}
				c.calling(upstreams, warm)
			}
			for range turns {
				for _, c := range all {
					before := map[*costs]int64{}
					for _, one := range all {
						before[one] = one.ticks()
					}
					forwards := c.forwards()
					made, took := c.calling(upstreams, calls)
					c.calls, c.worked, c.used = c.calls+made, c.worked+took, c.used+c.ticks()-before[c]
					c.forwarded += c.forwards() - forwards
					for _, one := range all {
						if one != c {
							one.idled, one.wasted = one.idled+took, one.wasted+one.ticks()-before[one]
						}
					}
				}
			}
			for _, c := range all {
				t.Logf("%-14s %.3f ms a call, %.2f times one; %.2f requests forwarded a call; idle %.1f ms a second; %.0f calls a second", c.name,
					c.perCall(), c.perCall()/all[0].perCall(), c.forwarded/float64(c.calls), c.idle(), float64(c.calls)/c.worked.Seconds())
				for _, m := range c.all {
					_ = m.Close()
				}
			}
		})
	}
}
