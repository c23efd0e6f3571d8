//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// What tests of the page have: one Chromium for all, and in it a tab for each subtest, with cookies of
// its own, which fails for whatever should not happen in a browser.

// browser is a running Chromium.
type browser struct{ context.Context }

var (
	chromium      = sync.OnceValues(startChromium)
	closeChromium = func() {} // at the end of all tests
)

// newBrowser returns the Chromium of all tests.
func newBrowser(t *testing.T) browser {
	t.Helper()
	b, err := chromium()
	if errors.Is(err, exec.ErrNotFound) {
		missing(t, "no browser: apt-get install chromium: %v", err)
	}
	if err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	return b
}

func startChromium() (browser, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return browser{}, err
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WSURLReadTimeout(await.Bound), chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocated)
	closeChromium = func() {
		_ = chromedp.Cancel(ctx) // which waits for it
		end()
	}
	return browser{ctx}, chromedp.Do(ctx)
}

// tab is one tab, with cookies of its own, and what went wrong in it.
type tab struct {
	context.Context
	t  *testing.T
	at string // where the page is: http://127.0.0.1:1234/ui/

	mu      sync.Mutex // guards what follows
	errors  []string
	allowed []string // errors that the test expects: what they contain
	bytes   float64  // that were received
}

// tab opens a tab on a running toolfinch. at is its URL, of whatever path.
func (b browser) tab(t *testing.T, at string) *tab {
	t.Helper()
	u := must.Get(url.Parse(at))(t)
	tab := &tab{t: t, at: "http://" + u.Host + "/ui/"}
	ctx, end := chromedp.NewContext(b, chromedp.WithNewBrowserContext(), chromedp.WithListener(tab.heard))
	tab.Context = ctx
	t.Cleanup(func() {
		if t.Failed() {
			tab.show()
		}
		end()
		tab.mu.Lock()
		defer tab.mu.Unlock()
		for _, text := range tab.errors {
			t.Errorf("in the browser: %s", text)
		}
	})
	tab.run()
	command(tab, log.Enable, cdp.Empty{})
	command(tab, network.Enable, network.EnableParams{})
	command(tab, runtime.Enable, cdp.Empty{})
	command(tab, cdppage.Enable, cdppage.EnableParams{})
	return tab
}

// heard takes down what should not happen: errors, violations of the policy, requests to
// anywhere else, dialogs.
func (b *tab) heard(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = fmt.Sprint("exception: ", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			text = fmt.Sprint("console: ", e.Args)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			text = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *cdppage.EventJavascriptDialogOpening:
		text = "a dialog: " + e.Message
	case *network.EventRequestWillBeSent:
		if at := e.Request.URL; !strings.HasPrefix(at, strings.TrimSuffix(b.at, "ui/")) && !strings.HasPrefix(at, "data:") {
			text = "a request to " + at
		}
	case *network.EventLoadingFinished:
		b.mu.Lock()
		b.bytes += e.EncodedDataLength
		b.mu.Unlock()
	}
	if text == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.ContainsFunc(b.allowed, func(expected string) bool { return strings.Contains(text, expected) }) {
		b.errors = append(b.errors, text)
	}
}

// expect allows errors that contain a text.
func (b *tab) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, text)
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	within(b, "an action", func() (struct{}, error) { return struct{}{}, chromedp.Do(b, actions...) })
}

// within is what happens in the tab, which is waited for as long as anything is: a deadline would be the tab's. It is
// done again where its element went with a page that has loaded itself anew.
func within[T any](b *tab, what string, do func() (T, error)) (value T) {
	b.t.Helper()
	done := make(chan error, 1)
	go func() {
		var err error
		for value, err = do(); gone(err); value, err = do() {
		}
		done <- err
	}()
	if err := await.Value(b.t, done); err != nil {
		b.t.Fatalf("in the browser: %s: %v", what, err)
	}
	return value
}

// gone reports whether an element is not there any more.
func gone(err error) bool {
	var refused *cdproto.Error
	return errors.As(err, &refused) && strings.Contains(refused.Message, "node with given id")
}

