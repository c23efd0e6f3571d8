package proxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"toolfinch/configs"
	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/view"
)

// faults are the ways in which a database is away: it refuses, or it says nothing.
func faults(c *postgres.Cluster) map[string]struct{ begin, end func(testing.TB) } {
	return map[string]struct{ begin, end func(testing.TB) }{"stopped": {c.Stop, c.Run}, "paused": {c.Pause, c.Resume}}
}

func (r *replica) readiness(says string) {
	r.t.Helper()
	await.Nil(r.t, func() error {
		if got := r.rest("GET", "/readyz", ""); got.Status != 200 || !strings.Contains(got.Body, `"`+says+`"`) {
			return fmt.Errorf("readyz: %d %s, want %s", got.Status, got.Body, says)
		}
		return nil
	})
}

// works calls and searches what was known before the database went away.
func (r *replica) works(when string) {
	r.t.Helper()
	const called = `{"tool_id":"shop_hat","arguments":{"size":3}}`
	wants(r.t, "a call "+when, r.rest("POST", "/api/proxy/execute?view=plain", called), 200, `"size":3`)
	wants(r.t, "a call of what is provisioned "+when, r.rest("POST", "/api/proxy/execute?view=gated", called), 200, `"size":3`)
	wants(r.t, "a search "+when, r.rest("GET", "/api/tools/discover?view=plain&query=hat", ""), 200, "shop_hat")
}

func (r *replica) provision(what, id string) {
	r.t.Helper()
	wants(r.t, "provisioning "+what, r.rest("POST", "/api/tools/provision?view=gated", fmt.Sprintf(`{"tool_ids":[%q]}`, id)), 200)
}

// While PostgreSQL is away, what is known is searched and called on, and what a server changes is stored
// when it is back.
func TestPostgresIsAwayWhileAProxyServes(t *testing.T) {
	cluster := postgres.New(t)
	for name, fault := range faults(cluster) {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, "shop", "hat", "coat")
			config := configOf(t, []*shop{s}, everything("plain", view.ExposureAuto), gated("gated"))
			config.Store = cluster.Database(t)
			key := keysOf(t, config, "me")["me"]
			r := open(t, config)
			r.key = key
			r.readiness("ready")
			r.provision("before", "shop_hat")
			r.works("before")

			fault.begin(t)
			r.works("in the first moment")
			r.readiness("degraded")
			r.works("away")
			wants(t, "provisioning away", r.rest("POST", "/api/tools/provision?view=gated", `{"tool_ids":["shop_coat"]}`), 503, "PostgreSQL")
			s.sells("hat", "coat", "cap")

			fault.end(t)
			r.readiness("ready")
			r.works("after")
			r.provision("after", "shop_coat")
			stored(t, config, 3)
		})
	}
}

// What another replica changes in the moment in which PostgreSQL is back is taken in, even if this one has
// not noticed yet that it can read again.
func TestNoProvisionIsMissedWhenPostgresIsBack(t *testing.T) {
	cluster := postgres.New(t)
	config := configOf(t, []*shop{newShop(t, "shop", "hat", "coat")}, gated("gated"))
	config.Store = cluster.Database(t)
	r := open(t, config)
	r.provision("before", "shop_hat")
	cluster.Stop(t)
	r.readiness("degraded")
	cluster.Run(t)
	keep(t, config, func(db *store.Store) error { // as another replica has
		has, err := db.Usage().Provisions(t.Context(), "gated")
		if err != nil || len(has) != 1 {
			return fmt.Errorf("%d tools are provisioned, %w", len(has), err)
		}
		return db.Usage().ChangeProvisions(t.Context(), "gated", has[0].Owner, func(stored []tool.Provisioned) ([]tool.Provisioned, error) {
			coat := stored[0]
			coat.ID.Name = "coat"
			return append(stored, coat), nil
		})
	})
	await.Nil(t, func() error {
		if got := r.rest("POST", "/api/proxy/execute?view=gated", `{"tool_id":"shop_coat","arguments":{"size":3}}`); got.Status != 200 {
			return fmt.Errorf("a call of what was provisioned elsewhere: %d %s", got.Status, got.Body)
		}
		return nil
	})
}

// connection is a connection to the database of a configuration.
func connection(t testing.TB, config *configs.Config) (do func(statement string)) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), config.Store))(t)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return func(statement string) {
		t.Helper()
		must.Get(conn.Exec(t.Context(), statement))(t)
	}
}

