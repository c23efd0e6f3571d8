package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
	"toolfinch/proxy"
	"toolfinch/tool"
	"toolfinch/view"
	hooks "toolfinch/view/script"
)

func stagesOf(o *telemetry.Operation) string {
	var names []string
	for _, s := range o.Stages {
		names = append(names, strings.TrimSuffix(s.Name+" "+s.Target, " "))
	}
	return strings.Join(names, ", ")
}

// TestFeedHasEveryCall calls by every surface of MCP, without an audit log.
func TestFeedHasEveryCall(t *testing.T) {
	up := wares(t)
	up.on("tools/call burn", func(r *request) { r.result(`{"content":[{"type":"text","text":"no fire"}],"isError":true}`) })
	v := everything(view.Default, view.ExposureRetrieve)
	v.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "shop.look", Args: []byte(`{}`)}}}}
	config := configOf(t, []*script{up}, v)
	p := opened(t, config, proxy.WithVersion("test"), proxy.WithPostCall(
		func(context.Context, *hooks.Info, json.RawMessage, tool.Result) (tool.Result, error) { return nil, nil }))
	url := run(t, p)
	await.Value(t, p.Ready())
	c := viewClient(t, p, url, view.Default, false)
	seen := 0
	since := func() (got []string) {
		all := p.Feed().Recent(1000, nil)
		for _, o := range all[:len(all)-seen] {
			text := fmt.Sprintf("%s %s %s: %s", o.Kind, o.Name, o.Outcome, stagesOf(o))
			if o.Retrieval != nil {
				text += fmt.Sprintf("; %d found by %d", o.Retrieval.Hits, o.Retrieval.Searches)
			}
			if got = append(got, text); o.View != view.Default || o.Transport != "http" || o.Client == "" || o.Session == "" || o.Session == c.id || o.Era != "legacy" || o.Request == "" {
				t.Errorf("%s: %+v", text, o)
			}
		}
		seen = len(all)
		slices.Reverse(got)
		return got
	}
	for _, step := range []struct {
		method, params string
		want           []string
	}{
		{"tools/call", toolCall("shop_look", `{"size":1}`), []string{"tool.call shop_look success: upstream shop.look, hook Go function 1"}},
		{"tools/call", toolCall("call_tool", `{"name":"shop_burn"}`), []string{"tool.call shop_burn tool_error: upstream shop.burn, hook Go function 1"}},
		{"tools/call", toolCall("shop_nothing", `{}`), []string{"tool.call shop_nothing denied: "}},
		{"tools/call", toolCall("call_tool", `{"name":"shop_nothing"}`), []string{"tool.call shop_nothing denied: "}},
		{"tools/call", toolCall("call_tool", `{}`), []string{"tool.call call_tool tool_error: "}},
		{"tools/call", toolCall("both", `{}`), []string{
			"tool.call shop.look success: upstream shop.look, hook Go function 1", "tool.call both success: upstream shop.look, hook Go function 1, hook Go function 1",
		}},
		{"tools/call", toolCall("retrieve_tools", `{"query":"look at a ware"}`), []string{"retrieve retrieve_tools success: search, hold; 3 found by 1"}},
		{"prompts/get", `{"name":"shop_greet"}`, []string{"prompt.get shop_greet success: upstream shop.greet"}},
		{"resources/read", `{"uri":"file:///note"}`, []string{"resource.read file:///note success: upstream shop.file:///note"}},
	} {
		c.ask(step.method, step.params)
		if got := since(); !slices.Equal(got, step.want) {
			t.Errorf("%s %s:\n  %s\nwant\n  %s", step.method, step.params, strings.Join(got, "\n  "), strings.Join(step.want, "\n  "))
		}
	}
	if _, n := p.Feed().InFlight(); n != 0 {
		t.Errorf("%d in flight when all is answered", n)
	}
}

// A failing server may repeat what it was given, or instruct the model. Clients get the kind of the failure, in
// the answer of a call and in searches; the reason, which is logged, has none of the words either. The owner reads them.
func TestReasonsAreNotInTheWordsOfServers(t *testing.T) {
	s := shop(t, "shop", "hat")
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"tools/call"`) {
			http.Error(w, "no hat for 4711-0815", http.StatusForbidden)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s.settings.URL = front.URL
	all := everything(view.Default, view.ExposureDirect)
	all.Composites = []view.Composite{{Name: "both", Steps: []view.Step{{Key: "a", Tool: "shop.hat", Args: []byte(`{"size":1}`)}}}}
	p, url := openViews(t, "", configOf(t, []*script{s}, all))
	c := viewClient(t, p, url, view.Default, false)
	if got := c.ask("tools/call", toolCall("both", `{}`)); !strings.Contains(got.raw, "HTTP status 403 Forbidden") || strings.Contains(got.raw, "4711") {
		t.Errorf("the client of a composite gets %v", got.raw)
	}
	if got := c.ask("tools/call", toolCall("shop_hat", `{"size":1}`)); !strings.Contains(got.raw, "HTTP status 403 Forbidden") || strings.Contains(got.raw, "4711") {
		t.Errorf("the client gets %v", got.raw)
	}
	v := must.Get(p.View(""))(t)
	found := must.Get(v.Find("shop_hat"))(t)
	if _, err := v.Call(t.Context(), found, json.RawMessage(`{"size":1}`), nil); err == nil || !strings.Contains(err.Error(), "4711") {
		t.Errorf("the owner's command gets %v", err)
	}
	for _, o := range p.Feed().Recent(1, nil) {
		if !strings.HasSuffix(o.Reason, "HTTP status 403 Forbidden") {
			t.Errorf("the reason is %q", o.Reason)
		}
	}
}
