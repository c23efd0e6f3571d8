//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"toolfinch/internal/await"
)

// tools is what people do with tools on the page.
func tools(t *testing.T, w watched) {
	open := func(t *testing.T, path string) *tab {
		tab := w.in(t)
		tab.open(path)
		return tab
	}

	t.Run("the catalogue is filtered as one types", func(t *testing.T) {
		tab := open(t, "catalogue")
		tab.wait("td a", "everything_echo")
		tab.accessible()
		tab.fits()
		tab.looks("catalogue")
		tab.searches("graph")
		tab.wait("#found .tabs a[aria-current]", "tools")
		tab.lacks("td a", "everything_echo")
		tab.wait("td a", "memory_read_graph")
		tab.wait("#told[role=status]", "results")
		tab.wait("#found tbody tr:first-child td a", "memory_") // not what was found for its first letters
	})
	t.Run("the catalogue without script", func(t *testing.T) {
		tab := open(t, "")
		tab.noScript()
		tab.open("catalogue?server=memory&is=read-only")
		table := tab.text("#found table")
		if !strings.Contains(table, "memory_read_graph") || strings.Contains(table, "memory_delete_entities") || strings.Contains(table, "everything") {
			t.Errorf("of memory, what only reads: %s", table)
		}
		tab.open("catalogue?view=notes")
		if table := tab.text("#found table"); strings.Contains(table, "everything") {
			t.Errorf("another view: %s", table)
		}
		tab.open("catalogue?tag=memory")
		if table := tab.text("#found table"); !strings.Contains(table, "memory_read_graph") || strings.Contains(table, "everything") {
			t.Errorf("with a tag: %s", table)
		}
		tab.open("catalogue?is=held")
		tab.wait("#found .empty", "Nothing passes these filters")
		tab.open("catalogue?kind=prompt")
		tab.click("td a")
		tab.wait("button.first", "Get")
		tab.open("catalogue?kind=resource")
		tab.wait("td a", "demo://")
		tab.open("catalogue?kind=template")
		tab.wait("td a", "{")
	})
	t.Run("what is fetched again keeps its place, and nobody's search is lost", func(t *testing.T) {
		tab := open(t, "catalogue")
		const swap = `const {swap} = await import(document.querySelector("script[src*='/page.js']").src.replace("page.js", "swap.js"));`
		if got := evaluate[string](tab, `(async () => { `+swap+`
			const found = document.getElementById("found");
			found.dataset.refresh = "599";
			const search = swap("catalogue?q=graph", "found"), refresh = await swap(location.href, "found", true);
			return [refresh, await search, found.textContent.includes("everything_echo"), found.dataset.refresh === "599"].join();
		})()`, chromedp.EvalAwaitPromise); got != "false,true,false,false" {
			t.Errorf("a refresh beside a search: %s", got)
		}
		tab.open("")
		tab.wait("#trouble a", "gone")
		if lost := evaluate[[]string](tab, `(async () => { `+swap+`
			const part = document.getElementById("overview"), lost = [], all = () => [...part.querySelectorAll("a, summary")];
			part.firstElementChild.insertAdjacentHTML("beforebegin", "<a href='servers?name=gone'>the same link elsewhere</a>");
			for (let i = 1; i < all().length; i++) {
				const was = all()[i], text = was.textContent;
				was.focus();
				part.shown = "something else";
				if (!await swap(location.href, "overview") || document.activeElement.textContent !== text || document.activeElement === was) lost.push(text + " to " + document.activeElement.textContent);
			}
			return lost;
		})()`, chromedp.EvalAwaitPromise); len(lost) > 0 {
			t.Errorf("the focus jumps: %q", lost)
		}
	})
	t.Run("one tool, with its form", func(t *testing.T) {
		tab := open(t, "catalogue?name=memory_create_entities")
		tab.wait("#form legend", "entities")
		tab.wait("#own pre", `"name": "create_entities"`)
		tab.accessible()
		tab.fits()
		tab.looks("tool")
		tab.click("dd a[href^=search]")
		tab.wait(".hits b", "memory_create_entities")
		tab.run(chromedp.Click(chromedp.CSS(".hits summary")))
		tab.click(`.hits a.button`)
		tab.wait("#form button.first", "Call")
	})
	t.Run("a call by keyboard alone, with faults at the fields", func(t *testing.T) {
		tab := open(t, "catalogue?name=everything_get-sum")
		tab.accessible()
		tab.fits()
		tab.looks("call")
		tab.run(chromedp.Focus(chromedp.CSS("[id='a/a']")))
		tab.typed("two")
		tab.pressed(kb.Enter)
		tab.wait("[id='e-a/a']", "it is no number")
		tab.wait("[id='e-a/b']", "it is required")
		tab.wait("[id='a/a']:focus", "")
		tab.accessible()
		tab.looks("call-faults")
		tab.run(chromedp.SetValue(chromedp.CSS("[id='a/a']"), "2"), chromedp.Focus(chromedp.CSS("[id='a/b']")))
		tab.typed("40")
		tab.pressed(kb.Enter)
		tab.wait(".part pre", "42")
		tab.wait(".badge", "success")
		tab.accessible()
		tab.fits()
		tab.looks("result")
	})
	t.Run("a call without script: nested lists, then JSON, and what is destructive", func(t *testing.T) {
		tab := open(t, "")
		tab.noScript()
		tab.open("catalogue?name=memory_create_entities")
		tab.click("[value='add:/entities']")
		tab.run(chromedp.SetValue(chromedp.CSS("[id='a/entities/0/name']"), "Ada"), chromedp.SetValue(chromedp.CSS("[id='a/entities/0/entityType']"), "person"))
		tab.click("[value='add:/entities/0/observations']")
		tab.run(chromedp.SetValue(chromedp.CSS("[id='a/entities/0/observations/0']"), "wrote <b>programs</b>"))
		tab.click("[value='add:/entities']")
		tab.looks("call-nested")
		tab.fits()
		tab.wait("[id='a/entities/1/name']:focus", "")
		tab.click("[value='remove:/entities/1']")
		tab.wait("[id='a/entities/0/name']:focus", "")
		tab.click("[value=json]")
		if got := evaluate[string](tab, "document.getElementById('json').value"); !strings.Contains(got, "wrote <b>programs</b>") {
			t.Errorf("the form as JSON: %s", got)
		}
		tab.click("[value=form]")
		tab.click("button.first")
		tab.wait(".badge", "success")
		tab.wait(".part pre", `"name": "Ada"`)
		tab.open("catalogue?name=memory_delete_entities")
		tab.click("[value='add:/entityNames']")
		tab.run(chromedp.SetValue(chromedp.CSS("[id='a/entityNames/0']"), "Ada"))
		tab.click("button.first")
		tab.wait("#confirm", "may delete or overwrite")
		tab.looks("confirm")
		tab.click("button.danger")
		tab.wait(".badge", "success")
	})
	t.Run("results: images, links, resources", func(t *testing.T) {
		tab := open(t, "catalogue?name=everything_get-tiny-image")
		tab.click("button.first")
		tab.wait(".badge", "success")
		if width := evaluate[int](tab, "document.querySelector('.shown').naturalWidth"); width == 0 {
			t.Error("the image is not shown")
		}
		tab.looks("image")
		tab.open("catalogue?name=everything_get-resource-links")
		tab.click("button.first")
		tab.wait(".part code", "demo://")
		tab.open("catalogue?name=everything_get-structured-content")
		tab.run(chromedp.SetValue(chromedp.CSS("[id='a/location']"), "0"))
		tab.click("button.first")
		tab.wait(".part pre", `"temperature"`)
		tab.open("catalogue?kind=prompt&name=everything_simple-prompt")
		tab.click("button.first")
		tab.wait(".part .dim", "user")
		tab.open("catalogue?kind=resource")
		tab.click("td a")
		tab.click("#form button.first")
		tab.wait(".badge", "success")
		tab.open("catalogue?kind=template")
		tab.click("td a")
		const uri = "demo://resource/dynamic/text/1"
		tab.run(chromedp.SetValue(chromedp.CSS("#uri"), uri))
		tab.click("button.first")
		tab.wait(".badge", "success")
		if got := evaluate[string](tab, `document.getElementById("uri").value`); got != uri {
			t.Errorf("once it was read, the URI is %q", got)
		}
	})
	for _, script := range []bool{true, false} {
		t.Run(fmt.Sprintf("a server asks, with script %t", script), func(t *testing.T) {
			tab := open(t, "")
			if !script {
				tab.noScript()
			}
			tab.open("catalogue?name=everything_trigger-elicitation-request")
			tab.click("button.first")
			tab.wait("h3", "The server asks you")
			if script {
				tab.accessible()
				tab.fits()
				tab.looks("elicitation")
			}
			tab.run(chromedp.SetValue(chromedp.CSS("input[type=email]"), "nobody"))
			tab.click(".ask button.first")
			tab.wait(".ask .why", "it is no email address")
			tab.wait(".ask .why", "it is required")
			tab.run(chromedp.SetValue(chromedp.CSS("input[type=email]"), "ada@example.org"), chromedp.SetValue(chromedp.CSS(".ask [name$='a/name']"), "Ada"))
			tab.click(".ask button.first")
			tab.wait(".badge", "success")
			tab.wait(".part pre", "ada@example.org")
		})
	}
	t.Run("a server asks to have a page opened", func(t *testing.T) {
		tab := open(t, "")
		ask := func(url string) {
			tab.open("catalogue?name=everything_trigger-url-elicitation")
			tab.run(chromedp.SetValue(chromedp.CSS("[id='a/url']"), url), chromedp.SetValue(chromedp.CSS("[id='a/message']"), "Please sign."), chromedp.SetValue(chromedp.CSS("[id='a/elicitationId']"), "sign"))
			tab.click("form#form button.first")
			tab.wait("h3", "The server asks you to open a page")
			tab.wait(".ask .foreign", "Please sign.")
		}
		ask("https://example.com/sign?who=ada")
		tab.accessible()
		tab.fits()
		tab.looks("url-elicitation")
		if got := evaluate[string](tab, `(({href, target, rel, textContent}) => [href, target, rel, textContent].join(" "))(document.querySelector(".ask a"))`); got != "https://example.com/sign?who=ada _blank noopener noreferrer https://example.com/sign?who=ada" {
			t.Errorf("the link is %s", got)
		}
		tab.click(".ask button.first")
		tab.wait(".badge", "success")
		tab.wait(".part pre", "accept")
		tab.noScript()
		ask("https://example.com/decline")
		tab.click(".ask button[value=decline]")
		tab.wait(".part pre", "declin")
	})
	t.Run("a long call is watched, and cancelled", func(t *testing.T) {
		tab := open(t, "catalogue?name=everything_trigger-long-running-operation")
		tab.run(chromedp.SetValue(chromedp.CSS("[id='a/duration']"), "600"), chromedp.SetValue(chromedp.CSS("[id='a/steps']"), "1200"))
		tab.click("button.first")
		tab.wait(".badge", "running")
		tab.wait(".notes li", "of 1200")
		tab.looks("running")
		tab.click("#run button.danger")
		tab.wait("#run .badge", "cancelled")
	})
	t.Run("what a hostile server sends is text", func(t *testing.T) {
		tab := open(t, "")
		harmless := func() {
			t.Helper()
			if evaluate[bool](tab, `"hacked" in window`) {
				t.Fatalf("%s: a text of a server has run", tab.path())
			}
			if n := evaluate[int](tab, `document.querySelectorAll("main script, main img, main svg:not(.parts), main [onerror], main [onload], main [onclick], main [onfocus], main a[href^=javascript]").length`); n != 0 {
				t.Errorf("%s: %d elements are a server's", tab.path(), n)
			}
			if text := tab.html(); strings.ContainsAny(text, "\u202e\u2066\u200b\x1b") || strings.ContainsRune(text, 0xE0041) {
				t.Errorf("%s has hidden characters", tab.path())
			}
		}
		for _, path := range []string{"catalogue?server=hostile", "catalogue?name=hostile_paint", "search?q=paint", "catalogue?kind=prompt&server=hostile", "catalogue?kind=resource&server=hostile"} {
			tab.open(path)
			harmless()
		}
		for _, path := range []string{"catalogue?name=hostile_paint", "catalogue?kind=prompt&name=hostile_greet", "catalogue?kind=resource&name=javascript:window.hacked=1"} {
			tab.open(path)
			harmless()
			tab.fits()
			tab.click("form#form button.first")
			tab.wait(".badge", "success")
			tab.wait(".part pre", "<script>window.hacked=1</script>")
			harmless()
			tab.fits()
		}
		tab.open("catalogue?name=hostile_paint")
		tab.click("form#form button.first")
		tab.wait(".part .dim", "it is no PNG, JPEG, GIF or WebP")
		tab.wait(".part pre .hidden-char", "U+202E")
		tab.wait(".part a[rel~=noreferrer]", "https://icons.example/x")
		tab.looks("hostile-result")
	})
	t.Run("searching", func(t *testing.T) {
		userModels(t)
		tab := open(t, "search")
		tab.typed("list the files of a folder")
		tab.wait(".hits b", "files_list_directory")
		tab.wait(".key span", "vectors")
		tab.open(tab.path()) // what comes late after a key counts as a move of the layout
		tab.accessible()
		tab.run(chromedp.Click(chromedp.CSS(".hits summary")))
		tab.wait(".why-parts td", "by field:")
		tab.fits()
		tab.looks("search")
		tab.open("search?q=list+the+files+of+a+folder&tool=files.write_file")
		tab.wait("section.note p", "files_write_file")
		tab.accessible()
		tab.fits()
		tab.looks("why-not")
	})
	t.Run("words and vectors beside words alone", func(t *testing.T) {
		userModels(t)
		tab := open(t, "")
		const asked = "search?q=keep+in+mind+who+somebody+is+in+the+graph&compare=yes&limit=3"
		await.Nil(t, func() error { // until the definitions have their vectors
			tab.open(asked)
			if why := tab.text("#hits"); strings.Contains(why, "no vectors") || !strings.Contains(evaluate[string](tab, `document.querySelector("#hits section .key, #hits .why-parts")?.textContent ?? ""`), "vectors") {
				return fmt.Errorf("by words: %s", why)
			}
			return nil
		})
		tab.wait("#hits section:first-child h2", "default, words and vectors")
		tab.wait("#hits section:last-child h2", "default, words")
		tab.lacks("#hits section:last-child h2", "vectors")
		tab.wait("#hits section:first-child .why-parts th", "vectors")
		tab.wait("#hits section:first-child .why-parts td", "33 × (0.5 × cosine with the query 0.")
		tab.lacks("#hits section:last-child .why-parts th", "vectors")
		if evaluate[bool](tab, `(([a, b]) => a.textContent === b.textContent)([...document.querySelectorAll("#hits section ol")])`) {
			t.Error("both settings rank alike")
		}
		tab.accessible()
		tab.fits()
		tab.looks("compare-hybrid")
	})
	t.Run("two settings side by side, without script", func(t *testing.T) {
		tab := open(t, "search?q=add+observations&compare=yes&view2=notes")
		tab.wait(".hits .tag", "1 place higher")
		tab.accessible()
		tab.fits()
		tab.looks("compare")
		tab.noScript()
		tab.open("search?q=add+observations&compare=yes&by=words&view2=notes")
		tab.wait("h2", "notes, words")
		tab.wait(".hits .tag", "same place")
	})
}

// lacks waits until no element of the selector has the text.
func (b *tab) lacks(selector, text string) {
	b.t.Helper()
	await.Nil(b.t, func() error {
		found, err := chromedp.Run(b, chromedp.Evaluate[[]string](fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent)", selector)))
		if err != nil || strings.Contains(strings.Join(found, "\n"), text) {
			return fmt.Errorf("%q, %v", found, err)
		}
		return nil
	})
}

// typed is text that somebody types.
func (b *tab) typed(text string) {
	b.t.Helper()
	for _, key := range text {
		b.run(chromedp.KeyEvent(string(key)))
	}
}

// searches types into the search.
func (b *tab) searches(text string) {
	b.t.Helper()
	b.run(chromedp.Focus(chromedp.CSS("input[type=search]")))
	b.typed(text)
}
