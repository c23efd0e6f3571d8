package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"toolfinch/rawjson"
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

// leveled reports whether the server was told a level over the connection.
func (c *conn) leveled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level != ""
}

// wantsLog reports whether a log message that may be about a call is for its client.
// asked is what leveled says. A client that set no level gets what a legacy server
// sends unasked, and nothing of what others have asked for.
func (c *conn) wantsLog(f *flight, asked bool, params json.RawMessage) bool {
	wanted := requestLevel(f.call)
	if c.era == EraLegacy {
		if f.call.Client == nil || f.call.Client.LogLevel == "" {
			return !asked
		}
		wanted = f.call.Client.LogLevel
	}
	return wanted != "" && !moreVerbose(rawjson.Text(rawjson.Member(params, "level")), wanted)
}

// setLevel asks for log messages from level on, now and after each reconnect.
// told is done once the connections that there are have been told.
func (s *server) setLevel(level string, told *sync.WaitGroup) {
	s.mu.Lock()
	s.level = level
	level = s.wantedLevel()
	s.mu.Unlock()
	for _, l := range s.lines() {
		if c := l.current(); c != nil {
			told.Add(1)
			if !c.spawn(func() { defer told.Done(); c.setLevel(level, raiseWithin) }) {
				told.Done()
			}
		}
	}
}

// wantedLevel is the most verbose level that anybody asked for. Lock held.
func (s *server) wantedLevel() string {
	if moreVerbose(s.raised, s.level) {
		return s.raised
	}
	return s.level
}

// raiseWithin is how long a call, a client or a new connection waits for a log
// level to be set.
const raiseWithin = 2 * time.Second

// raise asks a legacy server for what a client of the 2026-07-28 era wants to
// see of its call. A level is never taken back: others see by their own.
func (c *conn) raise(client *tool.Client) {
	if client == nil || !client.Modern || client.LogLevel == "" || c.era != EraLegacy {
		return
	}
	s := c.server
	s.mu.Lock()
	if moreVerbose(client.LogLevel, s.raised) {
		s.raised = client.LogLevel
	}
	level := s.wantedLevel()
	s.mu.Unlock()
	c.mu.Lock()
	enough := !moreVerbose(level, c.level)
	c.mu.Unlock()
	if !enough {
		c.setLevel(level, raiseWithin)
	}
}

// setLevel tells a legacy server the level, unless it knows. A 2026-07-28
// server is told with each request.
func (c *conn) setLevel(level string, within time.Duration) {
	if c.era != EraLegacy || !c.has("logging") || !slices.Contains(tool.LogLevels, level) {
		return
	}
	c.mu.Lock()
	known := c.level == level
	c.level = level
	c.mu.Unlock()
	if known {
		return
	}
	params, err := json.Marshal(map[string]string{"level": level})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.life, within)
	defer cancel()
	if _, err := c.request(ctx, "logging/setLevel", params, nil); err != nil {
		c.log.Debug("the log level was not set", "error", plain(err))
	}
}
