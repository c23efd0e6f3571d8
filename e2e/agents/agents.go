// Package agents owns how published agents are run with a model of ours: where their
// programs are, the settings that lead them to a model's address and to MCP servers,
// and the model's side of what they speak. It does not start them, and what the model
// says is its caller's.
package agents

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Agent is a published agent and how it is made to talk to a model of ours.
type Agent struct {
	Name string
	// Relists says that the agent lists the tools again when it is told to, so that
	// its model is offered what it has just found.
	Relists bool
	// Loads says that what its model has found is added at the end of the conversation, and called by name.
	Loads bool
	// Endpoint serves the model as the agent's provider would.
	Endpoint func(Model) http.Handler
	// Prefix are the members of a request in the order in which the provider reads
	// them, and keeps a prefix of them.
	Prefix []string

	program  string // below node_modules, a pattern: packages with programs in them are named after the machine they are for
	settings func(Run) (arguments, env []string, err error)
	// resume stands in the arguments, after that many of them, for the session before
	// to be gone on with.
	resume []string
	after  int
	// login are the arguments that log in at the server toolfinch, in a browser; nil for none.
	login []string
}

// All are the agents that run without a network.
var All = []Agent{
	{"opencode", true, false, chatCompletions, chatPrefix, "opencode-*[46]/bin/opencode", opencode, []string{"--continue"}, 1, []string{"mcp", "auth", serverName}}, // the plain build before the one for older processors
	{"gemini-cli", true, false, generateContent, []string{"tools", "systemInstruction", "contents"}, "@google/gemini-cli/bundle/gemini.js", gemini, []string{"--resume", "latest"}, 0, []string{"--skip-trust", "--prompt", "/mcp auth " + serverName}},
	{"claude-code", false, true, messages, []string{"tools", "system", "messages"}, "@anthropic-ai/claude-code-*/claude", claude, []string{"--continue"}, 0, nil},
	{"codex", false, false, responses, []string{"tools", "instructions", "input"}, "@openai/codex-*/vendor/*/bin/codex", codex, []string{"resume", "--last"}, 1, []string{"mcp", "login", serverName}},
	{"qwen-code", false, false, chatCompletions, chatPrefix, "@qwen-code/qwen-code/cli.js", qwen, []string{"--continue"}, 0, nil},
	{"copilot", false, false, chatCompletions, chatPrefix, "@github/copilot-*/copilot", copilot, []string{"--continue"}, 0, nil},
	{"cline", false, false, chatCompletions, chatPrefix, "@cline/cli-*/bin/cline", cline, nil, 0, nil},
	{"continue", false, false, chatCompletions, chatPrefix, "@continuedev/cli/dist/cn.js", continueCLI, []string{"--resume"}, 0, nil},
}

var chatPrefix = []string{"tools", "messages"}

// CanResume reports whether the agent can go on with a session that has ended.
func (a Agent) CanResume() bool { return a.resume != nil }

// serverName is the server's name in logins.
const serverName = "toolfinch"

// CanLogIn reports whether the agent logs in at a server with a browser but without a
// terminal.
func (a Agent) CanLogIn() bool { return a.login != nil }

// Run is one run of an agent.
type Run struct {
	Modules string // the folder node_modules that the agent is in
	Home    string // a folder of its own, where its settings are written
	Base    string // the URL of the model's endpoint
	Prompt  string
	Servers []Server
	Resumed bool // it goes on with the last session in this home
	Login   bool // it logs in at the server toolfinch, and does nothing else
}

// Server is an MCP server of an agent: a command, or else a URL.
type Server struct {
	Name    string
	Command []string
	URL     string
	Key     string   // for the URL, as a bearer token; "" for none. Of the agents that can log in alone
	Scopes  []string // that Codex logs in for; nil for what the server says
}

