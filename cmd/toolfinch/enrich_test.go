package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
)

// chatModel is an endpoint with OpenAI's chat API: it answers about a tool as say
// does, and breaks off where that returns no text.
type chatModel struct {
	asked atomic.Int64
	say   func(name string, n int64) (status int, text string)
}

func (m *chatModel) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var request struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	var about struct{ Name, Description string }
	if q.URL.Path != "/v1/chat/completions" || q.Header.Get("Authorization") != "Bearer key-of-test" ||
		json.NewDecoder(q.Body).Decode(&request) != nil || len(request.Messages) != 2 || request.Messages[0].Role != "system" ||
		json.Unmarshal([]byte(request.Messages[1].Content), &about) != nil || request.Model != "m" {
		http.Error(w, "not what was expected", http.StatusTeapot)
		return
	}
	status, text := m.say(about.Name, m.asked.Add(1))
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "0.01")
		http.Error(w, text, status)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]string{"role": "assistant", "content": text}}}})
}

// enrichHome is a configuration whose endpoint is the model, and whose store knows the
// tools of one server, shop.
func enrichHome(t *testing.T, m *chatModel, tools ...string) (flags []string) {
	t.Helper()
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	config := filepath.Join(dir, "toolfinch.yaml")
	text := "mcp_servers:\n  shop: {command: none}\nembedder: BM25\nopenai_api_key: key-of-test\nopenai_base_url: " + server.URL + "/v1\n"
	must.Do(t, os.WriteFile(config, []byte(text), 0o600))
	data := filepath.Join(dir, "data")
	db := must.Get(store.Open(t.Context(), data, slog.New(slog.DiscardHandler)))(t)
	defer db.Close()
	var defs []*tool.Def
	for _, name := range tools {
		def := must.Get(tool.ParseDef("shop", []byte(`{"name":"`+name+`","description":"Does `+name+`.","inputSchema":{"type":"object"}}`)))(t)
		defs = append(defs, def)
	}
	if _, err := db.PutServer(t.Context(), store.Upstream{Name: "shop"}, defs, nil); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", config, "--data-dir", data}
}

// ran runs a command.
func ran(t *testing.T, in string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = run(args, strings.NewReader(in), &out, &problems)
	return code, out.String(), problems.String()
}

func proposal(name string) string {
	return `{"when_to_use":"You want a ` + name + `gadget.","tags":["` + name + `thing"]}`
}

// What a model writes is searched once it was accepted, as it was edited, and only
// then; nothing is asked about twice.
func TestWhatIsAcceptedIsSearched(t *testing.T) {
	m := &chatModel{say: func(name string, n int64) (int, string) {
		if n == 1 {
			return http.StatusTooManyRequests, "slow down" // it is asked again
		}
		return http.StatusOK, proposal(name)
	}}
	flags := enrichHome(t, m, "alpha", "beta", "gamma", "delta")
	enrich := func(in string, args ...string) string {
		t.Helper()
		code, stdout, stderr := ran(t, in, slices.Concat([]string{"enrich"}, args, flags)...)
		if code != exitOK {
			t.Fatalf("enrich %v: exit code %d: %s%s", args, code, stdout, stderr)
		}
		return stdout + stderr
	}
	if got := enrich("", "--model", "m", "--limit", "3"); !strings.Contains(got, "wrote of 3 tools; 1 are left") || m.asked.Load() != 4 {
		t.Errorf("after %d requests: %s", m.asked.Load(), got)
	}
	if got := enrich("", "--model", "m"); !strings.Contains(got, "wrote of 1 tool; 0 are left") {
		t.Errorf("the rest: %s", got)
	}
	if got := enrich("", "--model", "m"); !strings.Contains(got, "nothing to ask about") || m.asked.Load() != 5 {
		t.Errorf("again, after %d requests: %s", m.asked.Load(), got)
	}
	finds := func(query, name string, want bool) {
		t.Helper()
		_, stdout, stderr := ran(t, "", slices.Concat([]string{"search", "--json", query}, flags)...)
		if strings.Contains(stdout, `"shop_`+name+`"`) != want {
			t.Errorf("%q finds %s: %t, want %t: %s%s", query, name, !want, want, stdout, stderr)
		}
	}
	finds("alphagadget", "alpha", false)
	// alpha is accepted, beta edited and accepted, gamma rejected, delta skipped.
	got := enrich("a\ne\nYou seek a zebra.\nstripes, ho\u0007oves\na\nr\n", "--review")
	for _, want := range []string{"shop.alpha: Does alpha.", "when: You want a alphagadget.", "tags: alphathing", "accepted 2, rejected 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("the review lacks %q: %s", want, got)
		}
	}
	finds("alphagadget", "alpha", true)
	finds("alphathing", "alpha", true)
	finds("zebra", "beta", true)
	finds("hooves", "beta", true)
	finds("betagadget", "beta", false)
	finds("gammagadget", "gamma", false)
	finds("deltagadget", "delta", false)
	if got := enrich("l\n", "--review"); strings.Contains(got, "gamma") || !strings.Contains(got, "accepted 1, rejected 0") {
		t.Errorf("the second review: %s", got)
	}
	finds("deltathing", "delta", true)
	if got := enrich("", "--review"); !strings.Contains(got, "nothing to review") {
		t.Errorf("the third review: %s", got)
	}
	enrich("", "--forget")
	finds("alphagadget", "alpha", false)
}

