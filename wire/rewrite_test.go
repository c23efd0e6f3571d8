package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestSetKeepsEveryOtherByte(t *testing.T) {
	for _, test := range []struct{ name, object, key, value, want string }{
		{"in place", `{ "a" : 1 , "name":"x", "b":[1, 2]}`, "name", `"y"`, `{ "a" : 1 , "name":"y", "b":[1, 2]}`},
		{"added first", `{"a":12345678901234567890}`, "name", `"y"`, `{"name":"y","a":12345678901234567890}`},
		{"to an empty object", ` { } `, "name", `1`, ` {"name":1 } `},
		{"nested namesake stays", `{"in":{"name":"deep"},"name":"top"}`, "name", `"new"`, `{"in":{"name":"deep"},"name":"new"}`},
		{"escaped key", `{"n\u0061me":"x"}`, "name", `"y"`, `{"n\u0061me":"y"}`},
		{"braces and quotes in strings", `{"a":"}\"{,\\","name":{"x":"]}"}}`, "name", `0`, `{"a":"}\"{,\\","name":0}`},
		{"the last of duplicates", `{"name":1,"name":2}`, "name", `3`, `{"name":1,"name":3}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Set([]byte(test.object), test.key, []byte(test.value))
			if err != nil || string(got) != test.want {
				t.Errorf("Set() = %s, %v; want %s", got, err, test.want)
			}
		})
	}
	for _, bad := range []string{"", "[]", `"text"`, "7"} {
		if got, err := Set([]byte(bad), "name", []byte("1")); err == nil {
			t.Errorf("Set(%q) = %s, want an error", bad, got)
		}
	}
}

func FuzzSetAgreesWithEncodingJSON(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"name":[{"name":"}"}],"b":"\\\""}`, `{"\u006eame":null , "c":-1e5}`, `{}`, ` {"a":{"b":[[]]}} `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var before map[string]json.RawMessage
		if json.Unmarshal(object, &before) != nil || before == nil {
			t.Skip()
		}
		got, err := Set(object, "name", []byte(`"new"`))
		if err != nil {
			t.Fatal(err)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("Set(%s) = %s: %v", object, got, err)
		}
		before["name"] = json.RawMessage(`"new"`)
		if len(before) != len(after) {
			t.Fatalf("Set(%s) = %s: members differ", object, got)
		}
		for key, value := range before {
			if string(after[key]) != string(value) {
				t.Fatalf("Set(%s) = %s: member %q differs", object, got, key)
			}
		}
	})
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	r := bufio.NewReaderSize(strings.NewReader("one\r\n\n"+long+"\ntwo\nlast"), 16)
	for _, want := range []struct {
		line string
		err  error
	}{{"one", nil}, {"", nil}, {"", ErrLineTooLong}, {"two", nil}, {"last", nil}, {"", io.EOF}} {
		line, err := ReadLine(r, 1024)
		if string(line) != want.line || !errors.Is(err, want.err) {
			t.Errorf("ReadLine() = %.20q, %v; want %q, %v", line, err, want.line, want.err)
		}
	}
}

func TestStubIsSmallAndKeepsWhatTheLibraryNeeds(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	x := NewExchange([]byte(`{"jsonrpc":"2.0","id":90071992547409931,"method":"tools/call","params":{"name":"a_b","arguments":{"text":"`+big+`"},"_meta":{"progressToken":7}}}`), nil)
	want := `{"jsonrpc":"2.0","id":90071992547409931,"method":"tools/call","params":{"_meta":{"progressToken":7},"name":"toolfinch"}}`
	if got := string(x.Stub()); got != want {
		t.Errorf("Stub() = %.300s, want %s", got, want)
	}
	if x.Name() != "a_b" || len(Member(x.Params, "arguments")) < 1<<20 {
		t.Errorf("the exchange lost the request: name %q", x.Name())
	}
}

func TestExchangeIsOnlyForCallsAndLists(t *testing.T) {
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`,
		`{"jsonrpc":"2.0","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"`,
		``,
	} {
		if x := NewExchange([]byte(message), nil); x != nil {
			t.Errorf("NewExchange(%s) made an exchange", message)
		}
	}
}

func TestAnswerIsGivenOnceAndNothingFollowsIt(t *testing.T) {
	var sent []string
	x := NewExchange([]byte(`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`), func(m []byte) { sent = append(sent, string(m)) })
	x.Notify("notifications/progress", json.RawMessage("{\"n\":\n1}"))
	x.Result(json.RawMessage("{\n\"tools\": []\n}"))
	x.Fail(json.RawMessage(`{}`), 0)
	x.Notify("notifications/late", nil)
	if got, want := string(x.Answer()), `{"jsonrpc":"2.0","id":"a","result":{"tools":[]}}`; got != want {
		t.Errorf("Answer() = %s, want %s", got, want)
	}
	if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"n":1}}`; len(sent) != 1 || sent[0] != want {
		t.Errorf("sent %q, want only %s", sent, want)
	}
}
