package configs

import (
	"time"
	"toolfinch/internal/document"
)

// DefaultHTTPLimits are the limits without http_limits.
var DefaultHTTPLimits = httpLimits.fresh()

var httpLimits = section[HTTPLimits]{keys: keys{
	{
		name: "sessions_per_principal", change: restart,
		doc:   "concurrent sessions of one principal; an idle one gives way",
		value: in(func(l *HTTPLimits) *int { return &l.PrincipalSessions }).is(number[int]{1, 1_000_000}, 1_000),
	},
	{
		name: "sessions_per_address", change: restart,
		doc:   "likewise, of one address other than this machine",
		value: in(func(l *HTTPLimits) *int { return &l.AddressSessions }).is(number[int]{1, 1_000_000}, 1_000),
	},
	{
		name: "streams_per_principal", change: restart,
		doc:   "concurrent event streams of one principal",
		value: in(func(l *HTTPLimits) *int { return &l.PrincipalStreams }).is(number[int]{1, 1_000_000}, 100),
	},
	{
		name: "body", change: restart,
		doc:   "bytes of a message or REST body (at most 16 MiB)",
		value: in(func(l *HTTPLimits) *int { return &l.Body }).is(size{}, 16<<20),
	},
	{
		name: "headers", change: restart,
		doc:   "bytes of the headers of a request",
		value: in(func(l *HTTPLimits) *int { return &l.Headers }).is(size{}, 64<<10),
	},
	{
		name: "body_time", change: restart,
		doc:   "for the body of a request to arrive",
		value: in(func(l *HTTPLimits) *time.Duration { return &l.BodyTime }).is(duration{}, 30*time.Second),
	},
	{
		name: "idle_time", change: restart,
		doc:   "until a connection without a request is closed",
		value: in(func(l *HTTPLimits) *time.Duration { return &l.IdleTime }).is(duration{}, 2*time.Minute),
	},
	{
		name: "drain", change: restart,
		doc:   "how long running calls may continue on shutdown, 1s to 1h; see [scale](scale.md)",
		value: in(func(l *HTTPLimits) *time.Duration { return &l.Drain }).is(duration{time.Second, time.Hour, "25s"}, 10*time.Second),
	},
}}

type httpLimitsKind struct{}

func (httpLimitsKind) read(d *decoder, n *document.Node, label string, to *HTTPLimits) bool {
	*to = httpLimits.fresh()
	return httpLimits.read(d, n, label, to)
}

func (httpLimitsKind) show(s *secrets, v HTTPLimits) *document.Node {
	if v == httpLimits.fresh() {
		return nil
	}
	return httpLimits.show(s, v)
}

func (httpLimitsKind) schema() schema { return httpLimits.schema() }
