package proxy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/postgres"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

// busy serves what every metric counts something of. do has it all happen once more.
func busy(t *testing.T) (base string, do func()) {
	up := wares(t)
	up.on("tools/call burn", func(r *request) { r.result(`{"content":[{"type":"text","text":"no fire"}],"isError":true}`) })
	local := newScript(t, "local", false, true)
	local.list("tools", `{"name":"there","inputSchema":{"type":"object"}}`)
	config := configOf(t, []*script{up, local}, everything(view.Default, view.ExposureRetrieve))
	config.REST, config.Policies = true, policies(t, `permit (principal, action, resource); forbid (principal, action, resource) when { resource.name == "put" };`)
	p, url, _ := audited(t, config, nil)
	return url, func() {
		c := viewClient(t, p, url, view.Default, false)
		c.ask("tools/call", toolCall("retrieve_tools", `{"query":"look at a ware"}`))
		c.ask("tools/call", toolCall("shop_look", `{"size":1}`))
		c.ask("tools/call", toolCall("shop_burn", `{}`))
		c.ask("tools/call", toolCall("shop_put", `{}`))
		c.ask("tools/call", toolCall("shop_nothing", `{}`))
		c.ask("tools/call", toolCall("call_tool", `{}`))
		c.ask("prompts/get", `{"name":"shop_greet"}`)
		c.ask("resources/read", `{"uri":"file:///note"}`)
	}
}

// reaching has replicas of a configuration reach each other at addresses of their own.
func reaching(t *testing.T, config *configs.Config) *configs.Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	one := *config
	one.Transport = configs.TransportHTTP
	one.Cluster = &configs.Cluster{Listen: listener.Addr().String(), Address: listener.Addr().String(), Keys: []configs.ClusterKey{{1}}, Drain: time.Second}
	return &one
}

// handingOver serves what every metric of replicas counts something of: two of them, of which
// one hands a request to the other.
func handingOver(t *testing.T) (base string) {
	t.Helper()
	database := postgres.Start(t)
	var urls []string
	for range 2 {
		config := configOf(t, []*script{shop(t, "shop", "hat")}, everything(view.Default, view.ExposureRetrieve))
		config.Store = database
		_, url := openREST(t, "", reaching(t, config))
		urls = append(urls, url)
	}
	post := func(url, body, session string) http.Header {
		t.Helper()
		got := fetch.Send(t, http.MethodPost, url+"/mcp", body, "Accept: application/json, text/event-stream", "Mcp-Session-Id: "+session)
		if got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", body, got.Status, got.Body)
		}
		return got.Header
	}
	opened := post(urls[1], `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`, "")
	post(urls[0], `{"jsonrpc":"2.0","id":2,"method":"ping"}`, opened.Get("Mcp-Session-Id"))
	return urls[0]
}

// metric is one of the exposition.
type metric struct {
	name, kind, help string
	labels           []string
}

var sampleLine = regexp.MustCompile(`^([a-z_:]+)(?:\{(.*)\})? \S+$`)

