//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// Whatever an upstream lists, the official clients take our lists: a definition
// that they would refuse the whole list for is left out or mended, and the others
// are all there.
func TestClientsTakeTheListsOfAnOddServer(t *testing.T) {
	t.Parallel()
	odd, err := filepath.Abs("../testdata/node/odd.mjs")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lists.json")
	lists, sound := oddLists(600)
	text, err := json.Marshal(lists)
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.WriteFile(file, text, 0o644))
	upstream := script(t, odd, file)
	h := newHouse(t, nil)
	h.proxyForCommand(t, upstream, false)
	if out, err := h.output(t, "reindex"); err != nil {
		t.Fatalf("reindex: %v\n%s", err, out)
	}
	node := func(t *testing.T) []string {
		path := must.Get(filepath.Abs("../testdata/node/lists.mjs"))(t)
		return []string{node(t), path}
	}
	for _, client := range []struct {
		name    string
		command func(t *testing.T) []string
		sdk     int
		modern  bool // always: the server knows the other era only
	}{
		{"TypeScript v1", node, 1, false}, {"TypeScript v2", node, 2, false}, {"TypeScript v2 2026-07-28", node, 2, true},
		{"Go", goLists, 0, false},
	} {
		t.Run(client.name, func(t *testing.T) {
			command := client.command(t)
			target := map[string]any{"sdk": client.sdk, "modern": client.modern, "command": upstream.Command, "args": upstream.Args, "env": h.variables()}
			if !client.modern {
				for kind, seen := range listedBy(t, h, command, target) {
					if seen.Failure == "" {
						t.Errorf("directly the client takes the list of %s: this tests nothing", kind)
					}
				}
			}
			maps.Copy(target, h.stdio(t))
			for kind, seen := range listedBy(t, h, command, target) {
				if seen.Failure != "" {
					t.Errorf("the client refuses the list of %s: %s", kind, seen.Failure)
				}
				for _, name := range sound[kind] {
					if !slices.Contains(seen.Names, name) {
						t.Errorf("%s %s is not listed", kind, name)
					}
				}
			}
		})
	}

	out, err := h.output(t, "server", "list")
	if err != nil || !strings.Contains(string(out), " left out, ") || !strings.Contains(string(out), " mended") {
		t.Errorf("servers: %v\n%s", err, out)
	}
	out, err = h.output(t, "validate")
	if err != nil || !strings.Contains(string(out), "is left out: ") || !strings.Contains(string(out), "is mended: ") {
		t.Errorf("validate: %v\n%s", err, out)
	}
}

// goLists is the program that lists with the Go SDK.
func goLists(t *testing.T) []string {
	path := filepath.Join(t.TempDir(), "lists")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Dir = "../testdata/gosdk"
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, "the Go SDK cannot be had here: %v\n%s", err, out)
	}
	return []string{path}
}

// listedBy is what a client lists, by kind.
func listedBy(t *testing.T, h house, client []string, target map[string]any) map[string]struct {
	Names   []string
	Failure string
} {
	t.Helper()
	argument, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), client[0], append(client[1:], string(argument))...)
	cmd.Env = h.env
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var seen map[string]struct {
		Names   []string
		Failure string
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return seen
}

// oddLists are lists of n definitions of each kind, most of them malformed in
// one to three places. sound names those that are not.
func oddLists(n int) (lists, sound map[string][]string) {
	random := rand.New(rand.NewPCG(1, 2))
	lists, sound = map[string][]string{}, map[string][]string{}
	for kind, whole := range map[string]string{
		"tools": `{"name":"NAME","title":"T","description":"D","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"string"},"b":{"type":"object","properties":{"c":{}}}},"required":["a"]},` +
			`"outputSchema":{"type":"object","properties":{"r":{"type":"integer","minimum":0,"enum":[1],"format":"x","pattern":"^a+$","$ref":"#/$defs/d"}},"required":["r"],"$defs":{"d":{"items":{"type":["string","null"]},"allOf":[{"not":{}}]}},"patternProperties":{"^x":{}}},` +
			`"annotations":{"title":"A","readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false},"execution":{"taskSupport":"optional"},"icons":[{"src":"data:,","mimeType":"image/png","sizes":["1x1"],"theme":"dark"}],"_meta":{"x":1},"other":{"x":[1]}}`,
		"prompts":           `{"name":"NAME","title":"T","description":"D","arguments":[{"name":"a","description":"d","required":true}],"icons":[{"src":"data:,","sizes":["any"]}],"_meta":{"x":1}}`,
		"resources":         `{"uri":"odd://NAME","name":"n","title":"T","description":"D","mimeType":"text/plain","size":12,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58.5+01:00"},"icons":[{"src":"data:,"}],"_meta":{"x":1}}`,
		"resourceTemplates": `{"uriTemplate":"odd://NAME/{x}","name":"n","title":"T","description":"D","mimeType":"text/plain","annotations":{"audience":["assistant"],"priority":1,"lastModified":"2025-01-12T15:00:58Z"},"_meta":{"x":1}}`,
	} {
		for i := range n {
			name := fmt.Sprintf("odd%d", i)
			definition := strings.Replace(whole, "NAME", name, 1)
			if i%10 == 0 {
				sound[kind] = append(sound[kind], strings.NewReplacer("NAME", name).Replace(map[string]string{
					"tools": "NAME", "prompts": "NAME", "resources": "odd://NAME", "resourceTemplates": "odd://NAME/{x}",
				}[kind]))
			} else {
				for range 1 + random.IntN(3) {
					definition = spoil(random, definition)
				}
			}
			lists[kind] = append(lists[kind], definition)
		}
	}
	return lists, sound
}

// spoil puts another value in the place of one of a JSON text, or writes a member
// twice.
func spoil(random *rand.Rand, text string) string {
	values := []string{
		`null`, `true`, `false`, `5`, `1.5`, `-0`, `1e400`, `"x"`, `""`, `[]`, `{}`, `[null]`, `["x"]`, `[5]`, `{"a":null}`, `{"type":"array"}`, `{"type":5}`,
		`"\ud800"`, `"yesterday"`, `"(?i)a"`, `"https://example.com/schema"`, `"#/nowhere"`, `9007199254740993`, strings.Repeat("[", 300) + strings.Repeat("]", 300),
		strings.Repeat(`{"properties":{"a":`, 90) + "{}" + strings.Repeat("}}", 90),
	}
	places := valuesIn(text)
	for {
		at := places[random.IntN(len(places))]
		value := values[random.IntN(len(values))]
		if random.IntN(8) == 0 {
			value = text[at[0]:at[1]] + `,"title":` + value
		}
		if spoilt := text[:at[0]] + value + text[at[1]:]; json.Valid([]byte(spoilt)) {
			return spoilt
		}
	}
}

// valuesIn is where the values within a JSON object are, keys not among them.
func valuesIn(text string) (places [][2]int) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		start := int(decoder.InputOffset())
		token, err := decoder.Token()
		if err != nil {
			return places
		}
		end := int(decoder.InputOffset())
		start += len(text[start:end]) - len(strings.TrimLeft(text[start:end], " ,:"))
		switch token {
		case json.Delim('}'), json.Delim(']'):
			continue
		case json.Delim('{'), json.Delim('['):
			var whole json.RawMessage
			if json.NewDecoder(strings.NewReader(text[start:])).Decode(&whole) == nil {
				end = start + len(whole)
			}
		}
		if start > 0 && !strings.HasPrefix(text[end:], ":") {
			places = append(places, [2]int{start, end})
		}
	}
}
