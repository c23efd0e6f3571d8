package telemetry

import (
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// Traces makes spans of requests and their effects. A nil Traces makes none, without cost. Its methods
// are safe for concurrent use.
type Traces struct {
	tracer     trace.Tracer
	propagates bool // trace context is read and written
	baggage    bool // baggage is read and written
	close      func(context.Context) error
	lost       func() int64
}

// NewTraces makes spans of provider, which its owner closes. With baggage, servers get the clients'
// baggage.
func NewTraces(provider trace.TracerProvider, baggage bool) *Traces {
	return &Traces{tracer: provider.Tracer(scope), propagates: true, baggage: baggage, close: func(context.Context) error { return nil }, lost: func() int64 { return 0 }}
}

// scope names this program as the maker of spans.
const scope = "toolfinch"

// OpenTraces makes spans and sends them over OTLP/HTTP, as the environment's OTEL_* variables say; nil
// if they ask for no traces. Unusable variables are logged. It replaces OpenTelemetry's error handlers,
// of which a process has one set: call it once.
func OpenTraces(ctx context.Context, version string, log *slog.Logger) *Traces {
	wanted, problem := tracesWanted(os.Getenv)
	if problem != "" {
		log.Warn("no traces are sent", "reason", problem)
	}
	if !wanted {
		return nil
	}
	complaints := &complaints{log: log, limit: rate.NewLimiter(rate.Every(time.Minute), 5)}
	otel.SetErrorHandler(complaints)
	otel.SetLogger(logr.FromSlogHandler(ownLog{complaints}))
	collector, err := openCollector(os.Getenv, version, complaints.say)
	if err != nil {
		log.Warn("no traces are sent", "reason", words(err))
		return nil
	}
	exporter, err := otlptrace.New(ctx, collector)
	if err != nil {
		log.Warn("no traces are sent", "reason", words(err))
		return nil
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("toolfinch"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(rand.Text())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		log.Warn("OTEL_RESOURCE_ATTRIBUTES cannot be read whole: write name=value, with commas between")
	}
	sending := newSending(exporter, log)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(sending), sdktrace.WithResource(described))
	t := NewTraces(provider, false)
	t.close, t.lost = func(ctx context.Context) error { return sending.close(ctx, provider) }, sending.all.Load
	var known bool
	t.propagates, t.baggage, known = propagators(os.Getenv("OTEL_PROPAGATORS"))
	if !known {
		log.Warn("OTEL_PROPAGATORS has unknown names: tracecontext, baggage and none are known")
	}
	log.Info("traces are sent")
	return t
}

// Close sends the remaining spans, until ctx ends.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.close(ctx)
}

// Lost counts the undelivered spans since the start, without those for which OpenTelemetry had no room:
// it does not count them.
func (t *Traces) Lost() int64 {
	if t == nil {
		return 0
	}
	return t.lost()
}

// tracesWanted reports whether the environment asks for traces; problem is the reason against them if
// it does. An empty variable counts as unset.
func tracesWanted(env func(string) string) (wanted bool, problem string) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, ""
	}
	first := func(names ...string) string {
		for _, name := range names {
			if value := strings.TrimSpace(env(name)); value != "" {
				return value
			}
		}
		return ""
	}
	exporters := list(env("OTEL_TRACES_EXPORTER"))
	switch {
	case len(exporters) == 0 && first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "":
		return false, ""
	case len(exporters) == 0, slices.Contains(exporters, "otlp"):
	case slices.Equal(exporters, []string{"none"}):
		return false, ""
	default:
		return false, "OTEL_TRACES_EXPORTER names no exporter that is known here: otlp and none are"
	}
	if protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return false, "OTEL_EXPORTER_OTLP_PROTOCOL asks for another protocol than is spoken here: set it to http/protobuf, and the endpoint to the collector's of HTTP (port 4318 as a rule)"
	}
	return true, ""
}

// propagators reads OTEL_PROPAGATORS; known says that it has no other values. By default servers get no
// baggage: the client's organisation writes it for itself.
func propagators(variable string) (propagates, baggage, known bool) {
	named := list(variable)
	if len(named) == 0 {
		return true, false, true
	}
	known = true
	for _, name := range named {
		switch name {
		case "tracecontext":
			propagates = true
		case "baggage":
			baggage = true
		case "none":
		default:
			known = false
		}
	}
	return propagates, baggage, known
}

