package configs

import (
	"slices"
	"testing"
)

func TestWhatAServerMustNotRepeat(t *testing.T) {
	for name, test := range map[string]struct {
		server string
		env    []string
		want   []string
	}{
		"env by its name":                {`{command: x, env: {API_KEY: abcdef, MODE: production}}`, nil, []string{"abcdef"}},
		"env from a variable":            {`{command: x, env: {MODE: "${MODE}"}}`, []string{"MODE=production"}, []string{"production"}},
		"env from a default in the file": {`{command: x, env: {MODE: "${MODE:-production}"}}`, nil, nil},
		"a folder is none":               {`{command: x, env: {DIR: "${HOME}"}}`, []string{"HOME=/home/ann"}, nil},
		"a truth value is none":          {`{command: x, env: {ON: "${ON}"}}`, []string{"ON=false"}, nil},
		"too short to be looked for":     {`{command: x, env: {API_KEY: abcd}}`, nil, nil},
		"headers":                        {`{url: "https://a.example", headers: {Authorization: Bearer abcdef, X-Any: ghijkl, Accept: text/html}}`, nil, []string{"Bearer abcdef", "abcdef", "ghijkl"}},
		"a header from a variable":       {`{url: "https://a.example", headers: {Accept: "${A}"}}`, []string{"A=abcdef"}, []string{"abcdef"}},
		"the URL":                        {`{url: "https://ann:abcdef@a.example/?key=ghijkl"}`, nil, []string{"abcdef", "ghijkl"}},
		"an argument from a variable":    {`{command: x, args: ["--with=${API_TOKEN}"]}`, []string{"API_TOKEN=abcdef"}, []string{"abcdef"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, "mcp_servers:\n  s: "+test.server+"\n", test.env...)
			if got := c.Servers[0].Secrets; !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
