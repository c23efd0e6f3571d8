package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/telemetry"
	"toolfinch/register/transport"
	"toolfinch/tool"
	"toolfinch/tool/args"
	"toolfinch/trust/inbound"
)

// Bounds of a request's body in bytes, and of the time in which a client must read its answer.
// transport.Clients.Guard bounds the time in which the body must arrive.
const (
	maxBody    = transport.MaxMessage // as for MCP
	answerTime = 10 * time.Minute
)

const sessionHeader = "Mcp-Session-Id"

type server struct {
	backend Backend
	version string // version of the program
	log     *slog.Logger
	mux     *http.ServeMux
}

// operation is one method of one path.
type operation struct {
	name  string   // operationId in the OpenAPI document
	query []string // allowed query parameters
	body  bodyRule
	// audit logs each request. Calls of tools are logged elsewhere, when they are made.
	audit bool
	// level is the scope that the caller needs to change servers; "" for none.
	level inbound.Level
	// answer returns the body for status 200: a document, or a value to encode as JSON.
	answer func(q *request) (any, error)
}

type bodyRule int

const (
	bodyNone     bodyRule = iota // the body is not read
	bodyOptional                 // the body is empty or a JSON object
	bodyRequired                 // the body is a JSON object
)

// document is an answer's body. It is JSON unless contentType is set.
type document struct {
	contentType string
	body        []byte
}

func newServer(backend Backend, version string, log *slog.Logger) *server {
	s := &server{backend: backend, version: version, log: log, mux: http.NewServeMux()}
	for pattern, operations := range s.operations(version) {
		s.mux.Handle(pattern, s.methods(operations))
	}
	s.mux.HandleFunc("/", s.notFound)
	return s
}

