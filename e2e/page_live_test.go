//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"toolfinch/internal/await"
)

// live has calls of a client of the TypeScript SDK.
func live(t *testing.T, w watched) {
	c := newSDKClient(t, w.env)
	c.do(t, "connect", map[string]any{"url": w.url}, nil)
	call := func(name string, arguments map[string]any) {
		c.do(t, "call", map[string]any{"name": name, "arguments": arguments}, nil)
	}

	t.Run("as they happen", func(t *testing.T) {
		tab := w.in(t)
		tab.open("live")
		tab.wait("h1", "Live")

		call("everything_echo", map[string]any{"message": "seen"})
		tab.wait("#done tr", "everything.echo")
		tab.wait("#done tr .badge", "success")
		tab.wait("#done tr", "toolfinch-sdk-client")
		call("everything_<img src=x onerror=alert(1)>\u202e", map[string]any{})
		tab.wait("#done tr", "<img src=x onerror=alert(1)>U+202E")

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+"/api/proxy/execute",
			strings.NewReader(`{"tool_id":"everything_trigger-long-running-operation","arguments":{"duration":600,"steps":1}}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		over := make(chan error, 1)
		go func() {
			answer, err := http.DefaultClient.Do(request)
			if err == nil {
				err = fmt.Errorf("%s after 10 minutes", answer.Status)
				answer.Body.Close()
			}
			over <- err
		}()
		tab.wait("#running tr", "everything.trigger-long-running-operation")
		cancel()
		if err := await.Value(t, over); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		tab.wait("#done tr:first-child", "everything.trigger-long-running-operation")
		tab.lacks("#running tr", "everything.trigger-long-running-operation")

		ended := make(chan struct{})
		go func() {
			defer close(ended)
			call("everything_trigger-long-running-operation", map[string]any{"duration": 10, "steps": 1})
		}()
		tab.wait("#running tr", "everything.trigger-long-running-operation")
		tab.looks("live")
		kill(t, w.pid, "server-everything")
		<-ended // whatever came of it: who may repeat a call does
		tab.wait("#done tr:first-child", "everything.trigger-long-running-operation")
		call("memory_read_graph", map[string]any{})
		tab.wait("#done tr:first-child", "memory.read_graph")
	})
	t.Run("filtered", func(t *testing.T) {
		tab := w.in(t)
		tab.open("live")
		tab.accessible()
		tab.fits()
		tab.open("live?server=memory")
		call("memory_read_graph", map[string]any{})
		tab.searches("image")
		await.Nil(t, func() error { // each key may be shown by itself
			if path := tab.path(); !strings.Contains(path, "q=image") || !strings.Contains(path, "server=memory") {
				return fmt.Errorf("the filter is not in the address: %s", path)
			}
			return nil
		})
		tab.wait("#calls .empty h2", "Nothing that fits")
		call("memory_read_graph", map[string]any{})
		tab.open("live?outcome=unsuccessful")
		tab.wait("#done tr .badge", "denied")
		if got := tab.text("#done"); strings.Contains(got, "success") {
			t.Errorf("what succeeded is shown: %s", got)
		}
	})
	t.Run("one call", func(t *testing.T) {
		tab := w.in(t)
		tab.open("live")
		tab.wait("#done tr", "everything.echo")
		tab.click("#done a")
		tab.wait("h1", "memory.read_graph")
		tab.wait(".stages td", "upstream")
		tab.accessible()
		tab.fits()
		tab.looks("live-call")
	})
	t.Run("a search, what was meant, and back", func(t *testing.T) {
		before := fmt.Sprint(w.written(t))
		call("retrieve_tools", map[string]any{"query": "jot something for later so that I recall it"})
		tab := w.in(t)
		tab.open("live?q=jot")
		tab.wait("#done .query", "jot something for later")
		tab.accessible()
		tab.fits()
		tab.click("#done a")
		tab.wait(".searched h2", "jot something for later")
		tab.accessible()
		tab.fits()
		tab.looks("live-search")
		tab.run(chromedp.SetValue(chromedp.CSS(".other-tool input[name=tool]"), "memory_add_observations"))
		tab.click(".other-tool button")
		tab.wait("section.note", "→ 1.")
		tab.accessible()
		tab.fits()
		tab.looks("live-meant")
		if after := fmt.Sprint(w.written(t)); !strings.Contains(after, "Also for: jot") {
			t.Errorf("the file has %s", after)
		}
		tab.click("section.note button")
		tab.wait("section.note", "Undone")
		if after := fmt.Sprint(w.written(t)); after != before {
			t.Errorf("the file has %s\nand had %s", after, before)
		}
	})
	t.Run("without script", func(t *testing.T) {
		tab := w.in(t)
		tab.noScript()
		tab.open("live?q=echo")
		if got := tab.text("#done"); !strings.Contains(got, "everything.echo") || strings.Contains(got, "memory") {
			t.Errorf("the filter shows %s", got)
		}
		tab.click("#again")
		tab.click("#done a")
		if got := tab.text("#one"); !strings.Contains(got, "success") || !strings.Contains(got, "upstream") {
			t.Errorf("a call shows %s", got)
		}
		tab.open("live?n=123456")
		if got := tab.text(".note.warn"); !strings.Contains(got, "not kept any more") {
			t.Errorf("a call that is not there shows %s", got)
		}
		if got := tab.text("#done"); !strings.Contains(got, "everything.echo") {
			t.Errorf("beside a call that is not there stand %s", got)
		}
	})
}

// waitServers waits until so many servers of a running toolfinch are ready, one after the other: a busy machine may be
// slow, but each of them comes.
func waitServers(t *testing.T, at string, n int) {
	t.Helper()
	for i := range n {
		await.True(t, func() bool { return readyServers(t, at) > i })
	}
}

// press clicks what loads nothing.
func (b *tab) press(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector)))
}
