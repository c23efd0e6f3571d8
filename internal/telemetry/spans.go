package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// Attributes of spans are from OpenTelemetry's semantic conventions of MCP and HTTP, and these two. No
// attribute has arguments, results or principals.
const (
	keyUpstream = attribute.Key("toolfinch.upstream") // the configured name of a server
	keyView     = attribute.Key("toolfinch.view")
	keyTool     = attribute.Key("toolfinch.tool") // the ID of the tool that a request finally called
	keyOutcome  = attribute.Key("toolfinch.outcome")
)

// entry is common to the spans of a connection's requests, or of an HTTP request.
type entry struct {
	traces   *Traces
	header   carried // the trace context of the HTTP request
	protocol string  // "HTTP/1.1"; "" for other connections
	address  string  // of the client, with its port
	unknown  bool    // nothing is known of the connection
}

type entryKey struct{}

// On gives spans to the requests of a connection other than HTTP.
func (t *Traces) On(ctx context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, entryKey{}, &entry{traces: t})
}

// Around gives spans to the HTTP requests of next.
func (t *Traces) Around(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &entry{traces: t, header: inHeader(r.Header), protocol: r.Proto, address: r.RemoteAddr}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
	})
}

// As gives ctx's requests spans if from's have spans.
func As(ctx, from context.Context) context.Context {
	if e := entryOf(from); e != nil && e != entryOf(ctx) {
		return context.WithValue(ctx, entryKey{}, e)
	}
	return ctx
}

// Traced reports whether the requests of ctx have spans.
func Traced(ctx context.Context) bool { return entryOf(ctx) != nil }

func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(entryKey{}).(*entry)
	return e
}

// versionOf is the version in "HTTP/1.1".
func versionOf(protocol string) string {
	version, _ := strings.CutPrefix(protocol, "HTTP/")
	return strings.TrimSuffix(version, ".0")
}

// Message describes a JSON-RPC request for spans.
type Message struct {
	Method     string
	ID, Params json.RawMessage
	Session    string // ID; "" for none
	Version    string // of the protocol, unless Params states it; "" while unknown
}

// Peer describes a server for spans.
type Peer struct {
	Name    string // as configured
	Pipe    bool   // a process
	Address string // host; "" for a process
	Port    int
}

// Span is one request. The methods of a nil Span do nothing.
type Span struct {
	span   trace.Span
	traces *Traces
	method string
}

// Serve begins the span of a client's request, with the parent from its _meta, else from its HTTP
// headers. The context is for answering it. The span is nil without traces.
func Serve(ctx context.Context, m Message) (context.Context, *Span) {
	e := entryOf(ctx)
	if e == nil {
		return ctx, nil
	}
	ctx, link := e.remote(ctx, inMeta(m.Params))
	ctx, s := e.traces.begin(ctx, asServer, m)
	if !s.span.IsRecording() {
		return ctx, s
	}
	if link.IsValid() {
		s.span.AddLink(trace.Link{SpanContext: link})
	}
	e.describe(ctx, s.span)
	return ctx, s
}

// remote puts the parent of a request into its context: from _meta, else from the HTTP headers. link is
// the headers' span if there are both.
func (e *entry) remote(ctx context.Context, meta carried) (_ context.Context, link trace.SpanContext) {
	from := meta
	if e.traces.propagates {
		parent, other := meta.remote(), e.header.remote()
		if parent.IsValid() {
			link = other
		} else if parent = other; parent.IsValid() {
			from = e.header
		}
		if parent.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		}
	}
	if e.traces.baggage {
		if sent, err := baggage.Parse(cmp.Or(from.baggage, e.header.baggage)); err == nil {
			ctx = baggage.ContextWithBaggage(ctx, sent)
		}
	}
	return ctx, link
}

// describe names the source of a request. A client behind a reverse proxy has no port: the connection's
// is the proxy's.
func (e *entry) describe(ctx context.Context, span trace.Span) {
	e.transport(span)
	if from, _ := identity.SourceOf(ctx); from.Address != "" && e.protocol != "" {
		span.SetAttributes(semconv.ClientAddress(from.Address))
		if at, err := netip.ParseAddrPort(e.address); err == nil && at.Addr().Unmap().WithZone("").String() == from.Address {
			span.SetAttributes(semconv.ClientPort(int(at.Port())))
		}
	}
}