// list returns the words of a comma-separated variable.
func list(variable string) []string {
	words := strings.FieldsFunc(variable, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(words)
	return slices.Compact(words)
}

// sending is the exporter of a process. It logs a collector's absence once, and its return.
type sending struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	life   context.Context // of the present batch
	end    context.CancelFunc
	closed chan struct{} // closed by Shutdown, after the last batch
	all    atomic.Int64  // undelivered spans

	mu   sync.Mutex // guards the fields below; held for assignments only
	away bool       // the last batch was not delivered
	lost int        // undelivered spans since then
}

func newSending(exporter sdktrace.SpanExporter, log *slog.Logger) *sending {
	s := &sending{SpanExporter: exporter, log: log, closed: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// ExportSpans sends a batch. It logs its error, so that the SDK does not.
func (s *sending) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := s.SpanExporter.ExportSpans(ctx, spans)
	s.mu.Lock()
	was, lost := s.away, s.lost
	s.away = err != nil
	if s.away {
		s.all.Add(int64(len(spans)))
		s.lost += len(spans)
	} else {
		s.lost = 0
	}
	s.mu.Unlock()
	switch {
	case err != nil && !was:
		s.log.Warn("traces are not delivered; calls go on, and it is logged when this changes", "error", words(err))
	case err == nil && was:
		s.log.Info("traces are delivered again", "spans_lost", lost)
	}
	return nil
}

func (s *sending) Shutdown(ctx context.Context) error {
	defer close(s.closed)
	return s.SpanExporter.Shutdown(ctx)
}

// close sends the waiting spans until ctx ends, and returns when nothing runs.
func (s *sending) close(ctx context.Context, provider *sdktrace.TracerProvider) error {
	stop := context.AfterFunc(ctx, s.end) // then the waiting spans fail at once
	// With an ended context the provider would not shut its exporter down.
	err := provider.Shutdown(context.WithoutCancel(ctx))
	stop()
	s.end()
	<-s.closed
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 {
		s.log.Warn("traces were not delivered to the end", "spans_lost", s.lost)
		return nil
	}
	return err
}

// maxWords bounds a collector's error in the log, in bytes.
const maxWords = 300

// address matches a URL in a text. All but its host may be secret.
var address = regexp.MustCompile(`(https?://)(?:[^\s"/?#@]*@)?([^\s"/?#]*)[^\s"]*`)

// words is an exporter's error for the log: a collector's text is foreign.
func words(err error) string {
	return rawjson.Clip(printable.Line(address.ReplaceAllString(err.Error(), "$1$2")), maxWords)
}

// complaints logs a few of OpenTelemetry's own errors, also about its variables.
type complaints struct {
	log   *slog.Logger
	limit *rate.Limiter
}

// Handle takes an error of the SDK. Text after a colon or in quotes may be the value of a variable.
func (c *complaints) Handle(err error) {
	what := err.Error()
	if end := strings.IndexAny(what, ":\""); end >= 0 {
		what = what[:end]
	}
	c.say(printable.Line(strings.TrimSpace(what)))
}

func (c *complaints) say(what string) {
	if c.limit.Allow() {
		c.log.Warn("OpenTelemetry has a problem; see the OTEL_ variables", "problem", what)
	}
}

// ownLog takes the SDK's own log. Attributes may be secret values of variables, so it logs only the
// message and the variables' names.
type ownLog struct{ to *complaints }

// Levels of the SDK's own log.
const (
	ownWarning = slog.Level(-1)
	ownInfo    = slog.Level(-4) // the level of unreadable numbers, among uninteresting lines
)

func (l ownLog) Enabled(_ context.Context, level slog.Level) bool { return level >= ownInfo }

func (l ownLog) Handle(_ context.Context, line slog.Record) error {
	of := ""
	line.Attrs(func(a slog.Attr) bool {
		if strings.HasPrefix(a.Key, "OTEL_") {
			of = a.Key + ": "
		}
		return of == ""
	})
	if of != "" || line.Level >= ownWarning {
		l.to.say(of + line.Message)
	}
	return nil
}

func (l ownLog) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l ownLog) WithGroup(string) slog.Handler { return l }