// A database that is full is logged once, however many servers wait. What they list is served all the same.
func TestAFullDatabaseIsLoggedOnce(t *testing.T) {
	var shops []*shop
	for _, name := range []string{"one", "two", "three"} {
		shops = append(shops, newShop(t, name, "hat"))
	}
	config := configOf(t, shops)
	config.Store = postgres.Start(t)
	keep(t, config, func(*store.Store) error { return nil }) // makes the tables
	connection(t, config)(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no space' USING ERRCODE = '53100'; END$$;
		CREATE TRIGGER full_disk BEFORE INSERT ON servers EXECUTE FUNCTION full_disk()`)
	var log await.Log
	r := open(t, config, proxy.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	r.has("", "one_hat", "two_hat", "three_hat")
	r.readiness("degraded")
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}

// A list that could not be stored, because others wrote for long, is served, and stored later.
func TestAListIsStoredWhenTheStoreIsFree(t *testing.T) {
	await.Expiry(t) // of the wait for a lock
	s := newShop(t, "shop", "hat", "coat")
	config := configOf(t, []*shop{s})
	config.Store = postgres.Start(t)
	var log await.Log
	r := open(t, config, proxy.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	stored(t, config, 2)
	do := connection(t, config)
	do(`SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE tools IN EXCLUSIVE MODE`)
	s.sells("hat", "coat", "wig")
	await.True(t, func() bool {
		return strings.Contains(log.String(), "not written to the store; the tools are known until they are stored")
	})
	r.has("", "shop_coat", "shop_hat", "shop_wig")
	do(`COMMIT`)
	stored(t, config, 3)
	r.has("", "shop_coat", "shop_hat", "shop_wig")
}

// Calls and searches are answered from memory. What is written of them is written later, once for many.
func TestCallsMakeNoQuery(t *testing.T) {
	config := configOf(t, []*shop{newShop(t, "shop", "hat", "coat")}, everything("plain", view.ExposureAuto))
	config.Store = postgres.Start(t)
	r := open(t, config)
	conn := must.Get(pgx.Connect(t.Context(), config.Store))(t)
	defer conn.Close(t.Context())
	must.Get(conn.Exec(t.Context(), `CREATE EXTENSION pg_stat_statements`))(t)
	legacy, modern := r.connect("plain", false, "", ""), r.connect("plain", true, "", "")
	calls := func() {
		t.Helper()
		for i, arguments := range []any{map[string]any{"size": 1}, map[string]any{"query": "coat"}} {
			name := []string{"shop_hat", "retrieve_tools"}[i]
			if got, failed := call(t.Context(), legacy, name, arguments); failed {
				t.Fatal(got)
			}
			if got, failed := call(t.Context(), modern, name, arguments); failed {
				t.Fatal(got)
			}
		}
		wants(t, "execute", r.rest("POST", "/api/proxy/execute?view=plain", `{"tool_id":"shop_hat","arguments":{"size":1}}`), 200)
		wants(t, "discover", r.rest("GET", "/api/tools/discover?view=plain&query=hat", ""), 200)
	}
	calls() // what is written of the first ones
	const rounds = 200
	count := func() map[string]int {
		t.Helper()
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
	before := count()
	for range rounds {
		calls()
	}
	for statement, n := range count() {
		if n -= before[statement]; n >= rounds { // some are made by the clock, or once for many calls
			t.Errorf("of %d rounds of calls each ran, %d times: %.300s", rounds, n, statement)
		}
	}
	const asked = `SELECT count(*) FROM tools`
	if _, err := conn.Exec(t.Context(), asked); err != nil || count()[asked] != 1 {
		t.Errorf("statements are not counted: %v", err)
	}
}

// BenchmarkStores is what a call and a retrieval cost with PostgreSQL, as a multiple of the same with SQLite;
// calls of both alternate.
func BenchmarkStores(b *testing.B) {
	var replicas []*replica
	for _, at := range []string{"", postgres.Start(b)} {
		config := configOf(b, []*shop{newShop(b, "shop", "hat", "coat")}, everything("plain", view.ExposureAuto))
		config.Store = at
		replicas = append(replicas, open(b, config))
	}
	for name, one := range map[string]struct {
		tool      string
		arguments json.RawMessage
	}{"call": {"shop_hat", json.RawMessage(`{"size":1}`)}, "retrieval": {"retrieve_tools", json.RawMessage(`{"query":"coat"}`)}} {
		b.Run(name, func(b *testing.B) {
			var took [2][]time.Duration
			clients := []func() (string, bool){}
			for _, r := range replicas {
				c := r.connect("plain", true, "", "")
				clients = append(clients, func() (string, bool) { return call(b.Context(), c, one.tool, one.arguments) })
			}
			for i := 0; b.Loop(); i++ {
				for j := range clients {
					k := (i + j) % 2 // who is first takes turns, too
					begin := time.Now()
					if got, failed := clients[k](); failed {
						b.Fatal(errors.New(got))
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
