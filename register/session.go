package register

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// session is one legacy-era client. A 2026-07-28 client has none: its revision requires stable lists.
type session struct {
	id             string
	clientRequests // requests of servers to the client
	roots          roots
	provisioned    provisioned // as the client knows it
	direct         direct
	restoring      restoring
	principal      string                       // the principal that opened it, "" for none; as of Open
	since          time.Time                    // as of Open
	piped          bool                         // stdio or SSE: one connection for everything
	told           atomic.Pointer[fingerprints] // the last lists that the client was told of
	push           func(message []byte) bool    // as of Open
	reaches        func() bool

	mu          sync.Mutex // guards the fields below; never held over a write to the client or a wait
	set         Set
	recalled    bool           // set has the recent tools of earlier sessions
	called      bool           // the client has called a tool
	used        []*tool.Tool   // called tools, registered with the next change of the list
	party       identity.Party // of the last request
	client      tool.Client    // without Ask; Name is empty before initialize
	initialized bool
	lists       int           // number of tools/list requests
	listed      chan struct{} // closed by the next tools/list
	stale       bool          // the list has changed since the last tools/list
	apps        []string      // servers whose apps the client has read, the latest first; replaced, never edited
}

func newSession(id string) *session {
	return &session{
		id: id, clientRequests: newClientRequests(id), client: tool.Client{Key: id},
		listed: make(chan struct{}), provisioned: provisioned{owner: tool.SessionOwner(id)},
	}
}

// initialize notes the client's name and capabilities. message is the raw request, nil if unknown.
func (s *session) initialize(name, version string, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Name, s.client.Program, s.client.Version, s.initialized = clientName(name, version), clientPart(name), clientPart(version), true
	s.client.Capabilities = bytes.Clone(rawjson.Member(rawjson.Member(message, "params"), "capabilities"))
}

// lastParty returns the party of the last request.
func (s *session) lastParty() identity.Party {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.party
}

func (s *session) isInitialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialized
}

// described returns the session's client for a call, without Ask.
func (s *session) described() *tool.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := s.client
	return &client
}

// ask sends a request to the client and waits for the answer. Known roots are answered at once.
func (s *session) ask(ctx context.Context, send func([]byte) bool, method string, params json.RawMessage) (json.RawMessage, error) {
	if method != methodRoots || !rawjson.IsEmpty(params) { // with params the client may answer otherwise
		return s.request(ctx, send, method, params)
	}
	if says := rawjson.Member(rawjson.Member(s.described().Capabilities, tool.CapabilityRoots), "listChanged"); string(says) != "true" {
		return s.request(ctx, send, method, params)
	}
	return s.roots.get(ctx, s.gone, func() (json.RawMessage, error) { return s.request(ctx, send, method, params) })
}

// asking returns Ask for a legacy client's call: requests go out beside the call's answer.
func (s *session) asking(c *tool.Client, x *wire.Exchange) func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		if err := checkSupported(c, method, params); err != nil {
			return nil, err
		}
		return s.ask(ctx, x.Send, method, params)
	}
}

// appScheme begins the URIs of apps (MCP Apps).
const appScheme = "ui://"

// maxApps bounds the remembered servers with apps.
const maxApps = 16

// reads notes that the client reads a resource, and reports whether it is an app, which may call tools
// of its server. s may be nil.
func (s *session) reads(id tool.ID) (app bool) {
	if s == nil || !strings.HasPrefix(id.Name, appScheme) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(s.apps), func(server string) bool { return server == id.Server })
	s.apps = append([]string{id.Server}, others[:min(len(others), maxApps-1)]...)
	return true
}

// appsOpen returns the servers whose apps the client has, the latest first. s may be nil.
func (s *session) appsOpen() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps
}

// uses counts a call of the named tool as a use. s may be nil.
func (s *session) uses(name string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = s.set.touch(name)
}

// expect notes, before the notification, that the client's list has changed. It returns the arguments
// of hold.
func (s *session) expect() (client string, listed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
	return s.client.Name, s.listed
}

func (s *session) connected() Connected {
	return Connected{Client: s.described().Name, Principal: s.principal, Transport: s.lastParty().Transport, Since: s.since}
}

// relisted notes that the client has asked for its list, which ends its hold, and returns the
// registered tools.
func (s *session) relisted() Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.listed)
	s.listed, s.stale = make(chan struct{}), false
	s.lists++
	return s.set
}