// A run keeps what was written before it failed, and says why it did.
func TestARunOfEnrichThatFails(t *testing.T) {
	for _, test := range []struct {
		name    string
		say     func(name string, n int64) (int, string)
		args    []string
		code    int
		asked   int64
		written int
		says    string
	}{
		{"one useless answer", func(name string, n int64) (int, string) {
			if n == 1 {
				return http.StatusOK, "Sure!"
			}
			return http.StatusOK, proposal(name)
		}, nil, exitFailed, 8, 7, "1 answer could not be used"},
		{"a model that does not understand", func(name string, n int64) (int, string) {
			if n == 1 {
				return http.StatusOK, proposal(name)
			}
			return http.StatusOK, `{"when_to_use":"a","tags":[],"and":"more"}`
		}, nil, exitFailed, 1 + maxMisses, 1, "try another model"},
		{"a key that is refused", func(name string, n int64) (int, string) {
			if n <= 2 {
				return http.StatusOK, proposal(name)
			}
			return http.StatusUnauthorized, "key-of-test is wrong"
		}, nil, exitFailed, 3, 2, "check OPENAI_API_KEY) (what was written of 2 tools is kept)"},
		{"an answer without end", func(string, int64) (int, string) {
			return http.StatusOK, strings.Repeat("x", 300<<10)
		}, nil, exitFailed, 1, 0, "larger than 256 KiB"},
		{"another server", nil, []string{"--server", "nothing"}, exitUsage, 0, 0, `no server is named "nothing"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &chatModel{say: test.say}
			flags := enrichHome(t, m, "a", "b", "c", "d", "e", "f", "g", "h")
			code, stdout, stderr := ran(t, "", slices.Concat([]string{"enrich", "--model", "m"}, test.args, flags)...)
			if code != test.code || m.asked.Load() != test.asked || !strings.Contains(stderr, test.says) || strings.Contains(stdout+stderr, "key-of-test") {
				t.Errorf("exit code %d after %d requests: %s%s", code, m.asked.Load(), stdout, stderr)
			}
			_, stdout, _ = ran(t, "", slices.Concat([]string{"enrich", "--review"}, flags)...)
			if got := strings.Count(stdout, "when: "); got != test.written {
				t.Errorf("%d are kept, want %d: %s", got, test.written, stdout)
			}
		})
	}
}

// Ctrl-C ends a run in the middle of a request; what was written before is kept.
func TestAnInterruptedRunOfEnrich(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	m := &chatModel{}
	m.say = func(name string, n int64) (int, string) {
		if n == 3 {
			interrupt()
			return http.StatusServiceUnavailable, "busy"
		}
		return http.StatusOK, proposal(name)
	}
	flags := enrichHome(t, m, "a", "b", "c", "d")
	var out bytes.Buffer
	root := newRoot("")
	root.SetArgs(slices.Concat([]string{"enrich", "--model", "m"}, flags))
	root.SetOut(&out)
	root.SetErr(&out)
	if err := root.ExecuteContext(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("it ended with %v: %s", err, &out)
	}
	if _, stdout, _ := ran(t, "", slices.Concat([]string{"enrich", "--review"}, flags)...); strings.Count(stdout, "when: ") != 2 {
		t.Errorf("after %d requests the review shows %s", m.asked.Load(), stdout)
	}
}

func TestUsageOfEnrich(t *testing.T) {
	for _, test := range []struct{ args, says string }{
		{"", "say which model to ask"},
		{"--review --forget", "choose one"},
		{"--review --model m", "leave it out"},
		{"--model m --limit 0", "one tool at least"},
	} {
		code, _, stderr := ran(t, "", append([]string{"enrich"}, strings.Fields(test.args)...)...)
		if code != exitUsage || !strings.Contains(stderr, test.says) {
			t.Errorf("enrich %s: exit code %d: %s", test.args, code, fmt.Sprint(stderr))
		}
	}
}
