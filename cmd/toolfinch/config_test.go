package main

import (
	"fmt"
	"strings"
	"testing"
)

// The question about trust names all that runs, and what it does not show. A stranger has written the file.
func TestTheQuestionAboutTrustHidesNothing(t *testing.T) {
	long := strings.Repeat("harmless ", 300)
	var many strings.Builder
	for n := range 500 {
		fmt.Fprintf(&many, "  s%d: {command: s%d}\n", n, n)
	}
	for _, test := range []struct {
		name, text string
		want, nots []string
	}{
		{"the end of a long command", "mcp_servers: {a: {command: sh, args: [-c, '" + long + "; evil']}}", []string{"; evil\n"}, []string{"…"}},
		{"what runs beside a secret", "list_changed_exec: 'evil ${secret:X} and more'\nmcp_servers: {a: {command: a, env: {T: '${secret:X}'}}}", []string{"  list_changed_exec: evil ${secret:*** and more\n", "  a: a, env T\n", "*** hides"}, nil},
		{"what runs without a variable", "list_changed_exec: '${UNSET_HERE:-evil}'", []string{"list_changed_exec: ${UNSET_HERE:-evil}\n"}, nil},
		{"a hook with its arguments", "tool_views: {v: {hooks: {pre_call: {command: [sh, -c, evil]}}}}", []string{"  view v, pre_call: sh -c evil\n"}, nil},
		{"hooks before many servers", "mcp_servers:\n" + many.String() + "list_changed_exec: evil\n", []string{"  list_changed_exec: evil\n  s0: s0\n", "  and 301 more lines, which may be commands: read them in the file\n"}, nil},
		{"a masked command", `mcp_servers: {a: {command: sh, args: [-c, "TOKEN=$(evil)"]}}`, []string{"TOKEN=***", "*** hides what looks like a secret: read it in the file\n"}, nil},
		{"a line that hides itself", `mcp_servers: {a: {command: sh, args: [-c, "a\r  b: npx\x1b[2K"]}}`, []string{`  a: sh -c a b: npx\u001b[2K`}, []string{"\r", "\x1b"}},
		{"what cannot be read", "mcp_servers: {a: [", []string{"it could not be shown what it runs: read the file\n"}, nil},
		{"what is no mapping", "- a", []string{"it could not be shown what it runs: read the file\n"}, nil},
	} {
		var out strings.Builder
		describeTrust(&out, "toolfinch.yaml", []byte(test.text))
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is not shown:\n%s", test.name, want, out.String())
			}
		}
		for _, not := range test.nots {
			if strings.Contains(out.String(), not) {
				t.Errorf("%s: %q is shown:\n%s", test.name, not, out.String())
			}
		}
	}
}