// Prepare writes the agent's settings below its home. It returns the command line and
// what the agent needs in its environment beside Environment. The error is an
// fs.ErrNotExist where the agent, or a Node for it, is not installed.
func (a Agent) Prepare(r Run) (command, env []string, err error) {
	program, err := a.find(r.Modules)
	if err != nil {
		return nil, nil, err
	}
	command = []string{program}
	if strings.HasSuffix(program, ".js") {
		node, err := Node(r.Modules)
		if err != nil {
			return nil, nil, err
		}
		command = []string{node, program}
	}
	arguments, env, err := a.settings(r)
	if err != nil {
		return nil, nil, fmt.Errorf("settings of %s: %w", a.Name, err)
	}
	if r.Login {
		if !a.CanLogIn() {
			return nil, nil, fmt.Errorf("%s cannot log in without a terminal", a.Name)
		}
		return append(command, a.login...), env, nil
	}
	if r.Resumed {
		if !a.CanResume() {
			return nil, nil, fmt.Errorf("%s cannot go on with a session that has ended", a.Name)
		}
		arguments = slices.Insert(arguments, a.after, a.resume...)
	}
	return append(command, arguments...), env, nil
}

// Version is what the agent's package says of itself, as in 1.2.3.
func (a Agent) Version(modules string) (string, error) {
	program, err := a.find(modules)
	if err != nil {
		return "", err
	}
	rest, err := filepath.Rel(modules, program)
	if err != nil {
		return "", err
	}
	parts, scoped := strings.Split(filepath.ToSlash(rest), "/"), 1
	if strings.HasPrefix(parts[0], "@") {
		scoped = 2
	}
	text, err := os.ReadFile(filepath.Join(modules, filepath.Join(parts[:scoped]...), "package.json"))
	if err != nil {
		return "", err
	}
	var about struct{ Version string }
	if err := json.Unmarshal(text, &about); err != nil {
		return "", fmt.Errorf("package.json of %s: %w", a.Name, err)
	}
	return about.Version, nil
}

func (a Agent) find(modules string) (string, error) {
	files, err := filepath.Glob(filepath.Join(modules, filepath.FromSlash(a.program)))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no %s for this machine: run npm ci there: %w", filepath.Base(modules), a.program, os.ErrNotExist)
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// Node is a Node of version 22 or later: the one from npm, else the machine's.
func Node(modules string) (string, error) {
	fromNPM, _ := filepath.Glob(filepath.Join(modules, "node-*", "bin", "node"))
	for _, name := range append(fromNPM, "node") {
		out, err := exec.Command(name, "--version").Output()
		if err != nil {
			continue
		}
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, err := strconv.Atoi(major); err != nil || n < 22 {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("there is no Node 22: run npm ci in testdata/node: %w", os.ErrNotExist)
}

// Environment is what a process gets: little, and nothing of the user's.
func Environment(home, node string) []string {
	return []string{
		"HOME=" + home,
		"PATH=" + filepath.Dir(node) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"TMPDIR=" + home,
		"LANG=C.UTF-8",
		"XDG_CONFIG_HOME=" + filepath.Join(home, "xdg", "config"),
		"XDG_DATA_HOME=" + filepath.Join(home, "xdg", "data"),
		"XDG_CACHE_HOME=" + filepath.Join(home, "xdg", "cache"),
		"XDG_STATE_HOME=" + filepath.Join(home, "xdg", "state"),
		"DO_NOT_TRACK=1",
		"NO_COLOR=1",
	}
}

// Model plays a model. Agents ask it side by side: for the work, for titles and the like.
type Model interface{ Next(Turn) Move }

// Turn is what a model sees of the conversation when it is asked to go on.
type Turn struct {
	Tools   []Tool
	Results []string // of the tools called so far, in order, as JSON
	Request []byte   // all of it
}

// String leaves the request out, which is long.
func (t Turn) String() string { return fmt.Sprintf("%v answered %q", t.Tools, t.Results) }

// Tool returns the first tool that is offered under a name with this end: agents put
// the server's before it.
func (t Turn) Tool(name string) (Tool, bool) {
	i := slices.IndexFunc(t.Tools, func(offered Tool) bool { return strings.HasSuffix(offered.Name, name) })
	if i < 0 {
		return Tool{}, false
	}
	return t.Tools[i], true
}

// Tool is a tool that an agent offers to its model, under the agent's own name for it.
type Tool struct {
	Group, Name string // the group is empty where the provider has none
	Schema      json.RawMessage
}

// String leaves the schema out, which is long.
func (t Tool) String() string { return t.Group + " " + t.Name }

// Move is what the model does: call a tool, or say something and stop.
type Move struct {
	Tool      Tool
	Arguments map[string]any
	Text      string
}
