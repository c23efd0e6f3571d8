//go:build unix

package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
)

// realServer is a published server and what is known of it. The keys that some
// want are never used: nothing here reaches a network.
type realServer struct {
	file  string // below node_modules
	args  []string
	env   map[string]string
	least int // it has at least so many tools
	tool  string
}

var realServers = map[string]realServer{
	"brave":        {file: "@modelcontextprotocol/server-brave-search/dist/index.js", env: map[string]string{"BRAVE_API_KEY": "none"}, least: 2, tool: "brave_web_search"},
	"browser":      {file: "@playwright/mcp/cli.js", args: []string{"--headless"}, least: 20, tool: "browser_navigate"},
	"chart":        {file: "@antv/mcp-server-chart/build/index.js", least: 20, tool: "generate_pie_chart"},
	"cloudflare":   {file: "@cloudflare/mcp-server-cloudflare/dist/index.js", args: []string{"run", "none"}, env: map[string]string{"CLOUDFLARE_ACCOUNT_ID": "none", "CLOUDFLARE_API_TOKEN": "none"}, least: 60, tool: "queue_send_message"},
	"context7":     {file: "@upstash/context7-mcp/dist/index.js", env: map[string]string{"CONTEXT7_API_KEY": "none"}, least: 2, tool: "resolve-library-id"},
	"devtools":     {file: "chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js", args: []string{"--headless", "--no-usage-statistics", "--no-performance-crux"}, least: 20, tool: "take_screenshot"},
	"digitalocean": {file: "@digitalocean/mcp/index.js", args: []string{"--services", "apps,droplets,databases,networking,accounts"}, env: map[string]string{"DIGITALOCEAN_API_TOKEN": "none"}, least: 100, tool: "droplet-list"},
	"eslint":       {file: "@eslint/mcp/src/mcp-cli.js", least: 1, tool: "lint-files"},
	"everything":   {file: "@modelcontextprotocol/server-everything/dist/index.js", args: []string{"stdio"}, least: 10, tool: "echo"},
	"figma":        {file: "figma-developer-mcp/dist/bin.js", args: []string{"--stdio", "--figma-api-key=none"}, env: map[string]string{"FRAMELINK_TELEMETRY": "off"}, least: 2, tool: "get_figma_data"},
	"files":        {file: "@modelcontextprotocol/server-filesystem/dist/index.js", least: 12, tool: "write_file"},
	"github":       {file: "@modelcontextprotocol/server-github/dist/index.js", env: map[string]string{"GITHUB_PERSONAL_ACCESS_TOKEN": "none"}, least: 20, tool: "create_issue"},
	"gitlab":       {file: "@modelcontextprotocol/server-gitlab/dist/index.js", env: map[string]string{"GITLAB_PERSONAL_ACCESS_TOKEN": "none"}, least: 8, tool: "create_merge_request"},
	"hubspot":      {file: "@hubspot/mcp-server/dist/index.js", env: map[string]string{"PRIVATE_APP_ACCESS_TOKEN": "none"}, least: 15, tool: "hubspot-list-objects"},
	"maps":         {file: "@modelcontextprotocol/server-google-maps/dist/index.js", env: map[string]string{"GOOGLE_MAPS_API_KEY": "none"}, least: 6, tool: "maps_geocode"},
	"memory":       {file: "@modelcontextprotocol/server-memory/dist/index.js", least: 8, tool: "create_entities"},
	"notion":       {file: "@notionhq/notion-mcp-server/bin/cli.mjs", env: map[string]string{"NOTION_TOKEN": "none"}, least: 15, tool: "API-post-page"},
	"slack":        {file: "@modelcontextprotocol/server-slack/dist/index.js", env: map[string]string{"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"}, least: 8, tool: "slack_post_message"},
	"tavily":       {file: "tavily-mcp/build/index.js", env: map[string]string{"TAVILY_API_KEY": "none"}, least: 4, tool: "tavily_extract"},
	"thinking":     {file: "@modelcontextprotocol/server-sequential-thinking/dist/index.js", least: 1, tool: "sequentialthinking"},
}

// upstreams makes the named real servers upstreams; no names mean all.
func upstreams(t *testing.T, names ...string) map[string]server {
	t.Helper()
	all := map[string]server{}
	for name, real := range realServers {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		s := script(t, module(t, real.file), real.args...)
		s.Env = real.env
		all[name] = s
	}
	return all
}

// Twenty published servers start at once, beside a client, and are indexed, and their tools are
// found by what a user would say and by their names.
func TestRealServersAreIndexed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, upstreams(t)).with("MCPPROXY_ROUTING_TYPE=CALL_TOOL") // nothing is registered
	life := h.startOf(t, busy(t))
	waitServers(t, life.url, len(realServers))
	c := newSDKClient(t, h.env)
	c.do(t, "connect", map[string]any{"url": life.url}, nil)
	var listed struct {
		Servers []struct {
			Name  string
			Tools int
		}
	}
	must.Do(t, json.Unmarshal([]byte(fetch.Send(t, http.MethodGet, strings.TrimSuffix(life.url, "/mcp")+"/api/servers", "").Body), &listed))
	if len(listed.Servers) != len(realServers) {
		t.Errorf("%d servers are listed", len(listed.Servers))
	}
	for _, s := range listed.Servers {
		if s.Tools < realServers[s.Name].least {
			t.Errorf("%s: %d tools; want %d or more", s.Name, s.Tools, realServers[s.Name].least)
		}
	}
	queries := map[string][2]string{
		"write text to a file":              {"files", "write_file"},
		"take a screenshot of the web page": {"devtools", "take_screenshot"},
		"list my droplets":                  {"digitalocean", "droplet-list"},
		"geocode an address":                {"maps", "maps_geocode"},
		"post a message to a channel":       {"slack", "slack_post_message"},
		"search the web with brave":         {"brave", "brave_web_search"},
		"create entities in the graph":      {"memory", "create_entities"},
		"step by step thinking":             {"thinking", "sequentialthinking"},
		"open a merge request":              {"gitlab", "create_merge_request"},
		"draw a pie chart":                  {"chart", "generate_pie_chart"},
	}
	for name, real := range realServers {
		queries[name+"."+real.tool] = [2]string{name, real.tool}
	}
	for query, want := range queries {
		f := c.retrieve(t, map[string]any{"query": query, "limit": 1})
		if len(f.Tools) != 1 {
			t.Errorf("%q found %d tools, want 1", query, len(f.Tools))
			continue
		}
		if got := f.Tools[0]; got.Server != want[0] || !strings.HasSuffix(got.Name, want[1]) || got.Registered {
			t.Errorf("%q found %s first (registered %v), want %s of %s", query, got.Name, got.Registered, want[1], want[0])
		}
	}
	if got := len(c.list(t)); got != 2 {
		t.Errorf("%d tools are listed, want the two meta-tools", got)
	}

	// What was stored is there for a command, which waits for no server.
	c.leave(t)
	life.stop(t)
	if out, _ := h.said(t, "search", "draw a pie chart", "-k", "1", "--json"); !strings.Contains(out, `"chart_generate_pie_chart"`) {
		t.Errorf("search: %s", out)
	}
}
