package wire

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/rawjson"
)

// inbound is a message that must be one of those that are taken.
func inbound(t testing.TB, message string) *Inbound {
	t.Helper()
	messages, refused, _ := ParseMessages([]byte(message))
	if len(messages) != 1 || refused != nil {
		t.Fatalf("ParseMessages(%s) = %v, %v", message, messages, refused)
	}
	return messages[0]
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	r := bufio.NewReaderSize(strings.NewReader("one\r\n\n"+long+"\n"+long[:1023]+"\n"+long[:1024]+"\ntwo\nlast"), 16)
	for _, want := range []struct {
		line string
		err  error
	}{{"one", nil}, {"", nil}, {"", ErrLineTooLong}, {long[:1023], nil}, {"", ErrLineTooLong}, {"two", nil}, {"last", nil}, {"", io.EOF}} {
		line, head, err := ReadLine(r, 1024)
		if string(line) != want.line || !errors.Is(err, want.err) {
			t.Errorf("ReadLine() = %.20q, %v; want %q, %v", line, err, want.line, want.err)
		}
		if tooLong := errors.Is(err, ErrLineTooLong); tooLong && string(head) != long[:512] || !tooLong && head != nil {
			t.Errorf("the head is %.20q of %d bytes", head, len(head))
		}
	}
}

func TestTheHeadOfALineIsNoLongerThanTheLine(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("0123456789\nnext\n"))
	if line, head, err := ReadLine(r, 10); line != nil || string(head) != "0123456789\n" || !errors.Is(err, ErrLineTooLong) {
		t.Errorf("%q, %q, %v", line, head, err)
	}
	if line, _, err := ReadLine(r, 10); string(line) != "next" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

func TestStubIsSmallAndKeepsWhatTheLibraryNeeds(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":90071992547409931,"method":"tools/call","params":{"name":"a_b","arguments":{"text":"`+big+`"},"_meta":{"progressToken":7}}}`), nil)
	want := `{"jsonrpc":"2.0","id":90071992547409931,"method":"tools/call","params":{"name":"toolfinch","_meta":{"progressToken":7}}}`
	if got := string(x.Stub()); got != want {
		t.Errorf("Stub() = %.300s, want %s", got, want)
	}
	if len(rawjson.Member(x.Params, "arguments")) < 1<<20 {
		t.Error("the exchange lost the request")
	}
}

func TestExchangeIsForWhatIsProxied(t *testing.T) {
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`,
		`{"jsonrpc":"2.0","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
	} {
		if x := NewExchange(inbound(t, message), nil); x != nil {
			t.Errorf("NewExchange(%s) made an exchange", message)
		}
	}
}

func TestAnswerIsGivenOnceAndNothingFollowsIt(t *testing.T) {
	var sent []string
	x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":"a","method":"tools/list"}`), func(m []byte) error { sent = append(sent, string(m)); return nil })
	x.Notify("notifications/progress", json.RawMessage("{\"n\":\n1}"))
	x.Result(json.RawMessage("{\n\"tools\": []\n}"))
	x.Fail(json.RawMessage(`{}`))
	x.Notify("notifications/late", nil)
	if got, want := string(x.Answer()), `{"jsonrpc":"2.0","id":"a","result":{"tools":[]}}`; got != want {
		t.Errorf("Answer() = %s, want %s", got, want)
	}
	if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"n":1}}`; len(sent) != 1 || sent[0] != want {
		t.Errorf("sent %q, want only %s", sent, want)
	}
}

// A client that handles notifications later than answers would lose the last one of both in one read.
func TestAnAnswerKeepsItsDistanceFromANotification(t *testing.T) {
	for name, pauses := range map[string][2]time.Duration{ // after the notification, until the answer
		"at once": {0, 5 * time.Millisecond}, "soon": {2 * time.Millisecond, 3 * time.Millisecond}, "late": {time.Second, 0}, "none": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), func([]byte) error { return nil })
				if pauses[0] >= 0 {
					x.Notify("notifications/progress", nil)
					time.Sleep(pauses[0])
				}
				begun := time.Now()
				x.Result(json.RawMessage(`{}`))
				if waited := time.Since(begun); waited != pauses[1] {
					t.Errorf("the answer waits for %v, want %v", waited, pauses[1])
				}
			})
		})
	}
}

// An exchange that ended without an answer takes none, and sends nothing.
func TestNothingFollowsTheEndOfAnExchange(t *testing.T) {
	x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), func(m []byte) error { t.Errorf("sent %s", m); return nil })
	if got := x.Answer(); got != nil {
		t.Errorf("Answer() = %s", got)
	}
	x.Result(json.RawMessage(`{}`))
	if x.Send([]byte(`{}`)) || x.Answer() != nil {
		t.Errorf("it goes on: %s", x.Answer())
	}
}

func TestAFailureIsAnError(t *testing.T) {
	x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), func([]byte) error { return errors.New("gone") })
	if x.Send([]byte(`{}`)) {
		t.Error("a message that could not be sent was sent")
	}
	x.Fail(json.RawMessage(`{"code":1}`))
	if got := string(x.Answer()); got != `{"jsonrpc":"2.0","id":1,"error":{"code":1}}` {
		t.Errorf("Answer() = %s", got)
	}
}

func TestWhatAMessageStates(t *testing.T) {
	m := inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestState":"toolfinch-parked-7","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	if state, suspended := SuspendedState(m.Params); m.Version() != "2026-07-28" || state != "7" || !suspended {
		t.Errorf("version %q, state %q %v", m.Version(), state, suspended)
	}
	other := inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"requestState":"theirs"}}`)
	if _, suspended := SuspendedState(other.Params); other.Version() != "" || suspended {
		t.Errorf("version %q, suspended %v", other.Version(), suspended)
	}
}

