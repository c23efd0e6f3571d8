//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"toolfinch/internal/must"
)

// The official conformance suite runs against a server directly and through
// toolfinch, and its servers are called directly and through toolfinch. What
// passes directly must pass through toolfinch, check by check.

// Where the results are written down.
const conformanceDoc = "../docs/research/conformance.md"

var writing sync.Mutex // held over reading and writing it

// The protocol versions that stand for the two eras.
const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// suite is one version of the conformance suite, run for one era.
type suite struct {
	name    string   // in the table
	module  string   // the npm package's name here
	version string   // of the protocol; "" for a suite that needs not be told
	all     []string // what runs all its server scenarios at once, if something does
	listed  string   // how its list of scenarios marks those of this era
}

var suites = []suite{
	{name: "0.1.16, " + legacyVersion, module: "conformance-stable", all: []string{"--suite", "all"}, listed: legacyVersion},
	{name: "0.2.0-alpha.12, " + legacyVersion, module: "conformance-next", version: legacyVersion, all: []string{"--suite", "all", "--spec-version", legacyVersion}, listed: legacyVersion},
	{name: "0.2.0-alpha.12, " + modernVersion, module: "conformance-next", version: modernVersion, all: []string{"--suite", "all", "--spec-version", modernVersion}, listed: modernVersion},
	{name: "0.2.0-alpha.12, extensions", module: "conformance-next", version: modernVersion, listed: "extension"},
}

// The sides that are compared, as the table's columns.
const (
	sideDirect   = "direct"
	sideThrough  = "through toolfinch"
	sideSearched = "through toolfinch, `direct_below: 0`"
	sideBridged  = "through toolfinch, server held to the legacy era"
)

// excused are scenarios that need not pass everywhere, by the first words of
// their suite and side; the documentation says why.
func excused(scenario string, s suite, side string) bool {
	switch {
	case scenario == "server-sse-polling": // how a server ends and resumes its own streams is between it and its client
		return true
	case side == sideSearched:
		return slices.Contains(ofTheList, scenario)
	case side != sideBridged:
		return false
	}
	return s.listed == "extension" && !strings.HasPrefix(scenario, ofSkills) || s.listed == modernVersion && slices.Contains(unsaid, scenario)
}

// ofTheList are scenarios that look for a tool in tools/list, which has the
// meta-tools only, or wait for that list to change.
var ofTheList = []string{"json-schema-2020-12", "http-custom-header-server-validation", "server-stateless"}

// unsaid are scenarios about what a server of the legacy era has no words for:
// keys of the requests that it makes, and a refusal for a capability.
var unsaid = []string{"input-required-result-basic-elicitation", "input-required-result-ignore-extra-params", "server-stateless"}

func TestConformanceServer(t *testing.T) {
	t.Parallel()
	c := newConformance(t)
	everything := c.build(t, "everything")
	kit, folder := skillsServer(t)
	serveSkills := func() string { return c.serveEverything(t, c.node, kit.Args[0], folder, "http") }
	urls := map[string]string{sideDirect: c.serveEverything(t, everything)}
	skillURLs := map[string]string{}
	if long {
		skillURLs[sideDirect] = serveSkills()
	}
	sides := []string{sideDirect, sideThrough, sideSearched, sideBridged}
	if !long {
		sides = sides[:2]
	}
	for side, how := range map[string]struct {
		protocol string
		exposure map[string]any
	}{sideThrough: {"auto", nil}, sideSearched: {"auto", searched}, sideBridged: {"legacy", pinned}} {
		if !slices.Contains(sides, side) {
			continue
		}
		through := func(url string) string {
			h := newHouse(t, nil)
			h.proxyFor(t, map[string]any{"url": url, "protocol": how.protocol}, how.exposure)
			front, _ := h.serveHTTP(t)
			waitConnected(t, front)
			return front
		}
		urls[side] = through(c.serveEverything(t, everything))
		if long {
			skillURLs[side] = through(serveSkills())
		}
	}
	c.compare(t, "server", sides, func(ctx context.Context, s suite, side, only string) (results, error) {
		found := results{}
		run := func(url string, args ...string) error {
			return c.run(ctx, s, found, append([]string{"server", "--url", url}, args...)...)
		}
		if s.all != nil && only == "" {
			return found, run(urls[side], s.all...)
		}
		for _, scenario := range c.scenarios(t, s, "Server") {
			url := urls[side]
			switch skill := strings.HasPrefix(scenario, ofSkills); {
			case only != "" && only != scenario, side == sideBridged && !skill && s.listed == "extension": // tasks are of the other era
				continue
			case skill:
				url = skillURLs[side]
			}
			args := []string{"--scenario", scenario, "--timeout", "180000"}
			if s.version != "" {
				args = append(args, "--spec-version", s.version, "--force")
			}
			if err := run(url, args...); err != nil {
				return nil, err
			}
		}
		return found, nil
	})
}

