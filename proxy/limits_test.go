package proxy_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every limit of what clients can make grow has a metric and a row in the
// documentation, with the same default. TestLimits of package transport reaches
// those of connections, tests of package register the others.
func TestEveryLimitIsDocumentedAndMeasured(t *testing.T) {
	_, url := openREST(t, "", configOf(t, []*script{shop(t, "up", "hat")}))
	measured := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^toolfinch_limit\{limit="(\w+)"\} (\d+)$`).FindAllStringSubmatch(curl(t, url, "GET", "/metrics", "").body, -1) {
		measured[m[1]] = m[2]
	}
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+) \\|").FindAllStringSubmatch(section, -1) {
		documented[m[1]] = m[2]
	}
	if len(measured) == 0 || !maps.Equal(measured, documented) {
		t.Errorf("measured   %v\ndocumented %v", measured, documented)
	}
}
