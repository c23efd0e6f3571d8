//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// These tests drive the built program from outside, as its users do.

// patience bounds every wait for another process.
const patience = await.Bound

// missing skips the test, or fails it where everything must run.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	message := fmt.Sprintf(format, args...)
	if os.Getenv("TOOLFINCH_TEST_REQUIRE") == "all" {
		t.Fatalf("%s (TOOLFINCH_TEST_REQUIRE=all)", message)
	}
	t.Skip(message)
}

// modules is the folder of the npm packages that the tests use.
func modules(t testing.TB) string {
	t.Helper()
	dir := must.Get(filepath.Abs("../testdata/node/node_modules"))(t)
	if _, err := os.Stat(filepath.Join(dir, ".package-lock.json")); err != nil {
		missing(t, "testdata/node is not installed: run npm ci there")
	}
	return dir
}

// module is a file of an npm package.
func module(t testing.TB, path string) string {
	t.Helper()
	file := filepath.Join(modules(t), filepath.FromSlash(path))
	if _, err := os.Stat(file); err != nil {
		missing(t, "testdata/node has no %s: run npm ci there", path)
	}
	return file
}

// node is a Node of version 22 or later: the one from npm, else the machine's.
func node(t testing.TB) string {
	t.Helper()
	modules(t)
	path, err := findNode()
	if err != nil {
		missing(t, "%v", err)
	}
	return path
}

var findNode = sync.OnceValues(func() (string, error) { return agents.Node("../testdata/node/node_modules") })

// server is an upstream in the configuration.
type server struct {
	Command        string            `json:"command"`
	Args           []string          `json:"args"`
	Env            map[string]string `json:"env,omitempty"`
	ConnectTimeout string            `json:"connect_timeout,omitempty"`
	Sandbox        any               `json:"sandbox,omitempty"`
	Changes        string            `json:"changes,omitempty"`
}

// script is a server that Node runs.
func script(t testing.TB, file string, args ...string) server {
	t.Helper()
	return server{Command: node(t), Args: append([]string{file}, args...), ConnectTimeout: patience.String()}
}

// takenPorts are those that freeAddress has returned.
var takenPorts sync.Map

// freeAddress is one of this machine that nobody listens at. Its port is below those that the system
// gives to connections and listeners, so that nobody else gets it before whoever asked.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if _, taken := takenPorts.LoadOrStore(address, true); taken {
			continue
		}
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// house is a configuration with a data directory, a home and a folder for the
// servers' files, all of its own. The test's end waits until nothing of it runs.
type house struct {
	home   string
	config string
	files  string // what the filesystem server may touch
	env    []string
}

func newHouse(t testing.TB, servers map[string]server, more ...map[string]any) house {
	t.Helper()
	home := t.TempDir()
	h := house{
		home:   home,
		config: filepath.Join(home, "toolfinch.json"),
		files:  filepath.Join(home, "files"),
		env:    environment(t, home),
	}
	must.Do(t, os.Mkdir(h.files, 0o755))
	h.leavesNothing(t)
	servers = maps.Clone(servers)
	if s, ok := servers["files"]; ok {
		s.Args = append(slices.Clone(s.Args), h.files)
		servers["files"] = s
	}
	if s, ok := servers["memory"]; ok {
		s.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(home, "memory.jsonl")}
		servers["memory"] = s
	}
	if s, ok := servers["probe"]; ok { // it learns tricks, which are tools
		s.Changes = "allow"
		servers["probe"] = s
	}
	settings := map[string]any{
		"data_dir":     filepath.Join(home, "data"),
		"log_format":   "json",
		"direct_below": 0, // tools are looked for, however few they are
		"mcp_servers":  servers,
	}
	for _, more := range more {
		maps.Copy(settings, more)
	}
	text := must.Get(json.MarshalIndent(settings, "", "  "))(t)
	must.Do(t, os.WriteFile(h.config, text, 0o644))
	return h
}

// environment is what a process of a test gets: little, and nothing of the
// user's. Names that lead to the network lead nowhere.
func environment(t testing.TB, home string) []string {
	t.Helper()
	return append(agents.Environment(home, node(t)), "GORACE=log_path="+filepath.Join(home, "race"), // standard error may be the agent's
		"MCPPROXY_SHARED=false") // what a test starts is what serves it
}

// sharing is the house of agents that share a toolfinch.
func (h house) sharing() house {
	h.env = slices.DeleteFunc(slices.Clone(h.env), func(pair string) bool { return strings.HasPrefix(pair, "MCPPROXY_SHARED=") })
	return h
}

// command is toolfinch with the configuration.
func (h house) command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), program(t), append(args, "--config", h.config)...)
	cmd.Env = h.env
	return cmd
}

