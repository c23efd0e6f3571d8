package register

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// Intermediaries route by the headers, so they must say what the body says.
func TestHeadersThatMirrorTheRequest(t *testing.T) {
	live := newLive(t, setup{})
	for _, item := range []struct {
		kind      tool.Kind
		name, raw string
	}{
		{tool.KindPrompt, "p", `{"name":"p"}`},
		{tool.KindResource, "x:é", `{"uri":"x:é"}`},
	} {
		addItem(t, live, item.kind, item.name, item.raw, live.served(identity.Party{}).Source.(catalog)["srv_t001"].Handler)
	}
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: `{}`}
	base64Name := "=?base64?" + base64.StdEncoding.EncodeToString([]byte("x:é")) + "?="
	const callOne, getPrompt, read = `"name":"srv_t001"`, `"name":"p"`, `"uri":"x:é"`
	for _, test := range []struct {
		what            string
		method, members string // of the body
		headers         []string
		ok              bool
	}{
		{"call", "tools/call", callOne, []string{"Mcp-Method", "tools/call", "Mcp-Name", "srv_t001"}, true},
		{"call, name in base64", "tools/call", callOne, []string{"Mcp-Method", "tools/call", "Mcp-Name", "=?base64?c3J2X3QwMDE=?="}, true},
		{"prompt", "prompts/get", getPrompt, []string{"Mcp-Method", "prompts/get", "Mcp-Name", "p"}, true},
		{"resource, name in base64", "resources/read", read, []string{"Mcp-Method", "resources/read", "Mcp-Name", base64Name}, true},
		{"list", "tools/list", "", []string{"Mcp-Method", "tools/list"}, true},
		{"no method", "tools/call", callOne, []string{"Mcp-Name", "srv_t001"}, false},
		{"no name", "tools/call", callOne, []string{"Mcp-Method", "tools/call"}, false},
		{"another name", "tools/call", callOne, []string{"Mcp-Method", "tools/call", "Mcp-Name", "srv_t002"}, false},
		{"another name in base64", "tools/call", callOne, []string{"Mcp-Method", "tools/call", "Mcp-Name", "=?base64?c3J2X3QwMDI=?="}, false},
		{"bad base64", "tools/call", callOne, []string{"Mcp-Method", "tools/call", "Mcp-Name", "=?base64?%?="}, false},
		{"the stub's name", "tools/call", callOne, []string{"Mcp-Method", "tools/call", "Mcp-Name", "toolfinch"}, false},
		{"a call in the header, a list in the body", "tools/list", "", []string{"Mcp-Method", "tools/call", "Mcp-Name", "srv_t001"}, false},
		{"a call of the stub in the header, a list in the body", "tools/list", "", []string{"Mcp-Method", "tools/call", "Mcp-Name", "toolfinch"}, false},
		{"a list in the header, a call in the body", "tools/call", callOne, []string{"Mcp-Method", "tools/list"}, false},
		{"another kind", "prompts/get", getPrompt, []string{"Mcp-Method", "tools/call", "Mcp-Name", "p"}, false},
		{"another resource", "resources/read", read, []string{"Mcp-Method", "resources/read", "Mcp-Name", "x:e"}, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			p := &peer{t: t, url: n.url}
			headers := append([]string{"Mcp-Protocol-Version", "2026-07-28"}, test.headers...)
			response := p.post(n.body(1, test.method, test.members), headers...)
			response.Body.Close()
			got := p.messages(n.body(1, test.method, test.members), headers...)[0]
			switch {
			case test.ok && (response.StatusCode != http.StatusOK || !strings.Contains(got, `"result":`)):
				t.Errorf("%s, %s; want it answered", response.Status, got)
			case !test.ok && (response.StatusCode != http.StatusBadRequest || !strings.Contains(got, `"code":-32020`)):
				t.Errorf("%s, %s; want 400 and -32020", response.Status, got)
			}
		})
	}
	// The one tool that mcp-go knows is nobody's to call.
	if got := n.answer(1, "tools/call", `"name":"toolfinch"`); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("a call of the stub: %s", got)
	}
}

// An answer that a client posts has no place in the modern era, whatever
// session it names.
func TestAModernClientPostsNoAnswers(t *testing.T) {
	live := newLive(t, setup{})
	asker(t, live)
	c := overHTTP(t, serveHTTP(t, live), everything)
	messages := c.post(ask(1, "roots/list", `{}`))
	id := idOf(await(t, messages, "roots/list"))
	p := &peer{t: t, url: c.peer.url}
	response := p.post(reply(id, `{"roots":["stolen"]}`), "Mcp-Protocol-Version", "2026-07-28")
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("status %s, want 400", response.Status)
	}
	c.post(reply(id, `{"roots":["own"]}`))
	if got := await(t, messages, `"id":1,`); !strings.Contains(got, "own") {
		t.Errorf("answer = %s", got)
	}
}

// mcp-go's queue of a session is emptied by every request of it that is open,
// and what one takes in the moment of its end is lost.
func TestNothingOnTheGETStreamIsLostToOtherRequests(t *testing.T) {
	live := newLive(t, setup{})
	p := connect(t, serveHTTP(t, live), "busy")
	messages, stop := p.listen()
	defer stop()
	eventually(t, "the stream is open", func() bool { return live.Reaches(p.session) })
	ended := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					p.messages(list)
				}
			}
		})
	}
	const told = 500
	for i := range told {
		live.Notify(p.session, "notifications/told", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
		want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/told","params":{"n":%d}}`, i)
		if got := await(t, messages, "told"); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	close(ended)
	busy.Wait()
	stop()
	eventually(t, "the stream is closed", func() bool { return !live.Reaches(p.session) })
}