func TestConformanceClient(t *testing.T) {
	t.Parallel()
	c := newConformance(t)
	player := c.build(t, "everything/player")
	reader := filepath.Join(c.house.home, "skillreader") // for skills, which the library does not know
	file := must.Get(filepath.Abs("../testdata/node/skillreader.mjs"))(t)
	must.Do(t, os.WriteFile(reader, fmt.Appendf(nil, "#!/bin/sh\nexec %q %q \"$@\"\n", c.node, file), 0o755))
	c.compare(t, "client", []string{sideDirect, sideThrough}, func(ctx context.Context, s suite, side, only string) (results, error) {
		command := player
		if s.listed == "extension" {
			command += " -client " + reader
		}
		if side == sideThrough {
			command += fmt.Sprintf(" -home %s -through %s", c.house.home, program(t))
		}
		return c.client(ctx, t, s, command, only)
	})
}

// client runs the suite's scenarios for clients with a command, one alone unless
// only is "".
func (c *conformance) client(ctx context.Context, t *testing.T, s suite, command, only string) (results, error) {
	found := results{}
	scenarios := c.scenarios(t, s, "Client")
	if !long && only == "" {
		scenarios = scenarios[:2]
	}
	for _, scenario := range scenarios {
		if only != "" && only != scenario {
			continue
		}
		args := []string{"client", "--command", command, "--scenario", scenario, "--timeout", "180000"}
		if s.version != "" {
			args = append(args, "--spec-version", s.version, "--force")
		}
		if err := c.run(ctx, s, found, args...); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// conformance runs the suites.
type conformance struct {
	house house
	node  string
	env   []string          // of the suites
	main  map[string]string // the suites' programs by module

	listing sync.Mutex        // guards lists; held while a suite lists
	lists   map[string]string // the suites' scenarios by module

	mu      sync.Mutex // guards outputs; not held over anything
	outputs int        // folders of results so far
}

func newConformance(t *testing.T) *conformance {
	t.Helper()
	c := &conformance{node: node(t), main: map[string]string{}, lists: map[string]string{}}
	for _, s := range suites {
		c.main[s.module] = module(t, s.module+"/dist/index.js")
	}
	c.house = newHouse(t, nil)
	// Most of what a run costs is to compile the suite.
	c.env = append(slices.Clone(c.house.env), "NODE_COMPILE_CACHE="+filepath.Join(c.house.home, "compiled"))
	return c
}

// build makes a program of testdata.
func (c *conformance) build(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		missing(t, "there is no go command to build testdata/%s with", name)
	}
	path := filepath.Join(c.house.home, filepath.Base(name))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./testdata/"+name)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build testdata/%s: %v\n%s", name, err, out)
	}
	return path
}

// serveEverything starts a server and returns its URL. The test's end stops it.
func (c *conformance) serveEverything(t *testing.T, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = c.house.env
	cmd.Stderr = newLog(t, "the everything server")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("the everything server ended before it was asked to: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the everything server ended with %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the everything server says no URL: %v", err)
	}
	return strings.TrimSpace(line)
}

// How tools are shown, as the configuration has it, other than a list of them all,
// which the servers here are small enough for: not at all beside the meta-tools, or
// each beside them.
var (
	searched = map[string]any{"direct_below": 0}
	pinned   = map[string]any{"direct_below": 0, "pinned": []string{"*"}}
)

