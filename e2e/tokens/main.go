// Tokens measures what whole tasks cost: it runs published agents with a scripted model
// and recorded servers, with and without toolfinch, and counts what the agents send.
// docs/research/savings.md says how, and has the tables that it writes.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"toolfinch/e2e/agents"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 2 && arguments[0] == "replay" {
		server, err := readRecorded(arguments[1])
		if err != nil {
			return err
		}
		return replay(server, os.Stdin, os.Stdout)
	}
	flags := flag.NewFlagSet("tokens", flag.ContinueOnError)
	results := flags.String("results", "tokens.jsonl", "the file of results; what is there is not measured again")
	recorded := flags.String("realtools", "../../shared/realtools", "the folder of recorded servers")
	modules := flags.String("modules", "../testdata/node/node_modules", "the npm packages of the agents")
	program := flags.String("toolfinch", "", "the program; without it, that of this folder is built")
	chosen := document[0]
	flags.StringVar(&chosen.agents, "agents", chosen.agents, "")
	flags.StringVar(&chosen.tools, "tools", chosen.tools, "sizes of catalogues, among 10, 31, 89, 163, 480 and 1002")
	flags.StringVar(&chosen.needs, "needs", chosen.needs, "how many tools the task needs")
	flags.StringVar(&chosen.plans, "plans", chosen.plans, "")
	flags.StringVar(&chosen.strategies, "strategies", chosen.strategies, "among direct, AUTO, DYNAMIC, CALL_TOOL, view, gated, hot and code; without it, what the document has")
	flags.BoolVar(&chosen.own, "own", false, "with the agents' own settings: their tool search is on")
	side := flags.Int("parallel", 2, "runs at a time")
	seed := flags.Uint64("seed", 1, "of the choice of tasks")
	keep := flags.Bool("keep", false, "leave the folders of the runs behind")
	fresh := flags.Bool("fresh", false, "measure again what is there")
	write := flags.String("write", "", "write the tables of this document, from the results, and measure nothing")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	have, err := readResults(*results)
	if err != nil {
		return err
	}
	if *write != "" {
		return writeDocument(*write, have)
	}

	selections := document
	if chosen != document[0] {
		selections = []selection{chosen}
	}
	b := &bench{toolfinch: *program, seed: *seed, keep: *keep}
	revision, err := b.find(*modules, *recorded)
	if err != nil {
		return err
	}
	var cells []cell
	for _, s := range selections {
		more, err := s.cells(revision)
		if err != nil {
			return err
		}
		cells = append(cells, more...)
	}
	return b.all(cells, have, *fresh, *side, *results)
}

// selection is what to measure; each is a list.
type selection struct {
	agents, tools, needs, plans, strategies string
	own                                     bool
}

// document is what docs/research/savings.md has: the default settings in full, of the rest a
// sample. With DYNAMIC only an agent that lists again can call what it has found.
var document = []selection{
	{"opencode,gemini-cli,claude-code,codex,qwen-code,copilot,cline,continue", "31,89,163,480", "1,3,8", stepwise + "," + foresees, "direct,AUTO", false},
	{"claude-code,codex", "10,1002", "1,3,8", stepwise + "," + foresees, "direct,AUTO", false},
	{"opencode,claude-code,codex", "89,480", "3", stepwise + "," + foresees, "CALL_TOOL,gated,code", false},
	{"opencode,claude-code,codex", "89,480", "3", stepwise, "view,hot", false},
	{"opencode,gemini-cli", "89,480", "3", stepwise + "," + foresees, "DYNAMIC", false},
	{"claude-code", "89,163,480", "1,3,8", stepwise + "," + byName, "direct,AUTO,CALL_TOOL", true},
}

