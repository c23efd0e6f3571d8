package configs

import "time"

// HTTPLimits bound what clients that connect over HTTP may take.
type HTTPLimits struct {
	PrincipalSessions, AddressSessions, PrincipalStreams int
	Body, Headers                                        int // bytes
	BodyTime, IdleTime                                   time.Duration
	Drain                                                time.Duration // how long calls may go on once toolfinch is told to stop
}

// DefaultHTTPLimits are those of a configuration that says nothing of them.
var DefaultHTTPLimits = httpLimits.fresh()

var httpLimits = section[HTTPLimits]{keys: keys{
	{
		name: "sessions_per_principal", change: restart,
		doc:   "sessions of one principal at once. One that is idle gives way to a new one of the same principal",
		value: in(func(l *HTTPLimits) *int { return &l.PrincipalSessions }).is(number[int]{1, 1_000_000}, 1_000),
	},
	{
		name: "sessions_per_address", change: restart,
		doc:   "likewise, from one address that is not this machine",
		value: in(func(l *HTTPLimits) *int { return &l.AddressSessions }).is(number[int]{1, 1_000_000}, 1_000),
	},
	{
		name: "streams_per_principal", change: restart,
		doc:   "event streams of one principal at once",
		value: in(func(l *HTTPLimits) *int { return &l.PrincipalStreams }).is(number[int]{1, 1_000_000}, 100),
	},
	{
		name: "body", change: restart,
		doc:   "bytes of one message, or of a body of the REST API, which has 16 MiB at most",
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
		doc:   "until a connection without a request is closed; `session_timeout` is for sessions",
		value: in(func(l *HTTPLimits) *time.Duration { return &l.IdleTime }).is(duration{}, 2*time.Minute),
	},
	{
		name: "drain", change: restart,
		doc:   "how long calls may go on once toolfinch is told to stop, 1s to 1h. One of several replicas answers in a fifth of it what still comes, and says at `/readyz` that it is draining",
		value: in(func(l *HTTPLimits) *time.Duration { return &l.Drain }).is(duration{time.Second, time.Hour, "25s"}, 10*time.Second),
	},
}}

type httpLimitsKind struct{}

func (httpLimitsKind) read(d *decoder, n *node, label string, to *HTTPLimits) bool {
	*to = httpLimits.fresh()
	return httpLimits.read(d, n, label, to)
}

func (httpLimitsKind) show(s *secrets, v HTTPLimits) *node {
	if v == httpLimits.fresh() {
		return nil
	}
	return httpLimits.show(s, v)
}

func (httpLimitsKind) schema() schema { return httpLimits.schema() }
