//go:build unix

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// The suite runs against servers made with the official SDKs, and with mcp-go as
// most use it, directly and through toolfinch. Those of the Go SDK are its own.

const goSDK = "github.com/modelcontextprotocol/go-sdk/conformance/everything-%s@v1.8.0"

// library is a server made with an SDK. One that toolfinch starts has no direct
// results: those of a library over HTTP stand for it.
type library struct {
	name    string
	serve   func() string // starts it and returns its URL; nil with a command
	command []string      // that toolfinch starts; nil with a URL
	legacy  string        // the library over HTTP, with a command
	modern  string        // the same for the suite of 2026-07-28, if it is another
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
	if !long {
		t.Skip("TestConformanceServer has one library")
	}
	t.Parallel()
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
		{name: "mcp-go 1.2.1, stdio", command: []string{everything, "-push", "-stdio"}, legacy: "mcp-go 1.2.1, HTTP",
			// The handler before the library makes these errors what they should be, and it is for HTTP.
			unfair: []string{"sep-2164-data-uri", "sep-2575-missing-capability-http-400", "sep-2575-server-rejects-undeclared-capability"}},
		{name: "Go SDK 1.8.0, HTTP", serve: goHTTP("-stateless=false")},
		{name: "Go SDK 1.8.0, HTTP without sessions", serve: goHTTP(), unfair: again},
		{name: "Go SDK 1.8.0, stdio", command: []string{goServer}, legacy: "Go SDK 1.8.0, HTTP", modern: "Go SDK 1.8.0, HTTP without sessions", unfair: again},
		{name: "TypeScript SDK 1.32.2, HTTP", serve: ts("v1")},
		{name: "TypeScript SDK 1.32.2, stdio", command: []string{c.node, script, "v1", "stdio"}, legacy: "TypeScript SDK 1.32.2, HTTP"},
		{name: "TypeScript SDK 2.4.0, HTTP", serve: ts("v2")},
		{name: "TypeScript SDK 2.4.0, HTTP without sessions", serve: ts("v2", "stateless")},
		{name: "TypeScript SDK 2.4.0, stdio", command: []string{c.node, script, "v2", "stdio"}, legacy: "TypeScript SDK 2.4.0, HTTP"},
	}
	pairs := make([]pair, len(libraries))
	for i, l := range libraries {
		h := newHouse(t, nil)
		h.proxyFor(t, l.configured(), nil)
		through, _ := h.serveHTTP(t)
		waitConnected(t, through)
		pairs[i] = pair{name: l.name, unfair: l.unfair, legacy: l.legacy, modern: cmp.Or(l.modern, l.legacy)}
		urls := [2]string{"", through}
		if l.serve != nil {
			urls[0] = l.serve()
		}
		for side, url := range urls {
			pairs[i].run[side] = func(ctx context.Context, s suite, only string) (results, error) {
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
	if !long {
		t.Skip("TestConformanceClient has one library")
	}
	t.Parallel()
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
	address := freeAddress(t)
	cmd := exec.Command(path, append(args, "-http", address)...)
	cmd.Env = c.house.env
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	await.Nil(t, func() error {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
		}
		return err
	})
	return "http://" + address + "/"
}

// pair is something that the suite is run with directly and through toolfinch, in
// this order; one scenario alone unless only is "".
type pair struct {
	name           string
	legacy, modern string   // the pairs whose direct results stand for this one's, by era; "" for its own
	unfair         []string // checks, by their beginning, that do not judge toolfinch
	run            [2]func(ctx context.Context, s suite, only string) (results, error)
}

// direct names the pair whose direct results are compared.
func (p pair) direct(s suite) string {
	if s.version == modernVersion {
		return cmp.Or(p.modern, p.name)
	}
	return cmp.Or(p.legacy, p.name)
}

// judged are the results without the checks that are unfair to toolfinch.
func (p pair) judged(r results) results {
	// What the SDKs stream without need toolfinch does not.
	unfair := append([]string{"server-sse-streams-functional"}, p.unfair...)
	out := results{}
	for scenario, checks := range r {
		out[scenario] = maps.Clone(checks)
		maps.DeleteFunc(out[scenario], func(id check, _ string) bool {
			return slices.ContainsFunc(unfair, func(begins string) bool { return strings.HasPrefix(string(id), begins) })
		})
	}
	return out
}

// compareAll runs the suites with each pair, fails for every check that is lost on
// the way, and compares the sums with what is written down.
func (c *conformance) compareAll(t *testing.T, table string, pairs []pair) {
	ctx := t.Context()
	type ran struct {
		pair, suite string
		side        int
	}
	var (
		all     = suites[1:3] // one for each era; the fourth is about extensions, which these do not have
		mu      sync.Mutex    // guards found; not held over anything
		found   = map[ran]results{}
		running errgroup.Group
	)
	running.SetLimit(4)
	for _, p := range pairs {
		running.Go(func() error {
			for side, run := range p.run {
				for _, s := range all {
					if side == 0 && p.direct(s) != p.name {
						continue
					}
					r, err := run(ctx, s, "")
					if err != nil {
						return fmt.Errorf("%s, %s: %w", p.name, s.name, err)
					}
					mu.Lock()
					found[ran{p.name, s.name, side}] = r
					mu.Unlock()
				}
			}
			return nil
		})
	}
	must.Do(t, running.Wait())
	var out strings.Builder
	out.WriteString("| | era | direct | through toolfinch | other verdicts through toolfinch |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range pairs {
		for _, s := range all {
			direct, through := p.judged(found[ran{p.direct(s), s.name, 0}]), p.judged(found[ran{p.name, s.name, 1}])
			for _, scenario := range slices.Sorted(maps.Keys(direct)) {
				if len(lost(direct[scenario], through[scenario])) == 0 || excused(scenario, s, sideThrough) {
					continue
				}
				if again, err := p.run[1](ctx, s, scenario); err == nil {
					through[scenario] = p.judged(again)[scenario]
				}
				for _, l := range lost(direct[scenario], through[scenario]) {
					t.Errorf("%s, %s, %s: passes directly, not through toolfinch: %s", p.name, s.name, scenario, l)
				}
			}
			row := func() string {
				return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", p.name, s.version, direct.sum(), through.sum(), differing(direct, through))
			}
			of := slices.IndexFunc(pairs, func(other pair) bool { return other.name == p.direct(s) })
			for _, side := range []struct {
				found results
				run   func(context.Context, suite, string) (results, error)
			}{{through, p.run[1]}, {direct, pairs[of].run[0]}} {
				if isWrittenDown(t, row()) {
					break
				}
				for _, scenario := range slices.Sorted(maps.Keys(side.found)) { // one may take too long beside so much else
					if strings.HasPrefix(verdict(side.found[scenario]), "passes") {
						continue
					}
					if again, err := side.run(ctx, s, scenario); err == nil && again[scenario] != nil {
						side.found[scenario] = p.judged(again)[scenario]
					}
				}
			}
			out.WriteString(row())
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
	for _, scenario := range slices.Sorted(maps.Keys(direct)) {
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
