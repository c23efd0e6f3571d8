//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Journeys of TestPage through several screens.

func connectDone(t *testing.T, w watched) {
	file := filepath.Join(w.home, ".cursor", "mcp.json")
	const before = "{\n  // mine\n  \"mcpServers\": {\n    \"own\": { \"command\": \"own\", \"env\": { \"API_TOKEN\": \"hunter2hunter2\" } }\n  }\n}\n"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tab := w.in(t)
	tab.open("connect")
	tab.wait("table.list tr", "Cursor")
	tab.accessible()
	tab.fits()
	tab.looks("connect")
	tab.open("connect?client=cursor&how=http&view=notes&only=1")
	tab.wait("#entry", w.url+"/notes")
	tab.wait(".diff ins", w.url+"/notes")
	tab.wait(".diff del", `server "own"`)
	tab.accessible()
	tab.fits()
	tab.looks("connect-client")
	if strings.Contains(tab.html(), "hunter2") {
		t.Error("the page shows a secret of another server")
	}
	if content() != before {
		t.Error("looking has changed the file")
	}
	// What has changed since it was shown is not written over.
	if err := os.WriteFile(file, []byte(before+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tab.click("#connect")
	tab.wait(".note.bad", "look at it once more")
	if content() != before+"\n" {
		t.Error("a file was written that was not shown")
	}
	tab.click("#connect")
	tab.wait(".note.good", "connected Cursor")
	if now := content(); !strings.Contains(now, w.url+"/notes") || strings.Contains(now, "hunter2") || !strings.Contains(now, "// mine") {
		t.Errorf("the file has:\n%s", now)
	}
	tab.open("connect")
	tab.wait(`tr:has(a[href$="client=cursor"])`, "connected")
	tab.open("connect?client=cursor")
	tab.click("#undo")
	tab.wait(".note.good", "disconnected Cursor")
	if now := content(); now != before+"\n" {
		t.Errorf("after undoing, the file has:\n%s", now)
	}
	tab.open("connect?client=cursor")
	tab.wait("#entry", `"serve"`)
	tab.open("connect?client=goose")
	tab.wait(".note.bad", "YAML")
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
	tab.wait(".note.good", "connected to files anew")
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
	tab.open("connect?client=cursor")
	tab.click("#connect")
	tab.wait(".note.good", "connected Cursor")
	tab.open("connect?client=cursor")
	tab.click("#undo")
	tab.wait(".note.good", "disconnected Cursor")
	tab.click(`form[action=logout] button`)
	tab.wait("h1", "Log in")
}