func (s *server) operations(version string) map[string]map[string]operation {
	openAPI := map[string]operation{http.MethodGet: {name: "openapi", answer: s.openAPI(version)}}
	return map[string]map[string]operation{
		"/openapi.json":     openAPI,
		"/api/openapi.json": openAPI,
		"/metrics":          {http.MethodGet: {name: "metrics", answer: s.metrics}},
		"/api/proxy/execute": {
			http.MethodPost: {name: "execute", query: []string{"view"}, body: bodyRequired, answer: s.execute},
		},
		"/api/tools": {
			http.MethodGet: {name: "listTools", query: []string{"view", "limit", "offset", "server", "tags"}, answer: s.listTools},
		},
		"/api/tools/discover": {
			http.MethodGet:  {name: "discover", query: []string{"view", "query", "limit", "tags"}, answer: s.discoverGet},
			http.MethodPost: {name: "discoverByBody", query: []string{"view"}, body: bodyRequired, answer: s.discoverPost},
		},
		"/api/tools/why-not": {
			http.MethodGet: {name: "whyNot", query: []string{"view", "tool", "query", "limit"}, answer: s.whyNot},
		},
		"/api/tools/provision": {
			http.MethodGet:  {name: "listProvisioned", query: []string{"view"}, answer: s.listProvisioned},
			http.MethodPost: {name: "provision", query: []string{"view"}, body: bodyRequired, answer: s.provision},
		},
		"/api/tools/provision/{id}": {
			http.MethodDelete: {name: "unprovision", query: []string{"view"}, answer: s.unprovision},
		},
		"/api/tools/{id}": {
			http.MethodGet: {name: "getTool", query: []string{"view"}, answer: s.getTool},
		},
		"/api/status": {
			http.MethodGet: {name: "status", query: []string{"view"}, answer: s.status},
		},
		"/api/servers": {
			http.MethodGet: {name: "listServers", query: []string{"view"}, answer: s.listServers},
		},
		"/api/servers/{name}/reconnect": {
			http.MethodPost: {name: "reconnect", query: []string{"view"}, body: bodyOptional, audit: true, level: inbound.Write, answer: s.reconnect},
		},
		"/api/pins": {
			http.MethodGet:  {name: "listHeld", query: []string{"view"}, answer: s.listHeld},
			http.MethodPost: {name: "decide", query: []string{"view"}, body: bodyRequired, audit: true, level: inbound.Destructive, answer: s.decide},
		},
		"/api/reindex": {
			http.MethodPost: {name: "reindex", query: []string{"view"}, body: bodyOptional, audit: true, level: inbound.Write, answer: s.reindex},
		},
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	always(w)
	if at := r.URL.EscapedPath(); path.Clean(at) != at { // ServeMux would redirect these paths
		s.notFound(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// always sets the headers that every answer has.
func always(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

func (s *server) notFound(w http.ResponseWriter, _ *http.Request) {
	s.refuse(w, &problem{status: http.StatusNotFound, detail: "there is nothing here; /openapi.json says what there is"})
}

// methods handles a path. HEAD runs the operation of GET; net/http then sends only the headers.
func (s *server) methods(operations map[string]operation) http.HandlerFunc {
	var allowed []string
	for method := range operations {
		allowed = append(allowed, method)
	}
	if get, ok := operations[http.MethodGet]; ok {
		operations = maps.Clone(operations)
		operations[http.MethodHead] = get
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		op, ok := operations[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			s.refuse(w, &problem{status: http.StatusMethodNotAllowed, detail: "this path answers " + allow})
			return
		}
		s.serve(w, r, op)
	}
}

// statusGone is logged but never sent, because the client has disconnected.
const statusGone = 499

// serve answers one request. It writes nothing before the answer is complete.
func (s *server) serve(w http.ResponseWriter, r *http.Request, op operation) {
	start := time.Now()
	r = r.WithContext(identity.WithParty(r.Context(), identity.Party{Principal: identity.PrincipalOf(r.Context()), Transport: identity.TransportREST}))
	ctx, span := telemetry.ServeHTTP(r.Context(), r.Method, r.Pattern)
	if span != nil {
		r = r.WithContext(ctx)
	}
	q := &request{Request: r, backend: s.backend}
	answer, err := s.run(w, q, op)
	status := http.StatusOK
	var refused *problem
	switch {
	case err == nil:
	case errors.As(err, &refused) && refused.status == http.StatusRequestTimeout: // the context has ended, but the client is still connected
		status = refused.status
	case errors.Is(err, errUnread), r.Context().Err() != nil:
		refused, status = nil, statusGone
	default:
		refused = s.problem(op, err)
		status = refused.status
	}
	span.AnsweredHTTP(status)
	if op.audit {
		line := []any{"operation", op.name, "target", rawjson.Clip(q.target, maxClipped), "view", q.view.Name, "principal", identity.NameOf(r.Context()),
			"status", status, "took", time.Since(start)}
		s.log.Info("rest", line...)
	}
	switch {
	case status == statusGone:
		panic(http.ErrAbortHandler) // closes the connection
	case refused != nil:
		if challenge := refused.challenge(r); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		s.refuse(w, refused)
	default:
		send(w, status, answer)
	}
}

// run reads a request and returns the document to answer.
func (s *server) run(w http.ResponseWriter, q *request, op operation) (answer document, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a request made the handler panic", "operation", op.name, "panic", p, "stack", string(debug.Stack()))
			err = &problem{status: http.StatusInternalServerError, detail: textInternal}
		}
	}()
	if err := q.read(w, op); err != nil {
		return document{}, err
	}
	if op.level != "" {
		if err := s.backend.Permit(q.Context(), op.level, op.name); err != nil {
			return document{}, err
		}
	}
	value, err := op.answer(q)
	if err != nil {
		return document{}, err
	}
	if ready, ok := value.(document); ok {
		return ready, nil
	}
	body, err := rawjson.Encode(value)
	return document{body: body}, err
}

// send writes an answer. It ignores failed writes: the client has disconnected.
func send(w http.ResponseWriter, status int, d document) {
	d.contentType = cmp.Or(d.contentType, "application/json")
	w.Header().Set("Content-Type", d.contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(d.body)))
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTime))
	w.WriteHeader(status)
	_, _ = w.Write(d.body)
	_ = control.Flush() // before the deadline is removed: the next answer may be a stream
	_ = control.SetWriteDeadline(time.Time{})
}

