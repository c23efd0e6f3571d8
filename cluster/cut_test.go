package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"toolfinch/cluster"
	"toolfinch/internal/await"
)

// moves is how often sessions of the team were given up.
func (all *team) moves() (given int64) {
	for _, r := range all.replicas {
		_, moves := r.homes.Sessions()
		given += moves.Given
	}
	return given
}

// Two replicas that do not reach each other and both reach the database take a session from each
// other with the requests that come in there: once to and fro, and then it goes to a third one
// that both reach, and stays.
func TestASessionGoesToWhereAllReachIt(t *testing.T) {
	all := newTeam(t, 3, nil)
	a, b := all.replicas[0], all.replicas[1]
	alice := a.connect("alice")
	for _, r := range all.replicas { // who is connected
		expect(t, alice.call(r, "echo", `{}`), "replica-0")
	}
	all.sever(a, b)
	expect(t, alice.call(b, "echo", `{}`), "replica-1")
	for range 10 {
		for _, r := range all.replicas {
			expect(t, alice.call(r, "echo", `{}`), "replica-2")
		}
	}
	if n := all.moves(); n != 2 {
		t.Errorf("the session was given up %d times, want 2", n)
	}
}

// Where there is no third one, a session moves with the requests, one at a time: each is
// answered, and nothing is lost.
func TestTwoThatDoNotReachEachOther(t *testing.T) {
	all := newTeam(t, 2, nil)
	a, b := all.replicas[0], all.replicas[1]
	alice := a.connect("alice")
	alice.finds(a, `{"tools":["echo"]}`)
	all.sever(a, b)
	for range 3 {
		expect(t, alice.call(b, "echo", `{}`), "replica-1")
		expect(t, alice.call(a, "echo", `{}`), "replica-0")
		if list := alice.read(alice.post(b, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)); !strings.Contains(list, `"echo"`) {
			t.Errorf("what was registered is lost: %s", list)
		}
	}
}

// A session that is asked for goes with what waits for its client; one that does not live here
// is nobody's to give.
func TestASessionIsGivenUp(t *testing.T) {
	all := newTeam(t, 2, nil)
	a, b := all.replicas[0], all.replicas[1]
	alice, bob := a.connect("alice"), a.connect("bob")
	a.live.Notify(alice.session, "notifications/message", json.RawMessage(`{"level":"error","data":"news"}`))
	all.sever(a, b)
	b.homes.Asked(cluster.HashOf(alice.session)) // as if it was there a moment ago
	a.homes.Asked(cluster.HashOf("nobody's"))
	a.homes.Asked(cluster.HashOf(alice.session))
	await.True(t, func() bool { return !a.live.Knows(alice.session) })
	for _, row := range all.rows.sessions() {
		if given := row.Home == ""; given != (row.Hash == cluster.HashOf(alice.session)) {
			t.Errorf("the session of %s lives at %q", row.Principal, row.Home)
		}
	}
	expect(t, alice.listen(b).next(), "news")
	expect(t, bob.call(a, "echo", `{}`), "replica-0")
}
