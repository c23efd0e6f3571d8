package transport_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"toolfinch/internal/await"
	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/register"
	"toolfinch/register/transport"
)

// lines is a client over stdio.
type lines struct {
	t   *testing.T
	in  *io.PipeWriter
	got chan string
}

func (h *house) stdio(t *testing.T) *lines {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	l := &lines{t, inW, make(chan string, 1000)}
	ended := make(chan error, 1)
	go func() {
		ended <- transport.Stdio(t.Context(), h.live, h.clients, inR, outW, slog.New(slog.DiscardHandler))
		outW.Close()
	}()
	go func() {
		defer close(l.got)
		out := bufio.NewScanner(outR)
		out.Buffer(nil, 32<<20)
		for out.Scan() {
			l.got <- out.Text()
		}
	}()
	t.Cleanup(func() {
		inW.Close()
		for range l.got {
		}
		if err := await.Value(t, ended); err != nil {
			t.Errorf("Stdio = %v", err)
		}
	})
	return l
}

func (l *lines) send(message string) {
	l.t.Helper()
	if _, err := io.WriteString(l.in, message+"\n"); err != nil {
		l.t.Fatal(err)
	}
}

// ask sends a message and returns the next one that comes.
func (l *lines) ask(message string) string {
	l.t.Helper()
	l.send(message)
	return await.Value(l.t, l.got)
}

func TestWhatIsRefusedOverStdioIsAnswered(t *testing.T) {
	const most = 100_000
	h := newHouse(t, transport.Limits{MessageBytes: most})
	l := h.stdio(t)
	l.ask(greeting("2025-11-25"))
	deep := strings.Repeat("[", 513) + strings.Repeat("]", 513)
	for _, test := range []struct{ name, message, id, says string }{
		{"nested too deeply", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"x":` + deep + `}}}`, `"id":5`, "nested too deeply"},
		{"no JSON", `{"jsonrpc"`, `"id":null`, "not valid JSON"},
		{"another spelling", `{"jsonrpc":"2.0","id":6,"Method":"ping"}`, `"id":6`, `spells \"method\"`},
		{"an ID that is an object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"id":null`, "the ID must be"},
		{"a batch", `[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, `"id":null`, "has no JSON-RPC batches"},
		{"a line that is too long", strings.Repeat("x", most+1), `"id":null`, "too many bytes in one message: the limit is 100000"},
	} {
		got := l.ask(test.message)
		if !strings.Contains(got, test.id) || !strings.Contains(got, test.says) {
			t.Errorf("%s: %s", test.name, got)
		}
	}
	want(t, "what follows", l.ask(toolCall("8", "echo")), `"id":8,"result"`)
}

func TestACancelOverStdio(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	l := h.stdio(t)
	l.ask(greeting("2025-11-25"))
	other := h.post(toolCall(`"w"`, "wait"), h.session("2025-11-25")...)
	await.Value(t, h.started)
	l.send(toolCall(`"w"`, "wait"))
	await.Value(t, h.started)
	l.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0077"}}`)
	if err := await.Value(t, h.ended); err == nil {
		t.Error("the call was answered, want it cancelled")
	}
	h.release <- struct{}{}
	want(t, "another client's call", await.Value(t, other.answer), "waited")
}

// A cancel that comes together with its request finds it.
func TestACancelDoesNotOvertake(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	l := h.stdio(t)
	l.ask(greeting("2025-11-25"))
	for range cap(h.started) {
		l.send(toolCall("7", "wait") + "\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	}
	for got := l.ask(toolCall("8", "echo")); !strings.Contains(got, `"id":8`); got = await.Value(t, l.got) {
		continue // answers of what was cancelled
	}
	await.True(t, func() bool { return h.used("session_requests") == 0 })
}

// Numbers that a float does not hold are answered as they were sent, whoever answers.
func TestLongNumbersAsIDs(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	l := h.stdio(t)
	const id = "1760000000123456789"
	want(t, "initialize", l.ask(strings.Replace(greeting("2025-11-25"), `"id":"i"`, `"id":`+id, 1)), `"id":`+id)
	for _, method := range []string{"ping", "tools/list", "no/such"} {
		want(t, method, l.ask(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`"}`), `"id":`+id)
	}
}

// What a client does not read counts as requests that are being answered; and it does not keep
// toolfinch from ending.
func TestAClientOverStdioThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := transport.NewClients(transport.Limits{})
		served := &register.Served{Source: shelf{}}
		live := register.New(register.Options{Version: "1"}, func(identity.Party) *register.Served { return served }, slog.New(slog.DiscardHandler))
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- transport.Stdio(ctx, live, clients, inR, outW, slog.New(slog.DiscardHandler)) }()
		send := func(message string) { _, _ = io.WriteString(inW, message+"\n") }
		send(greeting("2025-11-25"))
		must.Get(bufio.NewReader(outR).ReadString('\n'))(t)
		send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		synctest.Wait() // its answer is being written
		for _, l := range clients.Limits() {
			if l.Name() == "session_requests" && l.Used() != 1 {
				t.Errorf("%d requests count, want 1", l.Used())
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		outR.Close()
		inW.Close()
	})
}

func TestABatchOverStdio(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	l := h.stdio(t)
	l.ask(greeting("2024-11-05"))
	got := l.ask(`[` + toolCall("1", "echo") + `,{"jsonrpc":"2.0","method":"notifications/initialized"},` + toolCall("2", "echo") + `]`)
	if !strings.HasPrefix(got, "[") || !strings.Contains(got, `"id":1,"result"`) || !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("a batch: %s", got)
	}
	l.send(`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`) // has no answer
	want(t, "what follows", l.ask(toolCall("3", "echo")), `"id":3`)
}

// Clients over stdio that one process serves are kept apart, from each other and
// from those over HTTP.
func TestClientsOverStdioHaveSessionsOfTheirOwn(t *testing.T) {
	h := newHouse(t, transport.Limits{})
	keys := map[string]bool{}
	for range 2 {
		l := h.stdio(t)
		l.ask(greeting("2025-11-25"))
		l.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}`)
		key := await.Value(t, h.started).Client.Key
		keys[key] = true
		request, err := http.NewRequest(http.MethodPost, h.url+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Mcp-Session-Id", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			t.Errorf("the session of stdio over HTTP: status %d", response.StatusCode)
		}
	}
	if len(keys) != 2 {
		t.Errorf("the sessions are %v", keys)
	}
	for range keys {
		h.release <- struct{}{}
	}
}
