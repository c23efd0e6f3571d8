package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

// What mcp-go, which reads names without regard to case, and this package would
// read differently is read by neither.
func TestParseMessages(t *testing.T) {
	deep := strings.Repeat("[", 513) + strings.Repeat("]", 513)
	for _, test := range []struct {
		name, sent string
		kind       string // request, notification, reply; else a part of the reason
		id         string // of the refusal
	}{
		{"a request", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":1},"x":2}}`, "request", ""},
		{"an ID of 0", `{"jsonrpc":"2.0","id":0,"method":"ping"}`, "request", ""},
		{"an ID of 9", `{"jsonrpc":"2.0","id":9,"method":"ping"}`, "request", ""},
		{"a request with a string ID", `{"jsonrpc":"2.0","id":"a","method":"ping"}`, "request", ""},
		{"a fractional ID", `{"jsonrpc":"2.0","id":-1.5,"method":"ping"}`, "request", ""},
		{"params of null", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, "request", ""},
		{"params of an empty list", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[ ]}`, "request", ""},
		{"members of others", `{"jsonrpc":"2.0","id":1,"method":"ping","Foo":1,"trace":{},"trace":1,"params":{"twice":1,"twice":2}}`, "request", ""},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "notification", ""},
		{"a reply", `{"jsonrpc":"2.0","id":1,"result":null}`, "reply", ""},
		{"an error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, "reply", ""},
		{"an error with a result of null", `{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"x"}}`, "reply", ""},
		{"a result with an error of null", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, "reply", ""},

		{"another spelling of the method", `{"jsonrpc":"2.0","Method":"notifications/cancelled","params":{"requestId":1}}`, `"Method", which the protocol spells "method"`, ""},
		{"another spelling beside the method", `{"jsonrpc":"2.0","id":7,"method":"ping","METHOD":"tools/call"}`, `"METHOD", which the protocol`, "7"},
		{"a spelling that folds", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"param\u017f\":{}}", `which the protocol spells "params"`, "7"},
		{"an escaped spelling", `{"jsonrpc":"2.0","id":7,"method":"ping","\u004dethod":"x"}`, `"Method", which the protocol`, "7"},
		{"the method twice", `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}`, `the member "method" twice`, "7"},
		{"the method twice, once escaped", `{"jsonrpc":"2.0","id":7,"method":"ping","\u006dethod":"tools/call"}`, `the member "method" twice`, "7"},
		{"the ID twice", `{"jsonrpc":"2.0","id":6,"id":7,"method":"ping"}`, `the member "id" twice`, "7"},
		{"a parameter twice", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","name":"b"}}`, `params has the member "name" twice`, "7"},
		{"another spelling of a parameter", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestID":1}}`, `spells "requestId"`, ""},
		{"another spelling in _meta", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{"ProgressToken":1}}}`, `spells "progressToken"`, "7"},
		{"_meta twice", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":{},"_meta":{}}}`, `"_meta" twice`, "7"},

		{"no version", `{"id":7,"method":"ping"}`, `"jsonrpc" must be "2.0"`, "7"},
		{"another version", `{"jsonrpc":"1.0","id":7,"method":"ping"}`, `"jsonrpc" must be "2.0"`, "7"},
		{"a version that is a number", `{"jsonrpc":2.0,"id":7,"method":"ping"}`, `"jsonrpc" must be "2.0"`, "7"},
		{"an ID of null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "the ID must be", ""},
		{"an ID that is an object", `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, "the ID must be", ""},
		{"an ID that is a list", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, "the ID must be", ""},
		{"an ID that is a boolean", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, "the ID must be", ""},
		{"a long ID", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1<<10) + `","method":"ping"}`, "the ID must be", ""},
		{"a method that is a number", `{"jsonrpc":"2.0","id":7,"method":5}`, `"method" must be a string`, "7"},
		{"a long method", `{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("x", 257) + `"}`, `"method" must be a string`, "7"},
		{"params that are a list", `{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}`, `"params" must be an object`, "7"},
		{"a request with a result", `{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}`, "neither a result", "7"},
		{"a reply with both", `{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`, "a reply has", "7"},
		{"a reply without ID", `{"jsonrpc":"2.0","result":{}}`, "a reply has", ""},
		{"nothing", `{"jsonrpc":"2.0","id":7}`, "neither a method", "7"},
		{"no object", `"ping"`, "must be a JSON object", ""},
		{"no JSON", `{"jsonrpc":"2.0","id":7,"method":"ping"`, "not valid JSON", "7"},
		{"empty", ``, "not valid JSON", ""},
		{"nested too deeply", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":` + deep + `}}`, "nested too deeply", "7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			messages, refused, batch := ParseMessages([]byte(test.sent))
			if batch || len(messages)+len(refused) != 1 {
				t.Fatalf("%d messages, %d refusals, batch %t", len(messages), len(refused), batch)
			}
			if refused == nil {
				m, kind := messages[0], "notification"
				switch {
				case m.IsReply():
					kind = "reply"
				case m.IsRequest():
					kind = "request"
				}
				if kind != test.kind {
					t.Errorf("a %s, want %s", kind, test.kind)
				}
				return
			}
			if !strings.Contains(refused[0].Reason, test.kind) || string(refused[0].ID) != test.id {
				t.Errorf("refused with ID %s: %s\nwant %q and %s", refused[0].ID, refused[0].Reason, test.id, test.kind)
			}
		})
	}
}

func TestBatchesArePartedIntoMessages(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, test := range []struct {
		name, sent        string
		messages, refused int
	}{
		{"two", `[` + ping + `, ` + ping + ` ]`, 2, 0},
		{"one is bad", `[` + ping + `,1]`, 1, 1},
		{"none", `[]`, 0, 1},
		{"too many", `[` + strings.Repeat(ping+",", 100) + ping + `]`, 0, 1},
	} {
		messages, refused, batch := ParseMessages([]byte(test.sent))
		if !batch || len(messages) != test.messages || len(refused) != test.refused {
			t.Errorf("%s: %d messages, %d refusals, batch %t; want %d, %d", test.name, len(messages), len(refused), batch, test.messages, test.refused)
		}
	}
}

// FuzzParseMessages: whatever is taken has the one meaning that encoding/json, with
// its regard for no case, would give it.
func FuzzParseMessages(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","Method":"x"}`, `[{"jsonrpc":"2.0","id":"\u0061","result":{}}]`, `{"id":{}}`, `[`, `{"a`, `{"id":5E999,"params":nonsense}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		messages, refused, _ := ParseMessages(sent)
		if len(messages)+len(refused) == 0 {
			t.Error("neither a message nor a refusal")
		}
		for _, m := range messages {
			var library struct{ Method, JSONRPC string }
			if err := json.Unmarshal(m.Raw, &library); err != nil || library.Method != m.Method || library.JSONRPC != "2.0" {
				t.Errorf("%s: read as %q, the library reads %+v, %v", m.Raw, m.Method, library, err)
			}
		}
		for _, r := range refused {
			if !json.Valid(r.Answer()) { // an ID may be a number that no float64 has
				t.Errorf("%s is no JSON", r.Answer())
			}
		}
	})
}
