package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// moreVerbose reports whether level lets more through than other. "" is no
// level, as is whatever the protocol does not know.
func moreVerbose(level, other string) bool {
	a, b := slices.Index(tool.LogLevels, level), slices.Index(tool.LogLevels, other)
	return a >= 0 && (b < 0 || a < b)
}

// requestLevel is the level that goes with a request to a 2026-07-28 server.
func requestLevel(call *tool.Call) string {
	switch {
	case call.Notify == nil || call.Client == nil:
		return ""
	case call.Client.LogLevel == "" && !call.Client.Modern:
		return "info" // a client of that era gets messages unasked
	}
	return call.Client.LogLevel
}

// levels are the levels of log messages that clients want of a server.
type levels struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	legacy string     // what legacy clients want
	raised string     // what a 2026-07-28 client has wanted
}

// wanted is the most verbose level that anybody asked for, "" for none.
func (l *levels) wanted() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if moreVerbose(l.raised, l.legacy) {
		return l.raised
	}
	return l.legacy
}

// set says what legacy clients want.
func (l *levels) set(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.legacy = level
}

// raise says what a 2026-07-28 client wants. It is never taken back: others see by
// their own level.
func (l *levels) raise(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if moreVerbose(level, l.raised) {
		l.raised = level
	}
}

// tellLevel asks for log messages from the wanted level on, over the connections that there are.
// told is done once they have been told.
func (s *server) tellLevel(told *sync.WaitGroup) {
	for _, c := range s.sharing.connections() {
		told.Add(1)
		if !c.Go(func() { defer told.Done(); c.level.tell(c, s.levels.wanted()) }) {
			told.Done()
		}
	}
}

// toldLevel is the level that a legacy server was told over one connection.
type toldLevel struct {
	mu    sync.Mutex // guards level; never held over I/O
	level string
}

// current is the level, "" for none.
func (t *toldLevel) current() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.level
}

// levelWithin is how long a call, a client or a new connection waits for a log
// level to be set.
const levelWithin = 2 * time.Second

// tell tells a legacy server the level, unless it knows. A 2026-07-28 server is
// told with each request.
func (t *toldLevel) tell(c *connection, level string) {
	if c.Era != EraLegacy || !c.Has("logging") || !slices.Contains(tool.LogLevels, level) {
		return
	}
	t.mu.Lock()
	known := t.level == level
	t.level = level
	t.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(c.Life, leeway.Of(levelWithin))
	defer cancel()
	if _, err := c.Request(ctx, "logging/setLevel", rawjson.Of(map[string]string{"level": level}), nil); err != nil {
		c.log.Debug("the log level was not set", "error", err)
	}
}

// raise asks a legacy server for what a client of the 2026-07-28 era wants to see
// of its call.
func (t *toldLevel) raise(c *connection, client *tool.Client) {
	if client == nil || !client.Modern || client.LogLevel == "" || c.Era != EraLegacy {
		return
	}
	c.server.levels.raise(client.LogLevel)
	if level := c.server.levels.wanted(); moreVerbose(level, t.current()) {
		t.tell(c, level)
	}
}

// wantsLog reports whether a log message that may be about a call is for its client.
// asked says that the server was told a level. A client that set no level gets what
// a legacy server sends unasked, and nothing of what others have asked for.
func (c *connection) wantsLog(of *call, asked bool, params json.RawMessage) bool {
	wanted := requestLevel(of.Call)
	if c.Era == EraLegacy {
		if of.Client == nil || of.Client.LogLevel == "" {
			return !asked
		}
		wanted = of.Client.LogLevel
	}
	return wanted != "" && !moreVerbose(rawjson.Text(rawjson.Member(params, "level")), wanted)
}
