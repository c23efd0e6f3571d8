package register

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/tool"
)

func logMessage(level string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"level":%q,"data":{"<&>":1.0},"unknown":null}`, level))
}

// chatty adds srv_log, which logs once at every level.
func chatty(t testing.TB, live *Live) {
	addTool(t, live, "srv_log", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		for _, level := range append(slices.Clone(tool.LogLevels), "custom") {
			call.Notify("notifications/message", logMessage(level))
		}
		return tool.TextResult("logged"), nil
	})
}

// logged returns the levels that arrive before the answer.
func logged(t testing.TB, messages <-chan string) []string {
	t.Helper()
	var got []string
	for {
		message := await(t, messages, "")
		if !strings.Contains(message, "notifications/message") {
			if !strings.Contains(message, "logged") {
				t.Fatalf("answer = %s", message)
			}
			return got
		}
		var in struct{ Params struct{ Level string } }
		_ = json.Unmarshal([]byte(message), &in)
		if want := `{"jsonrpc":"2.0","method":"notifications/message","params":` + string(logMessage(in.Params.Level)) + `}`; message != want {
			t.Errorf("got %s, want %s", message, want)
		}
		got = append(got, in.Params.Level)
	}
}

func setLevel(level string) string {
	return request(9, "logging/setLevel", fmt.Sprintf(`{"level":%q}`, level))
}

// What no client knows the severity of is passed.
func TestALegacyClientGetsTheLevelItSet(t *testing.T) {
	transports(t, `{}`, setup{}, func(t *testing.T, live *Live, c *conversation) {
		chatty(t, live)
		if got := logged(t, c.post(call(1, "srv_log", `{}`))); len(got) != 9 {
			t.Errorf("a client that set no level got %v, want all", got)
		}
		for i, level := range tool.LogLevels {
			await(t, c.post(setLevel(level)), `"id":9`)
			want := append(slices.Clone(tool.LogLevels[i:]), "custom")
			if got := logged(t, c.post(call(1, "srv_log", `{}`))); !slices.Equal(got, want) {
				t.Errorf("at level %s got %v, want %v", level, got, want)
			}
		}
	})
}

func TestAModernClientGetsTheLevelOfItsRequest(t *testing.T) {
	for _, capabilities := range []string{`{}`, everything} {
		newcomers(t, capabilities, setup{}, func(t *testing.T, live *Live, n *newcomer) {
			chatty(t, live)
			if got := logged(t, n.request(1, "tools/call", `"name":"srv_log"`)); len(got) > 0 {
				t.Errorf("a request without a level got %v, want nothing", got)
			}
			n.meta = `,"io.modelcontextprotocol/logLevel":"error"`
			if got, want := logged(t, n.request(1, "tools/call", `"name":"srv_log"`)), []string{"error", "critical", "alert", "emergency", "custom"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestUpstreamsAreAskedForTheMostVerboseLevel(t *testing.T) {
	var mu sync.Mutex
	var told []string
	live := newLive(t, setup{SetLevel: func(level string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, level)
	}})
	url := serveHTTP(t, live)
	a, b, silent := connect(t, url, "a"), connect(t, url, "b"), connect(t, url, "c")
	a.messages(setLevel("warning"))
	b.messages(setLevel("debug"))
	a.messages(setLevel("error"))
	b.messages(setLevel("alert"))
	b.messages(setLevel("info"))
	silent.do(http.MethodDelete, "").Body.Close()
	b.do(http.MethodDelete, "").Body.Close()
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"warning", "debug", "debug", "error", "info", "error"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// Levels set at once: the last word must be the most verbose one.
func TestLevelsSetAtOnce(t *testing.T) {
	var last string // guarded by the lock that is held over SetLevel
	live := newLive(t, setup{SetLevel: func(level string) { last = level }})
	sessions := make([]*session, len(tool.LogLevels))
	for i := range sessions {
		live.Open(fmt.Sprint(i), "", false, func([]byte) bool { return false }, func() bool { return false })
		sessions[i] = live.session(fmt.Sprint(i))
		sessions[i].initialize("c", "1", nil)
	}
	for range 50 {
		var all sync.WaitGroup
		for i, s := range sessions {
			all.Go(func() { live.setLevel(s, tool.LogLevels[i]) })
		}
		all.Wait()
		if last != "debug" {
			t.Fatalf("the last word is %s", last)
		}
	}
}

// What a server says to one session alone goes there, unless that set no level and
// others are why the server says it.
func TestLogOutsideOfCallsToOneSession(t *testing.T) {
	live := newLive(t, setup{})
	url := serveHTTP(t, live)
	silent, errorsOnly := overHTTP(t, url, `{}`), overHTTP(t, url, `{}`)
	await(t, errorsOnly.post(setLevel("error")), `"id":9`)
	for c, test := range map[*conversation]struct {
		askedFor, unasked, want string
	}{silent: {"critical", "info", "info"}, errorsOnly: {"info", "critical", "critical"}} {
		stream := c.listen()
		live.Log(c.session, nil, true, logMessage(test.askedFor))
		live.Log(c.session, nil, false, logMessage(test.unasked))
		live.Notify(c.session, "notifications/last", nil)
		if got := await(t, stream, ""); !strings.Contains(got, `"level":"`+test.want) {
			t.Errorf("got %s, want %s", got, test.want)
		}
		if got := await(t, stream, ""); !strings.Contains(got, "notifications/last") {
			t.Errorf("got %s, want no more", got)
		}
	}
}

func TestLogOutsideOfCallsGoesToThoseWhoSetALevel(t *testing.T) {
	live := newLive(t, setup{})
	url := serveHTTP(t, live)
	silent, errorsOnly, all := overHTTP(t, url, `{}`), overHTTP(t, url, `{}`), overStdio(t, live, hello(`{}`))
	await(t, errorsOnly.post(setLevel("error")), `"id":9`)
	await(t, all.post(setLevel("debug")), `"id":9`)
	streams := map[*conversation]<-chan string{silent: silent.listen(), errorsOnly: errorsOnly.listen(), all: all.listen()}
	live.Log("", nil, true, logMessage("info"))
	live.Log("", nil, true, logMessage("critical"))
	for c, want := range map[*conversation][]string{silent: nil, errorsOnly: {"critical"}, all: {"info", "critical"}} {
		live.Notify(c.session, "notifications/last", nil)
		for _, level := range want {
			if got, want := await(t, streams[c], ""), `{"jsonrpc":"2.0","method":"notifications/message","params":`+string(logMessage(level))+`}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if got := await(t, streams[c], ""); !strings.Contains(got, "notifications/last") {
			t.Errorf("got %s, want no more", got)
		}
	}
}
