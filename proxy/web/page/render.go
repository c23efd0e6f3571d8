package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/register/transport"
)

//go:embed templates/*.html
var templateFiles embed.FS

// swapHeader is sent by static/page.js to update a part of a screen. The answer is main without the frame; the script
// takes the part from it.
const swapHeader = "Toolfinch-Swap"

// parsed returns the templates by file. They are parsed for the first request, because most processes never get one.
var parsed = sync.OnceValue(func() map[string]*template.Template {
	all := map[string]*template.Template{}
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/components.html", "templates/tools.html", "templates/call.html"))
	files, _ := templateFiles.ReadDir("templates") // cannot fail: the files are embedded
	for _, file := range files {
		if shared.Lookup(file.Name()) == nil {
			all[file.Name()] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, "templates/"+file.Name()))
		}
	}
	return all
})

// functions are called by templates. Foreign texts go through seen, or line in attributes; values that a form sends back
// go through kept.
var functions = template.FuncMap{
	"seen":   seen,
	"breaks": breaks,
	"line":   printable.Line,
	"kept":   kept,
	"hides":  func(text string) bool { return strings.ContainsFunc(text, hides) },
	"count": func(n any) (string, error) {
		switch n := n.(type) {
		case int:
			return count(n), nil
		case int64:
			return count(n), nil
		}
		return "", fmt.Errorf("count: %T is no number", n)
	},
	"plural": plural,
	"ago":    ago,
	"clock":  func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") },
	"iso":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"place":  func(i int) int { return i + 1 },
	"took":   took,
	"join":   strings.Join,
	"dict":   dict,
}

// pager is the data of the component pager, which splits a list into pages.
type pager struct {
	Offset, Limit, Total int
	link                 string // path and query, without the offset
}

func (p pager) First() int { return p.Offset + 1 }
func (p pager) Last() int  { return min(p.Offset+p.Limit, p.Total) }

// Before and After are the links to the previous and the next page; "" for none.
func (p pager) Before() string {
	if p.Offset <= 0 {
		return ""
	}
	return p.at(max(0, p.Offset-p.Limit))
}

func (p pager) After() string {
	if p.Offset+p.Limit >= p.Total {
		return ""
	}
	return p.at(p.Offset + p.Limit)
}

func (p pager) at(offset int) string {
	sign := "?"
	if strings.Contains(p.link, "?") {
		sign = "&"
	}
	return p.link + sign + "offset=" + strconv.Itoa(offset)
}

// dict makes a map of pairs, for components with several parameters.
func dict(pairs ...any) (map[string]any, error) {
	all := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, errors.New("dict: a key is no text")
		}
		all[name] = pairs[i+1]
	}
	return all, nil
}

// seen returns foreign text as HTML in which hidden characters are marked code points.
func seen(text string) template.HTML {
	if !strings.ContainsFunc(text, hides) {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // escaped
	}
	var b strings.Builder
	for _, r := range text {
		if hides(r) {
			b.WriteString(`<span class="hidden-char" title="a hidden character">` + codePoint(r) + `</span>`)
		} else {
			b.WriteString(template.HTMLEscapeString(string(r)))
		}
	}
	return template.HTML(b.String())
}

// breaks returns foreign text as seen does, with places where browsers may break it after _ . - / and :.
func breaks(text string) template.HTML {
	var b strings.Builder
	from := 0
	for i := range len(text) {
		if strings.IndexByte("_.-/:", text[i]) >= 0 {
			b.WriteString(string(seen(text[from:i+1])) + "<wbr>")
			from = i + 1
		}
	}
	return template.HTML(b.String()) + seen(text[from:]) //nolint:gosec // escaped
}

// hides reports whether a character is hidden, so that its code point must be shown. Line breaks and tabs are not.
func hides(r rune) bool {
	return r != '\n' && r != '\t' && r != '\r' && (printable.Hidden(r) || r == utf8.RuneError)
}

// kept returns a value of an input or textarea as HTML, so that browsers send it back unchanged. Hidden characters
// become references, which revealed does not change; the component hidden shows them.
func kept(text string) template.HTML {
	var b strings.Builder
	for _, r := range text {
		if hides(r) {
			fmt.Fprintf(&b, "&#x%x;", r)
		} else {
			b.WriteString(template.HTMLEscapeString(string(r)))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // escaped
}

// keeps reports whether kept can represent the text: in HTML, references to some control characters mean other
// characters.
func keeps(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r == 0 || 0x80 <= r && r < 0xA0 })
}

// keptJSON returns equivalent JSON in which hidden characters are escaped.
func keptJSON(text string) string {
	if !json.Valid([]byte(text)) {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = string(printable.JSON([]byte(line)))
	}
	return strings.Join(lines, "\n")
}

