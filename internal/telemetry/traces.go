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

// Traces makes spans of requests and of what they cause. Nil makes none, at no cost. Its
// methods are safe for concurrent use.
type Traces struct {
	tracer     trace.Tracer
	propagates bool // trace context is read and written
	baggage    bool // likewise, baggage
	close      func(context.Context) error
	lost       func() int64
}

// NewTraces makes the spans of provider, which its owner closes. With baggage, that of
// clients is sent on to the servers.
func NewTraces(provider trace.TracerProvider, baggage bool) *Traces {
	return &Traces{tracer: provider.Tracer(scope), propagates: true, baggage: baggage, close: func(context.Context) error { return nil }, lost: func() int64 { return 0 }}
}

// scope is the name of what makes the spans.
const scope = "toolfinch"

// OpenTraces makes spans and sends them over OTLP/HTTP, as the OTEL_* variables of the
// environment say; it returns nil where these do not ask for traces. What of them cannot be
// used is logged. The handlers of errors that OpenTelemetry has one of for each process
// become its own: a program calls it once.
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
		log.Warn("OTEL_RESOURCE_ATTRIBUTES has something that cannot be read: write name=value, with commas between")
	}
	sending := newSending(exporter, log)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(sending), sdktrace.WithResource(described))
	t := NewTraces(provider, false)
	t.close, t.lost = func(ctx context.Context) error { return sending.close(ctx, provider) }, sending.all.Load
	var known bool
	t.propagates, t.baggage, known = propagators(os.Getenv("OTEL_PROPAGATORS"))
	if !known {
		log.Warn("OTEL_PROPAGATORS names some that are not known here: tracecontext, baggage and none are")
	}
	log.Info("traces are sent")
	return t
}

// Close sends what was not sent yet, as long as ctx lasts.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.close(ctx)
}

// Lost returns how many spans were not delivered since the start. Those that found no room are
// not among them: OpenTelemetry does not say how many they are.
func (t *Traces) Lost() int64 {
	if t == nil {
		return 0
	}
	return t.lost()
}

// tracesWanted reports whether the environment asks for traces; problem says why it gets
// none though it does. An empty variable is one that is not set.
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

// propagators reads OTEL_PROPAGATORS; known says that nothing else is in it. Where it is not set, servers get no baggage: what a
// client's organisation writes there is none of their business.
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

// list is the words of a variable that has several, separated by commas.
func list(variable string) []string {
	words := strings.FieldsFunc(variable, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(words)
	return slices.Compact(words)
}

// sending is the exporter of a process. A collector that is away is logged when it goes and
// when it is back, not each time.
type sending struct {
	sdktrace.SpanExporter
	log    *slog.Logger
	life   context.Context // of what is being sent
	end    context.CancelFunc
	closed chan struct{} // closed by Shutdown, once nothing is sent any more
	all    atomic.Int64  // spans that were not delivered

	mu   sync.Mutex // guards what follows; held for assignments only
	away bool       // the last batch was not delivered
	lost int        // spans that were not delivered since
}

func newSending(exporter sdktrace.SpanExporter, log *slog.Logger) *sending {
	s := &sending{SpanExporter: exporter, log: log, closed: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// ExportSpans sends a batch. Its error is logged here, and is therefore none of the SDK's.
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

// close sends what waits, until ctx ends, and returns once nothing runs any more.
func (s *sending) close(ctx context.Context, provider *sdktrace.TracerProvider) error {
	stop := context.AfterFunc(ctx, s.end) // what still waits fails at once
	// A provider that is given a context that has ended already does not shut its exporter down.
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

// maxWords bounds an error of a collector in the log, in bytes.
const maxWords = 300

// address is a URL in a text. All but its host may be a secret.
var address = regexp.MustCompile(`(https?://)(?:[^\s"/?#@]*@)?([^\s"/?#]*)[^\s"]*`)

// words is an error of the exporter for the log: collectors write what they like.
func words(err error) string {
	return rawjson.Clip(printable.Line(address.ReplaceAllString(err.Error(), "$1$2")), maxWords)
}

// complaints are what OpenTelemetry says of itself, and of variables that it cannot read.
// Few of them are logged.
type complaints struct {
	log   *slog.Logger
	limit *rate.Limiter
}

// Handle takes an error of the SDK. What follows a colon or stands in quotes may be the value of a
// variable.
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

// ownLog takes the SDK's own log. The attributes of a line are values of variables, which may
// be secrets: the message and the names of variables are logged.
type ownLog struct{ to *complaints }

// Levels of the SDK's own log.
const (
	ownWarning = slog.Level(-1)
	ownInfo    = slog.Level(-4) // of numbers that cannot be read, among what is of no interest
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
