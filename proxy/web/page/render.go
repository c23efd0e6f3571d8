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

// swapHeader is sent by static/page.js, which wants a part of a screen: it gets main without
// the frame around it, and takes the part out.
const swapHeader = "Toolfinch-Swap"

// parsed returns the templates by file. They are read when the page is first looked at:
// most programs never are.
var parsed = sync.OnceValue(func() map[string]*template.Template {
	all := map[string]*template.Template{}
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/components.html", "templates/tools.html", "templates/call.html"))
	files, _ := templateFiles.ReadDir("templates") // it is embedded
	for _, file := range files {
		if shared.Lookup(file.Name()) == nil {
			all[file.Name()] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, "templates/"+file.Name()))
		}
	}
	return all
})

// functions are those of the templates. Texts of others go through seen, or in attributes
// through line. What a form sends back goes through kept.
var functions = template.FuncMap{
	"seen":  seen,
	"line":  printable.Line,
	"kept":  kept,
	"hides": func(text string) bool { return strings.ContainsFunc(text, hides) },
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
	"took":   took,
	"join":   strings.Join,
	"dict":   dict,
}

// pager are the parts of a list, for the component of that name.
type pager struct {
	Offset, Limit, Total int
	link                 string // path and query, without the offset
}

func (p pager) First() int { return p.Offset + 1 }
func (p pager) Last() int  { return min(p.Offset+p.Limit, p.Total) }

// Before and After are the links to the parts beside; "" for none.
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

// dict is a map of pairs, as what a component takes.
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

// seen is text of others with what is hidden in it shown: as code points, marked.
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

// hides reports whether a character is to be shown as what it is. Lines and tabs are not.
func hides(r rune) bool {
	return r != '\n' && r != '\t' && r != '\r' && (printable.Hidden(r) || r == utf8.RuneError)
}

// kept is the value of an input or textarea that a browser sends back as it is. Hidden
// characters are references, so that revealed leaves them; the component hidden shows them.
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

// keeps reports whether kept has a reference for each character: HTML reads those of
// control characters as others.
func keeps(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r == 0 || 0x80 <= r && r < 0xA0 })
}

// keptJSON is JSON that a browser sends back and that means the same. Hidden characters are escaped.
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

// revealed is a whole document in which nothing is hidden, whatever its template has
// forgotten: what came through seen has nothing any more.
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

// count is a number with commas between groups of three digits.
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

// ago is how long ago something was, roughly.
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

// took is how long something lasted, to three digits.
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

// frame is what the layout shows around a screen.
type frame struct {
	Screen  *screen
	Title   string
	Menu    []*screen
	Static  string // where the files are
	Script  string
	Here    string // path and query
	Version string
	Who     string // "" for the owner
	In      bool   // somebody has logged in
	Goes    bool   // the page goes on by itself
	Reload  int    // seconds after which a browser without script loads the page again; 0 for never
	Flashes []flash
	Data    any
}

// render answers with a screen.
func (s *Server) render(q *request, v *screen, status int, data any) {
	f := frame{Screen: v, Title: v.title, Static: s.files.base(), Script: v.script, Version: s.Version, In: q.session != nil, Data: data}
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

// write writes an answer. A browser has to read it within a time.
func (q *request) write(body []byte) {
	w := transport.NewTimed(q.w)
	defer w.End()
	_, _ = w.Write(body) // an error means that nobody waits any more
}

// brief is an error that says less to those who need not know where things are.
type brief interface {
	error
	Brief() string
}

// told is what of an error is told.
func told(err error) string {
	if away, ok := errors.AsType[brief](err); ok {
		return away.Brief()
	}
	return err.Error()
}

var problemScreen = &screen{title: "Problem", file: "problem.html"}

// fail tells of an error, which is a *problem or of the Backend.
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
