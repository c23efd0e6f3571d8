//go:build unix

package main_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// The suite runs against servers made with the official SDKs, and with mcp-go as
// most use it, directly and through toolfinch. Those of the Go SDK are its own.

const goSDK = "github.com/modelcontextprotocol/go-sdk/conformance/everything-%s@v1.8.0"

// library is a server made with an SDK. Directly it is called over HTTP.
type library struct {
	name    string
	serve   func() string // starts it and returns its URL
	modern  func() string // the same for the suite of 2026-07-28, if not nil
	command []string      // that toolfinch starts instead, nil for none
	unfair  []string      // checks, by their beginning, that do not judge toolfinch
}

// configured starts the server, unless toolfinch does, and returns how toolfinch
// is configured for it.
func (l library) configured() map[string]any {
	if l.command != nil {
		return map[string]any{"command": l.command[0], "args": l.command[1:]}
	}
	return map[string]any{"url": l.serve()}
}

func TestConformanceLibraries(t *testing.T) {
	c := newConformance(t)
	everything, goServer := c.build(t, "everything"), c.install(t, "server")
	script := module(t, "../confserver.mjs")
	module(t, "typescript-server/package.json")
	push := func() string { return c.serveEverything(t, everything, "-push") }
	goHTTP := func(args ...string) func() string {
		return func() string { return c.serveAt(t, goServer, args...) }
	}
	ts := func(args ...string) func() string {
		return func() string { return c.serveEverything(t, c.node, append([]string{script}, args...)...) }
	}
	// The server adds the same tool again and again, of which only the first changes the list.
	again := []string{"sep-2575-server-sends-"}
	libraries := []library{
		{name: "mcp-go 1.2.1, HTTP", serve: push},
		{name: "mcp-go 1.2.1, stdio", serve: push, command: []string{everything, "-push", "-stdio"},
			// The handler before the library makes these errors what they should be, and it is for HTTP.
			unfair: []string{"sep-2164-data-uri", "sep-2575-missing-capability-http-400", "sep-2575-server-rejects-undeclared-capability"}},
		{name: "Go SDK 1.8.0, HTTP", serve: goHTTP("-stateless=false")},
		{name: "Go SDK 1.8.0, HTTP without sessions", serve: goHTTP(), unfair: again},
		{name: "Go SDK 1.8.0, stdio", serve: goHTTP("-stateless=false"), modern: goHTTP(), command: []string{goServer}, unfair: again},
		{name: "TypeScript SDK 1.32.2, HTTP", serve: ts("v1")},
		{name: "TypeScript SDK 1.32.2, stdio", serve: ts("v1"), command: []string{c.node, script, "v1", "stdio"}},
		{name: "TypeScript SDK 2.4.0, HTTP", serve: ts("v2")},
		{name: "TypeScript SDK 2.4.0, HTTP without sessions", serve: ts("v2", "stateless")},
		{name: "TypeScript SDK 2.4.0, stdio", serve: ts("v2"), command: []string{c.node, script, "v2", "stdio"}},
	}
	if testing.Short() { // one over each transport
		libraries = []library{libraries[0], libraries[4]}
	}
	pairs := make([]pair, len(libraries))
	for i, l := range libraries {
		h := newHouse(t, nil)
		h.proxyFor(t, l.configured(), pinned)
		through, _ := h.serveHTTP(t)
		waitConnected(t, through)
		pairs[i].name, pairs[i].unfair = l.name, l.unfair
		direct, modern := l.serve(), ""
		if l.modern != nil {
			modern = l.modern()
		}
		for side, url := range []string{direct, through} {
			pairs[i].run[side] = func(ctx context.Context, s suite, only string) (results, error) {
				url := url
				if side == 0 && modern != "" && s.version == modernVersion {
					url = modern
				}
				args := s.all
				if only != "" {
					args = []string{"--scenario", only}
					if s.version != "" {
						args = append(args, "--spec-version", s.version)
					}
				}
				found := results{}
				return found, c.run(ctx, s, found, append([]string{"server", "--url", url}, args...)...)
			}
		}
	}
	c.compareAll(t, "library server", pairs)
}

func TestConformanceLibraryClient(t *testing.T) {
	c := newConformance(t)
	player, client := c.build(t, "everything/player"), c.install(t, "client")
	one := pair{name: "Go SDK 1.8.0"}
	direct := fmt.Sprintf("%s -home %s -client %s", player, c.house.home, client)
	for side, command := range []string{direct, direct + " -through " + program(t)} {
		one.run[side] = func(ctx context.Context, s suite, only string) (results, error) {
			return c.client(ctx, t, s, command, only)
		}
	}
	c.compareAll(t, "library client", []pair{one})
	c.house.noneLeft(t)
}

