//go:build unix

package main_test

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// The page in Chromium, over real servers.
func TestPage(t *testing.T) {
	browser := newBrowser(t)
	h := newHouse(t, upstreams(t, "everything", "files", "memory"), map[string]any{"default_view": "all"})
	at, _ := h.serveHTTP(t)

	t.Run("a link lets in once", func(t *testing.T) {
		tab := browser.tab(t, at)
		tab.expect("403")
		tab.open("")
		tab.wait("h1", "Log in")
		tab.accessible()
		tab.looks("login")
		link := h.uiLink(t)
		tab.run(chromedp.Navigate(tab.at[:len(tab.at)-len("/ui/")] + link))
		tab.wait("h1", "Overview")
		other := browser.tab(t, at)
		other.expect("403")
		other.run(chromedp.Navigate(tab.at[:len(tab.at)-len("/ui/")] + link))
		other.wait(".note.bad", "used before")
	})
	t.Run("overview", func(t *testing.T) {
		tab := browser.tab(t, at)
		tab.logIn(h)
		tab.wait(".note.good", "Every server is ready")
		tab.accessible()
		tab.fits()
		tab.looks("overview")
	})
	t.Run("servers", func(t *testing.T) {
		tab := browser.tab(t, at)
		tab.logIn(h)
		tab.open("servers")
		tab.accessible()
		tab.fits()
		tab.looks("servers")
		tab.open("servers?name=memory")
		tab.accessible()
		tab.fits()
		tab.looks("server")
	})
}
