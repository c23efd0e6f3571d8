package telemetry_test

import (
	"fmt"
	"regexp"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/telemetry"
)

// Servers may have any number of tools: the first 1,000 that were called are told apart, for good.
func TestToolsThatAreToldApartAreBounded(t *testing.T) {
	m := telemetry.NewMetrics()
	for range 2 {
		for i := range 1010 {
			m.Operation(&telemetry.Operation{Kind: identity.EventCall, Server: "up", Tool: fmt.Sprintf("up.t%d", i), Outcome: identity.Success})
		}
	}
	text := must.Get(m.Text(nil, nil))(t)
	counts := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^toolfinch_calls_total\{.*tool="(\w*)"\} (\d+)$`).FindAllSubmatch(text, -1) {
		counts[string(match[1])] = string(match[2])
	}
	if len(counts) != 1001 || counts["t0"] != "2" || counts["t999"] != "2" || counts["t1000"] != "" || counts[telemetry.Other] != "20" {
		t.Errorf("%d series; t0 %q, t999 %q, t1000 %q, others %q", len(counts), counts["t0"], counts["t999"], counts["t1000"], counts[telemetry.Other])
	}
}

// A quick call is told from a slow one: the lowest bucket is below what the quickest takes.
func TestBucketsBeginBelowTheQuickestCall(t *testing.T) {
	m := telemetry.NewMetrics()
	m.Operation(&telemetry.Operation{Kind: identity.EventCall, Server: "up", Tool: "up.t", Outcome: identity.Success})
	text := must.Get(m.Text(nil, nil))(t)
	for _, name := range []string{"call_duration", "overhead"} {
		if match := regexp.MustCompile(`toolfinch_` + name + `_seconds_bucket\{.*le="([^"]+)"\}`).FindSubmatch(text); match == nil || string(match[1]) != "5e-05" {
			t.Errorf("%s: the lowest bucket is %q", name, match)
		}
	}
}