// run runs toolfinch to its end and returns what it printed and said, and its exit code.
func (h house) run(t testing.TB, input string, args ...string) (out, said string, code int) {
	t.Helper()
	cmd := h.command(t, args...)
	var printed, told strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &printed, &told
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if strings.Contains(told.String(), "panic:") {
		t.Errorf("%v: %s", args, &told)
	}
	return printed.String(), told.String(), cmd.ProcessState.ExitCode()
}

// output is run for what is printed. The error has what was said.
func (h house) output(t testing.TB, args ...string) ([]byte, error) {
	t.Helper()
	out, said, code := h.run(t, "", args...)
	if code != 0 {
		return []byte(out), fmt.Errorf("%v: exit code %d: %s", args, code, said)
	}
	return []byte(out), nil
}

// said is run for what must go well.
func (h house) said(t testing.TB, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, code := h.run(t, "", args...)
	if code != 0 {
		t.Errorf("%v: exit code %d: %s", args, code, stderr)
	}
	return stdout, stderr
}

// fails is run for what must fail. It returns all that was printed.
func (h house) fails(t testing.TB, args ...string) string {
	t.Helper()
	out, said, code := h.run(t, "", args...)
	if code == 0 {
		t.Errorf("%v went well: %s", args, out)
	}
	return out + said
}

// life is one run of toolfinch serve.
type life struct {
	url   string // of the MCP endpoint
	pid   int
	log   *logWriter
	cmd   *exec.Cmd
	ended chan error // gets one value, when the process has ended
	over  bool
	leave []func() error // of its clients, which would complain of its end
}

// start serves over HTTP until stop, kill, or the end of the test, which checks that nothing of it is left.
func (h house) start(t testing.TB) *life { return h.startOf(t, program(t)) }

// startOf is start for a build of toolfinch.
func (h house) startOf(t testing.TB, path string) *life {
	t.Helper()
	l := &life{log: newLog(t, "toolfinch"), ended: make(chan error, 1)}
	l.cmd = exec.Command(path, "serve", "--config", h.config, "--transport", "http", "--listen", "127.0.0.1:0")
	l.cmd.Env, l.cmd.Stderr = h.env, l.log
	must.Do(t, l.cmd.Start())
	l.pid = l.cmd.Process.Pid
	go func() { l.ended <- l.cmd.Wait() }()
	t.Cleanup(func() { l.stop(t) })
	await.Nil(t, func() error {
		for line := range strings.Lines(l.log.String()) {
			var record struct{ Msg, URL string }
			if json.Unmarshal([]byte(line), &record) == nil && record.Msg == "listening" {
				l.url = record.URL
				return nil
			}
		}
		select {
		case err := <-l.ended:
			l.over = true
			t.Fatalf("toolfinch ended with %v", err)
		default:
		}
		return errors.New("toolfinch does not listen")
	})
	return l
}

// stop ends it as an operator would, once.
func (l *life) stop(t testing.TB) {
	t.Helper()
	if l.over {
		return
	}
	l.disconnect()
	defer func() { _ = l.cmd.Process.Kill() }()
	children := descendants(l.pid)
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("toolfinch ended before it was asked to: %v", err)
	}
	if err := await.Value(t, l.ended); err != nil {
		t.Errorf("toolfinch ended with %v", err)
	}
	if !strings.Contains(l.log.String(), `"msg":"stopped"`) {
		t.Error("its end is not logged")
	}
	noneLeft(t, children)
}

// disconnect has its clients leave before it ends.
func (l *life) disconnect() {
	l.over = true
	for _, leave := range l.leave {
		_ = leave()
	}
}

// serveHTTP is start for its address and its process.
func (h house) serveHTTP(t testing.TB) (url string, pid int) {
	t.Helper()
	l := h.start(t)
	return l.url, l.pid
}

// stdio is how the SDK's client starts toolfinch; extra is for its environment.
func (h house) stdio(t *testing.T, extra ...string) map[string]any {
	t.Helper()
	env := map[string]string{}
	for _, pair := range append(slices.Clone(h.env), extra...) {
		key, value, _ := strings.Cut(pair, "=")
		env[key] = value
	}
	return map[string]any{"command": program(t), "args": []string{"serve", "--config", h.config}, "env": env}
}

// logWriter keeps what a process says on standard error.
type logWriter struct{ await.Log }

// newLog is for a process, which must not panic. A test that fails shows its last lines.
func newLog(t testing.TB, process string) *logWriter {
	l := &logWriter{}
	t.Cleanup(func() {
		for _, bad := range []string{"panic:", "goroutine 1 ["} {
			if strings.Contains(l.String(), bad) {
				t.Errorf("%s said %q", process, bad)
			}
		}
		if t.Failed() {
			lines := strings.SplitAfter(l.String(), "\n")
			t.Logf("%s said last:\n%s", process, strings.Join(lines[max(0, len(lines)-60):], ""))
		}
	})
	return l
}

