package proxy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/retrieve"
	"toolfinch/view"
)

// What a view shows follows its configuration as one: its description, its tools
// and what searches find are of one edit, whoever looks at whatever moment.
func TestAViewIsSeenWhole(t *testing.T) {
	hats := shop(t, "shop", "hat", "cap", "bonnet")
	base := configOf(t, []*script{hats})
	edit := func(n int) *configs.Config {
		v := view.Settings{Name: view.Default, Exposure: view.ExposureSearch, Description: fmt.Sprintf("edit%d", n)}
		v.Tools = []view.UpstreamTools{{Name: "shop"}}
		for _, name := range []string{"hat", "cap", "bonnet"} {
			v.Tools[0].Tools = append(v.Tools[0].Tools, view.Override{Tool: name, Name: fmt.Sprintf("%s_of_edit%d", name, n)})
		}
		return edited(base, v)
	}
	p, url := openViews(t, "", edit(0))
	client := viewClient(t, p, url, view.Default, true)

	const edits = 30
	var seen sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 4 {
		seen.Go(func() {
			for ctx.Err() == nil {
				if err := whole(ctx, p); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	seen.Go(func() {
		for ctx.Err() == nil {
			found := string(client.ask("tools/call", toolCall("default_search_tools", `{"query":"hat cap bonnet","limit":5}`)).Result)
			_, of, _ := strings.Cut(found, "_of_edit")
			of, _, _ = strings.Cut(of, `"`)
			of = strings.TrimRight(of, "\\")
			if n := strings.Count(found, "_of_edit"); n == 0 || strings.Count(found, "_of_edit"+of) != n {
				t.Errorf("one answer with several edits: %s", found)
				return
			}
		}
	})
	for n := 1; n <= edits; n++ {
		if err := p.Reload(t.Context(), edit(n)); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	seen.Wait()
	if got := fmt.Sprint(toolsOf(t, p, view.Default)); got != fmt.Sprintf("[bonnet_of_edit%d cap_of_edit%d hat_of_edit%d]", edits, edits, edits) {
		t.Errorf("in the end it has %s", got)
	}
}

// whole compares all that a view says at one moment.
func whole(ctx context.Context, p *proxy.Proxy) error {
	v, err := p.View("")
	if err != nil {
		return err
	}
	of := "_of_" + v.Settings.Description
	var names []string
	for _, one := range v.Tools() {
		names = append(names, one.Name)
	}
	found, err := v.Retriever.Search(ctx, retrieve.Query{Text: "hat cap bonnet", Limit: 5})
	for _, hit := range found.Hits {
		names = append(names, hit.Name)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, of) {
			return fmt.Errorf("%s beside the description %s", name, v.Settings.Description)
		}
	}
	if len(names) != 6 && ctx.Err() == nil {
		return fmt.Errorf("it has and finds %v, %v", names, err)
	}
	return nil
}

// A server that cannot be reached keeps nobody waiting for ever, and one that a
// reload brings is waited for anew.
func TestReadyOnceEachServerIsListedOrHasFailed(t *testing.T) {
	one, two := shop(t, "one", "hat"), shop(t, "two", "coat")
	gone := settings("gone", "http://127.0.0.1:1/mcp")
	config := configOf(t, []*script{one})
	config.Servers = append(config.Servers, gone)
	p, _ := openViews(t, "", config)
	if got := fmt.Sprint(toolsOf(t, p, view.Default)); got != "[one_hat]" {
		t.Errorf("ready with %s", got)
	}
	next := configOf(t, []*script{one, two})
	next.DataDir = config.DataDir
	must.Do(t, p.Reload(t.Context(), next))
	await.Value(t, p.Ready())
	if got := fmt.Sprint(toolsOf(t, p, view.Default)); got != "[one_hat two_coat]" {
		t.Errorf("ready after the reload with %s", got)
	}
}
