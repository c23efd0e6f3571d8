// Package page owns the page: what people see of a running toolfinch in a browser, and
// what they can do there. It renders HTML on this side, and every screen works without
// script. It decides nothing of what is shown or allowed: a Backend does.
//
// To add a screen, write its template, which defines "main", and a variable of type screen;
// name it in screens. static/page.css lists the components that there are.
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

// Path is where the page is.
const Path = "/ui/"

// Patterns are those of net/http.ServeMux under which a Server is to be served.
var Patterns = []string{"GET /{$}", Path}

// Backend is what is shown, and what is done. Its methods are safe for concurrent use. Texts
// of its errors are shown. Who asks is in the context: the owner, who may do everything,
// has neither a principal nor a party in it (identity.PrincipalOf, identity.PartyOf).
type Backend interface {
	// On reports whether the page is served at all.
	On() bool

	summing
	fleet
	watching
	deciding
	stocking
	guarding
}

// Entrance says who comes in: an inbound.Gate.
type Entrance interface {
	// TakesKeys reports whether API keys let somebody in.
	TakesKeys() bool
	ByForm(r *http.Request, key string) (*inbound.Bearer, error)
	Source(r *http.Request) identity.Source
}

// Options of a Server. All must be given but Connector and Record.
type Options struct {
	Backend  Backend
	Entrance Entrance
	// Connector writes into the files of clients; nil: nobody does.
	Connector Connector
	Hosts     []string // names by which browsers reach the page, beside that in Host
	Version   string
	Record    identity.Record // nil: nobody
	Log       *slog.Logger
}

// Server serves the page.
type Server struct {
	Options
	screens  map[string]*screen // by path
	sessions *sessions
	files    *files
	reports  perMinute // violations of the policy
	refused  perMinute // links
	cross    *http.CrossOriginProtection
	runs     *runs
}

// New returns a server whose sessions and links last as long as it does.
func New(o Options) *Server {
	s := &Server{Options: o, screens: map[string]*screen{}, sessions: newSessions(time.Now), files: embedded(), cross: http.NewCrossOriginProtection(), runs: newRuns()}
	for _, host := range o.Hosts {
		for _, scheme := range []string{"http://", "https://"} {
			// A reverse proxy may have named itself in Host. What is no origin is nobody's.
			_ = s.cross.AddTrustedOrigin(scheme + host)
		}
	}
	for _, v := range screens {
		s.screens[v.Path] = v
	}
	return s
}

// Close ends the calls that people made, and waits for them. Nothing is called after it.
func (s *Server) Close() { s.runs.close() }

// Link returns the path and query of a link that logs the owner in, once and within
// linkLasts. Whoever asks for it has proved to be the owner. One of here is refused to
// programs of other users of this machine, and to other machines, where that can be told (Linux): the
// command line of a browser, which it is for, is there for everybody to read.
func (s *Server) Link(here bool) string { return Path + "login?link=" + s.sessions.link(here) }

// contentPolicy is the Content-Security-Policy of every answer. Nothing comes from elsewhere, and
// nothing that stands in a document runs.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; report-uri csp"

// headers are those of every answer.
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

// maxForm bounds what a request sends, in bytes.
const maxForm = 4 << 20

// ServeHTTP serves the Patterns.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	q := &request{Request: r.WithContext(identity.WithSource(r.Context(), s.Entrance.Source(r))), w: w, server: s}
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

// doors are the paths that need no session.
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
	Path   string // under Path; "" for the first
	title  string
	Menu   string // its name in the menu; "" for none
	file   string // the template, which defines main
	script string // an ES module in static, beside those that all have; "" for none
	// show returns what the template shows.
	show func(q *request) (any, error)
	// do does what a form asks for; nil where there is none. What it did is shown after a
	// redirect, unless the answer has something to show at once.
	do func(q *request) (answer, error)
	// raw serves GET by itself, as downloads; nil for the template.
	raw func(q *request)
}

// answer is what becomes of a form that was sent.
type answer struct {
	to   string // where the browser goes, relative to Path; "" for the screen without a query
	data any    // what is shown by the screen's own template instead; nil for nothing
}

// problem is an error with an HTTP status, of which a page of its own tells.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func refusef(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// errOwner is the error of what others are not to do.
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

// act does what a form asks for, and sends the browser on, so that going back or loading
// again does not do it a second time.
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

// redirect sends the browser on with GET to a path relative to the page's, which a reverse
// proxy may have put elsewhere.
func redirect(w http.ResponseWriter, to string) {
	if to == "" || strings.HasPrefix(to, "?") {
		to = "./" + to
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// request is one request on its way through a screen. Its context has who asks.
type request struct {
	*http.Request
	w       http.ResponseWriter
	server  *Server
	session *session
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

// own reports whether the page itself asks, or somebody who typed the address in. Browsers
// send the cookie along for whatever serves at another port of the host.
func (q *request) own() bool {
	site := q.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin" || site == "none"
}

// owner reports whether the owner asks.
func (q *request) owner() bool { return q.session != nil && q.session.bearer == nil }

// say has the next page of the session tell something.
func (q *request) say(kind flashKind, text string) {
	q.server.sessions.say(q.session, flash{kind, text})
}
