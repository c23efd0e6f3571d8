package retrieve

import (
	"strings"
	"testing"
	"time"
)

// A meta-tool that is not offered is told with the setting that offers it; every
// other unknown name, and what is missing of servers, as before.
func TestMetaToolsSayWhichSettingOffersThem(t *testing.T) {
	absent := []Absent{{Server: "github", Prefix: "github", Starting: time.Second, How: "npx"}}
	r := New(newCatalog(t, nil), Settings{Health: func() Health { return Health{Absent: absent} }})
	for _, name := range Reserved() {
		if got := r.Because(name); !strings.HasPrefix(got, "; "+name+" is offered with ") || !strings.Contains(got, ": see docs/") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := r.Because(ProvisionTools); got != "; provision_tools is offered with gating: see docs/gating.md" {
		t.Error(got)
	}
	for name, want := range map[string]string{
		"search_tools":        "; search_tools is offered with exposure_mode: search",
		"proxy":               "; proxy is offered with proxy_tool",
		"run_script":          "; run_script is offered with run_script: true",
		"read_output":         "; read_output is offered with output_cache",
		"github_search_tools": "; still starting: github (npx, 1 s)", // it may have a tool of that name
	} {
		if got := r.Because(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	absent = nil
	for name, want := range map[string]string{
		"code_search_tools": "; code_search_tools is offered with exposure_mode: search",
		"v_call_tool":       "; v_call_tool is offered with exposure_mode: search",
		"search_tool":       "", "provision_tool": "", "Proxy": "", "": "",
	} {
		if got := r.Because(name); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
