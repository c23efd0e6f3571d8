package proxy_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/trust/inbound"
	"toolfinch/view"
)

// One call is one line, whatever it goes through; what was asked and answered is in the log
// for debugging alone, without what looks like a secret.
func TestEachOperationHasOneLine(t *testing.T) {
	const key = "ghp_0123456789abcdefghijklmnopqrstuvwx12"
	up := wares(t)
	up.on("tools/call look", func(r *request) { r.result(`{"content":[{"type":"text","text":"the key is ` + key + `\u202e"}]}`) })
	for level, contents := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		t.Run(level.String(), func(t *testing.T) {
			v := everything(view.Default, view.ExposureRetrieve)
			v.ProxyTool = "proxy"
			log := &journal{}
			p, url := ready(t, configOf(t, []*script{up}, v), proxy.WithLogger(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: level}))))
			c := viewClient(t, p, url, view.Default, false)
			for _, params := range []string{
				toolCall("shop_look", `{"size":1,"password":"hunter2"}`), toolCall("call_tool", `{"name":"shop_look","arguments":{"size":12345}}`),
				toolCall("proxy", `{"action":"call","type":"tool","path":"shop_look","args":{"size":12345}}`),
				toolCall("shop_nothing", `{}`), toolCall("retrieve_tools", `{"query":"look at a 12345 ware"}`),
			} {
				c.ask("tools/call", params)
			}
			var got []string
			for line := range strings.Lines(log.String()) {
				if message := partText([]byte(line), "msg"); slices.Contains([]string{"tool called", "tools searched", "tools registered", "session began", "proxy"}, message) {
					got = append(got, message+" "+partText([]byte(line), "name")+" "+partText([]byte(line), "outcome"))
				}
				if partText([]byte(line), "session") == c.id {
					t.Errorf("the ID of the session is in the log: %s", line)
				}
			}
			want := []string{
				"session began  ", "tool called shop_look success", "tool called shop_look success", "tool called shop_look success",
				"tool called shop_nothing denied", "tools registered  ", "tools searched retrieve_tools success",
			}
			if !slices.Equal(got, want) {
				t.Errorf("the lines are\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
			text := log.String()
			for word, there := range map[string]bool{"12345": contents, "the key is": contents, "[redacted: ": contents, key: false, "hunter2": false, "\u202e": false} {
				if strings.Contains(text, word) != there {
					t.Errorf("%q in the log: %t", word, !there)
				}
			}
		})
	}
}

// Who comes, goes and is refused, and what a session is listed, is one line each, which says who
// that was.
func TestLinesOfSessions(t *testing.T) {
	config := configOf(t, []*script{wares(t)}, everything(view.Default, view.ExposureRetrieve))
	config.Auth = inbound.Settings{Mode: inbound.Proof, Keys: true}
	key := keyOfView(t, config, "laptop", "")
	log := &journal{}
	p, url := ready(t, config, proxy.WithLogger(slog.New(slog.NewJSONHandler(log, nil))))
	c := newClientAt(t, p, url+"/mcp/"+view.Default, kind{key: key}, `{}`, reply)
	c.ask("tools/call", toolCall("retrieve_tools", `{"query":"look at a ware"}`))
	if got := status(t, http.MethodDelete, c.url, c.id, "Authorization", "Bearer "+key); got/100 != 2 {
		t.Fatalf("the session does not end: %d", got)
	}
	if got := status(t, http.MethodPost, c.url, "", "Authorization", "Bearer hunter2"); got != http.StatusUnauthorized {
		t.Fatalf("a stranger is answered %d", got)
	}
	who := map[string]string{"view": view.Default, "client": "raw 1", "principal": "key|laptop", "session": identity.Digest(c.id), "transport": "http"}
	for message, keys := range map[string]map[string]string{
		"session began":    {"address": "127.0.0.1"},
		"tools registered": {"added": "..."},
		"session ended":    {"took": "..."},
		"request refused":  {"view": view.Default, "transport": "http", "address": "127.0.0.1", "outcome": identity.Denied, "reason": "..."},
	} {
		if message != "request refused" {
			maps.Copy(keys, who)
		}
		var got map[string]any
		for line := range strings.Lines(log.String()) {
			if partText([]byte(line), "msg") == message {
				if got != nil {
					t.Errorf("%s: more than one line", message)
				}
				must.Do(t, json.Unmarshal([]byte(line), &got))
			}
		}
		for _, of := range []string{"time", "level", "msg"} {
			delete(got, of)
		}
		for key, want := range keys {
			if is, ok := got[key]; !ok || want != "..." && is != want {
				t.Errorf("%s: %s is %v, want %s", message, key, got[key], want)
			}
			delete(got, key)
		}
		if len(got) > 0 {
			t.Errorf("%s: there is %v, too", message, got)
		}
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Error("the log has a secret")
	}
}

// Who may not use a tool does not read of it in the metrics.
func TestMetricsShowWhatMayBeUsed(t *testing.T) {
	config := configOf(t, []*script{shop(t, "shop", "hat", "coat"), shop(t, "vault", "gold")})
	config.PrincipalHeader = "X-User"
	config.Policies = policies(t, `permit (principal, action, resource); forbid (principal, action, resource) when { resource.name == "hat" } unless { principal == User::"ada" }; forbid (principal, action, resource in Server::"vault") unless { principal == User::"ada" };`)
	_, url := openREST(t, "", config)
	for _, id := range []string{"shop_hat", "shop_coat", "vault_gold"} {
		curl(t, url, "POST", "/api/proxy/execute", `{"tool_id":"`+id+`","arguments":{"size":1}}`, "X-User: ada").wants(t, id, 200)
	}
	for who, want := range map[string][]string{"ada": {"shop coat", "shop hat", "vault gold"}, "bob": {"shop coat"}} {
		text := curl(t, url, "GET", "/metrics", "", "X-User: "+who).body
		called := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^toolfinch_calls_total\{.*server="(\w+)",tool="(\w+)"\}`).FindAllStringSubmatch(text, -1) {
			called[m[1]+" "+m[2]] = true
		}
		if got := slices.Sorted(maps.Keys(called)); !slices.Equal(got, want) {
			t.Errorf("%s reads of %q, want %q", who, got, want)
		}
		if strings.Contains(text, `server="vault"`) != (who == "ada") {
			t.Errorf("%s reads of the server vault: %t: %s", who, who != "ada", regexp.MustCompile(`.*server="vault".*`).FindAllString(text, 3))
		}
	}
}
