package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

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
		if err == nil || !strings.HasSuffix(err.Error(), "(exit status 3); its last words: I crash") {
			t.Errorf("%s: %v", where, err)
		}
		if reason := Reason(err); !strings.HasSuffix(reason, "(exit status 3)") { // what is kept of it
			t.Errorf("%s: the reason is %s", where, reason)
		}
	}
}
