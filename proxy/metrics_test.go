package proxy_test

import (
	"strings"
	"testing"

	"toolfinch/trust/inbound"
	"toolfinch/view"
)

// A key of one view is shown what is counted of that view, its servers and its tools.
func TestMetricsOfAKeyAreThoseOfItsView(t *testing.T) {
	hats, tools := shop(t, "hats", "hat", "coat"), shop(t, "tools", "saw")
	hat := view.Settings{Name: view.Default, Exposure: view.ExposureDirect, Tools: []view.UpstreamTools{{Name: "hats", Tools: []view.Override{{Tool: "hat"}}}}}
	config := configOf(t, []*script{hats, tools}, hat, everything("other", view.ExposureDirect))
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	whole, narrow, beside := keyOfView(t, config, "whole", ""), keyOfView(t, config, "narrow", view.Default), keyOfView(t, config, "beside", "other")
	_, url := openREST(t, "", config)
	for _, id := range []string{"hats.hat", "hats.coat", "tools.saw"} {
		curl(t, url, "POST", "/api/proxy/execute?view=other", `{"tool_id":"`+id+`","arguments":{"size":1}}`, "Authorization: Bearer "+whole).wants(t, id, 200)
	}
	got := map[string]string{}
	for name, key := range map[string]string{"whole": whole, "narrow": narrow} {
		answer := curl(t, url, "GET", "/metrics", "", "Authorization: Bearer "+key)
		answer.wants(t, name, 200, `tool="hat"`, `view="default"`, `toolfinch_server_up{server="hats"} 1`)
		got[name] = answer.body
	}
	curl(t, url, "GET", "/metrics", "", "Authorization: Bearer "+beside).wants(t, "of a view that is not the root", 200, `view="other"`, `tool="saw"`)
	curl(t, url, "GET", "/openapi.json", "", "Authorization: Bearer "+beside).wants(t, "the description", 200)
	curl(t, url, "GET", "/api/tools", "", "Authorization: Bearer "+beside).wants(t, "the root", 403)
	for _, label := range []string{`"coat"`, `"saw"`, `"tools"`, `"other"`} {
		if !strings.Contains(got["whole"], label) || strings.Contains(got["narrow"], label) {
			t.Errorf("%s: shown to a key of all views: %t, to that of one: %t", label, strings.Contains(got["whole"], label), strings.Contains(got["narrow"], label))
		}
	}
}