func TestHandlersFindTheirExchangeOrMessage(t *testing.T) {
	x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), nil)
	if ExchangeFrom(x.Context(t.Context())) != x || ExchangeFrom(t.Context()) != nil {
		t.Error("the exchange is not in its context alone")
	}
	if got := MessageFrom(WithMessage(t.Context(), []byte("m"))); string(got) != "m" || MessageFrom(x.Context(t.Context())) != nil {
		t.Errorf("the message is %q", got)
	}
}

func TestMessageIsOneLineOfJSON(t *testing.T) {
	for _, test := range []struct{ id, method, params, want string }{
		{`"a"`, "roots/list", ``, `{"jsonrpc":"2.0","id":"a","method":"roots/list"}`},
		{``, "n", "{\n\"x\":\r\n1.0}", `{"jsonrpc":"2.0","method":"n","params":{"x":1.0}}`},
		{`7`, "odd\"\\\n\x7f\a\U000e0001", `{}`, ``}, // whatever it looks like, it is JSON
	} {
		var id, params json.RawMessage
		if test.id != "" {
			id = json.RawMessage(test.id)
		}
		if test.params != "" {
			params = json.RawMessage(test.params)
		}
		got := Message(id, test.method, params)
		if test.want != "" && string(got) != test.want {
			t.Errorf("Message = %s, want %s", got, test.want)
		}
		if !json.Valid(got) || rawjson.Text(rawjson.Member(got, "method")) != test.method || strings.ContainsAny(string(got), "\n\r") {
			t.Errorf("Message = %q", got)
		}
	}
}

// Whatever is sent at once arrives whole, and nothing follows the answer.
func TestSendingAndAnsweringAtOnce(t *testing.T) {
	var sent []string // guarded by the exchange: send is never called concurrently
	x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), func(m []byte) error { sent = append(sent, string(m)); return nil })
	var all sync.WaitGroup
	var taken atomic.Int32
	for range 50 {
		all.Go(func() {
			if x.Send([]byte(`{}`)) {
				taken.Add(1)
			}
		})
	}
	all.Go(func() { x.Result(json.RawMessage(`{}`)) })
	all.Wait()
	if x.Send([]byte(`{}`)) {
		t.Error("a message was taken after the answer")
	}
	if len(sent) != int(taken.Load()) {
		t.Errorf("%d messages were sent, %d taken", len(sent), taken.Load())
	}
}

// mcp-go refuses a request whose _meta it cannot read, and it reads all of it.
func TestTheStubHasOfMetaWhatTheLibraryKnows(t *testing.T) {
	for sent, want := range map[string]string{
		`{"a/b":1e400,"progressToken":7,"x":{}}`: `{"progressToken":7}`,
		`{"io.modelcontextprotocol/clientCapabilities":{"x":1e400},"a/b":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`: `{"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`,
		`{"io.modelcontextprotocol/clientCapabilities":null}`:                                                                       `{"io.modelcontextprotocol/clientCapabilities":null}`,
		`[1]`: `[1]`,
	} {
		x := NewExchange(inbound(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":`+sent+`,"name":"a"}}`), nil)
		if got, want := string(x.Stub()), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"toolfinch","_meta":`+want+`}}`; got != want {
			t.Errorf("Stub() = %s, want %s", got, want)
		}
	}
}
