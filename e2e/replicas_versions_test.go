//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
)

// Replicas of two versions serve the same sessions, and say that they differ. One that is too old
// for the tables of the others does not start, or stores nothing more, and says why.
func TestTwoVersionsSideBySide(t *testing.T) {
	t.Parallel()
	database := postgres.Start(t)
	f := fleetOver(t, 2, database, upstreams(t, "everything"))
	old, updated := f.replicas[0], f.replicas[1]
	client := f.goClient(t, "client")
	defer client.Close()
	works := func() {
		t.Helper()
		for range f.replicas { // each in turn
			if text, err := client.call(t.Context(), "everything_echo", map[string]any{"message": "side by side"}, ""); err != nil || !strings.Contains(text, "side by side") {
				t.Errorf("a call is answered %s %v", text, err)
			}
		}
	}
	works()
	updated.end(t)
	updated.program = newer(t)
	updated.start(t)
	works()

	const want = "v98.7.6 (replica-2)"
	await.Nil(t, func() error {
		answer, err := http.Get("http://127.0.0.1:" + old.port + "/api/status")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var status struct{ Replicas struct{ Differ []string } }
		text, _ := io.ReadAll(answer.Body)
		if err := json.Unmarshal(text, &status); err != nil || !slices.ContainsFunc(status.Replicas.Differ, func(line string) bool { return strings.Contains(line, want) }) {
			return fmt.Errorf("the status is %s %w", text, err)
		}
		return nil
	})
	tab := newBrowser(t).tab(t, "http://127.0.0.1:"+old.port)
	tab.logIn(old.house)
	tab.wait("#overview .note.warn", want)
	tab.wait("#replicas tr:has(.tag)", "replica-1 this one")
	tab.wait("#replicas tr:not(:has(.tag)) td", "v98.7.6")
	if led := evaluate[[]string](tab, `[...document.querySelectorAll("#replicas a")].map((a) => a.textContent)`); len(led) != 1 || led[0] != "everything" {
		t.Errorf("the page says that %q are led", led)
	}
	tab.accessible()
	tab.fits()
	tab.looks("replicas")
	for _, command := range []string{"replicas", "status"} {
		if out, err := old.house.output(t, command, "--json"); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `INSERT INTO schema_versions (version_id, is_applied) VALUES (999, TRUE); UPDATE compatible SET since = 999`); err != nil {
		t.Fatal(err)
	}
	works() // what runs goes on, from memory
	await.Nil(t, func() error {
		answer, err := http.Get("http://127.0.0.1:" + old.port + "/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != 200 || !strings.Contains(string(text), "degraded") {
			return fmt.Errorf("/readyz answers %s %s", answer.Status, text)
		}
		return nil
	})
	works()
	cmd := exec.Command(program(t), "serve", "--config", old.house.config, "--listen", "127.0.0.1:0")
	cmd.Env = old.house.env
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "newer") {
		t.Errorf("a version that is too old for the database: %v\n%s", err, out)
	}
}
