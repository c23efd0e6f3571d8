package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"toolfinch/wire"
)

// Whatever an upstream writes, a reply is given once, what is taken out is JSON, and
// the library gets whole lines of JSON and no answer that was expected.
func FuzzUpstreamLines(f *testing.F) {
	const id = 1<<32 + 1
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":%d,"result":{"a":[1.0]}}`, `{"jsonrpc":"2.0","id":"%d","error":{"code":-1,"message":"x"}}`,
		`{"id":null,"error":{"code":-32700}}`, `{"id":%d.0,"result":null,"error":null}`, `{"method":"notifications/x","params":[1]}`,
		`{"id":"a","method":"roots/list"}`, `[{"id":%d,"result":{}},{"method":"x"},7]`, `{"id":%d,"id":7,"method":null}`, "{\"id\":\n%d", "\xff{}\r\n\r\n[]", `{"id":%d}`,
	} {
		if bytes.Contains([]byte(seed), []byte("%d")) {
			seed = fmt.Sprintf(seed, id)
		}
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stdout []byte) {
		valid := func(what string, raw json.RawMessage) {
			if len(raw) > 0 && !json.Valid(raw) {
				t.Errorf("%s is %q", what, raw)
			}
		}
		tap := &wire.Tap{
			Notify: func(_ int64, _ string, params json.RawMessage) { valid("the params of a notification", params) },
			Request: func(_ int64, id json.RawMessage, _ string, params json.RawMessage) {
				valid("an ID", id)
				valid("params", params)
			},
		}
		expected, reply := tap.Expect()
		if expected != id {
			t.Fatalf("the first ID is %d", expected)
		}
		ended := 0
		rest, err := io.ReadAll(wire.Lines(bytes.NewReader(stdout), tap, slog.New(slog.DiscardHandler), func() { ended++ }))
		if err != nil || ended != 1 {
			t.Fatalf("%v, ended %d times", err, ended)
		}
		for line := range bytes.Lines(rest) {
			if !json.Valid(line) || line[len(line)-1] != '\n' {
				t.Errorf("the library gets %q", line)
			}
		}
		select {
		case <-reply.Done:
			valid("the result", reply.Result)
			valid("the error", reply.Error)
			if n := min(len(reply.Result), 1) + min(len(reply.Error), 1); reply.Err == nil && n != 1 || reply.Err != nil && n > 0 || tap.Waits(id) {
				t.Errorf("%s", fmt.Sprintf("result %s, error %s, %v", reply.Result, reply.Error, reply.Err))
			}
		default:
			if !tap.Waits(id) {
				t.Error("the reply is neither given nor waited for")
			}
		}
	})
}
