package configs

import (
	"strings"
	"testing"

	"toolfinch/trust/leaks"
)

func TestSecretsInAnswersByViewAndServer(t *testing.T) {
	c := mustLoad(t, `
secrets: mark
mcp_servers:
  plain: {command: x}
  exempt: {command: x, secrets: off}
tool_views:
  strict: {include_all: true, secrets: block}
  usual: {include_all: true}
`)
	for at, want := range map[[2]string]leaks.Mode{
		{"usual", "plain"}: leaks.Mark, {"usual", "exempt"}: leaks.Off, {"usual", ""}: leaks.Mark,
		{"strict", "plain"}: leaks.Block, {"strict", "exempt"}: leaks.Block, {"strict", ""}: leaks.Block,
		{"default", "exempt"}: leaks.Off, // a root without settings of its own
	} {
		if got := c.SecretsIn(at[0], at[1]); got != want {
			t.Errorf("in view %s, of server %q: %s, want %s", at[0], at[1], got, want)
		}
	}
	if _, err := load(t, "secrets: redcat\nmcp_servers: {s: {command: x}}\n"); err == nil || !strings.Contains(err.Error(), "secrets must be off, mark, redact or block") {
		t.Errorf("%v", err)
	}
}
