//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// A replica that starts from its snapshot, because PostgreSQL is away, has the secrets of its
// configuration, opens sessions, hands requests for those of other replicas over, and is handed
// theirs. When PostgreSQL answers, its sessions are stored, and outlive it.
func TestAReplicaStartsFromItsSnapshot(t *testing.T) {
	const secret = "hush-hush-12345"
	db := postgres.New(t)
	database := db.Database(t)
	owner := newHouse(t, nil, map[string]any{"store": database})
	owner.env = append(owner.env, fleetVaultKey)
	if out, said, code := owner.run(t, secret, "secret", "set", "TOKEN"); code != 0 {
		t.Fatalf("secret set: exit code %d\n%s\n%s", code, out, said)
	}
	servers := upstreams(t, "everything")
	everything := servers["everything"]
	everything.Env = map[string]string{"TOKEN": "${secret:TOKEN}"}
	servers["everything"] = everything
	f := fleetOver(t, 2, database, servers, map[string]any{"store_fallback": "${HOME}/snapshot.db"})
	a, b := f.replicas[0], f.replicas[1]

	open := func(at *fleetReplica) (session string) {
		t.Helper()
		_, text, session := at.ask(t, "", "initialize", map[string]any{"protocolVersion": legacyRevision, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "raw", "version": "1"}})
		if session == "" {
			t.Fatalf("initialize is answered %s\n%s", text, at.log)
		}
		at.ask(t, session, "notifications/initialized", map[string]any{})
		return session
	}
	called := func(at *fleetReplica, session string) error {
		status, text, _ := at.ask(t, session, "tools/call", map[string]any{"name": "everything_get-env", "arguments": map[string]any{}})
		if status != http.StatusOK || !strings.Contains(text, secret) {
			return fmt.Errorf("a call is answered %d %s", status, text)
		}
		return nil
	}
	works := func(when string, sessions ...string) {
		t.Helper()
		for _, session := range sessions {
			for n, at := range f.replicas {
				if err := called(at, session); err != nil {
					t.Errorf("%s, at replica %d: %v", when, n+1, err)
				}
			}
		}
	}
	ready := func(at *fleetReplica) string {
		t.Helper()
		answer, err := http.Get("http://127.0.0.1:" + at.port + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	other := open(b)
	works("before", other)
	a.end(t)
	db.Stop(t)
	a.start(t)
	if got := ready(a); !strings.Contains(got, `"degraded"`) {
		t.Errorf("readyz is %s", got)
	}
	fresh := open(a)
	await.Nil(t, func() error { return called(a, fresh) }) // the server starts
	works("while PostgreSQL is away", fresh, other)

	db.Run(t)
	await.True(t, func() bool { return strings.Contains(ready(a), `"ready"`) })
	works("when PostgreSQL is back", fresh, other)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	await.True(t, func() bool {
		stored := 0
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM sessions JOIN replicas ON home = id WHERE name = 'replica-1'`).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		return stored == 1
	})
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.ended
	await.Nil(t, func() error { return called(b, fresh) })
}
