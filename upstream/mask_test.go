package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/tool"
)

// journal is a log that tests read while it is written.
type journal struct{ await.Log }

func (j *journal) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const secret = `tok"en-12345`

// A server that repeats its secrets shows them in results only, which are the
// bytes that it sent.
func TestSecretsThatAServerRepeatsAreMasked(t *testing.T) {
	quoted, _ := json.Marshal("you sent " + secret)
	u := newPlainHTTP(t)
	u.calls["result"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"text":%s}}`, id, quoted)
	}
	u.calls["fail"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-31999,"message":%s,"data":{"x":%s},"more":1}}`, id, quoted, quoted)
	}
	u.calls["log"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"error\",\"data\":%s}}\n\n", quoted)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", id)
	}
	over := u.settings()
	over.Secrets = []string{secret}
	stdio := lines(t, "stdio", "crash")
	stdio.Env["TOOLFINCH_TEST_CRASH"] = "it dies of " + secret
	stdio.Secrets = []string{secret}
	var j journal
	p := newPoolOf(t, Options{Log: j.log()}, over, stdio)

	if got, err := ask(t, p, "s", "result"); err != nil || got != `{"text":`+string(quoted)+`}` {
		t.Errorf("the result is %s, %v", got, err)
	}
	_, err := ask(t, p, "s", "fail")
	var rpc *tool.RPCError
	if !errors.As(err, &rpc) || rpc.Code != -31999 || rpc.Message != "you sent ***" || string(rpc.Raw) != `{"code":-31999,"message":"you sent ***","data":{"x":"you sent ***"},"more":1}` {
		t.Errorf("the error is %v: %s", err, rpc.JSON())
	}
	heard := ""
	_, err = p.Call(t.Context(), def("s", "log"), &tool.Call{Notify: func(_ string, params json.RawMessage) { heard = string(params) }})
	if want := `{"level":"error","data":"you sent ***"}`; err != nil || heard != want {
		t.Errorf("the log message is %s, %v", heard, err)
	}
	shown := map[string]error{"Refresh": p.Refresh(t.Context(), "stdio").Err}
	_, shown["Call"] = ask(t, p, "stdio", "raw")
	shown["Status"] = p.Status()[1].Err
	for where, err := range shown {
		if err == nil || strings.Contains(err.Error(), "12345") {
			t.Errorf("%s: %v", where, err)
		}
	}
	await.Contains(t, j.String, "it dies of ***")
	if strings.Contains(j.String(), "12345") {
		t.Errorf("the log shows the secret:\n%s", j.String())
	}
}

// Everybody is told how a process ended and what it wrote last.
func TestLastWords(t *testing.T) {
	p := newPool(t, lines(t, "s", "crash"))
	_, err := ask(t, p, "s", "raw")
	wantError(t, err, "s", ErrNotConnected)
	for where, err := range map[string]error{"a call": err, "Status": p.Status()[0].Err, "Refresh": p.Refresh(t.Context(), "s").Err} {
		if err == nil || !strings.HasSuffix(err.Error(), `it wrote "I crash"; the process ended (exit status 3)`) {
			t.Errorf("%s: %v", where, err)
		}
		if reason := Reason(err); !strings.HasSuffix(reason, "the process ended (exit status 3)") || strings.Contains(reason, "crash") { // what is kept of it
			t.Errorf("%s: the reason is %s", where, reason)
		}
	}
}

// The last lines about a server are kept for its owner, masked: its standard error, its log messages, and what became
// of its connections. A replaced server keeps the lines of its predecessor.
func TestLinesOfAServerAreKept(t *testing.T) {
	l, log := &recent{}, &logged{Handler: slog.DiscardHandler}
	keep := newMask([]string{"abcdef"}).logger(slog.New(keeping{log, l})).With("server", "s")
	keep.Info("stderr", "line", "the token is abcdef")
	keep.Debug("connected", "era", EraLegacy)
	l.message([]byte(`{"level":"warning","data":"disk\nfull"}`))
	l.message([]byte(`{"data":{"n":1}}`))
	next := &recent{}
	next.add(time.Now(), "info", "new")
	next.inherit(l)
	var got []string
	for _, line := range next.after(0) {
		got = append(got, fmt.Sprintf("%d %s %s", line.Number, line.Kind, line.Text))
	}
	want := []string{"1 stderr the token is ***", "2 debug connected; era: legacy", "3 message warning: disk full", `4 message {"n":1}`, "5 info new"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for range 2 * keptLines {
		next.add(time.Now(), "stderr", strings.Repeat("x", 10*maxLine))
	}
	if all := next.after(0); len(all) != keptLines || all[0].Number != 5+keptLines+1 || len(all[0].Text) > maxLine+3 || len(next.after(all[0].Number)) != keptLines-1 {
		t.Errorf("%d lines are kept, the first is %d of %d bytes", len(all), all[0].Number, len(all[0].Text))
	}
}
