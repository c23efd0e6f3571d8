package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/await"
	"toolfinch/tool"
)

// The test binary is also the upstream: a server of plain JSON lines that can
// do what no library would.
const (
	serverVar = "TOOLFINCH_TEST_SERVER" // how to behave
	folderVar = "TOOLFINCH_TEST_FOLDER" // where to leave traces
)

func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(serverVar); ok {
		if mode == "eliciting" {
			_ = mcpserver.ServeStdio(newEliciting())
			return
		}
		if strings.HasPrefix(mode, "asker") {
			serveAsker(mode)
			return
		}
		serveLines(mode)
		return
	}
	os.Exit(m.Run())
}

// strange is a result with everything a typed structure would lose.
const strange = `{"content":[{"type":"hologram","x":9007199254740993}],"structuredContent":{"big":123456789012345678901234567890,"f":1.0,"e":"\u003c"},"isError":false,"_meta":{"a/b":[1e400]},"unknown":null}`

func serveLines(mode string) {
	trace := func(name, text string) {
		_ = os.WriteFile(os.Getenv(folderVar)+"/"+name, []byte(text), 0o600)
	}
	out := bufio.NewWriter(os.Stdout)
	say := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
		out.Flush()
	}
	switch mode {
	case "crash":
		fmt.Fprintln(os.Stderr, cmp.Or(os.Getenv("TOOLFINCH_TEST_CRASH"), "I crash"))
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		trace("pid", strconv.Itoa(os.Getpid()))
		defer func() { select {} }()
	case "parent":
		child := exec.Command("sleep", "600")
		if err := child.Start(); err != nil {
			panic(err)
		}
		trace("pid", strconv.Itoa(child.Process.Pid))
	case "together": // it says nothing before it is let
		trace(fmt.Sprintf("up-%d", os.Getpid()), "")
		for {
			if _, err := os.Stat(os.Getenv(folderVar) + "/go"); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	case "garbage":
		say("Server starting...\n{broken\n\x00\xff")
	}
	tools := []string{"raw", "params", "fail", "hang", "exit", "exit_once", "big", "other_id", "text_id", "progress", "log", "pid", "change", "nothing"}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch m.Method {
		case "initialize":
			if mode == "mute" {
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"lines","version":"1"},"instructions":"be kind"}}`, m.ID)
			if mode == "deaf" {
				select {}
			}
		case "tools/list":
			switch mode {
			case "pages":
				page, _ := strconv.Atoi(strings.Trim(string(member(m.Params, "cursor")), `"`))
				next := ""
				if page < 4 {
					next = fmt.Sprintf(`,"nextCursor":"%d"`, page+1)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"p%d"},{"name":"p%d"},{"noname":1},7]%s}}`, m.ID, page, max(page-1, 0), next)
			case "endless":
				say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"nextCursor":"same"}}`, m.ID)
			default:
				defs := make([]string, len(tools))
				for i, name := range tools {
					defs[i] = fmt.Sprintf(`{"name":%q,"x":12345678901234567890}`, name)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, m.ID, strings.Join(defs, ","))
			}
		case "tools/call":
			var name string
			_ = json.Unmarshal(member(m.Params, "name"), &name)
			token := member(member(m.Params, "_meta"), "progressToken")
			switch name {
			case "raw":
				say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, strange)
			case "params":
				say(`{"jsonrpc":"2.0","id":%s,"result":{"params":%s}}`, m.ID, m.Params)
			case "fail":
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-31999,"message":"no","data":{"big":12345678901234567890},"more":1}}`, m.ID)
			case "hang":
				trace("hangs", string(m.ID))
			case "exit":
				os.Exit(1)
			case "exit_once":
				if _, err := os.Stat(os.Getenv(folderVar) + "/exited"); err != nil {
					trace("exited", "")
					os.Exit(1)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "hang_once":
				if _, err := os.Stat(os.Getenv(folderVar) + "/hangs"); err != nil {
					trace("hangs", string(m.ID))
					continue
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "big":
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"x":"`, m.ID)
				for range 100 {
					_, _ = out.Write(bytes.Repeat([]byte("x"), 1<<20))
				}
				say(`"}}`)
			case "other_id":
				say(`{"jsonrpc":"2.0","id":424242,"result":{}}`)
			case "text_id":
				say(`{"jsonrpc":"2.0","id":"%s","result":{"ok":true}}`, m.ID)
			case "progress":
				for i := range 3 {
					say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":9007199254740993}}`, token, i)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "flood":
				for i := range 1000 {
					say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i)
				}
				trace("flooded", "all")
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "log":
				say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":12345678901234567890}}`)
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "pid":
				say(`{"jsonrpc":"2.0","id":%s,"result":{"pid":%d}}`, m.ID, os.Getpid())
			case "wait": // until it is let
				for {
					if _, err := os.Stat(os.Getenv(folderVar) + "/go"); err == nil {
						break
					}
					trace("waits", "yes")
					time.Sleep(5 * time.Millisecond)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"pid":%d}}`, m.ID, os.Getpid())
			case "change":
				tools = append(tools, "added")
				say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "nothing":
				say(`{"jsonrpc":"2.0","id":%s}`, m.ID)
			}
		case "notifications/cancelled":
			trace("cancelled", string(member(m.Params, "requestId")))
		case "logging/setLevel":
			trace("level", string(m.Params))
			say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		default:
			if len(m.ID) > 0 {
				say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
			}
		}
	}
}

func member(object json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields)
	return fields[name]
}

// lines is an upstream that is this binary in the given mode.
func lines(t testing.TB, name, mode string) Settings {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Settings{
		Name: name, Command: program, Env: map[string]string{serverVar: mode, folderVar: t.TempDir(), "GORACE": "atexit_sleep_ms=0"},
		ConnectTimeout: await.Bound, CallTimeout: await.Bound,
	}
}

// trace waits for a trace that a server leaves.
func trace(t testing.TB, s Settings, name string) string {
	t.Helper()
	var text []byte
	await.True(t, func() bool {
		var err error
		text, err = os.ReadFile(s.Env[folderVar] + "/" + name)
		return err == nil && len(text) > 0
	})
	return string(text)
}

func newPool(t testing.TB, settings ...Settings) *Pool {
	t.Helper()
	return newPoolWith(t, nil, Events{}, settings...)
}

func newPoolWith(t testing.TB, known map[string]Known, events Events, settings ...Settings) *Pool {
	t.Helper()
	p := NewPool(settings, Options{Known: known, Events: events})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Bound)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func def(server, name string, hints ...string) *tool.Def {
	raw := fmt.Sprintf(`{"name":%q,"annotations":{"x":1`, name)
	for _, hint := range hints {
		raw += fmt.Sprintf(`,%q:true`, hint)
	}
	d, err := tool.ParseDef(server, json.RawMessage(raw+"}}"))
	if err != nil {
		panic(err)
	}
	return d
}

// ask calls a tool without arguments.
func ask(t testing.TB, p *Pool, server, name string, hints ...string) (string, error) {
	t.Helper()
	result, err := p.Call(t.Context(), def(server, name, hints...), &tool.Call{Arguments: json.RawMessage(`{}`)})
	return string(result), err
}

func mustAsk(t testing.TB, p *Pool, server, name, want string) {
	t.Helper()
	got, err := ask(t, p, server, name)
	if err != nil || !strings.Contains(got, want) {
		t.Errorf("%s.%s = %.300s, %v; want %s", server, name, got, err, want)
	}
}

// wantError checks for an *Error of the server.
func wantError(t testing.TB, err error, server string, is error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Server != server || (is != nil && !errors.Is(err, is)) {
		t.Errorf("error = %v, want one of upstream %s that is %v", err, server, is)
	}
}

func pidOf(t testing.TB, p *Pool, server string) int {
	t.Helper()
	got, err := ask(t, p, server, "pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(member(json.RawMessage(got), "pid")))
	if err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	return pid
}

// slowly makes a call that takes longer than the call timeout, and so is expected to
// stop its clock. A busy machine may need more than the timeout for the rest: then it
// is tried with a longer one.
func slowly(t testing.TB, p *Pool, s Settings, call func() (string, error)) string {
	t.Helper()
	for timeout := 250 * time.Millisecond; ; timeout *= 2 {
		hurry(t, p, s, timeout)
		got, err := call()
		switch {
		case err == nil:
			return got
		case !errors.Is(err, ErrTimeout) || timeout > await.Bound/4:
			t.Fatal(err)
		}
	}
}

// tooLong waits for longer than a call of the server may take, or until ctx ends.
func tooLong(ctx context.Context, p *Pool, server string) error {
	select {
	case <-time.After(p.now.Load().byName[server].limits.Load().call * 5 / 4):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry lets the server connect in its own time and gives its calls so long from
// then on.
func hurry(t testing.TB, p *Pool, s Settings, timeout time.Duration) {
	t.Helper()
	p.Update([]Settings{s}, nil) // who hurries again has given it little time before
	if change := p.Refresh(t.Context(), s.Name); change.Err != nil {
		t.Fatal(change.Err)
	}
	s.CallTimeout = timeout
	p.Update([]Settings{s}, nil)
}
