package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// moreVerbose reports whether level lets more messages through than other. "" and unknown
// levels let none through.
func moreVerbose(level, other string) bool {
	a, b := slices.Index(tool.LogLevels, level), slices.Index(tool.LogLevels, other)
	return a >= 0 && (b < 0 || a < b)
}

// requestLevel returns the level that is sent with a request to a 2026-07-28 server.
func requestLevel(call *tool.Call) string {
	switch {
	case call.Notify == nil || call.Client == nil:
		return ""
	case call.Client.LogLevel == "" && !call.Client.Modern:
		return "info" // a legacy client gets messages without asking
	}
	return call.Client.LogLevel
}

// levels are the log levels that clients want from a server.
type levels struct {
	mu     sync.Mutex // guards the fields below; never held over I/O
	legacy string     // set by legacy clients
	raised string     // the most verbose level of calls of 2026-07-28 clients
	until  time.Time  // when raised is over, without another such call
}

// wanted returns the most verbose level that any client wants, "" for none, and how long it
// lasts without another call; 0 for as long as legacy clients want it.
func (l *levels) wanted() (level string, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left = time.Until(l.until); left > 0 && moreVerbose(l.raised, l.legacy) {
		return l.raised, left
	}
	return l.legacy, 0
}

// set sets the level that legacy clients want.
func (l *levels) set(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.legacy = level
}

// raisedFor is how long the level of a call lasts: 2026-07-28 clients do not say when they leave.
const raisedFor = time.Minute

// raise notes the level that a 2026-07-28 client wants for a call.
func (l *levels) raise(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.After(l.until) || !moreVerbose(l.raised, level) {
		l.raised, l.until = level, now.Add(raisedFor)
	}
}

// inherit takes over the level that 2026-07-28 clients wanted from a server's predecessor.
func (l *levels) inherit(from *levels) {
	from.mu.Lock()
	defer from.mu.Unlock()
	l.raised, l.until = from.raised, from.until
}

// toldLevel is the log level that a legacy server was told over one connection.
type toldLevel struct {
	conn   *conn.Conn
	levels *levels
	log    *slog.Logger

	mu    sync.Mutex // guards level; never held over I/O
	level string
}

// current returns the level that the server was told; "" for none.
func (t *toldLevel) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.level
}

// levelWithin bounds how long a call, a client or a new connection waits until the log
// level is set.
const levelWithin = 2 * time.Second

// tell tells a legacy server the level that clients want, unless the server knows it: the
// usual one when the last client with a level has left. A 2026-07-28 server is told with each
// request.
func (t *toldLevel) tell() {
	c := t.conn
	level, left := t.levels.wanted()
	if c.Era != EraLegacy || !c.Has("logging") || level != "" && !slices.Contains(tool.LogLevels, level) {
		return
	}
	t.mu.Lock()
	known := t.level == level
	t.level = level
	t.mu.Unlock()
	if known {
		return
	}
	if left > 0 {
		c.Go(t.lower)
	}
	level = cmp.Or(level, "info")
	ctx, cancel := context.WithTimeout(c.Life, leeway.Of(levelWithin))
	defer cancel()
	if _, err := c.Request(ctx, "logging/setLevel", rawjson.Of(map[string]string{"level": level}), nil); err != nil {
		t.log.Debug("the log level was not set", "error", err)
	}
}

// lower tells the server another level when the last call with the present one is long ago.
func (t *toldLevel) lower() {
	for {
		level, left := t.levels.wanted()
		if left == 0 || level != t.current() {
			t.tell()
			return
		}
		if !t.conn.Pause(t.conn.Life, left) {
			return
		}
	}
}

// raise tells a legacy server the level that a 2026-07-28 client wants for its call.
func (t *toldLevel) raise(client *tool.Client) {
	if client == nil || !client.Modern || client.LogLevel == "" || t.conn.Era != EraLegacy {
		return
	}
	t.levels.raise(client.LogLevel)
	if level, _ := t.levels.wanted(); moreVerbose(level, t.current()) {
		t.tell()
	}
}

// wantsLog reports whether a client wants a log message that may be about its call. asked
// says that the server was told a level. A client without a level gets the messages that a
// legacy server sends unasked, but none that only other clients have asked for.
func wantsLog(era Era, of *tool.Call, asked bool, params json.RawMessage) bool {
	wanted := requestLevel(of)
	if era == EraLegacy {
		if of.Client == nil || of.Client.LogLevel == "" {
			return !asked
		}
		wanted = of.Client.LogLevel
	}
	return wanted != "" && !moreVerbose(rawjson.Text(rawjson.Member(params, "level")), wanted)
}
