package proxy

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"toolfinch/internal/identity"
	"toolfinch/internal/printable"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
	"toolfinch/trust/audit"
	"toolfinch/trust/leaks"
)

// messages are the log messages of finished operations, by kind.
var messages = map[string]string{
	identity.EventCall: "tool called", identity.EventRead: "resource read", identity.EventPrompt: "prompt fetched", identity.EventRetrieve: "tools searched",
}

// logged logs a finished operation in one line, without arguments and results.
func logged(ctx context.Context, log *slog.Logger, done *telemetry.Operation) {
	if !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	line := spare.Get().(*attributes)
	defer line.free()
	line.about(done.View, done.Session, done.Client, done.Principal)
	line.text("server", done.Server)
	line.text("tool", done.Tool)
	line.text("name", done.Name)
	line.text("transport", done.Transport)
	line.text("request", done.Request)
	line.text("trace", done.Trace)
	if done.Depth > 0 {
		line.add(slog.Int("depth", done.Depth))
	}
	line.add(slog.String("outcome", done.Outcome))
	line.text("reason", done.Reason)
	line.add(slog.Duration("took", done.Duration), slog.Duration("own", done.Own), slog.Int("bytes_in", done.BytesIn), slog.Int("bytes_out", done.BytesOut))
	if found := done.Retrieval; found != nil {
		line.add(slog.Int("hits", found.Hits), slog.Bool("confident", found.Confident == found.Searches))
	}
	record := slog.NewRecord(done.Time.Add(done.Duration), slog.LevelInfo, messages[done.Kind], 0) // PC 0: the source position is not logged
	record.AddAttrs(line.attrs...)
	_ = log.Handler().Handle(ctx, record) // slog ignores this error, too
}

// logContent logs the arguments and the result of an operation, for debugging. It removes recognised secrets, and cuts
// long values.
func logContent(ctx context.Context, log *slog.Logger, done *telemetry.Operation, call *tool.Call, result tool.Result) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	line := lineFor(done.View, done.Session, "", "")
	line.text("tool", done.Tool)
	line.text("name", done.Name)
	line.text("request", done.Request)
	line.add(slog.String("arguments", contentOf(call.Arguments)), slog.String("result", contentOf(result)))
	for _, s := range done.Stages {
		line.add(slog.Group(s.Name, slog.String("target", printable.Line(s.Target)), slog.Duration("after", s.Start), slog.Duration("took", s.Duration)))
	}
	log.LogAttrs(ctx, slog.LevelDebug, "what was asked and answered", line.attrs...)
}

// contentOf returns arguments or a result as text for the log.
func contentOf(value []byte) string {
	return string(printable.JSON(audit.Content(value, func(raw []byte) []byte {
		clean, _ := leaks.JSON(raw)
		return clean
	})))
}

// eventLines are the log messages of events that are logged nowhere else, by kind.
var eventLines = map[string]string{
	identity.EventSessionOn: "session began", identity.EventSession: "session ended", identity.EventRefused: "request refused",
}

// logEvent logs an event that is no operation.
func logEvent(ctx context.Context, log *slog.Logger, e identity.Event) {
	message := eventLines[e.Kind]
	if message == "" || !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	who := e.Principal
	if who == "" {
		who = identity.NameOf(ctx)
	}
	line := lineFor(e.View, identity.Digest(e.Session), e.Client, who)
	if from, ok := identity.SourceOf(ctx); ok {
		line.text("transport", from.Transport)
		line.text("address", from.Address)
	}
	line.text("outcome", e.Outcome)
	line.text("reason", e.Reason)
	if e.Took > 0 {
		line.add(slog.Duration("took", e.Took))
	}
	log.LogAttrs(ctx, slog.LevelInfo, message, line.attrs...)
}

// strangers bounds the lines about refused requests without a principal. Otherwise these lines would fill the disk, or
// make log rotation remove the lines of other clients. The next line counts the omitted lines.
type strangers struct {
	limit *rate.Limiter
	more  atomic.Int64
}

// Bounds of the lines about strangers.
const (
	strangersEvery  = 100 * time.Millisecond
	strangersAtOnce = 200
)

func newStrangers() *strangers {
	return &strangers{limit: rate.NewLimiter(rate.Every(strangersEvery), strangersAtOnce)}
}

// admits reports whether an event gets a line. It adds the number of omitted lines to e.
func (s *strangers) admits(e *identity.Event) bool {
	if e.Kind != identity.EventRefused || e.Principal != "" {
		return true
	}
	if !s.limit.Allow() {
		s.more.Add(1)
		return false
	}
	if n := s.more.Swap(0); n > 0 {
		e.Details = map[string]string{"more": strconv.FormatInt(n, 10)}
	}
	return true
}

// attributes are the attributes of a line of the log.
type attributes struct{ attrs []slog.Attr }

// spare has attributes for reuse, because each operation logs a line.
var spare = sync.Pool{New: func() any { return newAttributes() }}

func newAttributes() *attributes { return &attributes{make([]slog.Attr, 0, 20)} }

// free ends the use of attributes of spare.
func (a *attributes) free() {
	clear(a.attrs)
	a.attrs = a.attrs[:0]
	spare.Put(a)
}

// lineFor begins a line about a client.
func lineFor(view, session, client, principal string) *attributes {
	line := newAttributes()
	line.about(view, session, client, principal)
	return line
}

// about adds the attributes that identify a client.
func (a *attributes) about(view, session, client, principal string) {
	a.text("view", view)
	a.text("session", session)
	a.text("client", client)
	a.text("principal", principal)
}

func (a *attributes) add(attrs ...slog.Attr) { a.attrs = append(a.attrs, attrs...) }

// text adds an untrusted text, unless it is empty.
func (a *attributes) text(key, value string) {
	if value != "" {
		a.attrs = append(a.attrs, slog.String(key, printable.Line(value)))
	}
}
