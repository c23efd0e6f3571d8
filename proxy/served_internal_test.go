package proxy

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/index"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

// openKnown opens a proxy whose store knows a tool of each server; the servers
// themselves are not there.
func openKnown(t *testing.T, views []view.Settings, servers ...string) *Proxy {
	t.Helper()
	config := &configs.Config{DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto, Views: views}
	db, err := store.Open(t.Context(), config.DataDir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range servers {
		config.Servers = append(config.Servers, upstream.Settings{Name: server, URL: "http://127.0.0.1:1/mcp"})
		if _, err := db.PutServer(t.Context(), store.Upstream{Name: server}, []*tool.Def{sold(t, server, "hat")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func sold(t *testing.T, server, name string) *tool.Def {
	t.Helper()
	def, err := tool.ParseDef(server, []byte(`{"name":"`+name+`","description":"Sells a `+name+`","inputSchema":{"type":"object"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// only is a view of everything that one server has.
func only(server string) view.Settings {
	return view.Settings{Name: server, Exposure: view.ExposureRetrieve, Tools: []view.UpstreamTools{{Name: server, Tools: []view.Override{{Tool: "*"}}}}}
}

func TestNewsOfAServerBuildsOnlyTheViewsThatUseIt(t *testing.T) {
	p := openKnown(t, []view.Settings{only("one"), only("two")}, "one", "two")
	before := p.now.Load()
	p.loop.take(t.Context(), []upstream.Change{{Server: "one", Defs: []*tool.Def{sold(t, "one", "coat")}}})
	after := p.now.Load()
	for name, same := range map[string]bool{view.Default: false, "one": false, "two": true} {
		if (after.ByName[name] == before.ByName[name]) != same {
			t.Errorf("view %q: it stays: %t, want %t", name, !same, same)
		}
	}
	for _, test := range []struct {
		v    *View
		want []string
	}{{before.ByName["one"], []string{"one_hat"}}, {after.ByName["one"], []string{"one_coat"}}, {after.ByName["two"], []string{"two_hat"}}} {
		found, err := test.v.Retriever.Search(t.Context(), retrieve.Query{Text: "sells", Limit: 5})
		var names []string
		for _, hit := range found.Hits {
			names = append(names, hit.Name)
		}
		if err != nil || !slices.Equal(names, test.want) {
			t.Errorf("it finds %v, %v; want %v", names, err, test.want)
		}
	}
}

// A leader that is notified of what it has stored itself does not read it.
func TestWhatWasStoredHereIsNotRead(t *testing.T) {
	p := openKnown(t, nil, "one")
	if _, err := p.store.PutServer(t.Context(), store.Upstream{Name: "one"}, []*tool.Def{sold(t, "one", "coat")}, nil); err != nil {
		t.Fatal(err)
	}
	p.known.wrote["one"] = 7
	for _, step := range []struct {
		version int64
		want    string
	}{{7, "hat"}, {8, "coat"}} {
		p.loop.take(t.Context(), []upstream.Change{{Server: "one", Followed: true, Version: step.version}})
		if defs := p.known.byServer["one"].defs; len(defs) != 1 || defs[0].ID.Name != step.want {
			t.Errorf("after version %d it knows %v, want %s", step.version, defs[0].ID, step.want)
		}
	}
	if p.known.wrote["one"] != 0 {
		t.Error("what another process stored counts as its own")
	}
}

// What could not be stored of a server is not waited for once the server is removed.
func TestNobodyWaitsForARemovedServer(t *testing.T) {
	p := openKnown(t, nil, "one")
	p.loop.waiting = map[string]upstream.Change{"gone": {Server: "gone", Followed: true}, "left": {Server: "left"}}
	p.loop.take(t.Context(), []upstream.Change{{Server: "one", Defs: []*tool.Def{sold(t, "one", "hat")}}})
	before := p.now.Load()
	p.loop.take(t.Context(), slices.Collect(maps.Values(p.loop.waiting)))
	if len(p.loop.waiting) > 0 || p.now.Load() != before {
		t.Errorf("waits for %v; views are built anew: %t", p.loop.waiting, p.now.Load() != before)
	}
	if p.known.listedThisRun["gone"] || p.known.listedThisRun["left"] {
		t.Errorf("heard of %v", p.known.listedThisRun)
	}
}

// A reload may fail when one view of several is built.
func TestAReloadThatFailsLeavesNoTrace(t *testing.T) {
	p := openKnown(t, []view.Settings{only("one"), only("two")}, "one", "two")
	before, status, heard := p.now.Load(), p.pool.Status(), p.known.listedThisRun
	if err := before.endpoints["two"].root.Close(); err != nil { // it cannot be built any more
		t.Fatal(err)
	}
	next := *before.Config
	next.Servers = []upstream.Settings{before.Config.Servers[0], before.Config.Servers[1], {Name: "three", URL: "http://127.0.0.1:1/mcp"}}
	next.Views = []view.Settings{only("one"), only("two")}
	next.Views[0].Tools[0].Tools[0].Description = new(string)
	if err := p.loop.reload(t.Context(), &next); !errors.Is(err, index.ErrClosed) {
		t.Fatal(err)
	}
	if p.now.Load() != before {
		t.Error("something else is served")
	}
	if got := p.pool.Status(); !reflect.DeepEqual(got, status) {
		t.Errorf("the servers are %+v, and were %+v", got, status)
	}
	if !reflect.DeepEqual(p.known.listedThisRun, heard) || len(p.known.byServer) != 2 {
		t.Errorf("heard of %v, knows %v", p.known.listedThisRun, p.known.byServer)
	}
	found, err := before.ByName["one"].Retriever.Search(t.Context(), retrieve.Query{Text: "hat", Limit: 5})
	if err != nil || len(found.Hits) != 1 {
		t.Errorf("the view before finds %v, %v", found.Hits, err)
	}
}

// A server that failed in an earlier run is not waited for, unless the configuration was edited since.
func TestAnEditGivesAFailedServerItsWait(t *testing.T) {
	failed := time.UnixMilli(5_000)
	for name, edited := range map[string]time.Time{"edited before": failed.Add(-time.Second), "edited since": failed.Add(time.Second), "without a file": {}} {
		t.Run(name, func(t *testing.T) {
			config := &configs.Config{DataDir: t.TempDir(), StartWait: time.Minute, Servers: []upstream.Settings{{Name: "s", URL: "http://127.0.0.1:1/mcp"}}}
			if !edited.IsZero() {
				config.Path = filepath.Join(config.DataDir, "toolfinch.yaml")
				must.Do(t, errors.Join(os.WriteFile(config.Path, nil, 0o600), os.Chtimes(config.Path, edited, edited)))
			}
			db := must.Get(store.Open(t.Context(), config.Places().Store, slog.New(slog.DiscardHandler)))(t)
			must.Do(t, errors.Join(db.PutFailure(t.Context(), store.Failure{Server: "s", Reason: "no", At: failed}), db.Close()))
			p := must.Get(Open(t.Context(), config))(t)
			defer p.Close()
			listing := p.known.of(config, nil)["s"]
			if waits := edited.After(failed); listing.Failed == waits || listing.StartsUntil.IsZero() == waits {
				t.Errorf("failed: %t, waited for until %s", listing.Failed, listing.StartsUntil)
			}
			if got := p.pool.Status()[0].Failure.Reason; got != "no" {
				t.Errorf("its last failure is shown as %q", got)
			}
		})
	}
}

// A server that takes long to come up for the first time is noted as a failure before it has failed, because an agent
// may end the process at any time: once, until it is listed.
func TestAServerThatIsLateIsNoted(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		state upstream.State
		began time.Time
		want  bool
	}{
		"it starts":            {upstream.StatePending, now.Add(-lateAfter), true},
		"it is downloaded":     {upstream.StateDownloading, now.Add(-time.Hour), true},
		"it has just begun":    {upstream.StatePending, now.Add(time.Millisecond - lateAfter), false},
		"it waits for a turn":  {upstream.StateQueued, time.Time{}, false},
		"it has come up":       {upstream.StateReady, now.Add(-time.Hour), false},
		"it has failed itself": {upstream.StateFailed, now.Add(-time.Hour), false},
	} {
		if got := isLate(upstream.Health{Server: "s", State: test.state, Began: test.began}, now); got != test.want {
			t.Errorf("%s: late: %t", name, got)
		}
	}
	p := openKnown(t, nil, "one")
	if p.loop.mayBeLate("one") || !p.loop.mayBeLate("new") {
		t.Error("only a server that was never listed may be late")
	}
	if p.loop.late["new"] = true; p.loop.mayBeLate("new") {
		t.Error("it is noted again")
	}
}