// proxyFor writes the configuration for one upstream whose names stay as they are.
func (h house) proxyFor(t *testing.T, server, exposure map[string]any) {
	t.Helper()
	config := only(server, exposure)
	config["data_dir"], config["log_format"] = filepath.Join(h.home, "data"), "json"
	text := must.Get(json.Marshal(config))(t)
	must.Do(t, os.WriteFile(h.config, text, 0o644))
}

// only is the part of a configuration that says what one upstream is and how its
// tools are shown.
func only(server, exposure map[string]any) map[string]any {
	server = maps.Clone(server)
	server["prefix"], server["changes"] = "", "allow" // the suite has servers add tools
	config := map[string]any{"direct_below": 12000, "mcp_servers": map[string]any{"everything": server}}
	maps.Copy(config, exposure)
	return config
}

// waitConnected waits until the toolfinch at that URL has its one upstream.
func waitConnected(t *testing.T, url string) {
	t.Helper()
	waitServers(t, url, 1)
}

// leftOut are scenarios, by their beginning, that are not run: those for OAuth.
// Those of skills have a server and a client of their own.
const (
	leftOut  = "auth/"
	ofSkills = "sep-2640-"
)

// scenarios are those that the suite lists for its era, in its order, without those
// that are left out. The role is Server or Client.
func (c *conformance) scenarios(t *testing.T, s suite, role string) []string {
	t.Helper()
	out := c.list(t, s)
	_, section, _ := strings.Cut(out, role+" scenarios")
	section, _, _ = strings.Cut(section, "\n\n")
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^  - (\S+) \[(.*)\]$`).FindAllStringSubmatch(section, -1) {
		if slices.Contains(strings.Split(m[2], ","), s.listed) {
			all = append(all, m[1])
		}
	}
	if len(all) == 0 {
		t.Errorf("the suite lists no scenarios of %s:\n%s", s.listed, out)
	}
	return slices.DeleteFunc(all, func(scenario string) bool {
		return strings.HasPrefix(scenario, leftOut)
	})
}

// list is what the suite lists.
func (c *conformance) list(t *testing.T, s suite) string {
	t.Helper()
	c.listing.Lock()
	defer c.listing.Unlock()
	if c.lists[s.module] == "" {
		out, err := c.suite(t.Context(), s, "list")
		if err != nil {
			t.Errorf("list the scenarios: %v\n%s", err, out)
		}
		c.lists[s.module] = string(out)
	}
	return c.lists[s.module]
}

// suite runs the suite's program. It ends with an error when a check failed.
func (c *conformance) suite(ctx context.Context, s suite, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.node, append([]string{c.main[s.module]}, args...)...)
	cmd.Dir = c.house.home
	cmd.Env = c.env
	return cmd.CombinedOutput()
}

// run runs scenarios and adds what came out.
func (c *conformance) run(ctx context.Context, s suite, found results, args ...string) error {
	c.mu.Lock()
	c.outputs++
	dir := filepath.Join(c.house.home, fmt.Sprintf("results-%d", c.outputs))
	c.mu.Unlock()
	out, err := c.suite(ctx, s, append(args, "-o", dir)...)
	if ctx.Err() != nil {
		return fmt.Errorf("the suite did not end: %w\n%s", ctx.Err(), out)
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	return found.read(dir, args[0], out)
}

// check names one check of a scenario: its ID, its name where that says more,
// and its number where both occur again.
type check string

// results are the checks' statuses by scenario.
type results map[string]map[check]string

// stamped is how the suite names a folder: role, scenario and time.
var stamped = regexp.MustCompile(`^(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// read adds the results of a run from its folder.
func (r results) read(dir, role string, output []byte) error {
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		return err
	}
	within, _ := filepath.Glob(filepath.Join(dir, "*", "*", "checks.json")) // of scenarios with a / in their names
	if files = append(files, within...); len(files) == 0 {
		return fmt.Errorf("the suite left no results\n%s", output)
	}
	for _, file := range files {
		name := stamped.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if name == nil {
			return fmt.Errorf("the suite left results in %s, which names no scenario", filepath.Dir(file))
		}
		scenario := name[1]
		if role == "server" {
			scenario = strings.TrimPrefix(scenario, "server-")
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var list []struct{ ID, Name, Status string }
		if err := json.Unmarshal(text, &list); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		checks := map[check]string{}
		for _, entry := range list {
			if entry.Status == "INFO" { // what was seen, not what was judged
				continue
			}
			id := check(entry.ID + " " + entry.Name)
			for n := 2; checks[id] != ""; n++ {
				id = check(fmt.Sprintf("%s %s %d", entry.ID, entry.Name, n))
			}
			checks[id] = entry.Status
		}
		r[scenario] = checks
	}
	return nil
}

// wellFormed is the check of every message's form, which is made even when a
// scenario finds nothing else to check.
const wellFormed check = "wire-schema-valid WireSchemaValid"

// verdict is one side's cell of the table.
func verdict(checks map[check]string) string {
	passed, judged := 0, 0
	applicable := false
	for id, status := range checks {
		switch status {
		case "SUCCESS":
			passed++
			judged++
		case "FAILURE", "WARNING":
			judged++
		default: // skipped
			continue
		}
		applicable = applicable || id != wellFormed || status != "SUCCESS"
	}
	switch {
	case !applicable:
		return "not applicable"
	case passed == judged:
		return fmt.Sprintf("passes (%d)", passed)
	}
	return fmt.Sprintf("%d of %d", passed, judged)
}

// scenarioVerdicts are the verdicts of one scenario, one for each column of the table.
type scenarioVerdicts struct {
	scenario string
	verdicts []string
}

// rowsByVerdict returns rows of a table that begin with first, if it is not empty. Scenarios with the
// same verdicts share a row; the number of checks that passed follows each scenario, one for each
// column where these numbers differ.
func rowsByVerdict(first string, judged []scenarioVerdicts) string {
	var order []string
	scenarios := map[string][]string{}
	for _, j := range judged {
		var cells, counts []string
		for _, v := range j.verdicts {
			if count, ok := strings.CutPrefix(v, "passes ("); ok {
				v, counts = "passes", append(counts, strings.TrimSuffix(count, ")"))
			}
			cells = append(cells, v)
		}
		name := j.scenario
		if distinct := slices.Compact(slices.Clone(counts)); len(distinct) == 1 {
			name += " (" + counts[0] + ")"
		} else if len(distinct) > 1 {
			name += " (" + strings.Join(counts, "/") + ")"
		}
		key := "| " + strings.Join(cells, " | ") + " |"
		if scenarios[key] == nil {
			order = append(order, key)
		}
		scenarios[key] = append(scenarios[key], name)
	}
	var rows strings.Builder
	for _, key := range order {
		if first != "" {
			rows.WriteString("| " + first + " ")
		}
		rows.WriteString(key + " " + strings.Join(scenarios[key], ", ") + " |\n")
	}
	return rows.String()
}

// lost are the checks that pass directly and not through toolfinch.
func lost(direct, through map[check]string) []string {
	var all []string
	for id, status := range direct {
		if got := through[id]; status == "SUCCESS" && got != "SUCCESS" {
			if got == "" {
				got = "missing"
			}
			all = append(all, fmt.Sprintf("%s: %s", id, got))
		}
	}
	slices.Sort(all)
	return all
}

// compare runs every suite on both sides, the sides at the same time, fails for
// every check that is lost between them, and compares with what is written down.
func (c *conformance) compare(t *testing.T, role string, sides []string, run func(ctx context.Context, s suite, side, only string) (results, error)) {
	ctx := t.Context()
	suites := reduced(suites)
	found := make([][]results, len(sides))
	var all errgroup.Group
	all.SetLimit(4)
	for side, name := range sides {
		found[side] = make([]results, len(suites))
		all.Go(func() error {
			for i, s := range suites {
				r, err := run(ctx, s, name, "")
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, name, err)
				}
				found[side][i] = r
			}
			return nil
		})
	}
	must.Do(t, all.Wait())

	// again runs a scenario by itself that fails where it passes on another side. The suite runs
	// scenarios at once, and a server on mcp-go puts what it notifies on any open stream of the
	// session, other calls' too.
	again := func(s suite, name, scenario string, passes, got map[check]string) map[check]string {
		if len(lost(passes, got)) == 0 {
			return got
		}
		alone, err := run(ctx, s, name, scenario)
		if err != nil {
			t.Error(err)
		}
		if err != nil || len(lost(passes, alone[scenario])) > 0 {
			return got
		}
		t.Logf("%s, %s: passes %s by itself only: %q", scenario, s.name, name, lost(passes, got))
		return alone[scenario]
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| suite, era | %s | scenarios |\n|%s\n", strings.Join(sides, " | "), strings.Repeat(" --- |", len(sides)+2))
	for i, s := range suites {
		direct := found[0][i]
		var judged []scenarioVerdicts
		for _, scenario := range slices.Sorted(maps.Keys(direct)) {
			if !excused(scenario, s, sides[1]) {
				direct[scenario] = again(s, sides[0], scenario, found[1][i][scenario], direct[scenario])
			}
			verdicts := []string{verdict(direct[scenario])}
			for side, name := range sides[1:] {
				there := found[side+1][i][scenario]
				if !excused(scenario, s, name) {
					there = again(s, name, scenario, direct[scenario], there)
				}
				verdicts = append(verdicts, verdict(there))
				if excused(scenario, s, name) {
					continue
				}
				for _, l := range lost(direct[scenario], there) {
					t.Errorf("%s, %s: passes directly, not %s: %s", scenario, s.name, name, l)
				}
			}
			judged = append(judged, scenarioVerdicts{scenario, verdicts})
		}
		table.WriteString(rowsByVerdict(s.name, judged))
	}
	writtenDown(t, role, table.String())
}

// reduced are the suites, in CI one for each era.
func reduced(suites []suite) []suite {
	if !long {
		return []suite{suites[0], suites[2]}
	}
	return suites
}

// writtenDown checks that the documentation has the table, between its marks,
// or puts it there. In CI the table is not whole.
func writtenDown(t *testing.T, role, table string) {
	t.Helper()
	if !long {
		return
	}
	writing.Lock()
	defer writing.Unlock()
	doc := must.Get(os.ReadFile(conformanceDoc))(t)
	start, end := []byte("<!-- "+role+" scenarios -->\n"), []byte("<!-- end of "+role+" scenarios -->")
	before, rest, ok := bytes.Cut(doc, start)
	is, after, ok2 := bytes.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks %q and %q", conformanceDoc, start, end)
	}
	if string(is) == table {
		return
	}
	if os.Getenv("UPDATE_CONFORMANCE") == "" {
		t.Errorf("%s says otherwise; UPDATE_CONFORMANCE=1 writes down:\n%s", conformanceDoc, differences(string(is), table))
		return
	}
	must.Do(t, os.WriteFile(conformanceDoc, slices.Concat(before, start, []byte(table), end, after), 0o644))
}

