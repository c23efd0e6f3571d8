package proxy_test

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/internal/await"
	"toolfinch/internal/postgres"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

// While PostgreSQL is away, what is known is searched and called on, what must be stored
// is refused, and what a server changes is stored when it is back.
func TestPostgresIsAwayWhileAProxyServes(t *testing.T) {
	t.Parallel()
	cluster := postgres.New(t)
	for name, fault := range map[string]struct{ begin, end func(testing.TB) }{
		"stopped": {cluster.Stop, cluster.Run},
		"paused":  {cluster.Pause, cluster.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			s := shop(t, "shop", "hat", "coat")
			config := configOf(t, []*script{s}, everything("plain", view.ExposureAuto), gated("gated", view.ExposureRetrieve, ample))
			config.Store = cluster.Database(t)
			config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
			me := keysOf(t, config, "me")["me"]
			_, url := openREST(t, "", config)
			key := "Authorization: Bearer " + me
			get := func(method, path, body string) answered { return curl(t, url, method, path, body, key) }
			const called = `{"tool_id":"shop_hat","arguments":{"size":3}}`
			get("GET", "/readyz", "").wants(t, "before", 200, `"status":"ready"`)
			get("POST", "/api/tools/provision?view=gated", `{"tool_ids":["shop_hat"]}`).wants(t, "provision before", 200)
			works := func(when string) {
				t.Helper()
				get("POST", "/api/proxy/execute?view=plain", called).wants(t, "call "+when, 200, `"size":3`)
				get("POST", "/api/proxy/execute?view=gated", called).wants(t, "call what is provisioned "+when, 200, `"size":3`)
				get("GET", "/api/tools/discover?view=plain&query=hat", "").wants(t, "search "+when, 200, "shop_hat")
			}
			works("before")

			fault.begin(t)
			works("in the first moment")
			await.True(t, func() bool {
				return get("GET", "/readyz", "").status == 200 && strings.Contains(get("GET", "/readyz", "").body, `"degraded"`)
			})
			works("away")
			// It holds in this process, and is stored with the owner's next change.
			get("POST", "/api/tools/provision?view=gated", `{"tool_ids":["shop_coat"]}`).wants(t, "provision away", 200)
			// Whoever leads the server no more lists it when somebody leads it again.
			s.list("tools", goods("hat", "coat", "cap")...)
			s.tell(t, "notifications/tools/list_changed", `{}`)

			fault.end(t)
			await.True(t, func() bool { return strings.Contains(get("GET", "/readyz", "").body, `"ready"`) })
			works("after")
			db, err := store.OpenReadOnly(t.Context(), config.Store, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			await.Nil(t, func() error {
				if defs, err := db.Tools(t.Context()); err != nil || len(defs) != 3 {
					return fmt.Errorf("%d tools are stored, %v", len(defs), err)
				}
				return nil
			})
		})
	}
}

