//go:build linux

package proxy_test

import (
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
	"toolfinch/proxy"
)

// replica is one of several proxies over a database.
type replica struct {
	*proxy.Proxy
	url  string
	stop func()
}

// replicasOf runs proxies of one configuration over a database, one after the other: the
// first leads all servers.
func replicasOf(t *testing.T, n int, config *configs.Config) (all []*replica) {
	t.Helper()
	config.Store = postgres.Start(t)
	for range n {
		all = append(all, addReplica(t, config))
	}
	return all
}

func addReplica(t *testing.T, config *configs.Config) *replica {
	t.Helper()
	p, err := proxy.Open(t.Context(), config, proxy.WithVersion("test"))
	if err != nil {
		t.Fatal(err)
	}
	url, stop := runUntil(t, p)
	await.Value(t, p.Ready())
	return &replica{p, url, stop}
}

// One replica lists a server, and all have what it lists: at the start, when it changes,
// and when that replica has gone.
func TestReplicasFollowALeader(t *testing.T) {
	s := shop(t, "shop", "hat", "coat")
	all := replicasOf(t, 3, configOf(t, []*script{s}))
	lists := func() int { return len(s.got("tools/list")) }
	everywhere := func(tools ...string) {
		t.Helper()
		for _, r := range all {
			has(t, r.Proxy, "", tools...)
		}
	}
	everywhere("shop_coat", "shop_hat")
	if n := lists(); n != 1 {
		t.Errorf("three replicas listed the server %d times", n)
	}
	for i, r := range all {
		c := newClient(t, r.Proxy, r.url, kind{}, `{}`, reply)
		if got := c.ask("tools/call", toolCall("shop_hat", `{"size":1}`)); failed(got) {
			t.Errorf("a call of replica %d: %s", i, got.raw)
		}
		if status := r.Servers()[0]; status.State != "ready" || status.Tools != 2 {
			t.Errorf("replica %d says %+v", i, status)
		}
	}
	before := lists()
	s.list("tools", goods("hat", "wig")...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	everywhere("shop_hat", "shop_wig")
	all[0].stop()
	all = all[1:]
	await.True(t, func() bool { return lists() > before+1 }) // the next leader
	s.list("tools", goods("hat", "wig", "tie")...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	everywhere("shop_hat", "shop_tie", "shop_wig")
}

// What is held is held by all replicas, and what is approved over one is served by all.
func TestAllReplicasServeWhatIsApproved(t *testing.T) {
	s, turn := fickle(t)
	config := configOf(t, []*script{s})
	config.Changes, config.REST = nil, true
	all := replicasOf(t, 2, config)
	for _, r := range all {
		has(t, r.Proxy, "", "shop_coat", "shop_hat")
	}
	turn()
	for _, r := range all {
		has(t, r.Proxy, "", "shop_coat")
	}
	_, decide := approver(t, config)
	decide(true, "hat")
	for _, r := range all {
		has(t, r.Proxy, "", "shop_coat", "shop_hat")
	}
}