// transport names the transport of a client's request.
func (e *entry) transport(span trace.Span) {
	switch {
	case e.unknown:
	case e.protocol == "":
		span.SetAttributes(semconv.NetworkTransportPipe)
	default:
		span.SetAttributes(semconv.NetworkTransportTCP, semconv.NetworkProtocolName("http"), semconv.NetworkProtocolVersion(versionOf(e.protocol)))
	}
}

// ServeHTTP begins the span of an HTTP request other than MCP. route is the pattern of its path.
func ServeHTTP(ctx context.Context, method, route string) (context.Context, *Span) {
	e := entryOf(ctx)
	if e == nil {
		return ctx, nil
	}
	ctx, _ = e.remote(ctx, carried{})
	ctx, span := e.traces.tracer.Start(ctx, method+" "+route, asServer...)
	if span.IsRecording() {
		scheme := "http"
		if from, _ := identity.SourceOf(ctx); from.Secure {
			scheme = "https"
		}
		span.SetAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(route), semconv.URLScheme(scheme))
		e.describe(ctx, span)
	}
	return ctx, &Span{span: span, traces: e.traces}
}

// AnsweredHTTP ends the span of an HTTP request. A refused client is no error of ours.
func (s *Span) AnsweredHTTP(status int) {
	if s == nil {
		return
	}
	if s.span.IsRecording() {
		s.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusInternalServerError {
			s.fail(strconv.Itoa(status))
		}
	}
	s.span.End()
}

// Asked begins the span of a server's request to its client, which came at since. Its parent is the
// span of call, its call, or the span below it that its _meta names; without a call, the span in its
// _meta. The context is for answering it.
func (t *Traces) Asked(ctx, call context.Context, m Message, from *Peer, since time.Time) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	e := entryOf(call)
	if e == nil {
		e = &entry{traces: t, unknown: true}
	}
	parent := trace.SpanContextFromContext(call)
	if t.propagates {
		named := inMeta(m.Params).remote()
		if named.IsValid() && (!parent.IsValid() || named.TraceID() == parent.TraceID()) {
			parent = named
		}
	}
	ctx = trace.ContextWithSpanContext(context.WithValue(ctx, entryKey{}, e), parent)
	ctx, s := t.begin(ctx, []trace.SpanStartOption{asServer[0], trace.WithTimestamp(since)}, m)
	if s.span.IsRecording() {
		from.describe(s.span)
	}
	return ctx, s
}

// AskClient begins the span of a request to a client, if ctx has a span. The context is for its answer.
func AskClient(ctx context.Context, m Message) (context.Context, *Span) {
	e := entryOf(ctx)
	if e == nil {
		return ctx, nil
	}
	ctx, s := e.traces.begin(ctx, asClient, m)
	if s.span.IsRecording() {
		e.transport(s.span)
	}
	return ctx, s
}

// Ask begins the span of a request to a server. The context is for its answer.
func (t *Traces) Ask(ctx context.Context, m Message, to *Peer) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	// A caused request is sampled like its cause: all samplers of OpenTelemetry decide by the parent or
	// by the trace's ID.
	if within := trace.SpanFromContext(ctx); within.SpanContext().IsValid() && !within.SpanContext().IsRemote() && !within.IsRecording() {
		return ctx, &Span{span: within, traces: t, method: m.Method}
	}
	ctx, s := t.begin(ctx, asClient, m)
	if !s.span.IsRecording() {
		return ctx, s
	}
	to.describe(s.span)
	if !to.Pipe {
		s.span.SetAttributes(semconv.ServerAddress(to.Address), semconv.ServerPort(to.Port))
	}
	return ctx, s
}

