package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/leeway"
	"toolfinch/transport"
	"toolfinch/trust"
	"toolfinch/wire"
)

const (
	// dialWithin bounds how long a connection to another replica may take to be there.
	dialWithin = 3 * time.Second
	// askedAfter and answeredWithin say when a connection on which nothing comes is found to be
	// dead.
	askedAfter, answeredWithin = 5 * time.Second, 5 * time.Second
	// pause is before a replica is asked again whose connection broke, or that refused it: then it
	// is said to be gone.
	pause = 50 * time.Millisecond
	// retryAfter is in seconds: a session moves within some 0.1 s.
	retryAfter = "1"
	// storeAgain is between two attempts to look up where a session is, or to hand one over, and storePatience
	// how long a store that is away is waited for: longer than a restart takes.
	storeAgain, storePatience = time.Second, 10 * time.Second
	// maxTurns is how often it is looked up anew where a session is, while it moves.
	maxTurns = 5
)

// Reach returns the connections to other replicas.
func Reach(secure *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Transport{
		TLSClientConfig: secure.Clone(), Protocols: protocols, TLSHandshakeTimeout: leeway.Of(dialWithin),
		DialContext:        (&net.Dialer{Timeout: leeway.Of(dialWithin)}).DialContext,
		IdleConnTimeout:    5 * time.Minute,
		DisableCompression: true, // bytes stay bytes
		HTTP2:              &http.HTTP2Config{SendPingTimeout: askedAfter, PingTimeout: answeredWithin},
	}
}

// MaxStreams is how many requests one connection between replicas carries at once.
const MaxStreams = 10_000

// NewServer returns what serves other replicas.
func NewServer(settings *tls.Config, handler http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler: handler, TLSConfig: settings.Clone(), Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: MaxStreams, SendPingTimeout: askedAfter, PingTimeout: answeredWithin},
	}
}

// Serve serves at a listener until ctx ends, and cuts off the requests in flight then. server may
// be shut down before.
func Serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-ended:
		if !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		ended <- err
		<-ctx.Done()
	case <-ctx.Done():
	}
	err := server.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// outcome is what became of a request that was handed to another replica.
type outcome int

const (
	answered    outcome = iota // or the client is gone
	brokenOff                  // the replica was lost meanwhile, and the client was told
	notThere                   // the replica is gone, or does not have the session
	refused                    // nobody listens at the replica's address
	unreachable                // whether it is gone is not known
	again                      // the connection broke; the request may be sent again
)

// outcomes are what metrics call them.
var outcomes = [...]string{"answered", "lost", "not_there", "refused", "unreachable", "again"}

// over reports whether the client is answered.
func (o outcome) over() bool { return o <= brokenOff }

var errNotThere = errors.New("the session is not there")

// hand hands a request to another replica, and its answer to the client. pass says that the
// replica is to take in the session, or a new one.
func (h *Homes) hand(w http.ResponseWriter, r *http.Request, sent []byte, to Peer, pass bool) (what outcome) {
	// connected says that there is a connection, and begun that something of the request was sent. net/http
	// sends it again where a connection that is ending says that it did not take it: then only that counts.
	var connected, begun atomic.Bool
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(h.life, cancel)()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false); begun.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }, WroteHeaders: func() { begun.Store(true) },
	})
	slow := transport.NewTimed(w)
	defer slow.End()
	proxy := httputil.ReverseProxy{
		Transport: h.hands, BufferPool: buffers, // event streams are passed on at once
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "https", Host: to.Address, Path: p.In.URL.Path, RawPath: p.In.URL.RawPath, RawQuery: p.In.URL.RawQuery}
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values, ok := p.In.Header[name]; ok { // as if the client had come there
					p.Out.Header[name] = values
				}
			}
			for _, name := range []string{"Connection", "Upgrade"} { // which ReverseProxy passes on, and HTTP/2 refuses
				p.Out.Header.Del(name)
			}
			dropOwn(p.Out.Header)
			p.Out.Header.Set(headerCarried, carry(r.Context(), to.ID, pass))
			p.Out.Body, p.Out.ContentLength = http.NoBody, int64(len(sent))
			if len(sent) > 0 {
				p.Out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(sent)), nil }
				p.Out.Body, _ = p.Out.GetBody() // never fails
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			if answer.StatusCode == http.StatusMisdirectedRequest && answer.Header.Get(headerAnswer) != "" {
				return errNotThere
			}
			h.received(r, sent, answer, &what)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			what = h.failed(w, r, sent, to, connected.Load(), begun.Load(), err)
		},
		ErrorLog: silent,
	}
	if began := time.Now(); r.Method != http.MethodGet {
		defer func() { h.handed(outcomes[what], time.Since(began)) }() // ServeHTTP panics where an answer breaks off
	}
	proxy.ServeHTTP(slow, r.WithContext(traced))
	return what
}

