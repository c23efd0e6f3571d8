package proxy_test

import (
	"strings"
	"testing"

	"toolfinch/view"
)

// namesake is a server whose tool, prompt, resource and template have the names
// that others' have, too. What it answers says who it is.
func namesake(t *testing.T, name string, k kind) *script {
	s := newScript(t, name, k.modern, k.stdio)
	s.list("tools", `{"name":"do"}`)
	s.list("prompts", `{"name":"hello"}`)
	s.list("resources", `{"uri":"shared://one","name":"One"}`, `{"uri":"only://`+name+`","name":"Its own"}`)
	s.list("resourceTemplates", `{"uriTemplate":"shared://{x}","name":"Any"}`)
	for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete"} {
		s.on(method, func(r *request) {
			r.result(`{"resultType":"complete","by":"` + name + `","about":"` + r.about() + partText(part(r.Params, "ref"), "uri") + partText(part(r.Params, "ref"), "name") + `"}`)
		})
	}
	return s
}

func TestServersWithTheSameNames(t *testing.T) {
	a, b, c := namesake(t, "a", kind{}), namesake(t, "b", kind{modern: true, stdio: true}), namesake(t, "c", kind{stdio: true})
	none, other := "", "see"
	b.settings.Prefix, c.settings.Prefix = &other, &none
	p, url := openScripts(t, []string{"*"}, a, b, c)
	for _, k := range kinds {
		t.Run(k.String()+" client", func(t *testing.T) {
			m := &meeting{rawClient: newClient(t, p, url, k, `{}`, nil), up: b}
			for method, want := range map[string][]string{
				"tools/list":               {`"a_do"`, `"see_do"`, `"do"`},
				"prompts/list":             {`"prompts":[{"name":"a_hello"},{"name":"see_hello"},{"name":"hello"}]`},
				"resources/list":           {`"toolfinch:a/shared://one"`, `"only://a"`, `"toolfinch:b/shared://one"`, `"only://b"`, `"toolfinch:c/shared://one"`, `"only://c"`},
				"resources/templates/list": {`"toolfinch:a/shared://{x}"`, `"toolfinch:b/shared://{x}"`, `"toolfinch:c/shared://{x}"`},
			} {
				got := m.ask(method, `{}`)
				for _, one := range want {
					if strings.Count(got.raw, one) != 1 {
						t.Errorf("%s = %s\nwant once in it %s", method, got.raw, one)
					}
				}
			}
			for _, test := range []struct{ method, params, by, about string }{
				{"tools/call", `{"name":"a_do"}`, "a", "do"},
				{"tools/call", `{"name":"see_do"}`, "b", "do"},
				{"tools/call", `{"name":"do"}`, "c", "do"},
				{"prompts/get", `{"name":"a_hello"}`, "a", "hello"},
				{"prompts/get", `{"name":"see_hello"}`, "b", "hello"},
				{"prompts/get", `{"name":"hello"}`, "c", "hello"},
				{"resources/read", `{"uri":"toolfinch:a/shared://one"}`, "a", "shared://one"},
				{"resources/read", `{"uri":"toolfinch:b/shared://one"}`, "b", "shared://one"},
				{"resources/read", `{"uri":"toolfinch:c/shared://one"}`, "c", "shared://one"},
				{"resources/read", `{"uri":"toolfinch:b/shared://two"}`, "b", "shared://two"},
				{"resources/read", `{"uri":"toolfinch:c/un://listed"}`, "c", "un://listed"},
				{"resources/read", `{"uri":"only://b"}`, "b", "only://b"},
				{"resources/read", `{"uri":"toolfinch:b/only://b"}`, "b", "only://b"},
				{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"x","value":""}}`, "c", "hello"},
				{"completion/complete", `{"ref":{"type":"ref/resource","uri":"toolfinch:b/shared://{x}"},"argument":{"name":"x","value":""}}`, "b", "shared://{x}"},
			} {
				got := m.ask(test.method, test.params)
				if by, about := partText(got.Result, "by"), partText(got.Result, "about"); by != test.by || about != test.about {
					t.Errorf("%s %s is answered by %q about %q, want %q about %q: %s", test.method, test.params, by, about, test.by, test.about, got.raw)
				}
			}
			if got := m.ask("resources/read", `{"uri":"nobodys://one"}`); got.Error == nil {
				t.Errorf("a URI that could be anybody's: %s", got.raw)
			}
			testSharedUpdates(t, m, a)
		})
	}
}

// testSharedUpdates has two servers tell of a change of their resource, of the
// same URI. The client has subscribed to one of them.
func testSharedUpdates(t *testing.T, m *meeting, other *script) {
	const exposed = "toolfinch:b/shared://one"
	listening := m.listen(`{"resourceSubscriptions":["` + exposed + `"]}`)
	if !m.modern {
		if got := m.ask("resources/subscribe", `{"uri":"`+exposed+`"}`); got.Result == nil {
			t.Fatalf("resources/subscribe = %s", got.raw)
		}
	}
	eventually(t, func() bool {
		all := m.up.got("subscriptions/listen")
		return strings.Contains(string(part(all[len(all)-1].Params, "notifications")), `"shared://one"`)
	})
	other.tell(t, "notifications/resources/updated", `{"uri":"shared://one","of":"another"}`)
	m.up.tell(t, "notifications/resources/updated", `{"of":"b","uri":"shared://one"}`)
	got := m.hears("notifications/resources/updated", listening)
	if uri, of := partText(got.Params, "uri"), partText(got.Params, "of"); uri != exposed || of != "b" {
		t.Errorf("updated = %s, want one of b's", got.Params)
	}
	if !m.modern {
		m.ask("resources/unsubscribe", `{"uri":"`+exposed+`"}`)
	}
	for _, one := range m.got("notifications/resources/updated") {
		if partText(one.Params, "of") != "b" {
			t.Errorf("the client heard %s", one.Params)
		}
	}
}

// A proxy tool that takes the name of a server's tool renames that tool: this is a
// problem of the configuration, and said.
func TestAProxyToolWithTheNameOfATool(t *testing.T) {
	s := newScript(t, "a", false, false)
	s.list("tools", `{"name":"do"}`)
	v := everything("x", view.ExposureDirect)
	v.ProxyTool = "a_do"
	p, _ := openViews(t, "", configOf(t, []*script{s}, v))
	var said []string
	for _, problem := range p.Problems() {
		if !problem.Warning {
			said = append(said, problem.Error())
		}
	}
	if want := `view "x": the proxy tool has the name "a_do", which a.do would have (choose another one: proxy_tool: NAME)`; len(said) != 1 || !strings.Contains(said[0], want) {
		t.Errorf("problems %q, want %s", said, want)
	}
}