// exposed parses the metrics of the exposition that are toolfinch's own.
func exposed(t *testing.T, text string) map[string]*metric {
	t.Helper()
	all := map[string]*metric{}
	var last *metric
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if help, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(help, " ")
			if all[name] != nil {
				t.Errorf("%s comes twice", name)
			}
			last = &metric{name: name, help: help}
			all[name] = last
		} else if kind, ok := strings.CutPrefix(line, "# TYPE "+last.name+" "); ok {
			last.kind = kind
		} else if m := sampleLine.FindStringSubmatch(line); m == nil {
			t.Errorf("no sample: %q", line)
		} else {
			for _, label := range regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`).FindAllStringSubmatch(m[2], -1) {
				if label[1] != "le" && !slices.Contains(last.labels, label[1]) {
					last.labels = append(last.labels, label[1])
				}
			}
		}
	}
	maps.DeleteFunc(all, func(name string, _ *metric) bool { return !strings.HasPrefix(name, "toolfinch_") })
	return all
}

// TestEveryMetricIsDocumented compares the table of docs/observability.md with what is there;
// -update writes it.
func TestEveryMetricIsDocumented(t *testing.T) {
	base, do := busy(t)
	do()
	replicas := handingOver(t)
	var table strings.Builder
	table.WriteString("| metric | type | labels | what it counts |\n|---|---|---|---|\n")
	all := exposed(t, curl(t, base, "GET", "/metrics", "").body)
	maps.Copy(all, exposed(t, curl(t, replicas, "GET", "/metrics", "").body))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		labels := "-"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	const path, begin, end = "../docs/observability.md", "<!-- metrics: written by go test ./proxy -run TestEveryMetricIsDocumented -update -->\n", "<!-- end of metrics -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	documented, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if documented != table.String() {
		t.Errorf("%s has\n%s\nwant (-update writes it)\n%s", path, documented, table.String())
	}
}

// queries are those of docs/grafana.json, by the title of their panel, as Grafana sends them.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all[panel.Title] = append(all[panel.Title], strings.NewReplacer("$instance", ".*", "$__rate_interval", "5m").Replace(target.Expr))
		}
	}
	return all
}

// TestDashboardHasData asks a real Prometheus that scrapes toolfinch what the dashboard asks.
func TestDashboardHasData(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
			t.Fatal("no prometheus in PATH: Debian has it in the package prometheus")
		}
		t.Skip("no prometheus in PATH")
	}
	base, do := busy(t)
	do()
	dir := t.TempDir()
	settings := filepath.Join(dir, "prometheus.yml")
	var targets []string
	for _, at := range []string{base, handingOver(t)} {
		target, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, strconv.Quote(target.Host))
	}
	if err := os.WriteFile(settings, fmt.Appendf(nil, "global: {scrape_interval: 250ms}\nscrape_configs: [{job_name: toolfinch, static_configs: [{targets: [%s]}]}]\n", strings.Join(targets, ", ")), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String() // Prometheus cannot say which port it chose
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "--config.file="+settings, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	ask := func(query string) (string, error) {
		response, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		var answer struct {
			Status, Error string
			Data          struct{ Result []json.RawMessage }
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return "", err
		}
		if answer.Status != "success" {
			return "", errors.New(answer.Error)
		}
		var all []byte
		for _, one := range answer.Data.Result {
			all = append(all, one...)
		}
		return string(all), nil
	}
	await.True(t, func() bool {
		got, err := ask("count_over_time(toolfinch_build_info[5m]) >= 2")
		return err == nil && got != ""
	})
	do() // rates are of what changes between two scrapes
	for title, exprs := range queries(t) {
		for _, expr := range exprs {
			looks := 0
			await.Nil(t, func() error {
				got, err := ask(expr)
				if err != nil {
					t.Fatalf("%s: %s: %v", title, expr, err)
				}
				if got != "" && !strings.Contains(got, `"NaN"`) {
					return nil
				}
				if looks++; looks%200 == 0 {
					do() // for a busy machine the last time was too long ago
				}
				return fmt.Errorf("%s: %s has %s", title, expr, got)
			})
		}
	}
}

// A key of one view is shown what is counted of that view, its servers and its tools.
func TestMetricsOfAKeyAreThoseOfItsView(t *testing.T) {
	hats, tools := shop(t, "hats", "hat", "coat"), shop(t, "tools", "saw")
	hat := view.Settings{Name: view.Default, Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "hats", Tools: []view.Override{{Tool: "hat"}}}}}
	config := configOf(t, []*script{hats, tools}, hat, everything("other", view.ExposureDirect))
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	whole, narrow, beside := keyOfView(t, config, "whole", ""), keyOfView(t, config, "narrow", view.Default), keyOfView(t, config, "beside", "other")
	_, url := openREST(t, "", config)
	for _, id := range []string{"hats.hat", "hats.coat", "tools.saw"} {
		curl(t, url, "POST", "/api/proxy/execute?view=other", `{"tool_id":"`+id+`","arguments":{"size":1}}`, "Authorization: Bearer "+whole).wants(t, id, 200)
	}
	got := map[string]string{}
	for name, key := range map[string]string{"whole": whole, "narrow": narrow} {
		answer := curl(t, url, "GET", "/metrics", "", "Authorization: Bearer "+key)
		answer.wants(t, name, 200, `tool="hat"`, `view="default"`, `toolfinch_server_up{server="hats"} 1`)
		got[name] = answer.body
	}
	curl(t, url, "GET", "/metrics", "", "Authorization: Bearer "+beside).wants(t, "of a view that is not the root", 200, `view="other"`, `tool="saw"`)
	curl(t, url, "GET", "/openapi.json", "", "Authorization: Bearer "+beside).wants(t, "the description", 200)
	curl(t, url, "GET", "/api/tools", "", "Authorization: Bearer "+beside).wants(t, "the root", 403)
	for _, label := range []string{`"coat"`, `"saw"`, `"tools"`, `"other"`} {
		if !strings.Contains(got["whole"], label) || strings.Contains(got["narrow"], label) {
			t.Errorf("%s: shown to a key of all views: %t, to that of one: %t", label, strings.Contains(got["whole"], label), strings.Contains(got["narrow"], label))
		}
	}
}