// Refuse answers a request with an error status and the reason.
func Refuse(w http.ResponseWriter, status int, reason string) {
	always(w)
	send(w, status, document{body: (&problem{detail: reason}).body()})
}

func (s *server) refuse(w http.ResponseWriter, p *problem) {
	if p.wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.wait))
	}
	send(w, p.status, document{body: p.body()})
}

type request struct {
	*http.Request
	backend Backend
	view    View // zero if the operation has no parameter view
	values  url.Values
	sent    []byte // the body, a JSON object; empty without a body

	target string // the changed server or definitions, for the log
}

// read reads the operation's parameters and body. It refuses unknown parameters.
func (q *request) read(w http.ResponseWriter, op operation) error {
	var err error
	if q.values, err = url.ParseQuery(q.URL.RawQuery); err != nil {
		return badRequest("the query of the URL cannot be read: escape %% as %%25, and ; as %%3B")
	}
	for name, values := range q.values {
		switch {
		case !slices.Contains(op.query, name):
			return args.Unknown("query parameter", name, op.query)
		case len(values) > 1 && name != "tags":
			return badRequest("the query parameter %q is given twice", name)
		}
	}
	if err := q.readBody(w, op.body); err != nil {
		return err
	}
	if slices.Contains(op.query, "view") {
		return q.renew()
	}
	return nil
}

// renew reads the view again, because it may have changed since the last time.
func (q *request) renew() (err error) {
	q.view, err = q.backend.View(q.Context(), q.values.Get("view"))
	return err
}

// complete waits for starting servers and reads the view again, unless the view has tools of all these names.
func (q *request) complete(names ...string) error {
	unknown := func(name string) bool { _, err := q.view.Catalog.Find(name); return err != nil }
	if q.view.Started == nil || len(names) > 0 && !slices.ContainsFunc(names, unknown) {
		return nil
	}
	q.view.Started(q.Context())
	return q.renew()
}

var errUnread = errors.New("the body did not arrive")

func (q *request) readBody(w http.ResponseWriter, rule bodyRule) error {
	if rule == bodyNone || rule == bodyOptional && q.ContentLength == 0 {
		return nil
	}
	sent := q.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(sent); err != nil || media != "application/json" {
		what := "the header Content-Type is missing"
		if sent != "" {
			what = "the header Content-Type is " + strconv.Quote(rawjson.Clip(sent, maxClipped))
		}
		return &problem{status: http.StatusUnsupportedMediaType, detail: what + `; send "Content-Type: application/json" (curl -H 'Content-Type: application/json')`}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		status, reason := transport.BodyStatus(err)
		if status == http.StatusBadRequest {
			return errors.Join(errUnread, err)
		}
		return &problem{status: status, detail: reason}
	}
	q.sent = bytes.TrimSpace(body)
	switch {
	case len(q.sent) == 0 && rule == bodyOptional:
		return nil
	case rawjson.TooDeep(q.sent):
		return badRequest("the body nests deeper than %d", rawjson.MaxDepth)
	case len(q.sent) == 0 || q.sent[0] != '{' || !json.Valid(q.sent):
		return badRequest("the body must be one JSON object")
	}
	return nil
}

// call returns a call for the request, without name and arguments. Its owner is the principal or, without a
// principal, the MCP session in the header.
func (q *request) call() (*tool.Call, error) {
	call := &tool.Call{Principal: identity.NameOf(q.Context()), Header: q.Header.Get}
	if session := q.Header.Get(sessionHeader); session != "" && call.Principal == "" {
		if !q.view.Sessions.KnowsHTTP(session, call.Principal) {
			return nil, badRequest("unknown session: %s names no session of this view", sessionHeader)
		}
		call.Session = session
	}
	return call, nil
}

// observe records a request under the name of the equivalent meta-tool.
func (q *request) observe(call *tool.Call, kind, name string) (ctx context.Context, done func(error), err error) {
	return q.backend.Observe(q.Context(), identity.Event{Kind: kind, Principal: call.Principal, Session: call.Session, View: q.view.Name, Tool: name}, call)
}

// maxClipped bounds a client's text that an error or the log repeats, in bytes.
const maxClipped = 128