// command sends a command of the protocol.
func command[P, R any](b *tab, c cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b, c, params); err != nil {
		b.t.Fatalf("in the browser: %s: %v", c.Method, err)
	}
}

// evaluate evaluates a JavaScript expression.
func evaluate[T any](b *tab, expression string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	return within(b, expression, func() (T, error) { return chromedp.Run(b, chromedp.Evaluate[T](expression, options...)) })
}

// open goes to a path of the page.
func (b *tab) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.at + path))
}

// text is the text of the first element of a selector, as it is seen.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// html is the whole document.
func (b *tab) html() string {
	b.t.Helper()
	return evaluate[string](b, "document.documentElement.outerHTML")
}

// click clicks the first element of a selector and waits for what it loads.
func (b *tab) click(selector string) {
	b.t.Helper()
	within(b, "click "+selector, func() (any, error) {
		response, err := chromedp.RunResponse(b, chromedp.Click(chromedp.CSS(selector)))
		return response, err
	})
}

// wait waits until an element of the selector has the text.
func (b *tab) wait(selector, text string) {
	b.t.Helper()
	await.Nil(b.t, func() error {
		found, err := chromedp.Run(b, chromedp.Evaluate[[]string](fmt.Sprintf("[...document.querySelectorAll(%q)].map((e) => e.textContent)", selector)))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(found, func(one string) bool { return strings.Contains(one, text) }) {
			return fmt.Errorf("no %s has %q: %q", selector, text, found)
		}
		return nil
	})
}

// noScript has the tab run no script from now on.
func (b *tab) noScript() {
	b.t.Helper()
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// show keeps what a failed test saw, where TOOLFINCH_TEST_SHOTS says.
func (b *tab) show() {
	if html, err := chromedp.Run(b, chromedp.Evaluate[string]("document.documentElement.outerHTML")); err == nil {
		b.t.Logf("the page of the failed test:\n%s", html)
	}
	b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
}

// shot keeps a picture of the whole page, where TOOLFINCH_TEST_SHOTS names a folder.
func (b *tab) shot(name string) {
	dir := os.Getenv("TOOLFINCH_TEST_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Error(err)
	}
}

// looks keeps pictures of the page, wide and on a telephone, each in light and dark.
func (b *tab) looks(name string) {
	b.t.Helper()
	if os.Getenv("TOOLFINCH_TEST_SHOTS") == "" {
		return
	}
	for _, screen := range []struct {
		name  string
		width int64
	}{{"narrow", 400}, {"wide", 1280}} {
		b.run(chromedp.EmulateViewport(screen.width, 800))
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(scheme)
			b.shot(name + "-" + screen.name + "-" + scheme)
		}
	}
}

// fits checks that the page is not wider than a telephone.
func (b *tab) fits() {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(400, 800))
	if wide := evaluate[int](b, "document.documentElement.scrollWidth"); wide > 400 {
		b.t.Errorf("%s is %d pixels wide on a screen of 400", b.path(), wide)
	}
	b.run(chromedp.EmulateViewport(1280, 800))
}

// path is where the tab is, relative to the page.
func (b *tab) path() string {
	b.t.Helper()
	return strings.TrimPrefix(evaluate[string](b, "location.href"), b.at)
}

// received is how many bytes came since it was asked last.
func (b *tab) received() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.bytes
	b.bytes = 0
	return n
}

