// Package collector is a collector of traces for tests: it takes spans over OTLP/HTTP, decodes them
// with OpenTelemetry's own protocol buffers, refuses what a collector would refuse, and keeps the rest.
package collector

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector runs until the test ends.
type Collector struct {
	URL string

	t        testing.TB
	provider *sdktrace.TracerProvider // the result of Provider, or nil

	mu     sync.Mutex // guards the fields below; held for assignments only
	spans  []Span
	header http.Header // of the last request
	status int         // the status of answers; 0 for 200
	asked  int         // requests so far
}

// Span is a received span. IDs are in hexadecimal.
type Span struct {
	Trace, ID, Parent string // Parent is "" for a root
	Name, Kind        string // Kind is SERVER, CLIENT or INTERNAL
	State             string // the tracestate
	Attributes        map[string]string
	Links             []Link
	Failed            bool // its status is ERROR
	Start, End        time.Time
	Resource          map[string]string
}

// Link is a link of a span.
type Link struct{ Trace, ID string }

// New starts a collector.
func New(t testing.TB) *Collector {
	c := &Collector{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.take)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Provider makes spans for the collector, sampled by sampler. Call it once.
func (c *Collector) Provider(sampler sdktrace.Sampler) *sdktrace.TracerProvider {
	exporter, err := otlptracehttp.New(c.t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.provider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(exporter))
	c.t.Cleanup(func() {
		if err := c.provider.Shutdown(context.Background()); err != nil {
			c.t.Errorf("the provider of spans: %v", err)
		}
	})
	return c.provider
}

// Environment makes a process send its traces here, without delay.
func (c *Collector) Environment() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}
}

// Answer sets the status of further answers; 0 for 200.
func (c *Collector) Answer(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
}

// Asked returns the number of requests, and the headers of the last one.
func (c *Collector) Asked() (n int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, c.header
}

// Spans returns the received spans, by their ends. It first flushes the spans of Provider.
func (c *Collector) Spans() []Span {
	if c.provider != nil {
		if err := c.provider.ForceFlush(context.Background()); err != nil {
			c.t.Error(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Clear forgets the received spans.
func (c *Collector) Clear() {
	c.Spans()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = nil
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	spans, err := read(r)
	if err != nil {
		c.t.Errorf("a request for the collector: %v", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.header = r.Header
	if c.status != 0 {
		http.Error(w, "the collector does not want this", c.status)
		return
	}
	c.spans = append(c.spans, spans...)
	w.Header().Set("Content-Type", "application/x-protobuf")
	answer, _ := proto.Marshal(&collectorpb.ExportTraceServiceResponse{})
	_, _ = w.Write(answer)
}

// read decodes a request.
func read(r *http.Request) (spans []Span, err error) {
	if kind := r.Header.Get("Content-Type"); kind != "application/x-protobuf" {
		return nil, fmt.Errorf("its content type is %q", kind)
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(r.Body); err != nil {
			return nil, err
		}
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var request collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &request); err != nil {
		return nil, err
	}
	for _, of := range request.ResourceSpans {
		resource := attributes(of.GetResource().GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, one := range scope.Spans {
				if err := check(one); err != nil {
					return nil, fmt.Errorf("span %q: %w", one.Name, err)
				}
				spans = append(spans, spanOf(one, resource))
			}
		}
	}
	return spans, nil
}

// check checks the rules of trace.proto for a span.
func check(one *tracepb.Span) error {
	switch {
	case len(one.TraceId) != 16 || zero(one.TraceId):
		return fmt.Errorf("its trace ID is %x", one.TraceId)
	case len(one.SpanId) != 8 || zero(one.SpanId):
		return fmt.Errorf("its ID is %x", one.SpanId)
	case len(one.ParentSpanId) != 0 && (len(one.ParentSpanId) != 8 || zero(one.ParentSpanId)):
		return fmt.Errorf("its parent is %x", one.ParentSpanId)
	case one.Name == "":
		return fmt.Errorf("it has no name")
	case one.Kind == tracepb.Span_SPAN_KIND_UNSPECIFIED:
		return fmt.Errorf("it has no kind")
	case one.StartTimeUnixNano == 0 || one.EndTimeUnixNano < one.StartTimeUnixNano:
		return fmt.Errorf("it lasts from %d to %d", one.StartTimeUnixNano, one.EndTimeUnixNano)
	}
	seen := map[string]bool{}
	for _, pair := range one.Attributes {
		if pair.Key == "" || seen[pair.Key] {
			return fmt.Errorf("it has the attribute %q twice, or it has no key", pair.Key)
		}
		seen[pair.Key] = true
	}
	for _, link := range one.Links {
		if len(link.TraceId) != 16 || len(link.SpanId) != 8 {
			return fmt.Errorf("it has a link to %x of %x", link.SpanId, link.TraceId)
		}
	}
	return nil
}

func zero(id []byte) bool { return !slices.ContainsFunc(id, func(b byte) bool { return b != 0 }) }

func spanOf(one *tracepb.Span, resource map[string]string) Span {
	s := Span{
		Trace: hex.EncodeToString(one.TraceId), ID: hex.EncodeToString(one.SpanId), Parent: hex.EncodeToString(one.ParentSpanId),
		Name: one.Name, Kind: one.Kind.String()[len("SPAN_KIND_"):], State: one.TraceState, Attributes: attributes(one.Attributes),
		Failed: one.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		Start:  time.Unix(0, int64(one.StartTimeUnixNano)), End: time.Unix(0, int64(one.EndTimeUnixNano)), Resource: resource,
	}
	for _, link := range one.Links {
		s.Links = append(s.Links, Link{hex.EncodeToString(link.TraceId), hex.EncodeToString(link.SpanId)})
	}
	return s
}

// attributes reads texts and whole numbers: we send no others.
func attributes(pairs []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, pair := range pairs {
		switch value := pair.Value.GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[pair.Key] = value.StringValue
		case *commonpb.AnyValue_IntValue:
			all[pair.Key] = strconv.FormatInt(value.IntValue, 10)
		default:
			all[pair.Key] = fmt.Sprint(value)
		}
	}
	return all
}
