// Package page owns the web page that shows and operates a running toolfinch. The server renders the HTML, and every
// screen works without scripts. The package does not decide what a user may see or do: its Backend does.
//
// To add a screen, write a template that defines "main" and a variable of type screen, and add the variable to screens.
// static/page.css lists the components for templates.
package page

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/trust/inbound"
)

// Path is the path of the page.
const Path = "/ui/"

// Patterns are the patterns for net/http.ServeMux that a Server serves.
var Patterns = []string{"GET /{$}", Path}

// Backend is the toolfinch that the page shows. Its methods are safe for concurrent use. The page shows the texts of its
// errors. The context says who the user is: the owner, who may do everything, has neither a principal nor a party
// (identity.PrincipalOf, identity.PartyOf).
type Backend interface {
	// On reports whether the page is served at all.
	On() bool

	summing
	greeting
	fleet
	watching
	editing
	deciding
	stocking
	guarding
}

// Entrance decides who may log in. An inbound.Gate implements it.
type Entrance interface {
	// TakesKeys reports whether API keys are accepted.
	TakesKeys() bool
	ByForm(r *http.Request, key string) (*inbound.Bearer, error)
	Source(r *http.Request) identity.Source
}

// Options of a Server. Only Connector and Record are optional.
type Options struct {
	Backend  Backend
	Entrance Entrance
	// Connector writes entries for the files of clients; nil for none.
	Connector Connector
	Hosts     []string // names by which browsers reach the page, in addition to the header Host
	Version   string
	Record    identity.Record // nil: events are not recorded
	Log       *slog.Logger
}

// Server serves the page.
type Server struct {
	Options
	screens  map[string]*screen // keyed by path
	sessions *sessions
	files    *files
	reports  perMinute // bounds logged violations of contentPolicy
	refused  perMinute // bounds logged refused links
	cross    *http.CrossOriginProtection
	runs     *runs

	corrections corrections
}

// New returns a server. Its sessions and links are kept only in memory.
func New(o Options) *Server {
	s := &Server{Options: o, screens: map[string]*screen{}, sessions: newSessions(time.Now), files: embedded(), cross: http.NewCrossOriginProtection(), runs: newRuns()}
	for _, host := range o.Hosts {
		for _, scheme := range []string{"http://", "https://"} {
			// A reverse proxy may send its own name in Host. Errors are ignored: no browser sends an invalid origin.
			_ = s.cross.AddTrustedOrigin(scheme + host)
		}
	}
	for _, v := range screens {
		s.screens[v.Path] = v
	}
	return s
}

// Close cancels the calls that were made on the page, and waits for them. Later calls are refused.
func (s *Server) Close() { s.runs.close() }

// Link returns the path and query of a link that logs the owner in once, within linkLasts. The caller has checked that
// the owner asks. With here set, the link is for a browser's command line, which all users of this machine can read.
// Therefore, on Linux, such a link works only for programs of this user on this machine.
func (s *Server) Link(here bool) string { return Path + "login?link=" + s.sessions.link(here) }

// contentPolicy is the Content-Security-Policy of every answer. Browsers load nothing from other sites and run no inline
// scripts.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; report-uri csp"

// headers are set in every answer.
var headers = map[string]string{
	"Content-Security-Policy":      contentPolicy,
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "same-origin", // with no-referrer, browsers send forms with the Origin null
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Cache-Control":                "no-store",
}

// maxForm bounds the body of a request, in bytes.
const maxForm = 4 << 20

// ServeHTTP serves the Patterns, beside MCP clients at /mcp.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handle(w, r, false) }

// Alone returns a handler of the Patterns for a port where nothing else is served.
func (s *Server) Alone() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, true) })
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request, alone bool) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	if !s.Backend.On() {
		http.NotFound(w, r)
		return
	}
	path, under := strings.CutPrefix(r.URL.Path, Path)
	if !under {
		redirect(w, strings.TrimPrefix(Path, "/"))
		return
	}
	switch name, static := strings.CutPrefix(path, staticPath); {
	case static:
		s.files.serve(w, r, name)
		return
	case path == "csp":
		s.takeReport(w, r)
		return
	}
	if err := s.cross.Check(r); err != nil {
		http.Error(w, "this came from another site's page, and was refused", http.StatusForbidden)
		return
	}
	q := &request{Request: r.WithContext(identity.WithSource(r.Context(), s.Entrance.Source(r))), w: w, server: s, alone: alone}
	if r.Method == http.MethodPost {
		q.Body = http.MaxBytesReader(w, r.Body, maxForm)
	}
	leave := q.enter()
	defer leave()
	if own := s.doors(path); own != nil {
		own(q)
		return
	}
	if q.session == nil {
		s.askIn(q, http.StatusForbidden, "")
		return
	}
	s.serve(q, path)
}

// doors returns the handler of a path that needs no session.
func (s *Server) doors(path string) func(*request) {
	switch path {
	case "login":
		return s.login
	case "logout":
		return s.logout
	}
	return nil
}

// screen is one screen of the page.
type screen struct {
	Path   string // relative to the page's Path; "" for the overview
	title  string
	Menu   string // its name in the menu; "" for none
	file   string // file of the template, which defines main
	script string // ES module in static, in addition to the modules of all screens; "" for none
	// show returns the data of the template.
	show func(q *request) (any, error)
	// badge counts what needs somebody there, for the menu; nil for screens without.
	badge func(q *request) badge
	// do handles a sent form; nil for screens without forms. The browser is then redirected to see the result, unless
	// the answer has data.
	do func(q *request) (answer, error)
	// raw answers GET without a template, for downloads; nil for other screens.
	raw func(q *request)
}