// describe names the server.
func (p *Peer) describe(span trace.Span) {
	span.SetAttributes(keyUpstream.String(p.Name))
	if p.Pipe {
		span.SetAttributes(semconv.NetworkTransportPipe)
		return
	}
	span.SetAttributes(semconv.NetworkTransportTCP, semconv.NetworkProtocolName("http"))
}

// Kinds of spans, allocated once.
var (
	asServer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	asClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
)

// begin begins the span of a JSON-RPC request.
func (t *Traces) begin(ctx context.Context, kind []trace.SpanStartOption, m Message) (context.Context, *Span) {
	method := m.Method
	if !methods[method] {
		method = "_OTHER" // strangers invent any number
	}
	ctx, span := t.tracer.Start(ctx, method, kind...)
	s := &Span{span: span, traces: t, method: method}
	if !span.IsRecording() {
		return ctx, s
	}
	target := ""
	if m.Method == "tools/call" || m.Method == "prompts/get" {
		target = bound(rawjson.Text(rawjson.Member(m.Params, "name")))
		span.SetName(method + " " + target)
	}
	attributes := make([]attribute.KeyValue, 0, 8)
	attributes = append(attributes, keyMethod.String(method))
	if m.ID != nil {
		attributes = append(attributes, semconv.JSONRPCRequestID(bound(idText(m.ID))))
	}
	switch {
	case m.Method == "tools/call":
		attributes = append(attributes, semconv.GenAIToolName(target), semconv.GenAIOperationNameExecuteTool)
	case m.Method == "prompts/get":
		attributes = append(attributes, semconv.GenAIPromptName(target))
	case strings.HasPrefix(m.Method, "resources/"):
		if uri := rawjson.Text(rawjson.Member(m.Params, "uri")); uri != "" {
			attributes = append(attributes, semconv.McpResourceURI(bound(printable.URI(uri))))
		}
	}
	if m.Session != "" {
		attributes = append(attributes, semconv.McpSessionID(identity.Digest(m.Session)))
	}
	stated := rawjson.Text(rawjson.Member(rawjson.Member(m.Params, "_meta"), keyStated))
	if version := cmp.Or(stated, m.Version); version != "" {
		attributes = append(attributes, semconv.McpProtocolVersion(bound(version)))
	}
	span.SetAttributes(attributes...)
	return ctx, s
}

const (
	keyMethod = attribute.Key("mcp.method.name")
	keyStated = "io.modelcontextprotocol/protocolVersion" // in _meta
)

// methods can be names of spans.
var methods = func() map[string]bool {
	all := map[string]bool{}
	for _, method := range []string{
		"completion/complete", "elicitation/create", "groups/get", "groups/list", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list",
		"resources/directory/read", "resources/list", "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "roots/list",
		"sampling/createMessage", "server/discover", "skills/get", "skills/list", "subscriptions/listen",
		"tasks/cancel", "tasks/get", "tasks/update", "tools/call", "tools/list",
	} {
		all[method] = true
	}
	return all
}()

// actions are a user's answers to a request for input.
var actions = map[string]bool{"accept": true, "decline": true, "cancel": true}

// inputRequired is the 2026-07-28 resultType of a result that asks the client.
const inputRequired = "input_required"

// maxAttribute bounds a foreign text, in bytes.
const maxAttribute = 256

func bound(text string) string {
	return rawjson.Clip(strings.ToValidUTF8(text, "\uFFFD"), maxAttribute)
}

// idText is an ID as a text.
func idText(id json.RawMessage) string {
	if len(id) > 0 && id[0] == '"' {
		return rawjson.Text(id)
	}
	return string(id)
}

// Spoke notes the HTTP version of a server's answer ("HTTP/2.0").
func (s *Span) Spoke(protocol string) {
	if s != nil && protocol != "" && s.span.IsRecording() {
		s.span.SetAttributes(semconv.NetworkProtocolVersion(versionOf(protocol)))
	}
}