// failed says what became of a request that has no answer.
func (h *Homes) failed(w http.ResponseWriter, r *http.Request, sent []byte, to Peer, connected, begun bool, err error) outcome {
	switch {
	case errors.Is(err, errNotThere):
		return notThere
	case r.Context().Err() != nil:
		return answered
	case begun && once(sent):
		h.log.Warn("a replica was lost while it answered", "replica", to.ID, "error", err)
		if answer := lost(sent); len(answer) > 0 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(answer) // an error means that the client is gone
		} else {
			http.Error(w, whyLost, http.StatusBadGateway)
		}
		return brokenOff
	case begun:
		return again
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF): // it is ending, or has ended
		return refused
	case connected: // the request itself is at fault, or the connection ended just then
		h.log.Warn("a request could not be handed over", "replica", to.ID, "error", err)
		return again
	case !h.isThere(to.ID):
		return notThere
	}
	h.log.Warn("a replica cannot be reached", "replica", to.ID, "error", err)
	return unreachable
}

// isThere reports whether a replica is there, or may be yet to come back.
func (h *Homes) isThere(id string) bool {
	return slices.ContainsFunc(h.peers(), func(p Peer) bool { return p.ID == id })
}

// received prepares the answer of another replica for the client. what becomes brokenOff if it
// breaks off.
func (h *Homes) received(r *http.Request, sent []byte, answer *http.Response, what *outcome) {
	uncarry(r.Context(), answer.Header)
	body, events := answer.Body, strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream")
	s := &stream{ReadCloser: body, ctx: r.Context(), sent: sent, events: events, what: what, closed: func() bool { return true }}
	if events && r.Method == http.MethodGet {
		trust.Lasts(r.Context())
		s.ending, s.closed = h.streams, context.AfterFunc(h.streams, func() { _ = body.Close() })
	}
	answer.Body = s
}

// stream is an answer of another replica. At the end of an event stream the client is told if the
// replica is lost.
type stream struct {
	io.ReadCloser
	ctx    context.Context // of the request
	sent   []byte
	events bool     // it is an event stream
	what   *outcome // of the request
	tail   [2]byte  // what was read last
	over   *bytes.Reader

	ending context.Context // nil: the stream ends with its request
	closed func() bool     // is to be called at the end
}

func (s *stream) Close() error {
	s.closed()
	return s.ReadCloser.Close()
}

func (s *stream) Read(p []byte) (int, error) {
	if s.over != nil {
		return s.over.Read(p)
	}
	n, err := s.ReadCloser.Read(p)
	for _, b := range p[:n] {
		s.tail = [2]byte{s.tail[1], b}
	}
	if err != nil && s.ending != nil && s.ending.Err() != nil {
		return n, io.EOF
	}
	if err == nil || errors.Is(err, io.EOF) || s.ctx.Err() != nil {
		return n, err
	}
	*s.what = brokenOff
	if !s.events || s.tail != [2]byte{'\n', '\n'} {
		return n, err
	}
	// Between two events, an answer may follow.
	s.over = bytes.NewReader(nil)
	if len(s.sent) > 0 {
		s.over = bytes.NewReader(bytes.Join([][]byte{[]byte("event: message\ndata: "), lost(s.sent), []byte("\n\n")}, nil))
	}
	if n > 0 {
		return n, nil
	}
	return s.over.Read(p)
}

// codeLost is the JSON-RPC code of a request whose replica was lost, and whyLost the reason.
const (
	codeLost = -32000
	whyLost  = "the process that was answering this request is gone: the call may or may not have happened; check before you repeat it"
)

// lost answers the requests in what a client sent to a replica that was lost meanwhile.
func lost(sent []byte) []byte {
	messages, _, batch := wire.ParseMessages(sent)
	var answers [][]byte
	for _, m := range messages {
		if !m.IsRequest() {
			continue
		}
		refusal := wire.Refusal{ID: m.ID, Code: codeLost, Reason: whyLost}
		answers = append(answers, refusal.Answer())
	}
	all := bytes.Join(answers, []byte{','})
	if batch {
		return bytes.Join([][]byte{{'['}, all, {']'}}, nil)
	}
	return all
}