// With a snapshot a proxy starts while PostgreSQL is away, knows what was known, holds what was
// held, and goes over to PostgreSQL by itself.
func TestAProxyStartsFromItsSnapshot(t *testing.T) {
	t.Parallel()
	cluster := postgres.New(t)
	s := shop(t, "shop", "hat", "coat")
	config := configOf(t, []*script{s}, everything("plain", view.ExposureAuto), gated("gated", view.ExposureRetrieve, ample))
	config.Store, config.StoreFallback, config.Changes = cluster.Database(t), filepath.Join(t.TempDir(), "snapshot.db"), nil
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	config.REST = true
	key := "Authorization: Bearer " + keysOf(t, config, "me")["me"]
	var url string
	start := func() (stop func()) {
		t.Helper()
		p, err := proxy.Open(t.Context(), config, proxy.WithVersion("test"))
		if err != nil {
			t.Fatal(err)
		}
		url, stop = runUntil(t, p)
		await.Value(t, p.Ready())
		return stop
	}
	get := func(method, path, body string) answered { return curl(t, url, method, path, body, key) }
	const called = `{"tool_id":"shop_hat","arguments":{"size":3}}`
	works := func(when string) {
		t.Helper()
		get("POST", "/api/proxy/execute?view=plain", called).wants(t, "call "+when, 200, `"size":3`)
		get("POST", "/api/proxy/execute?view=gated", called).wants(t, "call what is provisioned "+when, 200, `"size":3`)
		get("GET", "/api/tools/discover?view=plain&query=hat", "").wants(t, "search "+when, 200, "shop_hat")
	}
	held := func() string { return get("GET", "/api/pins", "").body }

	stop := start()
	get("POST", "/api/tools/provision?view=gated", `{"tool_ids":["shop_hat"]}`).wants(t, "provision", 200)
	s.list("tools", goods("hat", "coat", "wig")...)
	s.tell(t, "notifications/tools/list_changed", `{}`)
	await.True(t, func() bool { return strings.Contains(held(), `"shop.wig"`) })
	works("before")
	stop()
	cluster.Stop(t)
	defer start()() // whatever follows
	s.list("tools", goods("hat", "coat", "wig", "cap")...)

	get("GET", "/readyz", "").wants(t, "readyz", 200, `"degraded"`, "is of the snapshot of")
	get("GET", "/api/status?view=plain", "").wants(t, "the status", 200, `"store":"PostgreSQL has not answered since`)
	works("from the snapshot")
	get("POST", "/api/tools/provision?view=gated", `{"tool_ids":["shop_coat"]}`).wants(t, "provision from the snapshot", 200)
	_, hash, _ := strings.Cut(held(), `"hash":"`)
	hash, _, _ = strings.Cut(hash, `"`)
	approve := `{"approve":[{"id":"shop.wig","hash":"` + hash + `"}]}`
	get("POST", "/api/pins", approve).wants(t, "an approval", 503, "PostgreSQL has not answered")
	if got := curl(t, url, "GET", "/api/tools/discover?query=hat", "", "Authorization: Bearer tfkey_unknown"); got.status != 401 {
		t.Errorf("an unknown key: status %d", got.status)
	}

	cluster.Run(t)
	await.True(t, func() bool { return strings.Contains(get("GET", "/readyz", "").body, `"ready"`) })
	await.True(t, func() bool { return strings.Contains(held(), `"shop.cap"`) }) // somebody leads, and lists
	get("POST", "/api/pins", approve).wants(t, "an approval after", 200, `"approved":1`)
	await.True(t, func() bool {
		return strings.Contains(get("GET", "/api/tools/discover?view=plain&query=wig", "").body, `shop_wig`)
	})
	works("after")
	get("POST", "/api/proxy/execute?view=gated", strings.Replace(called, "hat", "coat", 1)).wants(t, "call what was provisioned from the snapshot", 200)
}

// What another replica changes in the moment in which PostgreSQL is back is taken in, even if
// this one has not noticed yet that it can read again.
func TestNoProvisionIsMissedWhenPostgresIsBack(t *testing.T) {
	t.Parallel()
	cluster := postgres.New(t)
	for name, fault := range map[string]struct{ begin, end func(testing.TB) }{
		"stopped": {cluster.Stop, cluster.Run},
		"paused":  {cluster.Pause, cluster.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, []*script{shop(t, "shop", "hat", "coat")}, gated("gated", view.ExposureRetrieve, ample))
			config.Store = cluster.Database(t)
			_, url := openREST(t, "", config)
			curl(t, url, "POST", "/api/tools/provision?view=gated", `{"tool_ids":["shop_hat"]}`).wants(t, "provision", 200)
			fault.begin(t)
			await.True(t, func() bool { return strings.Contains(curl(t, url, "GET", "/readyz", "").body, `"degraded"`) })
			fault.end(t)
			db, err := store.Open(t.Context(), config.Store, slog.New(slog.DiscardHandler)) // as another replica has
			if err != nil {
				t.Fatal(err)
			}
			has, err := db.Usage().Provisions(t.Context(), "gated")
			if err != nil || len(has) != 1 {
				t.Fatalf("%d tools are provisioned, %v", len(has), err)
			}
			more := func(stored []tool.Provisioned) ([]tool.Provisioned, error) {
				coat := stored[0]
				coat.ID.Name = "coat"
				return append(stored, coat), nil
			}
			if err := errors.Join(db.Usage().ChangeProvisions(t.Context(), "gated", has[0].Owner, more), db.Close()); err != nil {
				t.Fatal(err)
			}
			await.Nil(t, func() error {
				if got := curl(t, url, "POST", "/api/proxy/execute?view=gated", `{"tool_id":"shop_coat","arguments":{"size":3}}`); got.status != 200 {
					return fmt.Errorf("a call of what was provisioned elsewhere: %d %s", got.status, got.body)
				}
				return nil
			})
		})
	}
}

