package login

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"toolfinch/internal/discovery"
	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
)

// maxPending bounds the simultaneous pending logins.
const maxPending = 200

// Pending is a login that waits for a person. Any number of callers may share it.
type Pending struct {
	account *account
	ready   chan struct{} // closed when the fields below are set
	done    chan struct{} // closed when the login has ended
	end     context.CancelFunc
	life    context.Context

	// Set before ready is closed.
	at       string // URL for the browser: our start page, or the device grant's page
	userCode string // device grant: code that the person types in
	id       string
	start    Start
	verifier string
	redirect string
	place    *place
	client   registered
	scopes   []string
	listener *listener
	every    time.Duration // device grant: interval between requests for the token

	opened atomic.Bool // a browser was sent to the authorization server
	once   sync.Once   // guards the end

	mu     sync.Mutex // guards the fields below; never held over I/O
	err    error      // why the login has failed; nil after success
	status Status
	told   map[string]bool // see First
}

// maxTold bounds the keys that First remembers for one login.
const maxTold = 1000

// First reports whether this is its first call with key. After maxTold keys it reports false.
func (p *Pending) First(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told[key] || len(p.told) >= maxTold {
		return false
	}
	if p.told == nil {
		p.told = map[string]bool{}
	}
	p.told[key] = true
	return true
}

// ID returns a random name for the login. It is no secret.
func (p *Pending) ID() string { return p.id }

// URL returns the page to open in a browser: of the device grant, or the start page, which redirects only the asking
// user's browser.
func (p *Pending) URL() string { return p.at }

// UserCode returns the code to type into the page of the device grant; "" for another grant.
func (p *Pending) UserCode() string { return p.userCode }

// Done is closed when the login has ended. Err then says whether it failed.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Err returns why the login has failed; nil before its end and after success.
func (p *Pending) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Status describes the login after success.
func (p *Pending) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// url returns URL; "" before the login is ready.
func (p *Pending) url() string {
	select {
	case <-p.ready:
		return p.at
	default:
		return ""
	}
}

// unreadyFor is the pause after a login that could not begin.
const unreadyFor = 15 * time.Second

// errDevice refuses the device grant for a principal: another user could get the code from the principal, and log in
// with it.
var errDevice = errors.New("oauth.grant device_code cannot prove who logs in: per_user needs authorization_code")