// wait waits until the log has all of the texts in one line after the first from
// bytes, and returns how long the log is then.
func (l *logWriter) wait(t testing.TB, from int, texts ...string) (length int) {
	t.Helper()
	await.Nil(t, func() error {
		log := l.String()
		length = len(log)
		for line := range strings.Lines(log[from:]) {
			if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return nil
			}
		}
		return fmt.Errorf("nothing with %q is logged", texts)
	})
	return length
}

// process is one line of the process table.
type process struct {
	pid, parent int
	command     string // with its arguments
}

// processes is the process table without what has ended. It is empty on a
// system that does not show it as files.
func processes() []process {
	var all []process
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		// The name, in parentheses, may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		p := process{}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		p.parent, _ = strconv.Atoi(fields[1])
		p.command = commandLine(p.pid)
		all = append(all, p)
	}
	return all
}

// commandLine is empty for a process that has ended.
func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(strings.TrimRight(string(text), "\x00"), "\x00", " ")
}

// descendants are the processes that pid started, and those that they did.
func descendants(pid int) []process {
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	var all []process
	for open := []int{pid}; len(open) > 0; open = open[1:] {
		for _, p := range children[open[0]] {
			all = append(all, p)
			open = append(open, p.pid)
		}
	}
	return all
}

// leavesNothing has the test's end wait until no process of the house runs: each has its path on its command
// line or in its environment, or is started by one that has. What an agent started may write to the
// house after the agent's end.
func (h house) leavesNothing(t testing.TB) {
	t.Cleanup(func() {
		await.Nil(t, func() error {
			for _, p := range processes() {
				environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
				if strings.Contains(p.command, h.home) || bytes.Contains(environment, []byte(h.home)) {
					noneLeft(t, []process{p}) // and what it has started meanwhile
					return errors.New("something was left behind")
				}
			}
			return nil
		})
		races, _ := filepath.Glob(filepath.Join(h.home, "race*"))
		for _, file := range races {
			text, err := os.ReadFile(file)
			t.Errorf("a data race in toolfinch: %s %v", text, err)
		}
	})
}

// noneLeft waits until all those processes have ended.
func noneLeft(t testing.TB, processes []process) {
	t.Helper()
	await.Nil(t, func() error {
		for _, p := range processes {
			if running(p) {
				return fmt.Errorf("process %d is left behind: %s", p.pid, p.command)
			}
		}
		return nil
	})
}

func running(p process) bool { return p.command != "" && commandLine(p.pid) == p.command }