// once reports whether what a client sent must not be done twice: a call of a tool, several
// messages, or what is no message, because the REST API takes calls, too.
func once(sent []byte) bool {
	messages, _, batch := wire.ParseMessages(sent)
	return batch || len(sent) > 0 && len(messages) == 0 || slices.ContainsFunc(messages, func(m *wire.Inbound) bool {
		return m.Method == string(mcp.MethodToolsCall) || m.Method == string(mcp.MethodInitialize)
	})
}

// Elsewhere is that of transport.Homes.
func (v *View) Elsewhere(w http.ResponseWriter, r *http.Request, id string, sent []byte, here http.Handler) {
	h := v.homes
	if err := h.forwarded.Take(1); err != nil {
		transport.Unavailable(w, err, retryAfter)
		return
	}
	defer h.forwarded.Release(1)
	c, isCarried := r.Context().Value(carriedKey{}).(carried)
	place := Place{}
	if id != "" {
		var ok bool
		if place, ok = v.owned(r.Context(), id); !ok {
			transport.Unknown(w)
			return
		}
	}
	switch {
	case isCarried && (!c.Pass || h.draining.Load()):
		if id != "" && h.arrived(id) {
			h.serve(w, r, sent, here)
			return
		}
		if id != "" && h.isGone(HashOf(id)) { // else it is adopted while it is stored
			transport.Unknown(w)
			return
		}
		refuse(w, answerElsewhere)
	case id == "":
		h.pass(w, r, sent)
	case strings.HasPrefix(id, transport.PipedPrefix):
		h.toStream(w, r, sent, place.Home)
	default:
		v.find(w, r, id, sent, place.Home, here)
	}
}

// Continue is that of transport.Homes.
func (v *View) Continue(w http.ResponseWriter, r *http.Request, state string, sent []byte) bool {
	h := v.homes
	place, ok := v.owned(r.Context(), state)
	if _, isCarried := r.Context().Value(carriedKey{}).(carried); !ok || isCarried || place.Home.ID == h.me.ID {
		return false
	}
	if err := h.forwarded.Take(1); err != nil {
		transport.Unavailable(w, err, retryAfter)
		return true
	}
	defer h.forwarded.Release(1)
	switch h.hand(w, r, sent, place.Home, false) {
	case notThere, refused:
		return false // here the client is told that the call is gone
	case unreachable, again:
		unavailable(w, "the replica that has this call cannot be reached")
	}
	return true
}

// toStream hands a message to the replica that has the stream of its session, with which the
// session ends.
func (h *Homes) toStream(w http.ResponseWriter, r *http.Request, sent []byte, at Peer) {
	what := notThere
	if at.ID != h.me.ID {
		what = h.hand(w, r, sent, at, false)
	}
	switch what {
	case notThere, refused:
		transport.Unknown(w)
	case unreachable, again:
		unavailable(w, "the replica that has this session cannot be reached")
	}
}

