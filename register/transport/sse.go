package transport

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"sync"
)

// pipedPrefix begins the ID of a session over HTTP+SSE.
const pipedPrefix = "sse-"

// SSE serves the transport of protocol version 2024-11-05.
type SSE struct {
	host     Host
	clients  *Clients
	endpoint string
	log      *slog.Logger
	open     sync.Map // session ID -> *pipe
}

// NewSSE serves clients of host. endpoint is the path of Messages. A session ends with its stream.
func NewSSE(host Host, clients *Clients, endpoint string, log *slog.Logger) *SSE {
	return &SSE{host: host, clients: clients, endpoint: endpoint, log: log}
}

// Events opens a session and its stream.
func (s *SSE) Events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "open the event stream with GET", http.StatusMethodNotAllowed)
		return
	}
	end, err := s.clients.stream(r.Context())
	if err != nil {
		Unavailable(w, err, retryAfter)
		return
	}
	defer end()
	session, err := s.clients.open(r.Context(), r.Context(), s.host, s.log, pipedPrefix+rand.Text(), true, nil)
	if err != nil {
		Unavailable(w, err, retryAfter)
		return
	}
	defer session.close()
	out := newAnswer(w)
	defer out.end()
	p := newPipe(session, func(message []byte) error { return s.event(session, out, "message", message) })
	s.open.Store(p.id, p)
	defer s.open.Delete(p.id)
	if s.event(session, out, "endpoint", []byte(s.endpoint+"?sessionId="+p.id)) != nil {
		return
	}
	p.lasting.Go(func() { p.forward(p.life, out.alive) })
	defer p.finish(nil)
	select {
	case <-p.life.Done():
	case <-s.host.Closing():
	}
}

// event writes to the stream of a session; the first error ends the session.
func (s *SSE) event(session *session, out *answer, name string, data []byte) error {
	err := out.event(name, data)
	if err != nil {
		session.end(nil)
	}
	return err
}

// Messages takes the messages that a session's client posts.
func (s *SSE) Messages(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("sessionId")
	found, ok := s.open.Load(id)
	if !ok || !found.(*pipe).isOf(r.Context()) { // a session of another principal does not exist for this one
		http.Error(w, "unknown session", http.StatusNotFound)
		return
	}
	message, ok := s.clients.read(w, r)
	if !ok {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	found.(*pipe).receive(message, by(context.Background(), r.Context()))
}