// Begin begins a principal's login or joins the pending login, and returns once its URL is known. ctx bounds only
// this wait.
func (s *Server) Begin(ctx context.Context, principal string) (*Pending, error) {
	if principal != "" && s.settings.Grant == GrantDevice {
		return nil, errDevice
	}
	a := s.account(principal)
	p, began, err := a.join()
	if err != nil {
		return nil, err
	}
	if began && !s.logins.spawn(func() { p.run() }) {
		p.finish(errClosed)
	}
	select {
	case <-p.ready:
	case <-p.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// Probe asks the server whether it wants a login, and keeps the challenge of its answer.
func (s *Server) Probe(ctx context.Context, principal string) (wants bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return false, errors.New("the configured URL is none")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	response, err := s.client.Do(request)
	if err != nil {
		return false, plain(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		return false, nil
	}
	a := s.account(principal)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = challengeOf(response)
	return true, nil
}

// Obtain gets a new token, for a grant that needs no person.
func (s *Server) Obtain(ctx context.Context, principal string) (Status, error) {
	a := s.account(principal)
	var c *credential
	err := s.logins.vault.Locked(ctx, s.row(principal), func(ctx context.Context) (err error) {
		c, err = a.obtain(ctx, nil)
		return err
	})
	if err != nil {
		return Status{}, err
	}
	a.happened()
	return c.status(s.name, principal), nil
}

// Pending returns a principal's pending login; nil for none.
func (s *Server) Pending(principal string) *Pending {
	a := s.account(principal)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending
}

// join returns the pending login, or a new login.
func (a *account) join() (p *Pending, began bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pending; p != nil && covers(p.wants(), a.asked.scopes) {
		return p, false, nil
	}
	if a.unready != nil && time.Since(a.unreadyAt) < unreadyFor {
		return nil, false, a.unready
	}
	p = &Pending{account: a, ready: make(chan struct{}), done: make(chan struct{}), id: rand.Text(), verifier: oauth2.GenerateVerifier()}
	p.life, p.end = context.WithTimeoutCause(a.logins.life, pendingFor, fmt.Errorf("nobody has logged in within %s", pendingFor))
	if err := a.logins.add(p); err != nil {
		p.end()
		return nil, false, err
	}
	if old := a.pending; old != nil { // it lacks scopes that the server has asked for since
		a.logins.spawn(func() { old.finish(errors.New("another login, with more scopes, has taken its place")) })
	}
	a.pending = p
	return p, true, nil
}

// wants returns the scopes that the login asks for. The lock of the account is held.
func (p *Pending) wants() []string {
	select {
	case <-p.ready:
		return p.scopes
	default:
		return p.account.asked.scopes // prepare will read these
	}
}

func (l *Logins) add(p *Pending) error {
	if err := l.under.Take(1); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending[p.id] = p
	return nil
}

// run carries out the login.
func (p *Pending) run() {
	err := p.prepare()
	if err != nil {
		p.finish(err)
		return
	}
	if p.userCode != "" {
		p.finish(p.poll())
		return
	}
	<-p.life.Done()
	p.finish(context.Cause(p.life)) // without effect if the login has ended already
}

// prepare gets ready for the person's browser.
func (p *Pending) prepare() (err error) {
	a := p.account
	ctx, cancel := context.WithTimeout(p.life, renewWithin)
	defer cancel()
	a.mu.Lock()
	asked := a.asked
	a.mu.Unlock()
	if p.place, err = a.discover(ctx, asked); err != nil {
		return err
	}
	if !p.place.found && !asked.refused && !a.settings.Set {
		return errors.New("it asks for no login, and names no authorization server")
	}
	before, err := a.Server.read(ctx, a.principal)
	if err != nil {
		return err
	}
	var had []string
	if before != nil && before.Issuer == p.place.meta.Issuer {
		had = union(before.Scopes, before.Wanted)
	}
	if before != nil && before.Dead != "" { // an authorization server that refuses the login may have forgotten the client, too
		if err := a.forget(ctx, before.Issuer, before.Client.ID); err != nil {
			return err
		}
	}
	p.scopes = a.wanted(p.place, asked, had)
	if a.settings.Grant == GrantDevice {
		return p.prepareDevice(ctx, before)
	}
	if !discovery.IsWeb(p.place.meta.AuthorizationEndpoint) {
		return fmt.Errorf("the authorization server %s names no https URL to log in at", p.place.meta.Issuer)
	}
	client, known, err := a.configured(p.place.meta, before)
	if err != nil {
		return err
	}
	if err := p.listen(ctx); err != nil {
		return err
	}
	if !known {
		if client, err = a.register(ctx, p.place, p.redirect); err != nil {
			return err
		}
	}
	p.client = client
	p.start = Start{
		ID: p.id, Server: a.name, Principal: a.principal, Redirect: p.redirect, Until: time.Now().Add(pendingFor),
		At: codeRequest{p.place, client, p.redirect, p.verifier}.askedAt(p.scopes),
	}
	if p.at, err = a.logins.binder.startURL(p.start); err != nil {
		return err
	}
	close(p.ready)
	return nil
}

// answered gets and keeps the token for the code in an answer.
func (p *Pending) answered(ctx context.Context, q url.Values) error {
	t, err := p.account.exchange(ctx, codeRequest{p.place, p.client, p.redirect, p.verifier}, q)
	if err != nil {
		return err
	}
	return p.keep(ctx, t)
}

// codeRequest holds the parameters of a request for a code, which its exchange repeats.
type codeRequest struct {
	place    *place
	client   registered
	redirect string
	verifier string
}

// askedAt returns the authorization server's URL for a browser, without a state.
func (c codeRequest) askedAt(scopes []string) string {
	config := oauth2.Config{ClientID: c.client.ID, Scopes: scopes, RedirectURL: c.redirect, Endpoint: oauth2.Endpoint{AuthURL: c.place.meta.AuthorizationEndpoint}}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(c.verifier)}
	if c.place.resource != "" {
		options = append(options, oauth2.SetAuthURLParam("resource", c.place.resource))
	}
	if covers(scopes, []string{offline}) { // without consent the scope is ignored (OpenID Connect Core 11)
		options = append(options, oauth2.SetAuthURLParam("prompt", "consent"))
	}
	return config.AuthCodeURL("", options...)
}

// exchange gets the token for the code in an answer (RFC 6749 4.1.2, RFC 9207).
func (s *Server) exchange(ctx context.Context, asked codeRequest, q url.Values) (*token, error) {
	meta := asked.place.meta
	iss := q.Get("iss")
	switch {
	case iss == "" && q.Has("iss"), iss != "" && iss != meta.Issuer:
		return nil, fmt.Errorf("the answer is of %q, not of the authorization server %s: it is not used", rawjson.Clip(iss, 100), meta.Issuer)
	case iss == "" && meta.IssSupported:
		return nil, fmt.Errorf("the answer lacks the name of the authorization server %s, which always gives it: it is not used", meta.Issuer)
	}
	if code := q.Get("error"); code != "" {
		return nil, s.refusal(0, code, q.Get("error_description"))
	}
	if q.Get("code") == "" {
		return nil, errors.New("the answer has no code")
	}
	form := url.Values{"grant_type": {string(GrantCode)}, "code": {q.Get("code")}, "redirect_uri": {asked.redirect}, "code_verifier": {asked.verifier}}
	if asked.place.resource != "" {
		form.Set("resource", asked.place.resource)
	}
	return s.ask(ctx, meta.TokenEndpoint, asked.client, form)
}

// keep stores the token that the login has brought.
func (p *Pending) keep(ctx context.Context, t *token) error {
	a := p.account
	c := a.credentialOf(p.place, p.client, p.scopes, t)
	err := a.logins.vault.Locked(ctx, a.row(a.principal), func(ctx context.Context) error {
		err := a.write(ctx, a.principal, c)
		if err == nil {
			a.keep(c)
		}
		return err
	})
	if err != nil {
		return wrap("the token cannot be stored", err)
	}
	a.rested()
	p.mu.Lock()
	p.status = c.status(a.name, a.principal)
	p.mu.Unlock()
	a.event(ctx, identity.EventLogin, a.principal, c, nil)
	a.log.Info("logged in", "principal", a.principal, "issuer", c.Issuer, "scopes", strings.Join(c.may(), " "))
	return nil
}

// finish ends the login, once.
func (p *Pending) finish(err error) {
	p.once.Do(func() {
		a := p.account
		a.logins.mu.Lock()
		delete(a.logins.pending, p.id)
		a.logins.mu.Unlock()
		a.logins.under.Release(1)
		a.mu.Lock()
		if a.pending == p {
			a.pending = nil
		}
		ready := false
		select {
		case <-p.ready:
			ready = true
		default: // the login could not begin
			a.unready, a.unreadyAt = err, time.Now()
		}
		a.mu.Unlock()
		if err != nil && ready {
			p.doubt(err)
		}
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		p.end()
		p.listener.release()
		a.logins.Ended(p.id)
		if err == nil {
			a.happened()
		} else {
			a.event(context.WithoutCancel(p.life), identity.EventLogin, a.principal, nil, err)
			a.log.Info("a login has ended without a token", "principal", a.principal, "error", err)
		}
		close(p.done)
		if err != nil {
			a.logins.failed(p.id)
		}
	})
}

// doubt drops the registration of a client with which a login has failed: because the authorization server refuses it,
// or because it has shown a person an error page instead of coming back.
func (p *Pending) doubt(err error) {
	refusal, refused := errors.AsType[*Refusal](err)
	if !p.opened.Load() && !(refused && refusal.final()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.life), leeway.Of(doubtWithin))
	defer cancel()
	if err := p.account.forget(ctx, p.place.meta.Issuer, p.client.ID); err != nil {
		p.account.log.Warn("a registration could not be dropped", "error", err)
	}
}

// doubtWithin bounds how long the vault may keep the end of a login waiting.
const doubtWithin = 5 * time.Second

// listen chooses the redirect URL, and listens there if nobody does: the configured URL, the proxy's own, or a loopback
// port. It prefers a free port that this client is registered with.
func (p *Pending) listen(ctx context.Context) error {
	a := p.account
	if a.settings.RedirectURL != "" {
		p.redirect = a.settings.RedirectURL
		u, err := url.Parse(p.redirect)
		if err != nil || !discovery.IsLoopback(u.Hostname()) {
			return err
		}
		port, _ := strconv.Atoi(u.Port())
		if own := originOf(a.logins.callback()); port == 0 || own == discovery.Origin(u) {
			return nil // the proxy serves this URL
		}
		p.listener, err = a.logins.listen(port)
		return err
	}
	if own := a.logins.callback(); own != "" {
		p.redirect = own
		return nil
	}
	var ports []int
	for redirect := range a.registrations(ctx, p.place.meta.Issuer) {
		if u, err := url.Parse(redirect); err == nil && u.Hostname() == "127.0.0.1" && u.Path == callbackPath {
			port, _ := strconv.Atoi(u.Port())
			ports = append(ports, port)
		}
	}
	var err error
	for _, port := range append(ports, 0) {
		if p.listener, err = a.logins.listen(port); err == nil {
			p.redirect = fmt.Sprintf("http://127.0.0.1:%d%s", p.listener.port, callbackPath)
			return nil
		}
	}
	return wrap("nothing can listen for the end of the login", err)
}

// listener serves browsers at a loopback port, while a login needs it.
type listener struct {
	logins *Logins
	port   int
	server *http.Server
	uses   int // number of logins; guarded by Logins.mu
}

func (l *Logins) listen(port int) (*listener, error) {
	l.mu.Lock()
	if one := l.listeners[port]; one != nil && port != 0 {
		one.uses++
		l.mu.Unlock()
		return one, nil
	}
	l.mu.Unlock()
	at, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	one := &listener{logins: l, port: at.Addr().(*net.TCPAddr).Port, uses: 1}
	one.server = &http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	l.mu.Lock()
	l.listeners[one.port] = one
	l.mu.Unlock()
	if !l.spawn(func() { _ = one.server.Serve(at) }) {
		_ = at.Close()
		return nil, errClosed
	}
	return one, nil
}

// release ends one use. The last release closes the listener, after browsers have read the last page.
func (one *listener) release() {
	if one == nil {
		return
	}
	l := one.logins
	l.mu.Lock()
	one.uses--
	over := one.uses == 0
	if over {
		delete(l.listeners, one.port)
	}
	l.mu.Unlock()
	if !over {
		return
	}
	shut := func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if one.server.Shutdown(ctx) != nil {
			_ = one.server.Close()
		}
	}
	if !l.spawn(shut) {
		_ = one.server.Close()
	}
}
