package telemetry

import (
	"context"
	"encoding/json"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"toolfinch/internal/rawjson"
)

// Keys of trace context in _meta (SEP-414), and as HTTP headers.
const (
	keyParent  = "traceparent"
	keyState   = "tracestate"
	keyBaggage = "baggage"

	headerParent  = "Traceparent"
	headerState   = "Tracestate"
	headerBaggage = "Baggage"
)

// carried is the context in a request, in W3C's words.
type carried struct{ parent, state, baggage string }

// maxContext bounds each field, in bytes, like W3C's bound of baggage.
const maxContext = 8192

// inMeta reads the context in the _meta of a request.
func inMeta(params json.RawMessage) (c carried) {
	for key, value := range rawjson.Members(rawjson.Member(params, "_meta")) {
		if to := c.member(key); to != nil && len(value) <= maxContext {
			*to = rawjson.Text(value)
		}
	}
	return c
}

// member is the field of a key in _meta; nil for other keys.
func (c *carried) member(key string) *string {
	switch key {
	case keyParent:
		return &c.parent
	case keyState:
		return &c.state
	case keyBaggage:
		return &c.baggage
	}
	return nil
}

func inHeader(h http.Header) carried {
	first := func(name string) string {
		if values := h[name]; len(values) > 0 && len(values[0]) <= maxContext {
			return values[0]
		}
		return ""
	}
	return carried{first(headerParent), first(headerState), first(headerBaggage)}
}

func (c carried) into(h http.Header) {
	h[headerParent] = []string{c.parent}
	if c.state != "" {
		h[headerState] = []string{c.state}
	}
	if c.baggage != "" {
		h[headerBaggage] = []string{c.baggage}
	}
}

// remote is the span of the context; an invalid context has none.
func (c carried) remote() trace.SpanContext {
	if c.parent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), &c))
}

// Get returns the value of a key, for OpenTelemetry.
func (c *carried) Get(key string) string {
	if value := c.member(key); value != nil {
		return *value
	}
	return ""
}

// Set notes the value of a key.
func (c *carried) Set(key, value string) {
	if to := c.member(key); to != nil {
		*to = value
	}
}

// Keys is never called.
func (c *carried) Keys() []string { return nil }

// carries is the context for a request of the span.
func (s *Span) carries(ctx context.Context) (c carried) {
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(ctx, s.span), &c)
	if s.traces.baggage {
		propagation.Baggage{}.Inject(ctx, &c)
	}
	return c
}

// Inject puts the context of a request's span into the _meta of its params, in place of another; all
// other bytes stay. header, unless nil, gets the context, too.
func (s *Span) Inject(ctx context.Context, params json.RawMessage, header http.Header) json.RawMessage {
	if s == nil || !s.traces.propagates {
		return params
	}
	c := s.carries(ctx)
	if header != nil {
		c.into(header)
	}
	if params == nil {
		params = json.RawMessage(`{}`)
	}
	out, err := rawjson.Update(params, "_meta", func(was json.RawMessage) []byte {
		if was != nil && !rawjson.IsObject(was) {
			return nil // the server will refuse it
		}
		meta := rawjson.NewObject(len(was) + 128 + len(c.state) + len(c.baggage))
		meta.AddText(keyParent, c.parent)
		if c.state != "" {
			meta.AddText(keyState, c.state)
		}
		if c.baggage != "" {
			meta.AddText(keyBaggage, c.baggage)
		}
		meta.AddAll(was, keyParent, keyState, keyBaggage)
		return meta.JSON()
	})
	if err != nil {
		return params
	}
	return out
}
