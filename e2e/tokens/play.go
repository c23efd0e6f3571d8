package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"toolfinch/e2e/agents"
	"toolfinch/internal/group"
)

// cell is what is measured once.
type cell struct {
	Agent    string `json:"agent"`
	Version  string `json:"version"`
	Tools    int    `json:"tools"`
	Needs    int    `json:"needs"`
	Plan     string `json:"plan"`
	Strategy string `json:"strategy"`
	Revision string `json:"revision,omitempty"` // of toolfinch, unless it is not there
	Own      bool   `json:"own,omitempty"`      // the agent has its own settings: its tool search is on
}

// The plans: a model asks for all it needs at once, or for one thing at a time, or takes it by its
// name, which an agent's own tool search tells it.
const (
	foresees = "foresees"
	stepwise = "stepwise"
	byName   = "by name"
)

// direct is the strategy without toolfinch.
const direct = "direct"

// strategies are what the configuration says for each, beside its servers.
var strategies = map[string]map[string]any{
	direct:      {},
	"AUTO":      {"routing_type": "AUTO"},
	"DYNAMIC":   {"routing_type": "DYNAMIC"},
	"CALL_TOOL": {"routing_type": "CALL_TOOL"},
	"view":      {"tool_views": map[string]any{"default": map[string]any{"include_all": true, "exposure_mode": "direct"}}},
	"gated":     {"gating": map[string]any{"max_tokens": 40_000, "max_tools": 40}},
	"hot":       {"learn": true},
	"all hits":  {"clients": map[string]any{"*": map[string]any{"register": "at_once", "era": "legacy"}}},
	"code":      {"tool_views": map[string]any{"default": map[string]any{"include_all": true, "exposure_mode": "retrieve", "run_script": true}}},
}

// before is how many sessions of the same task a strategy has behind it.
var before = map[string]int{"hot": 4}

// outcome is a line of the file of results.
type outcome struct {
	cell
	sums
	Side       int     `json:"side"` // input tokens of requests for titles and the like, not in the sums
	Steps      int     `json:"steps"`
	Retrievals int     `json:"retrievals"`
	Missed     int     `json:"missed"`
	Refused    int     `json:"refused"`
	Failed     int     `json:"failed"`  // needs that were not met
	Offered    []int   `json:"offered"` // tools in the first and the last request
	Seconds    float64 `json:"seconds"`
	Waits      any     `json:"waits"` // seconds from moves of a kind to the next requests, together
	Error      string  `json:"error,omitempty"`
}

// bench is where everything is that runs need.
type bench struct {
	self      string // this program
	toolfinch string
	modules   string
	node      string
	recorded  string // the folder of recorded servers
	seed      uint64
	keep      bool // what runs leave behind
}

// play measures a cell. What goes wrong with an agent is in the outcome.
func (b *bench) play(ctx context.Context, c cell) (outcome, error) {
	home, err := os.MkdirTemp("", "tokens-")
	if err != nil {
		return outcome{}, err
	}
	if !b.keep {
		defer os.RemoveAll(home)
	}
	recorded, err := readSet(b.recorded, c.Tools)
	if err != nil {
		return outcome{}, err
	}
	index := named(c.Agent)
	a := agents.All[index]
	needs := choose(recorded, c.Needs, b.seed+uint64(index)) // so that the agents have different tasks
	var servers []agents.Server
	for _, r := range recorded {
		servers = append(servers, agents.Server{Name: r.name, Command: []string{b.self, "replay", r.file}})
	}
	player := newPlayer(a.Prefix, needs, c)
	run := agents.Run{Modules: b.modules, Home: home, Prompt: "Do what has to be done.", Servers: servers}
	if c.Strategy != direct {
		proxy, err := b.configure(ctx, home, c, servers)
		if err != nil {
			return outcome{}, err
		}
		run.Servers = []agents.Server{proxy}
	}
	for range before[c.Strategy] {
		if p, _, err := b.session(ctx, a, run, newPlayer(a.Prefix, needs, c)); err != nil || p.err != nil {
			return outcome{cell: c, Error: fmt.Sprintf("a session before: %v", errors.Join(err, p.err))}, nil
		}
	}
	if b.keep {
		player.folder = home
	}
	p, took, err := b.session(ctx, a, run, player)
	p.mu.Lock()
	defer p.mu.Unlock()
	o := outcome{cell: c, sums: p.sums.sums, Side: p.side.Total, Steps: p.steps, Retrievals: p.retrieve, Missed: p.missed, Refused: p.refused, Seconds: took.Seconds()}
	o.Failed = len(p.where(func(w *want) bool { return !w.done }))
	waits := map[kind]float64{}
	for kind, took := range p.waits {
		waits[kind] = took.Seconds()
	}
	o.Waits = waits
	if len(p.listed) > 0 {
		o.Offered = []int{p.listed[0], p.listed[len(p.listed)-1]}
	}
	if err = errors.Join(err, p.err); err != nil {
		o.Error = err.Error()
	}
	return o, nil
}

// configure writes the configuration of toolfinch and has it list the servers, as it
// has for everybody but the newest user.
func (b *bench) configure(ctx context.Context, home string, c cell, servers []agents.Server) (agents.Server, error) {
	config := map[string]any{"data_dir": filepath.Join(home, "data"), "embedder": "BM25"}
	if !c.Own { // what docs/clients.md says for Claude Code without its tool search
		config["clients"] = map[string]any{"claude-code": map[string]any{"register": "never", "era": "auto"}}
	}
	for key, value := range strategies[c.Strategy] {
		config[key] = value
	}
	entries := map[string]any{}
	for _, s := range servers {
		entries[s.Name] = map[string]any{"command": s.Command[0], "args": s.Command[1:]}
	}
	config["mcp_servers"] = entries
	file := filepath.Join(home, "toolfinch.json")
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return agents.Server{}, err
	}
	cmd := exec.CommandContext(ctx, b.toolfinch, "reindex", "--config", file)
	cmd.Env = agents.Environment(home, b.node)
	if out, err := cmd.CombinedOutput(); err != nil {
		return agents.Server{}, fmt.Errorf("toolfinch reindex: %w\n%s", err, out)
	}
	return agents.Server{Name: "toolfinch", Command: []string{b.toolfinch, "serve", "--config", file}}, nil
}

// session runs the agent with the model to its end.
func (b *bench) session(ctx context.Context, a agents.Agent, run agents.Run, p *player) (*player, time.Duration, error) {
	endpoint := httptest.NewServer(a.Endpoint(p))
	defer endpoint.Close()
	run.Base = endpoint.URL
	command, env, err := a.Prepare(run)
	if err != nil {
		return p, 0, err
	}
	folder := filepath.Join(run.Home, "work")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return p, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	group.Own(cmd)
	cmd.Cancel = func() error { return group.Kill(cmd) }
	cmd.Dir, cmd.WaitDelay = folder, 5*time.Second
	cmd.Env = append(agents.Environment(run.Home, b.node), env...)
	if !p.own { // Claude Code and Qwen Code would hide tools behind a search of their own
		cmd.Env = append(cmd.Env, "ENABLE_TOOL_SEARCH=false")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err = cmd.Run()
	took := time.Since(began)
	_ = group.Kill(cmd) // what the agent may have left
	if err == nil && !bytes.Contains(out.Bytes(), []byte(done)) {
		err = errors.New("it does not print the model's last words")
	}
	if err != nil {
		text := out.Bytes()
		err = fmt.Errorf("the agent: %w: %s", err, text[max(0, len(text)-600):])
	}
	return p, took, err
}