// badge is a number beside an entry of the menu, and what it counts. Nothing is shown for 0.
type badge struct {
	N    int
	What string
}

// answer says how a sent form is answered.
type answer struct {
	to   string // redirect target, relative to Path; "" for the screen without a query
	data any    // data for the screen's template, which is shown without a redirect; nil to redirect
}

// problem is an error with an HTTP status and a page of its own.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func refusef(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// errOwner refuses an action that only the owner may do.
var errOwner = &problem{http.StatusForbidden, "only the owner may do this: log in with the link of toolfinch ui"}

func (s *Server) serve(q *request, path string) {
	v := s.screens[path]
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.Log.Error("a request made the page panic", "path", path, "panic", p, "stack", string(debug.Stack()))
			s.fail(q, v, &problem{http.StatusInternalServerError, "something is wrong in toolfinch itself; its log says more"})
		}
	}()
	switch {
	case v == nil && strings.HasPrefix(path, serversScreen.Path+"/"):
		redirect(q.w, up(path)+address(serversScreen.Path, "name", strings.Trim(strings.TrimPrefix(path, serversScreen.Path), "/")))
	case v == nil:
		s.fail(q, nil, &problem{http.StatusNotFound, "there is no such page"})
	case q.Method == http.MethodPost && v.do != nil:
		s.act(q, v)
	case q.Method != http.MethodGet && q.Method != http.MethodHead:
		s.fail(q, v, &problem{http.StatusMethodNotAllowed, "this page does not take " + printable.Line(q.Method)})
	case v.raw != nil && !q.own():
		http.Error(q.w, "this came from another site's page, and was refused", http.StatusForbidden)
	case v.raw != nil:
		v.raw(q)
	default:
		data, err := v.show(q)
		if err != nil {
			s.fail(q, v, err)
			return
		}
		s.render(q, v, http.StatusOK, data)
	}
}

// act handles a sent form and redirects the browser, so that reloading the page does not repeat the action.
func (s *Server) act(q *request, v *screen) {
	start := time.Now()
	if err := q.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			s.fail(q, v, refusef(http.StatusRequestEntityTooLarge, "the form is larger than %s", size(maxForm)))
			return
		}
		s.fail(q, v, &problem{http.StatusBadRequest, "the form could not be read"})
		return
	}
	next, err := v.do(q)
	line := []any{"screen", v.Path, "do", printable.Line(rawjson.Clip(q.PostForm.Get("do"), 64)), "name", printable.Line(rawjson.Clip(q.Form.Get("name"), 128)),
		"principal", identity.NameOf(q.Context()), "took", time.Since(start)}
	if err != nil {
		s.Log.Info("page", append(line, "error", err)...)
		if _, own := errors.AsType[*problem](err); own {
			s.fail(q, v, err)
			return
		}
		q.say(bad, told(err))
		if next.to == "" {
			next.to = v.Path + query(q)
		}
		redirect(q.w, next.to)
		return
	}
	s.Log.Info("page", line...)
	if next.data != nil {
		s.render(q, v, http.StatusOK, next.data)
		return
	}
	if next.to == "" {
		next.to = v.Path
	}
	redirect(q.w, next.to)
}

func query(q *request) string {
	if q.URL.RawQuery == "" {
		return ""
	}
	return "?" + q.URL.RawQuery
}

// redirect sends the browser to a relative path, because a reverse proxy may serve the page under another path.
func redirect(w http.ResponseWriter, to string) {
	if to == "" || strings.HasPrefix(to, "?") {
		to = "./" + to
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// up returns the way from a path to Path.
func up(path string) string { return strings.Repeat("../", strings.Count(path, "/")) }

// request is a request for the page. Its context says who the user is.
type request struct {
	*http.Request
	w       http.ResponseWriter
	server  *Server
	session *session
	alone   bool // clients cannot come in over HTTP
}

// enter finds the session of a request. leave is called at the end of the request.
func (q *request) enter() (leave func()) {
	ctx, end := context.WithCancel(q.Context())
	leave = end
	session := q.server.sessions.of(q.Request)
	if session == nil {
		q.Request = q.WithContext(ctx)
		return leave
	}
	stop := context.AfterFunc(session.life, end)
	leave = func() { stop(); end() }
	if b := session.bearer; b != nil {
		p, gone := b.Principal(ctx)
		if p == nil {
			if gone {
				q.server.sessions.end(session)
			}
			q.Request = q.WithContext(ctx)
			return leave
		}
		staying, over := b.Stay(ctx)
		leave = func() { over(); stop(); end() }
		ctx = identity.WithParty(identity.WithPrincipal(staying, p), identity.Party{Principal: p, Transport: identity.TransportUI})
	}
	q.session, q.Request = session, q.WithContext(ctx)
	return leave
}

// own reports whether the request comes from the page itself or from a typed URL. Pages at other ports of the host send
// the user's cookie, too.
func (q *request) own() bool {
	site := q.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin" || site == "none"
}

func (q *request) owner() bool { return q.session != nil && q.session.bearer == nil }

// say shows a message on the next page of the session.
func (q *request) say(kind flashKind, text string) {
	q.server.sessions.say(q.session, flash{kind, text})
}