// Answered ends the span of a request with its answer, a whole JSON-RPC message; nil for none. ctx is
// from answering it: a failure after its end is a cancellation.
func (s *Span) Answered(ctx context.Context, message []byte) {
	if s == nil {
		return
	}
	if !s.span.IsRecording() {
		s.span.End()
		return
	}
	if ctx.Err() != nil {
		if result := rawjson.Member(message, "result"); result == nil || isError(result) {
			s.Failed("cancelled")
			return
		}
	}
	for key, value := range rawjson.Members(message) {
		switch key {
		case "result":
			s.Result(value)
			return
		case "error":
			code, _ := rawjson.Int(rawjson.Member(value, "code"))
			s.Refused(code)
			return
		}
	}
	s.span.End()
}

// Result ends the span of a request with its result.
func (s *Span) Result(result json.RawMessage) {
	if s == nil {
		return
	}
	if s.span.IsRecording() {
		switch s.method {
		case "tools/call", "prompts/get", "resources/read":
			switch {
			case s.method == "tools/call" && isError(result):
				s.fail("tool_error")
			case rawjson.Text(rawjson.Member(result, "resultType")) == inputRequired:
				s.span.SetAttributes(keyOutcome.String(inputRequired))
			}
		case "elicitation/create":
			if action := rawjson.Text(rawjson.Member(result, "action")); actions[action] {
				s.span.SetAttributes(keyOutcome.String(action))
			}
		case "initialize": // the answer negotiates the version
			s.span.SetAttributes(semconv.McpProtocolVersion(bound(rawjson.Text(rawjson.Member(result, "protocolVersion")))))
		}
	}
	s.span.End()
}

// isError reports whether the result of a call is a tool error.
func isError(result json.RawMessage) bool { return string(rawjson.Member(result, "isError")) == "true" }

// Codes of errors that may be about an unknown name.
var codesOfNames = map[int]bool{-32601: true, -32602: true, -32002: true}

// Refused ends the span of a request with a JSON-RPC error.
func (s *Span) Refused(code int) {
	if s == nil {
		return
	}
	if s.span.IsRecording() {
		if codesOfNames[code] { // strangers invent any number
			s.span.SetName(s.method)
		}
		s.span.SetAttributes(semconv.RPCResponseStatusCode(strconv.Itoa(code)))
		s.fail(strconv.Itoa(code))
	}
	s.span.End()
}

// Failed ends the span of a request without an answer. kind is one word for the failure.
func (s *Span) Failed(kind string) {
	if s == nil {
		return
	}
	if s.span.IsRecording() {
		s.fail(kind)
	}
	s.span.End()
}

// fail sets no description: the texts of errors repeat arguments.
func (s *Span) fail(kind string) {
	s.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.span.SetStatus(codes.Error, "")
}

// beginSpan names the called tool in the request's span. A call inside another has a span of its own.
// Unsampled requests have none.
func (r *Running) beginSpan(ctx context.Context) context.Context {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx
	}
	if r.Depth > 0 {
		name := "execute_tool"
		if r.Tool != "" { // otherwise scripts could invent any number
			name += " " + r.Name
		}
		ctx, span = within(ctx, span, name)
		span.SetAttributes(semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(r.Name))
	}
	span.SetAttributes(keyView.String(r.View))
	if r.Tool != "" {
		span.SetAttributes(keyTool.String(r.Tool))
	}
	r.span, r.Trace = span, span.SpanContext().TraceID().String()
	return ctx
}

func (r *Running) endSpan(span trace.Span) {
	if span == nil {
		return
	}
	span.SetAttributes(keyOutcome.String(r.Outcome))
	if r.Depth > 0 {
		if r.Outcome != identity.Success {
			span.SetAttributes(semconv.ErrorTypeKey.String(r.Outcome))
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// startStage begins the span of a stage; nil for none. Requests to servers have their own.
func startStage(ctx context.Context, stage, target string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() || stage == StageUpstream {
		return ctx, nil
	}
	name := stage
	if target != "" {
		name += " " + bound(target)
	}
	return within(ctx, parent, name)
}

func endStage(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, "") // its text may repeat arguments
	}
	span.End()
}

// within begins a span of work for another span.
func within(ctx context.Context, parent trace.Span, name string) (context.Context, trace.Span) {
	return parent.TracerProvider().Tracer(scope).Start(ctx, name)
}
