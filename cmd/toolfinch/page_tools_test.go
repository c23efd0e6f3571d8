//go:build unix

package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// What people do with tools on the page, over real servers.
func TestPageTools(t *testing.T) {
	browser := newBrowser(t)
	h := newHouse(t, upstreams(t, "everything", "files", "memory"), map[string]any{
		"default_view": "all", "embedder": "BM25",
		"tool_views": map[string]any{"notes": map[string]any{"tools": map[string]any{"memory": map[string]any{"*": map[string]any{}}}}},
	})
	at, _ := h.serveHTTP(t)
	browser.tab(t, at).ready(h)
	open := func(t *testing.T, path string) *tab {
		tab := browser.tab(t, at)
		tab.logIn(h)
		tab.open(path)
		return tab
	}

	t.Run("the catalogue is filtered as one types", func(t *testing.T) {
		tab := open(t, "catalogue")
		tab.wait("td a", "everything_echo")
		tab.accessible()
		tab.fits()
		tab.looks("catalogue")
		tab.pressed("/")
		tab.pressed("g", "r", "a", "p", "h")
		tab.wait("#found .tabs a[aria-current]", "tools")
		tab.wait("td a", "memory_read_graph")
		if strings.Contains(tab.text("#found table"), "everything_echo") {
			t.Errorf("what was typed filters nothing: %s", tab.text("#found table"))
		}
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
		tab.open("catalogue?kind=prompt")
		tab.click("td a")
		tab.wait("h2", "Arguments")
		tab.open("catalogue?kind=resource")
		tab.wait("td a", "demo://")
		tab.open("catalogue?kind=template")
		tab.wait("td a", "{")
	})
	t.Run("one tool, with its schema", func(t *testing.T) {
		tab := open(t, "catalogue?name=memory_create_entities")
		tab.wait(".schema code", "entityType")
		tab.wait("dd", "it is as it was approved")
		tab.accessible()
		tab.fits()
		tab.looks("tool")
		tab.click("a.button:not(.first)")
		tab.wait(".hits b", "memory_create_entities")
	})
	t.Run("searching", func(t *testing.T) {
		tab := open(t, "search")
		for _, key := range "list the files of a folder" {
			tab.pressed(string(key))
		}
		tab.wait(".hits b", "files_list_directory")
		tab.accessible()
		tab.run(chromedp.Click(chromedp.CSS(".hits summary")))
		tab.wait(".why-parts td", "by field:")
		tab.fits()
		tab.looks("search")
	})
	t.Run("two settings side by side, without script, and what should have come first", func(t *testing.T) {
		tab := open(t, "")
		tab.noScript()
		tab.open("search?q=add+observations&compare=yes&view2=notes")
		tab.wait("h2", "notes, words")
		tab.wait(".hits .tag", "same place")
		tab.accessible()
		tab.fits()
		tab.looks("compare")
		tab.run(chromedp.SetValue(chromedp.CSS("#tool"), "memory.add_observations"))
		tab.click(".prefer button")
		tab.wait(".note.good", "toolfinch eval --queries")
		file := filepath.Join(h.home, "data", "queries.jsonl")
		if text, err := os.ReadFile(file); err != nil || string(text) != `{"query":"add observations","relevant":["memory:add_observations"]}`+"\n" {
			t.Errorf("noted: %s, %v", text, err)
		}
		if out, err := h.output(t, "eval", "--queries", file); err != nil || !strings.Contains(string(out), "queries") {
			t.Errorf("eval: %s: %v", out, err)
		}
	})
}

// ready waits until every server is.
func (b *tab) ready(h house) {
	b.t.Helper()
	b.logIn(h)
	b.wait(".note.good", "Every server is ready")
}