// accessible checks what a machine can check of the page: one h1, a language, a title,
// landmarks, a name for whatever can be used, a layout that
// does not move, and contrast in light and dark.
func (b *tab) accessible() {
	b.t.Helper()
	faults := evaluate[[]string](b, `(() => {
		const faults = [];
		const need = (ok, what) => ok || faults.push(what);
		need(document.documentElement.lang, "no language");
		need(document.title, "no title");
		need(document.querySelectorAll("h1").length === 1, document.querySelectorAll("h1").length + " h1");
		need(document.querySelectorAll("main").length === 1, "no main");
		need(document.querySelector("a.skip"), "no skip link");
		const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
		need(new Set(ids).size === ids.length, "ids are twice: " + ids.filter((id, i) => ids.indexOf(id) !== i));
		for (const e of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
			need(e.labels?.length || e.getAttribute("aria-label"), "no label: " + e.outerHTML.slice(0, 120));
		for (const e of document.querySelectorAll("a, button, summary"))
			need(e.textContent.trim() || e.getAttribute("aria-label") || e.querySelector("img[alt]"), "no name: " + e.outerHTML.slice(0, 120));
		for (const e of document.querySelectorAll("img, svg")) need(e.hasAttribute("alt") || e.getAttribute("aria-label") || e.getAttribute("aria-hidden"), "no text: " + e.outerHTML.slice(0, 80));
		let before = 0;
		for (const e of document.querySelectorAll("h1, h2, h3, h4")) { need(+e.tagName[1] <= before + 1, "a heading is left out before " + e.textContent); before = +e.tagName[1]; }
		return faults;
	})()`)
	if moved := evaluate[float64](b, layoutShift, chromedp.EvalAwaitPromise); moved > 0.001 {
		faults = append(faults, fmt.Sprintf("its layout has moved while it was loaded: CLS %.3f", moved))
	}
	for _, theme := range []string{"light", "dark"} {
		b.scheme(theme)
		for _, faint := range evaluate[[]string](b, contrast) {
			faults = append(faults, theme+": "+faint)
		}
	}
	b.scheme("light")
	for _, fault := range faults {
		b.t.Errorf("%s: %s", b.path(), fault)
	}
}

// layoutShift is the cumulative layout shift until now, without what somebody's keys and
// clicks moved.
const layoutShift = `new Promise((done) => {
	new PerformanceObserver((list) => done(list.getEntries().reduce((sum, e) => sum + (e.hadRecentInput ? 0 : e.value), 0))).observe({ type: "layout-shift", buffered: true });
	setTimeout(done, 100, 0);
})`

// contrast finds texts that stand out too little from what is behind them (WCAG 2.2, AA).
const contrast = `(() => {
	const rgb = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if ((c[3] ?? 1) > 0) return c; } return [255, 255, 255]; };
	const faint = [];
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
		if (!own || !e.checkVisibility()) continue;
		const style = getComputedStyle(e), [a, b] = [light(rgb(style.color)), light(behind(e))].sort((a, b) => b - a), ratio = (a + 0.05) / (b + 0.05);
		const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
		if (ratio < (large ? 3 : 4.5)) faint.push("contrast " + ratio.toFixed(2) + ": " + e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 40));
	}
	return faint.slice(0, 10);
})()`

// scheme has the browser prefer light or dark.
func (b *tab) scheme(value string) {
	b.t.Helper()
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}})
}

// logIn logs the owner of a house in.
func (b *tab) logIn(h house) {
	b.t.Helper()
	b.run(chromedp.Navigate(strings.TrimSuffix(b.at, "/ui/") + h.uiLink(b.t)))
	await.Nil(b.t, func() error { // the page goes on by itself
		at, err := chromedp.Run(b, chromedp.Evaluate[string](`document.readyState === "complete" ? location.href : ""`))
		if err != nil || at != b.at {
			return fmt.Errorf("at %s: %v", at, err)
		}
		return nil
	})
}

// uiLink is the path and query of a link that logs in to the page, once.
func (h house) uiLink(t *testing.T) string {
	t.Helper()
	out, err := h.output(t, "ui", "--no-browser")
	link, _ := url.Parse(strings.TrimSpace(string(out)))
	if err != nil || link == nil || link.RawQuery == "" {
		t.Fatalf("no link: %s: %v", out, err)
	}
	return link.RequestURI()
}

// pressed is the keys, one after the other.
func (b *tab) pressed(keys ...string) {
	b.t.Helper()
	await.True(b.t, func() bool { // scripts have run by then
		return evaluate[string](b, "document.readyState") == "complete"
	})
	for _, key := range keys {
		b.run(chromedp.KeyEvent(key))
	}
}

// focused is what the keys go to: the text of the element that has the focus, and its tag.
func (b *tab) focused() string {
	b.t.Helper()
	return evaluate[string](b, `document.activeElement.tagName.toLowerCase() + " " + (document.activeElement.textContent.trim() || document.activeElement.name || document.activeElement.id)`)
}
