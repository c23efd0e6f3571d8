//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"toolfinch/internal/must"
)

// Journeys of TestPage through several screens.

func connects(t *testing.T, w watched) {
	file := filepath.Join(w.home, ".cursor", "mcp.json")
	const before = `{"mcpServers": {"own": {"command": "own", "env": {"API_TOKEN": "hunter2hunter2"}}}}`
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte(before), 0o600))
	tab := w.in(t)
	tab.open("connect")
	tab.wait("table.list tr", "Cursor")
	tab.accessible()
	tab.fits()
	tab.looks("connect")
	tab.open("connect?client=cursor&how=http&view=notes")
	tab.wait("#entry", w.url+"/notes")
	tab.wait("#command", "toolfinch connect cursor --http "+w.url+" --view notes")
	tab.accessible()
	tab.fits()
	tab.looks("connect-client")
	if strings.Contains(tab.html(), "hunter2") {
		t.Error("the page shows a secret of another server")
	}
	if out, err := w.output(t, strings.Fields(strings.TrimPrefix(tab.text("#command"), "toolfinch ")+" --yes")...); err != nil {
		t.Errorf("the command that the page shows: %v: %s", err, out)
	}
	tab.open("connect")
	tab.wait(`tr:has(a[href$="client=cursor"])`, "connected")
	tab.open("connect?client=cursor")
	tab.wait("#entry", `"serve"`)
	tab.open("connect?client=goose")
	tab.lacks("main", "toolfinch connect goose")
	tab.open("connect?client=claude-desktop&how=http")
	tab.wait(".note.bad", "takes no URL")
}

func withoutScript(t *testing.T, w watched) {
	tab := w.tab(t, w.url)
	tab.noScript()
	tab.logIn(w.house)
	tab.wait("h1", "Overview")
	tab.click(`nav a[href="./servers"]`)
	tab.wait("h1", "Servers")
	tab.click(`a[href="servers?name=files"]`)
	tab.wait("h1", "files")
	tab.click("#reconnect")
	tab.wait(".note.good", "files is restarted")
	tab.click("#disable")
	tab.wait(".note.good", "files is disabled")
	tab.open("servers?name=files")
	tab.click("#enable")
	tab.wait(".note.good", "files is enabled")
	tab.click(`nav a[href="./connect"]`)
	tab.click(`a[href="connect?client=cursor"]`)
	tab.run(chromedp.SetValue(chromedp.CSS("#how"), "http"))
	tab.click("main form.bar button")
	tab.wait("#entry", w.url)
	if hidden := evaluate[bool](tab, `document.querySelector(".copy").hidden`); !hidden {
		t.Error("there is a button to copy that does nothing")
	}
	tab.click(`form[action=logout] button`)
	tab.wait("h1", "Log in")
}
