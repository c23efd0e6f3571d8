package configs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"

	"toolfinch/internal/document"
	"toolfinch/internal/must"
)

// compiled is the schema that editors get.
var compiled = sync.OnceValue(func() *jsonschema.Schema {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		panic(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("toolfinch.json", document); err != nil {
		panic(err)
	}
	return compiler.MustCompile("toolfinch.json")
})

// bySchema checks the text of a file that can be read.
func bySchema(t testing.TB, name string, text []byte) error {
	t.Helper()
	root, _, problems := document.Parse(name, text)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", name, problems)
	}
	value := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(root.JSON())))(t)
	return compiled().Validate(value)
}

// valid checks that a file that loads is valid by the schema, too.
func valid(t testing.TB, c *Config) {
	t.Helper()
	text := must.Get(os.ReadFile(c.Path))(t)
	if err := bySchema(t, c.Path, text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// configs/schema.json is what toolfinch config --schema prints.
func TestSchemaIsCommitted(t *testing.T) {
	var want bytes.Buffer
	must.Do(t, json.Indent(&want, Schema(), "", "  "))
	want.WriteByte('\n')
	if *update {
		must.Do(t, os.WriteFile("schema.json", want.Bytes(), 0o644))
	}
	if got := must.Read(t, "schema.json"); got != want.String() {
		t.Error("schema.json is not that of the keys: go test ./configs -run TestSchemaIsCommitted -update")
	}
}

// Every configuration of the tree that can be read as one and loads is valid.
func TestConfigurationsOfTheTreeAreValid(t *testing.T) {
	checked := 0
	check := func(name string, text []byte) {
		if regexp.MustCompile(`(?m)^["{ \t]*(mcp_servers|mcpServers|servers|tool_views)\b`).Match(text) {
			c, err := loadAll(Options{Path: filepath.Join(write(t, filepath.Base(name), string(text)), filepath.Base(name)), Env: environ("GITHUB_TOKEN=x")})
			if err == nil {
				checked++
				valid(t, c)
			}
		}
	}
	for _, pattern := range []string{"*.yaml", "testdata/clients/*", "../testdata/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			check(file, []byte(must.Read(t, file)))
		}
	}
	scripts := must.Get(filepath.Glob("../testdata/scripts/*.txtar"))(t)
	for _, script := range scripts {
		archive := must.Get(txtar.ParseFile(script))(t)
		for _, file := range archive.Files {
			if ext := filepath.Ext(file.Name); ext == ".yaml" || ext == ".json" {
				check(file.Name, file.Data)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d configurations were found", checked)
	}
}

// described is a key as a file has it around a value, %s.
type described struct{ key, file string }

func under(s keys, file string) []described {
	var all []described
	for _, name := range s.names() {
		all = append(all, described{name, strings.Replace(file, "KEY", name, 1)})
	}
	return all
}

// A value of a wrong type is refused by Load and by the schema, whatever the key.
func TestWrongTypesAreRefusedByBoth(t *testing.T) {
	const viewOf = minimal + "tool_views: {v: {include_all: true, %s}}"
	in := func(inside string) string { return strings.Replace(viewOf, "%s", inside, 1) }
	keys := slices.Concat(
		under(top.keys, minimal+"KEY: %s"),
		under(serverKeys.keys, "mcp_servers: {a: {command: a, KEY: %s}}"),
		under(viewKeys.keys, minimal+"tool_views: {v: {KEY: %s}}"),
		under(overrideKeys.keys, in("tools: {a: {t: {KEY: %s}}}")),
		under(parameterKeys.keys, in("tools: {a: {t: {parameters: {p: {KEY: %s}}}}}")),
		under(outputCache.section.keys, in("tools: {a: {t: {output_cache: {KEY: %s}}}}")),
		under(hooksKeys.keys, in("hooks: {KEY: %s}")),
		under(hookKeys.keys, in("hooks: {pre_call: {KEY: %s}}")),
		under(compositeKeys.keys, in("composite_tools: {c: {KEY: %s}}")),
		under(stepKeys.keys, in("composite_tools: {c: {parallel: {s: {KEY: %s}}}}")),
		under(customKeys.keys, in("custom_tools: [{KEY: %s}]")),
		under(limitKeys.keys, in("run_script: {KEY: %s}")),
		under(gatingKeys.keys, in("gating: {KEY: %s}")),
		under(auditKeys.keys, minimal+"audit: {KEY: %s}"),
		under(proxyToolKeys.keys, in("proxy_tool: {KEY: %s}")),
	)
	for _, k := range keys {
		if k.key == "default" || k.key == "value" { // of a parameter: anything
			continue
		}
		for _, value := range []string{"[[]]", "7.5e99"} {
			text := fmt.Sprintf(k.file, value)
			_, err := load(t, text)
			refused := err != nil && strings.Contains(err.Error(), k.key)
			// Words take numbers, and other programs have a list under tools.
			exempt := value != "[[]]" && (k.key == "prefix" || k.key == "args") || value == "[[]]" && strings.Contains(k.file, "command: a, tools")
			if exempt {
				continue
			}
			if !refused {
				t.Errorf("loads, or fails without naming %s:\n%s\n%v", k.key, text, err)
			}
			if bySchema(t, "x.yaml", []byte(text)) == nil {
				t.Errorf("the schema has nothing against\n%s", text)
			}
		}
	}
	if len(keys) < 100 {
		t.Errorf("only %d keys", len(keys))
	}
}

// What Load refuses for a wrong key is refused by the schema.
func TestUnknownKeysAreRefusedBySchema(t *testing.T) {
	for _, text := range []string{
		"topk: 1", minimal + "theme: dark", "mcp_servers: {a: {comand: x}}", minimal + "tool_views: {v: {tool: {}}}",
		minimal + "gating: {max: 1}", "mcp_servers: {a: {command: a, tools: {t: {nam: x}}}}", "tool_views: {not legal: {}}",
	} {
		if bySchema(t, "x.yaml", []byte(text)) == nil {
			t.Errorf("valid: %s", text)
		}
	}
	for _, text := range []string{`{"mcpServers": {}, "theme": "dark"}`, "x-anchor: 1\nmcp_servers: {}", `{"$schema": "x", "mcp_servers": null}`} {
		if err := bySchema(t, "x.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// tableOf is the table of a mapping's keys in the documentation. What a change of them takes
// is a column if it differs from key to key.
func tableOf(all keys) string {
	differs := slices.ContainsFunc(all, func(k key) bool { return k.change != all[0].change })
	var b strings.Builder
	row := func(key, usual, doc, changed string) {
		b.WriteString("| " + key + " | " + usual + " | " + doc)
		if differs {
			b.WriteString(" | " + changed)
		}
		b.WriteString(" |\n")
	}
	quote := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + s + "`"
	}
	title := "key"
	if slices.ContainsFunc(all, func(k key) bool { return k.env != "" }) {
		title = "key, variable"
	}
	row(title, "default", "", "a change")
	row("---", "---", "---", "---")
	for _, k := range all {
		usual := k.without
		if n := k.value.usual(); n != nil && usual == "" {
			usual = quote(n.Text)
		}
		name := quote(k.name)
		if k.env != "" {
			name += ", " + quote(k.env)
		}
		row(name, usual, k.doc, string(k.change))
	}
	return b.String()
}

// The tables of docs/configuration.md are those of the keys.
func TestTablesOfTheDocumentation(t *testing.T) {
	file := filepath.Join("..", "docs", "configuration.md")
	doc := must.Read(t, file)
	want := doc
	for name, table := range map[string]string{
		"servers": tableOf(serverKeys.keys), "top": tableOf(top.keys), "views": tableOf(viewKeys.keys), "tools": tableOf(overrideKeys.keys),
		"parameters": tableOf(parameterKeys.keys), "output_cache": tableOf(outputCache.section.keys), "hooks": tableOf(hookKeys.keys),
		"composite_tools": tableOf(compositeKeys.keys), "steps": tableOf(stepKeys.keys), "custom_tools": tableOf(customKeys.keys), "gating": tableOf(gatingKeys.keys), "audit": tableOf(auditKeys.keys), "oauth": tableOf(oauthKeys.keys),
		"auth": tableOf(authKeysOf.keys), "issuers": tableOf(issuerKeys.keys), "http_limits": tableOf(httpLimits.keys), "rate_limits": tableOf(rateKeys.keys),
	} {
		before, rest, found := strings.Cut(want, "<!-- keys of "+name+" -->\n")
		_, after, ends := strings.Cut(rest, "<!-- end -->\n")
		if !found || !ends {
			t.Fatalf("no table of %s", name)
		}
		want = before + "<!-- keys of " + name + " -->\n" + table + "<!-- end -->\n" + after
	}
	if *update {
		must.Do(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	if doc != want {
		t.Error("the tables are not those of the keys: go test ./configs -run TestTablesOfTheDocumentation -update")
	}
}