// install builds a program of the Go SDK, which is no module of ours.
func (c *conformance) install(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		missing(t, "there is no go command to install the Go SDK's %s with", name)
	}
	cmd := exec.CommandContext(t.Context(), "go", "install", fmt.Sprintf(goSDK, name))
	cmd.Dir = c.house.home
	cmd.Env = append(os.Environ(), "GOBIN="+c.house.home)
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, "the Go SDK's conformance %s cannot be had here: %v\n%s", name, err, out)
	}
	return filepath.Join(c.house.home, "everything-"+name)
}

// serveAt starts a server of the Go SDK on a free port and returns its URL. The
// test's end kills it.
func (c *conformance) serveAt(t *testing.T, path string, args ...string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(args, "-http", address)...)
	cmd.Env = c.house.env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
			return "http://" + address + "/"
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen: %v", path, err)
		}
	}
}

// pair is something that the suite is run with directly and through toolfinch, in
// this order; one scenario alone unless only is "".
type pair struct {
	name   string
	unfair []string // checks, by their beginning, that do not judge toolfinch
	run    [2]func(ctx context.Context, s suite, only string) (results, error)
}

// judged is run of a side without the checks that are unfair to toolfinch.
func (p pair) judged(side int) func(ctx context.Context, s suite, only string) (results, error) {
	// What the SDKs stream without need toolfinch does not.
	unfair := append([]string{"server-sse-streams-functional"}, p.unfair...)
	return func(ctx context.Context, s suite, only string) (results, error) {
		r, err := p.run[side](ctx, s, only)
		for _, checks := range r {
			maps.DeleteFunc(checks, func(id check, _ string) bool {
				return slices.ContainsFunc(unfair, func(begins string) bool { return strings.HasPrefix(string(id), begins) })
			})
		}
		return r, err
	}
}

// compareAll runs the suites with each pair, fails for every check that is lost on
// the way, and compares the sums with what is written down.
func (c *conformance) compareAll(t *testing.T, table string, pairs []pair) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	all := reduced(suites[:3]) // the fourth is about extensions, which these do not have
	found := make([][2][]results, len(pairs))
	var running errgroup.Group
	running.SetLimit(2)
	for i, p := range pairs {
		running.Go(func() error {
			for side := range p.run {
				for _, s := range all {
					r, err := p.judged(side)(ctx, s, "")
					if err != nil {
						return fmt.Errorf("%s, %s: %w", p.name, s.name, err)
					}
					found[i][side] = append(found[i][side], r)
				}
			}
			return nil
		})
	}
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("| | suite, era | direct | through toolfinch | other verdicts through toolfinch |\n| --- | --- | --- | --- | --- |\n")
	for i, p := range pairs {
		for j, s := range all {
			direct, through := found[i][0][j], found[i][1][j]
			for _, scenario := range sortedKeys(direct) {
				if len(lost(direct[scenario], through[scenario])) == 0 || excused(scenario, s, sideWhole) {
					continue
				}
				if again, err := p.judged(1)(ctx, s, scenario); err == nil {
					through[scenario] = again[scenario]
				}
				for _, l := range lost(direct[scenario], through[scenario]) {
					t.Errorf("%s, %s, %s: passes directly, not through toolfinch: %s", p.name, s.name, scenario, l)
				}
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", p.name, s.name, direct.sum(), through.sum(), differing(direct, through))
		}
	}
	writtenDown(t, table, out.String())
}

// sum is how many of the scenarios that apply pass.
func (r results) sum() string {
	passed, applicable := 0, 0
	for _, checks := range r {
		v := verdict(checks)
		if v != "not applicable" {
			applicable++
		}
		if strings.HasPrefix(v, "passes") {
			passed++
		}
	}
	return fmt.Sprintf("%d of %d", passed, applicable)
}

// differing are the scenarios that pass on one side only.
func differing(direct, through results) string {
	var more, fewer []string
	for _, scenario := range sortedKeys(direct) {
		before, after := strings.HasPrefix(verdict(direct[scenario]), "passes"), strings.HasPrefix(verdict(through[scenario]), "passes")
		switch {
		case after && !before:
			more = append(more, scenario)
		case before && !after:
			fewer = append(fewer, scenario)
		}
	}
	var out []string
	switch {
	case len(more) > 6:
		out = append(out, fmt.Sprintf("%d more pass", len(more)))
	case len(more) > 0:
		out = append(out, "passes: "+strings.Join(more, ", "))
	}
	if len(fewer) > 0 {
		out = append(out, "does not: "+strings.Join(fewer, ", "))
	}
	return strings.Join(out, "; ")
}
