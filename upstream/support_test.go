package upstream

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/tool"
)

// The test binary is also an upstream, where the process is what is tested.
const serverVar = "TOOLFINCH_TEST_SERVER" // how to behave

func TestMain(m *testing.M) {
	if mode, ok := os.LookupEnv(serverVar); ok {
		served(context.Background(), &peer{stage: &stage{mode: mode}, pid: os.Getpid(), in: bufio.NewReaderSize(os.Stdin, 1<<20), out: os.Stdout, err: os.Stderr})
		return
	}
	pipes.Install()
	os.Exit(m.Run())
}

// strange is a result with everything a typed structure would lose.
const strange = `{"content":[{"type":"hologram","x":9007199254740993}],"structuredContent":{"big":123456789012345678901234567890,"f":1.0,"e":"\u003c"},"isError":false,"_meta":{"a/b":[1e400]},"unknown":null}`

// lineTools is how many tools it lists.
const lineTools = 13

// serveLines is a server of plain JSON lines that can do what no library would.
func serveLines(ctx context.Context, p *peer) {
	say, trace, mode := p.say, p.put, p.mode
	switch mode {
	case "crash":
		fmt.Fprintln(p.err, cmp.Or(p.env["TOOLFINCH_TEST_CRASH"], "I crash"))
		p.exit(3)
	case "parent":
		child := exec.Command("sleep", "600")
		if err := child.Start(); err != nil {
			panic(err)
		}
		p.pid = child.Process.Pid // what it answers with
	case "together": // it says nothing before it is let
		if !p.wait("go") {
			p.exit(143)
		}
	case "garbage":
		say("Server starting...\n{broken\n\x00\xff")
	}
	tools := []string{"raw", "params", "fail", "hang", "exit", "exit_once", "other_id", "text_id", "progress", "log", "pid", "change", "nothing"}
	for {
		m := p.read()
		switch m.Method {
		case "initialize":
			if mode == "mute" {
				continue
			}
			say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"lines","version":"1"},"instructions":"be kind"}}`, m.ID)
			if mode == "deaf" {
				<-ctx.Done()
			}
		case "tools/list":
			switch mode {
			case "pages":
				page, _ := strconv.Atoi(strings.Trim(string(jsonMember(m.Params, "cursor")), `"`))
				next := ""
				if page < 4 {
					next = fmt.Sprintf(`,"nextCursor":"%d"`, page+1)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"p%d"},{"name":"p%d"},{"noname":1},7]%s}}`, m.ID, page, max(page-1, 0), next)
			default:
				defs := make([]string, len(tools))
				for i, name := range tools {
					defs[i] = fmt.Sprintf(`{"name":%q,"x":12345678901234567890}`, name)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, m.ID, strings.Join(defs, ","))
			}
		case "tools/call":
			var name string
			_ = json.Unmarshal(jsonMember(m.Params, "name"), &name)
			token := jsonMember(jsonMember(m.Params, "_meta"), "progressToken")
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
				p.exit(1)
			case "exit_once":
				if !p.has("exited") {
					trace("exited", "")
					p.exit(1)
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "hang_once":
				if !p.has("hangs") {
					trace("hangs", string(m.ID))
					continue
				}
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
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
				say(`{"jsonrpc":"2.0","id":%s,"result":{"pid":%d}}`, m.ID, p.pid)
			case "wait": // until it is let
				trace("waits", "yes")
				p.wait("go")
				say(`{"jsonrpc":"2.0","id":%s,"result":{"pid":%d}}`, m.ID, p.pid)
			case "change":
				tools = append(tools, "added")
				say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				say(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, m.ID)
			case "nothing":
				say(`{"jsonrpc":"2.0","id":%s}`, m.ID)
			}
		case "notifications/cancelled":
			trace("cancelled", string(jsonMember(m.Params, "requestId")))
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

// untold returns params as a server got them without the proxy's progress token.
func untold(params []byte) string {
	return strings.Replace(ownToken.ReplaceAllString(string(params), ""), `,"_meta":{}`, "", 1)
}

var ownToken = regexp.MustCompile(`,?"progressToken":"toolfinch-[0-9]+"`)

func jsonMember(object json.RawMessage, name string) json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields)
	return fields[name]
}

// lines is an upstream that behaves as the mode says, in this process.
func lines(t testing.TB, name, mode string) Settings {
	t.Helper()
	return played(t, name, &stage{mode: mode})
}

// child is an upstream that behaves so, in a process of its own.
func child(t testing.TB, name, mode string) Settings {
	t.Helper()
	program := must.Get(os.Executable())(t)
	return Settings{
		Name: name, Command: program, Env: map[string]string{serverVar: mode, "GORACE": "atexit_sleep_ms=0"},
		ConnectTimeout: await.Bound, CallTimeout: await.Bound,
	}
}

func newPool(t testing.TB, settings ...Settings) *Pool {
	t.Helper()
	return newPoolWith(t, nil, Events{}, settings...)
}

func newPoolWith(t testing.TB, known map[string]Known, events Events, settings ...Settings) *Pool {
	t.Helper()
	return newPoolOf(t, Options{Known: known, Events: events}, settings...)
}

// newPoolOf is a pool whose servers may be played in this process. It is closed with the test.
func newPoolOf(t testing.TB, options Options, settings ...Settings) *Pool {
	t.Helper()
	options.Programs = programs
	p := NewPool(settings, options)
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
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
	pid, err := strconv.Atoi(string(jsonMember(json.RawMessage(got), "pid")))
	if err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	return pid
}