// find hands a request to the replica that has its session, or adopts the session.
func (v *View) find(w http.ResponseWriter, r *http.Request, id string, sent []byte, at Peer, here http.Handler) {
	h, hash := v.homes, HashOf(id)
	if moved, ok := h.moved.get(hash); ok {
		at = moved
	}
	tried := false  // the replica has refused a connection
	cutOff := false // it could not be reached, and was asked over the store
	turns, until := 0, time.Now().Add(h.patience)
	// waits waits for the store. It reports false when the client is gone, or was told why nothing
	// answers.
	waits := func(why string) bool {
		if time.Now().After(until) {
			unavailable(w, why)
			return false
		}
		turns--
		return waited(r.Context(), storeAgain)
	}
	for ; turns < maxTurns; turns++ {
		if at.ID != "" && at.ID != h.me.ID {
			what := h.reach(w, r, sent, at, false)
			if what == refused && !tried && h.isThere(at.ID) {
				what, tried = again, true
			}
			switch what {
			case answered, brokenOff:
				return
			case refused, unreachable:
				h.cutOff(at.ID, what)
				cutOff = true
				if !h.back(r.Context(), hash, at, what == refused) {
					unavailable(w, "the replica that has this session cannot be reached")
					return
				}
			case again:
				if !waited(r.Context(), pause) {
					return
				}
				continue
			}
			h.moved.drop(hash)
		}
		storing, cancel := context.WithTimeout(r.Context(), leeway.Of(storeWithin))
		row, found, err := h.rows.Find(storing, hash)
		cancel()
		switch {
		case err != nil: // whoever has the session answers without the store
			if h.search(w, r, hash, sent, at) || !waits("where this session lives cannot be looked up now") {
				return
			}
			continue
		case !found || h.isGone(hash):
			transport.Unknown(w)
			return
		case row.Home != "" && row.Home != at.ID && row.Home != h.me.ID:
			at = Peer{row.Home, row.Address}
			h.moved.put(hash, at)
			continue
		case h.draining.Load():
			h.pass(w, r, sent)
			return
		case row.Home == "" && cutOff && h.settle(w, r, sent, hash, at):
			return
		}
		mine, err := v.adopt(r.Context(), id, row)
		switch {
		case err != nil && h.draining.Load(): // this replica was told to stop meanwhile
		case errors.Is(err, errStore):
			if !waits("this session cannot be taken over now") {
				return
			}
		case err != nil:
			h.log.Warn("a session cannot be adopted", "view", v.name, "error", err)
			unavailable(w, "this session cannot be taken over now")
			return
		case mine:
			h.serve(w, r, sent, here)
			return
		}
		at = Peer{} // whoever was faster
	}
	unavailable(w, "this session moves too often")
}

// search asks all replicas but one for a session, and reports whether one had it.
func (h *Homes) search(w http.ResponseWriter, r *http.Request, hash [32]byte, sent []byte, but Peer) bool {
	at, found := h.askOthers(w, r, sent, but.ID)
	if found {
		h.moved.put(hash, at)
	}
	return found
}

// askOthers hands a request to the other replicas but one, one after the other, until one answers it.
func (h *Homes) askOthers(w http.ResponseWriter, r *http.Request, sent []byte, but string) (Peer, bool) {
	for _, peer := range h.peers() {
		if peer.ID == but {
			continue
		}
		switch what := h.reach(w, r, sent, peer, false); what {
		case answered, brokenOff:
			return peer, true
		case refused, unreachable:
			h.cutOff(peer.ID, what)
		}
	}
	return Peer{}, false
}

// Others hands a request without a body that this replica cannot answer to the others, one after the other, until
// one does that does not say NotHere. It reports false when none did.
func (h *Homes) Others(w http.ResponseWriter, r *http.Request) bool {
	if err := h.forwarded.Take(1); err != nil {
		transport.Unavailable(w, err, retryAfter)
		return true
	}
	defer h.forwarded.Release(1)
	_, answered := h.askOthers(w, r, nil, "")
	return answered
}

// NotHere answers another replica that this one cannot answer.
func NotHere(w http.ResponseWriter) { refuse(w, answerElsewhere) }

// waited waits. It reports false when the client is gone.
func waited(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// arrived waits for the adoption of a session that is on its way here, and reports whether the
// session lives here now. Others are told of it before the session can be found.
func (h *Homes) arrived(id string) bool {
	mine, _, _ := h.adoptions.Do(id, func() (any, error) { return h.isMine(id), nil })
	return mine == true
}

// isGone reports whether a session has ended here and is stored still.
func (h *Homes) isGone(hash [32]byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone[hash]
}

// serve answers a request here.
func (h *Homes) serve(w http.ResponseWriter, r *http.Request, sent []byte, here http.Handler) {
	if len(sent) > 0 {
		r = r.WithContext(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	here.ServeHTTP(w, r)
}

// pass hands a request to any other replica, because this one is about to end.
func (h *Homes) pass(w http.ResponseWriter, r *http.Request, sent []byte) {
	for _, peer := range h.peers() {
		if h.hand(w, r, sent, peer, true).over() {
			return
		}
	}
	unavailable(w, "this replica is about to end, and no other one can be reached")
}

func unavailable(w http.ResponseWriter, why string) {
	transport.Unavailable(w, errors.New(why+": try again"), retryAfter)
}

// silent takes what failed is told of.
var silent = log.New(io.Discard, "", 0)

// buffers are those of answers on their way.
var buffers = &bufferPool{pool: sync.Pool{New: func() any { return new([16 << 10]byte) }}}

type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte  { return b.pool.Get().(*[16 << 10]byte)[:] }
func (b *bufferPool) Put(p []byte) { b.pool.Put((*[16 << 10]byte)(p)) }