func TestAProxyDoesNotStartWithoutItsPostgres(t *testing.T) {
	config := configOf(t, nil)
	config.Store = "postgres://ann:Geheim123@127.0.0.1:1/toolfinch"
	for name, open := range map[string]func() error{
		"proxy":     func() error { _, err := proxy.Open(t.Context(), config); return err },
		"workspace": func() error { _, err := proxy.OpenWorkspace(t.Context(), config); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "PostgreSQL") || strings.Contains(err.Error(), "Geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls and searches are answered from memory. What is written of them is written
// later, once for many.
func TestCallsMakeNoQuery(t *testing.T) {
	t.Parallel()
	s := shop(t, "shop", "hat", "coat")
	config := configOf(t, []*script{s}, everything("plain", view.ExposureAuto))
	config.Store = postgres.Start(t)
	p, url := openREST(t, "", config)
	conn, err := pgx.Connect(t.Context(), config.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `CREATE EXTENSION pg_stat_statements`); err != nil {
		t.Fatal(err)
	}
	legacy, modern := viewClient(t, p, url, "plain", false), viewClient(t, p, url, "plain", true)
	calls := func() {
		for _, c := range []*rawClient{legacy, modern} {
			for _, call := range []string{toolCall("shop_hat", `{"size":1}`), toolCall("retrieve_tools", `{"query":"coat"}`)} {
				if got := c.ask("tools/call", call); failed(got) {
					t.Fatal(got.raw)
				}
			}
		}
		curl(t, url, "POST", "/api/proxy/execute?view=plain", `{"tool_id":"shop_hat","arguments":{"size":1}}`).wants(t, "execute", 200)
		curl(t, url, "GET", "/api/tools/discover?view=plain&query=hat", "").wants(t, "discover", 200)
	}
	calls() // what is written of the first ones
	const rounds = 200
	count := func() map[string]int {
		rows, err := conn.Query(t.Context(), `SELECT query, calls FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query !~ 'pg_stat_statements'`)
		all := map[string]int{}
		var query string
		var calls int
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&query, &calls}, func() error { all[query] += calls; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before, begun := count(), time.Now()
	for range rounds {
		calls()
	}
	most := 4 + int(3*time.Since(begun).Seconds()) // of what is asked by the clock, or written once for many calls
	for statement, n := range count() {
		if n -= before[statement]; n > most {
			t.Errorf("%d rounds of calls ran %d times, more than %d: %.300s", rounds, n, most, statement)
		}
	}
	const asked = `SELECT count(*) FROM tools`
	if _, err := conn.Exec(t.Context(), asked); err != nil || count()[asked] != 1 {
		t.Errorf("statements are not counted: %v", err)
	}
}

// What a call and a retrieval cost with PostgreSQL, as a multiple of the same with
// SQLite; calls of both alternate.
func BenchmarkStores(b *testing.B) {
	var clients []*rawClient
	for _, at := range []string{"", postgres.Start(b)} {
		config := configOf(b, []*script{shop(b, "shop", "hat", "coat")}, everything("plain", view.ExposureAuto))
		config.Store = at
		p, url := openViews(b, "", config)
		clients = append(clients, viewClient(b, p, url, "plain", true))
	}
	for name, call := range map[string]string{"call": toolCall("shop_hat", `{"size":1}`), "retrieval": toolCall("retrieve_tools", `{"query":"coat"}`)} {
		b.Run(name, func(b *testing.B) {
			var took [2][]time.Duration
			for i := 0; b.Loop(); i++ {
				for j := range clients {
					k := (i + j) % 2 // who is first takes turns, too
					begin := time.Now()
					if got := clients[k].ask("tools/call", call); failed(got) {
						b.Fatal(got.raw)
					}
					took[k] = append(took[k], time.Since(begin))
				}
			}
			var p50 [2]float64
			for k := range took {
				slices.Sort(took[k])
				p50[k] = float64(took[k][len(took[k])/2])
			}
			b.ReportMetric(p50[1]/p50[0], "times-sqlite")
			b.ReportMetric(p50[0]/1e3, "µs-sqlite")
		})
	}
}
