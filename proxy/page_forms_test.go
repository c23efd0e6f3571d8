package proxy_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

var (
	inputs    = regexp.MustCompile(`<input [^>]*name="([^"]*)"[^>]* value="([^"]*)"`)
	textareas = regexp.MustCompile(`(?s)<textarea [^>]*name="([^"]*)"[^>]*>\n?(.*?)</textarea>`)
	buttons   = regexp.MustCompile(`<button name="do" value="([^"]*)"`)
)

// filled is what a browser sends of the inputs of a document, all in one form, and the
// buttons that there are.
func filled(document string) (form url.Values, do []string) {
	sent := func(text string) string {
		return strings.ReplaceAll(strings.ReplaceAll(html.UnescapeString(text), "\r\n", "\n"), "\n", "\r\n")
	}
	form = url.Values{}
	for _, kind := range []*regexp.Regexp{inputs, textareas} {
		for _, one := range kind.FindAllStringSubmatch(document, -1) {
			form.Add(sent(one[1]), sent(one[2]))
		}
	}
	for _, one := range buttons.FindAllStringSubmatch(document, -1) {
		do = append(do, sent(one[1]))
	}
	return form, do
}

// What people type is sent to tools as they typed it, however often a form is shown again
// before; and what is hidden in it is seen.
func TestWhatIsTypedComesBackAsItIs(t *testing.T) {
	const short = "می\u200cخواهم"
	const typed = short + " co\u00adoperate \U0001f469\u200d\U0001f4bb <b>\"'&amp;\ufffd"
	s := shop(t, "shop")
	s.list("tools", `{"name":"hat","inputSchema":{"type":"object","properties":{"te\u200cxt\nof":{"type":"string"},"line":{"type":"string","maxLength":90},"json":{},"many":{"type":"array","items":{"type":"string"}},"size":{"type":"integer"}},"required":["size"]},"annotations":{"readOnlyHint":true}}`)
	config := configOf(t, []*script{s})
	p, at := withPage(t, config)
	me := owner(t, p, at)
	const tool = "/ui/catalogue?name=shop_hat"
	form, _ := filled(me.do(tool, nil).body)
	for name := range form {
		switch {
		case strings.HasSuffix(name, "/json"):
			form.Set(name, `{"a": "`+short+`"}`)
		case strings.HasPrefix(name, "a/") && !strings.HasSuffix(name, "/size"):
			form.Set(name, typed)
		}
	}
	again := func(do string) answered {
		t.Helper()
		form.Set("do", do)
		got := me.do(tool, form)
		if strings.ContainsAny(got.body, "\u200c\u200d\u00ad") {
			t.Errorf("after %s something is hidden in the document", do)
		}
		form, _ = filled(got.body)
		return got
	}
	again("add:/many")
	form.Set("a/many/0", typed)
	if shown := again("call").body; !strings.Contains(shown, "it is required") || !strings.Contains(shown, `U+200C</span>خواهم`) {
		t.Errorf("the form with a fault is:\n%s", shown)
	}
	again("json")
	again("form")
	form.Set("a/size", "1")
	got := again("call")
	await.True(t, func() bool { return len(s.got("tools/call")) == 1 })
	arguments := part(s.got("tools/call")[0].Params, "arguments")
	for name, want := range map[string]string{"te\u200cxt\nof": typed, "line": typed} {
		if value := text(part(arguments, name)); value != want {
			t.Errorf("%q was sent as %q", name, value)
		}
	}
	if value := text(part(part(arguments, "json"), "a")); value != short {
		t.Errorf("in JSON %q was sent", value)
	}
	if many := string(part(arguments, "many")); !strings.Contains(many, "\u200c") && !strings.Contains(many, `\u200c`) {
		t.Errorf("the list is %s", many)
	}
	to := must.Get(url.Parse(got.header.Get("Location")))(t)
	run := to.Query().Get("run")
	var download answered
	await.True(t, func() bool {
		download = me.do("/ui/result?run="+run, nil)
		return download.status != http.StatusNotFound
	}) // else the call still runs
	if got := download; got.status != http.StatusOK || got.header.Get("Content-Disposition") != "attachment; filename=result.json" || !strings.Contains(got.body, short) && !strings.Contains(got.body, `\u200c`) {
		t.Errorf("the download: %d %v %s", got.status, got.header, got.body)
	}
}

// A tool is decided whatever its server calls it.
func TestAToolOfAnyNameIsDecided(t *testing.T) {
	for _, decision := range []string{"approve one", "reject one", "approve all"} {
		t.Run(decision, func(t *testing.T) {
			s := shop(t, "shop", "hat")
			config := configOf(t, []*script{s})
			config.Changes = nil
			p, at := withPage(t, config)
			me := owner(t, p, at)
			s.list("tools", goods(`h\u202ea\r\nt`, "coat")...)
			s.tell(t, "notifications/tools/list_changed", `{}`)
			var form url.Values
			var chosen string
			await.True(t, func() bool {
				var do []string
				form, do = filled(me.do("/ui/changes", nil).body)
				for _, one := range do {
					if strings.HasPrefix(one, decision) && (decision == "approve all" || !strings.HasSuffix(one, "coat")) {
						chosen = one
					}
				}
				return chosen != ""
			})
			form.Set("do", chosen)
			if got := me.do("/ui/changes", form); got.status != http.StatusSeeOther {
				t.Fatalf("%q: %d %s", chosen, got.status, got.body)
			}
			past, _, _ := strings.Cut(decision, " ")
			if shown := me.do("/ui/changes", nil).body; !strings.Contains(shown, strings.TrimSuffix(past, "e")) || strings.Contains(shown, "Nothing was decided") {
				t.Errorf("after %q it says:\n%s", chosen, shown)
			}
		})
	}
}

// A form of more than 4 MB is not read.
func TestAFormOfThePageIsBounded(t *testing.T) {
	p, at := withPage(t, configOf(t, []*script{shop(t, "shop", "hat")}))
	me := owner(t, p, at)
	for _, path := range []string{"/ui/catalogue?name=shop_hat", "/ui/login"} {
		form := url.Values{"do": {"json"}, "mode": {"json"}, "json": {`{"colour":"` + strings.Repeat("x", 4<<20) + `"}`}}
		got := me.do(path, form)
		if got.status != http.StatusRequestEntityTooLarge && got.status != http.StatusForbidden {
			t.Errorf("%s: status %d, %d bytes", path, got.status, len(got.body))
		}
	}
}
