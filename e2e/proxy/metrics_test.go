package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/trust/audit"
	"toolfinch/trust/policy"
	"toolfinch/upstream"
	"toolfinch/view"
)

// busy serves what every metric counts something of. do has it all happen once more.
func busy(t *testing.T) (base string, do func()) {
	s := newShop(t, "shop", "look", "put")
	s.AddTool(mcp.NewTool("burn"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("no fire"), nil
	})
	s.AddPrompt(mcp.NewPrompt("greet"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("good day"))}}, nil
	})
	s.AddResource(mcp.NewResource("file:///note", "note"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: "file:///note", Text: "a note"}}, nil
	})
	config := configOf(t, []*shop{s}, everything(view.Default, view.ExposureRetrieve))
	config.Servers = append(config.Servers, upstream.Settings{Name: "local", Command: os.Args[0], Env: map[string]string{soakVar: "local"}, ConnectTimeout: await.Bound})
	compiled, wrong := policy.Compile([]policy.Text{{Cedar: `permit (principal, action, resource); forbid (principal, action, resource) when { resource.name == "put" };`, File: "team.cedar", Line: 1, Column: 1}})
	for _, err := range wrong {
		t.Fatal(err)
	}
	config.Policies = compiled
	settings := audit.Settings{File: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge}
	log := must.Get(audit.Open(settings, nil, slog.New(slog.DiscardHandler)))(t)
	r := open(t, config, proxy.WithAudit(log, settings))
	return r.url, func() {
		c := r.connect("", false, "", "")
		call(t.Context(), c, "retrieve_tools", map[string]any{"query": "look at a ware"})
		call(t.Context(), c, "shop_look", map[string]any{"size": 1})
		for _, name := range []string{"shop_burn", "shop_put", "shop_nothing", "call_tool"} { // fails, is forbidden, is not there, lacks an argument
			call(t.Context(), c, name, map[string]any{})
		}
		_, _ = c.GetPrompt(t.Context(), mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: "shop_greet"}})
		_, _ = c.ReadResource(t.Context(), mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "file:///note"}})
	}
}

// handingOver serves what every metric of replicas counts something of: two of them, of which one hands a
// request to the other.
func handingOver(t *testing.T) (base string) {
	t.Helper()
	all := replicasOf(t, 2, configOf(t, []*shop{newShop(t, "shop", "hat")}, everything(view.Default, view.ExposureRetrieve)))
	post := func(r *replica, body, session string) http.Header {
		t.Helper()
		got := fetch.Send(t, http.MethodPost, r.url+"/mcp", body, "Accept: application/json, text/event-stream", "Mcp-Session-Id: "+session)
		wants(t, body, got, http.StatusOK)
		return got.Header
	}
	opened := post(all[1], `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`, "")
	post(all[0], `{"jsonrpc":"2.0","id":2,"method":"ping"}`, opened.Get("Mcp-Session-Id"))
	return all[0].url
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
	table.WriteString("| metric and its labels | type | what it counts |\n|---|---|---|\n")
	all := exposed(t, fetch.Send(t, "GET", base+"/metrics", "").Body)
	maps.Copy(all, exposed(t, fetch.Send(t, "GET", replicas+"/metrics", "").Body))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		labels := ""
		if len(m.labels) > 0 {
			labels = "{" + strings.Join(m.labels, ",") + "}"
		}
		fmt.Fprintf(&table, "| `%s%s` | %s | %s |\n", m.name, labels, m.kind, m.help)
	}
	const path, begin, end = "../../docs/observability.md", "<!-- metrics: written in e2e by go test ./proxy -run TestEveryMetricIsDocumented -update -->\n", "<!-- end of metrics -->"
	page := must.Get(os.ReadFile(path))(t)
	before, rest, found := strings.Cut(string(page), begin)
	documented, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", path)
	}
	if *update {
		must.Do(t, os.WriteFile(path, []byte(before+begin+table.String()+end+after), 0o644))
	} else if documented != table.String() {
		t.Errorf("%s has\n%s\nwant (-update writes it)\n%s", path, documented, table.String())
	}
}

// queries are those of docs/grafana.json, by the title of their panel, as Grafana sends them.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/grafana.json"))(t)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must.Do(t, json.Unmarshal(text, &dashboard))
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
		missing(t, "no prometheus in PATH: Debian has it in the package prometheus")
	}
	base, do := busy(t)
	do()
	dir := t.TempDir()
	settings := filepath.Join(dir, "prometheus.yml")
	var targets []string
	for _, at := range []string{base, handingOver(t)} {
		target := must.Get(url.Parse(at))(t)
		targets = append(targets, strconv.Quote(target.Host))
	}
	must.Do(t, os.WriteFile(settings, fmt.Appendf(nil, "global: {scrape_interval: 250ms}\nscrape_configs: [{job_name: toolfinch, static_configs: [{targets: [%s]}]}]\n", strings.Join(targets, ", ")), 0o644))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String() // Prometheus cannot say which port it chose
	must.Do(t, listener.Close())
	command := exec.CommandContext(t.Context(), program, "--config.file="+settings, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	must.Do(t, command.Start())
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
				if looks++; looks%20 == 0 {
					do() // for a busy machine the last time was too long ago
				}
				return fmt.Errorf("%s: %s has %s", title, expr, got)
			})
		}
	}
}
