//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// everythingJS is the reference server that offers everything of the legacy era.
const everythingJS = "@modelcontextprotocol/server-everything/dist/index.js"

// A client of either version of the TypeScript SDK uses every feature of the
// reference server, directly and through toolfinch, and sees the same.
func TestSDKFeatures(t *testing.T) {
	t.Parallel()
	everything := script(t, module(t, everythingJS), "stdio")
	direct := map[int]features{}
	for sdk := 1; sdk <= 2; sdk++ {
		h := newHouse(t, nil)
		direct[sdk] = h.features(t, map[string]any{"sdk": sdk, "command": everything.Command, "args": everything.Args, "env": h.variables()})
		for feature, seen := range direct[sdk] {
			if failure := seen.failure(); failure != "" {
				t.Errorf("SDK v%d, directly: %s: %s", sdk, feature, failure)
			}
		}
	}
	if t.Failed() {
		t.FailNow()
	}

	for _, tt := range []struct {
		name   string
		sdk    int
		modern bool
		named  bool // names begin with the server's
		http   bool
	}{
		{name: "v1 stdio", sdk: 1, named: true},
		{name: "v2 HTTP", sdk: 2, http: true},
		{name: "v2 2026-07-28 stdio", sdk: 2, modern: true, named: true},
		{name: "v2 2026-07-28 HTTP", sdk: 2, modern: true, http: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // most of the time somebody waits
			h := newHouse(t, nil)
			var parameters map[string]any
			h.proxyForCommand(t, everything, tt.named)
			// What toolfinch declares and says of itself is known before its first client comes.
			if out, err := h.output(t, "reindex"); err != nil {
				t.Fatalf("reindex: %v\n%s", err, out)
			}
			if tt.http {
				life := h.startOf(t, busy(t))
				waitConnected(t, life.url)
				parameters = map[string]any{"url": life.url}
			} else {
				parameters = h.stdio(t)
			}
			parameters["sdk"], parameters["modern"] = tt.sdk, tt.modern
			if tt.named {
				parameters["prefix"] = "everything_"
			}
			through := h.features(t, parameters)
			want := maps.Clone(direct[tt.sdk])
			if tt.modern {
				want = acrossEras(t, want)
			}
			for _, feature := range slices.Sorted(maps.Keys(want)) {
				compareSeen(t, feature, want[feature], through[feature])
			}
		})
	}
}

// features are what a client saw, by feature.
type features map[string]seen

// seen is any JSON.
type seen struct{ value any }

func (s *seen) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &s.value) }
func (s seen) MarshalJSON() ([]byte, error)     { return json.Marshal(s.value) }

// failure says why a feature could not be used, if so.
func (s seen) failure() string {
	object, _ := s.value.(map[string]any)
	text, _ := object["failure"].(string)
	return text
}

// features runs the client that uses everything. The parameters are its own.
func (h house) features(t *testing.T, parameters map[string]any) features {
	t.Helper()
	argument, err := json.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs("../testdata/node/features.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node(t), client, string(argument))
	cmd.Env = h.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, newLog(t, "the client")
	if err := cmd.Run(); err != nil {
		t.Fatalf("the client ended with %v", err)
	}
	var all features
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		t.Fatalf("the client wrote %v: %s", err, out.Bytes())
	}
	return all
}

// variables is the environment as a map.
func (h house) variables() map[string]string {
	all := map[string]string{}
	for _, pair := range h.env {
		key, value, _ := strings.Cut(pair, "=")
		all[key] = value
	}
	return all
}

// proxyForCommand writes the configuration for one upstream whose tools are all
// listed, named after the server or as they are.
func (h house) proxyForCommand(t *testing.T, s server, named bool) {
	t.Helper()
	settings := map[string]any{"command": s.Command, "args": s.Args, "connect_timeout": s.ConnectTimeout}
	if !named {
		settings["prefix"] = ""
	}
	text, err := json.Marshal(map[string]any{
		"data_dir":    filepath.Join(h.home, "data"),
		"log_format":  "json",
		"pinned":      []string{"*"},
		"mcp_servers": map[string]any{"everything": settings},
	})
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, os.WriteFile(h.config, text, 0o644))
}

// compareSeen fails the test where a client saw something else through toolfinch,
// and shows the first place.
func compareSeen(t *testing.T, feature string, want, got seen) {
	t.Helper()
	if failure := got.failure(); failure != "" {
		t.Errorf("%s: %s", feature, failure)
		return
	}
	if reflect.DeepEqual(want.value, got.value) {
		return
	}
	direct, through := text(t, want), text(t, got)
	at := 0
	for at < min(len(direct), len(through)) && direct[at] == through[at] {
		at++
	}
	from := max(0, at-200)
	t.Errorf("%s differs at %d: directly\n%s\nthrough toolfinch\n%s", feature, at, excerpt(direct[from:]), excerpt(through[from:]))
}

func text(t *testing.T, s seen) string {
	t.Helper()
	out := must.Get(json.Marshal(s.value))(t)
	return string(out)
}

// excerpt is the start of a text that may be an image.
func excerpt(text string) string { return text[:min(len(text), 800)] }

// acrossEras is what a 2026-07-28 client sees of a legacy server, given what a
// legacy client does.
func acrossEras(t *testing.T, legacy features) features {
	t.Helper()
	text := must.Get(json.Marshal(legacy))(t)
	// That revision has no IDs of elicitations and no tasks; the SDK takes out
	// what it does not have.
	for _, member := range []string{
		`"elicitationId":"sign-accept",`, `"elicitationId":"sign-decline",`, `"elicitationId":"sign-cancel",`,
		`"execution":{"taskSupport":"forbidden"},`, `"execution":{"taskSupport":"required"},`,
	} {
		if !bytes.Contains(text, []byte(member)) {
			t.Errorf("a legacy client sees no %s", member)
		}
		text = bytes.ReplaceAll(text, []byte(member), nil)
	}
	var modern features
	must.Do(t, json.Unmarshal(text, &modern))
	// What is no part of the era, or its client cannot see; see sdks.mjs.
	for _, feature := range []string{"roots", "roots/list_changed", "log levels"} {
		delete(modern, feature)
	}
	// Where a legacy client gets an error and calls again, this one is asked.
	byError, _ := modern["URL elicitation by error"].value.(map[string]any)
	delete(byError, "first")
	return modern
}