// isWrittenDown reports whether the document has a line.
func isWrittenDown(t *testing.T, line string) bool {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	doc := must.Get(os.ReadFile(conformanceDoc))(t)
	return strings.Contains(string(doc), line)
}

// differences are the lines of one text that are not in the other.
func differences(old, now string) string {
	var out strings.Builder
	for line := range strings.Lines(old) {
		if !strings.Contains(now, line) {
			out.WriteString("- " + line)
		}
	}
	for line := range strings.Lines(now) {
		if !strings.Contains(old, line) {
			out.WriteString("+ " + line)
		}
	}
	return out.String()
}

// Scenarios with the same verdicts share a row, and no number of checks is lost.
func TestRowsByVerdict(t *testing.T) {
	t.Parallel()
	got := rowsByVerdict("0.1.16", []scenarioVerdicts{
		{"ping", []string{"passes (1)", "passes (1)"}},
		{"polling", []string{"passes (3)", "not applicable"}},
		{"schema", []string{"passes (4)", "0 of 1"}},
		{"tools", []string{"passes (2)", "passes (3)"}},
	})
	if want := "| 0.1.16 | passes | passes | ping (1), tools (2/3) |\n| 0.1.16 | passes | not applicable | polling (3) |\n| 0.1.16 | passes | 0 of 1 | schema (4) |\n"; got != want {
		t.Errorf("rows\n%s want\n%s", got, want)
	}
}
