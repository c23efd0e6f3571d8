package register

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/tool"
	"toolfinch/wire"
)

// heartbeat is sent on an open GET stream; it also keeps the session from
// being taken for idle, so it must be shorter than the idle timeout.
const heartbeat = time.Minute

// HTTP returns the handler of the streamable HTTP endpoint. It is asked for once.
func (l *Live) HTTP() http.Handler {
	endpoint := server.NewStreamableHTTPServer(l.mcp,
		server.WithSessionIdManager(httpSessions{l}),
		server.WithSessionIdleTTL(l.settings.IdleTimeout),
		server.WithHeartbeatInterval(min(heartbeat, l.settings.IdleTimeout/2)),
		server.WithStreamableHTTPLogger(l.log),
		// The caller's guard checks Host, and Origin too.
		server.WithDisableLocalhostProtection(true),
	)
	known := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// mcp-go opens a GET stream for any session ID.
		id := r.Header.Get(server.HeaderKeySessionID)
		s := l.httpSession(id)
		legacy := !mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))
		if legacy && (r.Method == http.MethodGet || r.Method == http.MethodDelete) {
			switch {
			case id == "":
				http.Error(w, "the Mcp-Session-Id header is missing", http.StatusBadRequest)
				return
			case s == nil:
				http.Error(w, "unknown session", http.StatusNotFound)
				return
			}
		}
		if !legacy || r.Method != http.MethodGet {
			endpoint.ServeHTTP(w, r)
			return
		}
		stream := newOutlet(w)
		var writing sync.WaitGroup
		writing.Go(stream.run)
		s.attach(stream)
		endpoint.ServeHTTP(stream, r)
		s.detach(stream)
		stream.end()
		writing.Wait()
	})
	l.endpoint = endpoint
	return wire.HTTP(known, MaxMessage, func(id string, reply *wire.ClientReply) bool {
		return l.httpSession(id) != nil && l.answered(id, reply)
	})
}

// httpSession is session for an ID that came over streamable HTTP: the sessions
// of other transports are nobody's to name.
func (l *Live) httpSession(id string) *session {
	s := l.session(id)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.piped {
		return nil
	}
	return s
}

// answered gives an answer that was posted for a session to whoever asked.
func (l *Live) answered(sessionID string, reply *wire.ClientReply) bool {
	s := l.session(sessionID)
	return s != nil && s.answered(reply)
}

// EndStreams ends the open event streams of all clients, so that a shutdown of
// the HTTP server need only wait for calls in flight.
func (l *Live) EndStreams(ctx context.Context) {
	l.closeOnce.Do(func() { close(l.closing) })
	if l.endpoint != nil {
		_ = l.endpoint.Shutdown(ctx) // it has no server of its own to shut down
	}
}

// httpSessions makes and knows the session IDs of streamable HTTP.
type httpSessions struct{ live *Live }

var errUnknownSession = errors.New("unknown session")

func (h httpSessions) Generate() string {
	id := rand.Text()
	h.live.remember(id)
	return id
}

func (h httpSessions) Validate(id string) (terminated bool, err error) {
	if h.live.httpSession(id) == nil {
		return false, errUnknownSession
	}
	return false, nil
}

func (h httpSessions) Terminate(id string) (notAllowed bool, err error) {
	h.live.forget(id)
	return false, nil
}

// checkParamHeaders checks the headers that mirror arguments, where the tool
// wants some (SEP-2243).
func (l *Live) checkParamHeaders(x *wire.Exchange, name string) error {
	t, ok := l.source.Lookup(name)
	if !ok || !bytes.Contains(t.Def.InputSchema, []byte("x-mcp-header")) {
		return nil
	}
	var typed mcp.Tool
	if json.Unmarshal(t.Def.Raw, &typed) != nil {
		return nil
	}
	err := mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
		values := x.Header.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}, &typed, x.Params)
	if err != nil {
		return &tool.RPCError{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
	}
	return nil
}