// cells are what is measured of a revision of toolfinch.
func (s selection) cells(revision string) (cells []cell, err error) {
	for _, strategy := range strings.Split(s.strategies, ",") {
		for _, tools := range strings.Split(s.tools, ",") {
			for _, needs := range strings.Split(s.needs, ",") {
				for _, plan := range strings.Split(s.plans, ",") {
					for _, agent := range strings.Split(s.agents, ",") {
						c := cell{Agent: agent, Plan: plan, Strategy: strategy, Revision: revision, Own: s.own}
						c.Tools, _ = strconv.Atoi(tools)
						c.Needs, _ = strconv.Atoi(needs)
						if strategies[strategy] == nil || sets[c.Tools] == nil || c.Needs < 1 || !slices.Contains([]string{foresees, stepwise, byName}, plan) || named(agent) < 0 {
							return nil, fmt.Errorf("there is nothing to measure: %+v", c)
						}
						switch {
						case strategy == direct && !s.own: // nothing is looked for
							c.Plan = ""
						case c.Needs == 1 && plan == foresees: // there is nothing to foresee
							c.Plan = stepwise
						case plan == byName && strategy != direct: // toolfinch tells no names before a search
							continue
						}
						if strategy == direct {
							c.Revision = ""
						}
						if !slices.Contains(cells, c) {
							cells = append(cells, c)
						}
					}
				}
			}
		}
	}
	return cells, nil
}

// named is the place of an agent in agents.All, -1 for none.
func named(agent string) int {
	return slices.IndexFunc(agents.All, func(a agents.Agent) bool { return a.Name == agent })
}

// find fills in where everything is, and builds toolfinch if it is not given. It returns
// the program's revision.
func (b *bench) find(modules, recorded string) (revision string, err error) {
	for path, absolute := range map[string]*string{modules: &b.modules, recorded: &b.recorded} {
		if *absolute, err = filepath.Abs(path); err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err != nil {
			return "", err
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return "", err
	}
	if b.node, err = agents.Node(b.modules); err != nil {
		return "", err
	}
	if b.toolfinch == "" {
		b.toolfinch = filepath.Join(os.TempDir(), "toolfinch-measured", "toolfinch")
		build := exec.Command("go", "build", "-buildvcs=true", "-o", b.toolfinch, "./cmd/toolfinch")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	if b.toolfinch, err = filepath.Abs(b.toolfinch); err != nil {
		return "", err
	}
	program, err := os.ReadFile(b.toolfinch)
	if err != nil {
		return "", err
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return "", err
	}
	revision = fmt.Sprintf("%.8x", sha256.Sum256(program)) // where the build knows of no repository
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = setting.Value[:min(8, len(setting.Value))]
		case setting.Key == "vcs.modified" && setting.Value == "true":
			revision += "+"
		}
	}
	return revision, nil
}

// all measures the cells that are not among the results, and appends to the file.
func (b *bench) all(cells []cell, have []outcome, fresh bool, side int, file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	queue := make(chan cell)
	var printing sync.Mutex
	var failures []error
	var wg sync.WaitGroup
	for range side {
		wg.Go(func() {
			for c := range queue {
				o, err := b.play(ctx, c)
				line, _ := json.Marshal(o) // it is made of valid parts
				printing.Lock()
				if err != nil {
					failures = append(failures, fmt.Errorf("%+v: %w", c, err))
				} else if ctx.Err() == nil {
					fmt.Fprintf(out, "%s\n", line)
				}
				fmt.Printf("%-11s %4d tools %d needs  %-9s %-8s %2d steps %8d tokens, cost %8.0f  %4.1f s %s\n",
					c.Agent, c.Tools, c.Needs, c.Strategy, c.Plan, o.Steps, o.Total, o.Cost, o.Seconds, o.Error)
				printing.Unlock()
			}
		})
	}
	began, measured := time.Now(), 0
	for _, c := range cells {
		if c.Version, err = agents.All[named(c.Agent)].Version(b.modules); err != nil {
			failures = append(failures, err)
			continue
		}
		if ctx.Err() != nil || !fresh && slices.ContainsFunc(have, func(o outcome) bool { return o.cell == c && o.Error == "" }) {
			continue
		}
		queue <- c
		measured++
	}
	close(queue)
	wg.Wait()
	fmt.Printf("%d runs in %s\n", measured, time.Since(began).Round(time.Second))
	return errors.Join(append(failures, ctx.Err())...)
}

// readResults reads the file; of several outcomes of a cell the last counts.
func readResults(file string) (all []outcome, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = slices.DeleteFunc(all, func(old outcome) bool { return old.cell == o.cell })
		all = append(all, o)
	}
	return all, lines.Err()
}