func codePoint(r rune) string { return fmt.Sprintf("U+%04X", r) }

// revealed replaces hidden characters in a whole document, in case a template has forgotten to call seen.
func revealed(document []byte) []byte {
	if !bytes.ContainsFunc(document, hides) {
		return document
	}
	var b bytes.Buffer
	for _, r := range string(document) {
		if hides(r) {
			b.WriteString("⟨" + codePoint(r) + "⟩")
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

// count formats a number with commas between groups of three digits.
func count[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func plural(n int, one string) string {
	if n != 1 {
		one += "s"
	}
	return count(n) + " " + one
}

// ago says roughly how long ago t was.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	switch d := time.Since(t); {
	case d < 5*time.Second:
		return "now"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s ago"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min ago"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h ago"
	default:
		return strconv.Itoa(int(d.Hours())/24) + " days ago"
	}
}

// took formats a duration with about three digits.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatFloat(float64(d)/float64(time.Microsecond), 'f', 0, 64) + " µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 2, 64) + " ms"
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
}

// frame is the data of the layout around a screen.
type frame struct {
	Screen  *screen
	Title   string
	Menu    []*screen
	Badges  map[string]badge // by path of the screen
	Up      string           // "../" for each folder of the path below Path
	Static  string           // URL of the static files
	Script  string
	Here    string // path and query of the request
	Version string
	Who     string // name of the user; "" for the owner
	In      bool   // the user has logged in
	Goes    bool   // the browser goes on by itself
	Reload  int    // seconds after which a browser without script loads the page again; 0 for never
	Flashes []flash
	Data    any
}

func (s *Server) render(q *request, v *screen, status int, data any) {
	f := frame{Screen: v, Title: v.title, Static: s.files.base(), Script: v.script, Version: s.Version, In: q.session != nil, Data: data}
	f.Up = up(strings.TrimPrefix(q.URL.Path, Path))
	f.Static = f.Up + f.Static
	f.Here = strings.TrimPrefix(q.URL.Path, Path) + query(q)
	if d, ok := data.(door); ok {
		f.Goes = d.In
	}
	if changing, ok := data.(interface{ Reload() int }); ok {
		f.Reload = changing.Reload()
	}
	if titled, ok := data.(interface{ Title() string }); ok && titled.Title() != "" {
		f.Title = printable.Line(titled.Title()) + " · " + v.title
	}
	name := "layout"
	if q.Header.Get(swapHeader) != "" {
		name = "main"
	}
	if q.session != nil {
		if q.session.bearer != nil {
			f.Who = identity.Label(identity.NameOf(q.Context()))
		}
		for _, one := range screens {
			if one.Menu != "" {
				f.Menu = append(f.Menu, one)
			}
		}
		if name == "layout" {
			f.Badges = map[string]badge{}
			for _, one := range f.Menu {
				if one.badge != nil {
					f.Badges[one.Path] = one.badge(q)
				}
			}
			f.Flashes = s.sessions.said(q.session)
		}
	}
	var b bytes.Buffer
	err := parsed()[v.file].ExecuteTemplate(&b, name, f)
	if err != nil {
		s.Log.Error("page: a screen cannot be shown", "screen", v.Path, "error", err)
		http.Error(q.w, "this page cannot be shown; the log of toolfinch says why", http.StatusInternalServerError)
		return
	}
	out := revealed(b.Bytes())
	h := q.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(out)))
	q.w.WriteHeader(status)
	q.write(out)
}

// write writes an answer. It bounds the time in which the browser must read the answer.
func (q *request) write(body []byte) {
	w := transport.NewTimed(q.w)
	defer w.End()
	_, _ = w.Write(body) // an error means that the browser has disconnected
}

// brief is an error with a shorter text, which does not say where things are.
type brief interface {
	error
	Brief() string
}

// told returns the text of an error that users are shown.
func told(err error) string {
	if away, ok := errors.AsType[brief](err); ok {
		return away.Brief()
	}
	return err.Error()
}

var problemScreen = &screen{title: "Problem", file: "problem.html"}

// fail answers with an error, which is a *problem or an error of the Backend.
func (s *Server) fail(q *request, v *screen, err error) {
	p := &problem{http.StatusInternalServerError, err.Error()}
	if own, ok := errors.AsType[*problem](err); ok {
		p = own
	} else if _, away := errors.AsType[brief](err); away {
		p = &problem{http.StatusServiceUnavailable, told(err)}
	}
	if q.Header.Get(swapHeader) != "" {
		http.Error(q.w, printable.Line(p.text), p.status)
		return
	}
	back := problemScreen
	if v != nil {
		back = &screen{Path: v.Path, title: v.title, file: problemScreen.file}
	}
	s.render(q, back, p.status, p.text)
}