// kill sends SIGKILL to the processes under pid whose command line has text: clients may have some of their own.
func kill(t testing.TB, pid int, text string) {
	t.Helper()
	if len(processes()) == 0 {
		t.Skip("this system does not show its processes as files")
	}
	var found []process
	for _, p := range descendants(pid) {
		if strings.Contains(p.command, text) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no process has %q in its command line", text)
	}
	for _, p := range found {
		victim, err := os.FindProcess(p.pid)
		if err == nil {
			err = victim.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	noneLeft(t, found)
}

// sdkClient is a client made of the TypeScript SDK, in a process of its own.
type sdkClient struct {
	pid   int
	stdin io.Writer
	lines chan []byte // closed when the process has ended
	left  bool
}

// leave ends its session, once.
func (c *sdkClient) leave(t testing.TB) {
	t.Helper()
	if !c.left {
		c.left = true
		c.do(t, "close", nil, nil)
	}
}

// newSDKClient starts one that is not connected yet. The test's end closes it
// and checks that it left no process.
func newSDKClient(t testing.TB, env []string) *sdkClient {
	t.Helper()
	clientScript, err := filepath.Abs("../testdata/node/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node(t), clientScript)
	cmd.Env, cmd.Stderr = env, newLog(t, "the client")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, cmd.Start())
	c := &sdkClient{pid: cmd.Process.Pid, stdin: stdin, lines: make(chan []byte, 1)}
	ended := make(chan error, 1)
	go func() {
		for from := bufio.NewReader(stdout); ; {
			line, err := from.ReadBytes('\n')
			if err != nil {
				close(c.lines)
				ended <- cmd.Wait()
				return
			}
			c.lines <- line
		}
	}()
	t.Cleanup(func() {
		defer func() { _ = cmd.Process.Kill() }()
		children := descendants(c.pid)
		if !t.Failed() {
			c.leave(t)
		}
		stdin.Close()
		if err := await.Value(t, ended); err != nil {
			t.Errorf("the client ended with %v", err)
		}
		noneLeft(t, children)
	})
	return c
}

// do sends one request to the client and decodes its answer into value.
func (c *sdkClient) do(t testing.TB, operation string, parameters map[string]any, value any) {
	t.Helper()
	request := map[string]any{"operation": operation}
	maps.Copy(request, parameters)
	line := must.Get(json.Marshal(request))(t)
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		t.Fatalf("%s: the client is gone: %v", operation, err)
	}
	if line = await.Value(t, c.lines); line == nil {
		t.Fatalf("%s: the client is gone", operation)
	}
	var answer struct {
		Value   json.RawMessage
		Failure string
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		t.Fatalf("%s: %v in %s", operation, err, line)
	}
	if answer.Failure != "" {
		t.Fatal(answer.Failure)
	}
	if value != nil {
		if err := json.Unmarshal(answer.Value, value); err != nil {
			t.Fatalf("%s: %v in %s", operation, err, answer.Value)
		}
	}
}

// listed is a tool as a client sees it. What two listings say of one tool is
// equal when Rest is.
type listed struct {
	Name        string
	InputSchema json.RawMessage
	Rest        json.RawMessage // the whole definition without its name
}

func (l *listed) UnmarshalJSON(data []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	if err := json.Unmarshal(members["name"], &l.Name); err != nil {
		return err
	}
	l.InputSchema = members["inputSchema"]
	delete(members, "name")
	rest, err := json.Marshal(members)
	l.Rest = rest
	return err
}

func names(tools []listed) []string {
	var all []string
	for _, l := range tools {
		all = append(all, l.Name)
	}
	return all
}

func (c *sdkClient) list(t *testing.T) []listed {
	t.Helper()
	var tools []listed
	c.do(t, "list", nil, &tools)
	return tools
}

// called is what came back from a call.
type called struct {
	Result struct {
		Content           []struct{ Type, Text string }
		StructuredContent json.RawMessage
		Meta              json.RawMessage `json:"_meta"`
		IsError           bool
	}
	Progress []struct {
		Progress, Total float64
		Message         string
	}
	Error *struct {
		Code    int
		Message string
	}
}

// text is all text of the result.
func (c called) text() string {
	var all []string
	for _, block := range c.Result.Content {
		all = append(all, block.Text)
	}
	return strings.Join(all, "\n")
}

// try calls a tool, come what may. The extra parameters are those of the
// client's call operation.
func (c *sdkClient) try(t *testing.T, name string, arguments any, extra ...map[string]any) called {
	t.Helper()
	parameters := map[string]any{"name": name, "arguments": arguments}
	for _, e := range extra {
		maps.Copy(parameters, e)
	}
	var answer called
	c.do(t, "call", parameters, &answer)
	return answer
}

// call calls a tool that must succeed.
func (c *sdkClient) call(t *testing.T, name string, arguments any) called {
	t.Helper()
	answer := c.try(t, name, arguments)
	if answer.Error != nil {
		t.Fatalf("%s: error %d: %s", name, answer.Error.Code, answer.Error.Message)
	}
	if answer.Result.IsError {
		t.Fatalf("%s: tool error: %s", name, answer.text())
	}
	return answer
}

// found is the structured answer of retrieve_tools.
type found struct {
	Tools []struct {
		Name, Server string
		InputSchema  json.RawMessage
		Registered   bool
	}
	Index struct {
		Tools   int
		Ready   int `json:"servers_ready"`
		Pending int `json:"servers_pending"`
		Failed  int `json:"servers_failed"`
	}
}

func (f found) names() []string {
	var all []string
	for _, hit := range f.Tools {
		all = append(all, hit.Name)
	}
	return all
}

func (c *sdkClient) retrieve(t *testing.T, arguments map[string]any) found {
	t.Helper()
	arguments["detail"] = "full"
	answer := c.call(t, "retrieve_tools", arguments)
	var f found
	if err := json.Unmarshal([]byte(answer.text()), &f); err != nil {
		t.Fatalf("retrieve_tools: %v in %s", err, answer.text())
	}
	return f
}

// waitReady asks until that many servers are connected, for a word that no tool
// has, so that nothing is registered by it.
func (c *sdkClient) waitReady(t *testing.T, servers int) {
	t.Helper()
	await.Nil(t, func() error {
		f := c.retrieve(t, map[string]any{"query": "qqqq", "limit": 1})
		if f.Index.Ready != servers {
			return fmt.Errorf("servers are ready %d, pending %d, failed %d", f.Index.Ready, f.Index.Pending, f.Index.Failed)
		}
		return nil
	})
}
