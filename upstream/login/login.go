// Package login logs toolfinch in to upstream servers with OAuth 2.1: it finds the
// authorization server, gets tokens, keeps them in a vault, refreshes them and adds
// them to requests. It never waits for a human on behalf of a request: a request that
// needs a human fails with *Needed.
//
// It does not use the official Go SDK's login flow, which cannot leave the resource out, prefers a metadata document to a
// pre-registered client, forgets registrations, and refreshes without scope and resource; nor the SDK's and x/oauth2's
// readers of answers, which refuse a number in quotes and repeat secrets in errors.
package login

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/internal/identity"
	"toolfinch/internal/limit"
)

// Grant is an OAuth grant: the way to get a token.
type Grant string

// GrantCode and GrantDevice need a person; GrantCredentials does not.
const (
	GrantCode        Grant = "authorization_code"
	GrantDevice      Grant = "device_code"
	GrantCredentials Grant = "client_credentials"
)

// deviceGrant is the grant_type of the device grant.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// callbackPath is the path of redirect URLs on loopback.
const callbackPath = "/oauth/callback"

// ResourceNone omits the parameter resource, which some servers refuse.
const ResourceNone = "none"

// Settings say how to log in to a server. With the zero value, a server that asks for a login makes us find its
// authorization server and register this client there.
type Settings struct {
	Off         bool   // no login: the server's refusals are passed on
	Set         bool   // a login is configured: a refusal without a challenge needs a login, too
	Grant       Grant  // default GrantCode
	ClientID    string // ID of a client that was registered before
	Secret      string // secret of that client
	Issuer      string // authorization server of the client; default: the first that the server names
	MetadataURL string // the client's metadata document (CIMD); "" for none
	Scopes      []string
	Resource    string // default: as the server says; ResourceNone for none
	// AllowPrivate lets the authorization server have a private address. The server's own host may always be
	// private.
	AllowPrivate bool
	AssumePKCE   bool   // the authorization server supports PKCE with S256, but does not say so
	RedirectURL  string // the browser is sent back to this URL; default: a port of loopback
	PerUser      bool   // each principal has its own login
	TLS          discovery.TLS
}

// EndHere makes the browser come back to this process instead of a RedirectURL that another machine serves. It
// fails if the client is registered for that URL only.
func (s *Settings) EndHere() error {
	at, err := url.Parse(s.RedirectURL)
	if cmp.Or(s.Grant, GrantCode) != GrantCode || s.RedirectURL == "" || err != nil || discovery.IsLoopback(at.Hostname()) {
		return err
	}
	if s.ClientID != "" || s.MetadataURL != "" {
		return errors.New("its client is registered with the redirect_url, where the browser comes back to the toolfinch that serves there: log in at the page of that, or with --device")
	}
	s.RedirectURL = ""
	return nil
}

// Interactive reports whether a login needs a person.
func (s *Server) Interactive() bool { return s.settings.interactive() }

func (s Settings) interactive() bool { return s.Grant != GrantCredentials }

// Vault stores tokens. Its methods are safe for concurrent use, also by several processes.
type Vault interface {
	// Get returns nil for an unknown name.
	Get(ctx context.Context, name string) ([]byte, error)
	Put(ctx context.Context, name string, value []byte) error
	// Delete does nothing for an unknown name.
	Delete(ctx context.Context, name string) error
	// Names returns the names that begin with prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// Locked runs f under a lock on name, which all processes share.
	Locked(ctx context.Context, name string, f func(ctx context.Context) error) error
}

// Needed is the error of a request that needs a login by a person.
type Needed struct {
	Server string
	URL    string // page for a browser; set only for clients that may begin the login
	Why    string // why the present login is not enough; "" if nobody has logged in
	Scopes []string
	token  string // the token that was not enough; "" for none
}

func (n *Needed) Error() string {
	text := "needs a login: run `toolfinch server login " + n.Server + "`"
	if n.URL != "" {
		text += ", or open " + n.URL
	}
	if n.Why != "" {
		text += " (" + n.Why + ")"
	}
	return text
}

// Mark distinguishes the token that was not enough from other tokens.
func (n *Needed) Mark() string { return markOf(n.token) }

func markOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// Options configure Logins.
type Options struct {
	Vault Vault
	Log   *slog.Logger // default: nothing is logged
	Agent string       // User-Agent of requests
	// Callback returns the loopback URL that Logins.ServeHTTP is served at. If it is "", the default, each login
	// opens a port.
	Callback func() string
	Record   identity.Record // audit log of logins and renewals; may be nil
	// Told reports whether Server.Changed is called now for vault changes by other processes. If not, requests
	// read the vault again every ten seconds. Default: never.
	Told func() bool
	// Failed gets the ID of each login that has ended here without a token, so that other processes call Ended.
	// It may be nil.
	Failed func(id string)
	// Key is shared with the processes that serve each other's logins; zero for no such process.
	Key [32]byte
	// Forward sends the query of an authorization server's answer to the processes with Key, which pass it to
	// Answer. Default: there are none.
	Forward func(ctx context.Context, query string) bool
	// Prove reports whether the browser that requests a start page belongs to the user who asked for the login.
	// If not, it has answered the request. Default: ProveLocally.
	Prove func(w http.ResponseWriter, r *http.Request, s Start) bool
	// Whose returns the principal that an access token proves; "" for none. Identify needs it.
	Whose func(r *http.Request, token string) string
	// Attempt reports whether the address of a request may cost an issuer or the log something once more. Default:
	// always.
	Attempt func(r *http.Request) bool
}

// Logins are one process's logins to all servers. Its methods are safe for concurrent use.
type Logins struct {
	vault    Vault
	log      *slog.Logger
	agent    string
	callback func() string
	record   identity.Record
	told     func() bool
	failed   func(id string)
	forward  func(ctx context.Context, query string) bool
	prove    func(w http.ResponseWriter, r *http.Request, s Start) bool
	whose    func(r *http.Request, token string) string
	attempt  func(r *http.Request) bool
	binder   *binder
	life     context.Context // for work that belongs to no request
	end      context.CancelFunc
	work     sync.WaitGroup

	under *limit.Limit // pending logins

	mu        sync.Mutex // guards the fields below; never held over I/O
	closed    bool
	pending   map[string]*Pending // by ID
	ended     []string            // IDs of the logins that ended last
	another   chan struct{}       // closed and replaced when a login ends
	listeners map[int]*listener   // by port
}

// New returns Logins, and reads nothing from the vault.
func New(o Options) *Logins {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Callback == nil {
		o.Callback = func() string { return "" }
	}
	if o.Told == nil {
		o.Told = func() bool { return false }
	}
	if o.Failed == nil {
		o.Failed = func(string) {}
	}
	if o.Forward == nil {
		o.Forward = func(context.Context, string) bool { return false }
	}
	if o.Prove == nil {
		o.Prove = ProveLocally
	}
	if o.Attempt == nil {
		o.Attempt = func(*http.Request) bool { return true }
	}
	l := &Logins{vault: o.Vault, log: o.Log, agent: o.Agent, callback: o.Callback, record: o.Record, told: o.Told, failed: o.Failed, forward: o.Forward, prove: o.Prove, whose: o.Whose, attempt: o.Attempt, binder: newBinder(o.Key), another: make(chan struct{}), pending: map[string]*Pending{}, listeners: map[int]*listener{}}
	l.life, l.end = context.WithCancel(context.Background())
	l.under = limit.New("pending_logins", maxPending, "logins are under way", "finish one, or try again in ten minutes")
	return l
}

// Limits returns the limit of pending logins.
func (l *Logins) Limits() []*limit.Limit { return []*limit.Limit{l.under} }

// Close ends pending logins, and waits for all goroutines.
func (l *Logins) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.work.Wait()
}

// spawn runs f, which must end with the life. It reports false, without running f, after Close.
func (l *Logins) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.work.Go(f)
	}
	return !l.closed
}

// Server is one server that may need logins.
type Server struct {
	logins   *Logins
	name     string
	url      string
	settings Settings
	client   *http.Client  // for requests to authorization servers
	renewals chan struct{} // holds a value for each running renewal
	log      *slog.Logger

	mu       sync.Mutex // guards accounts; never held over I/O
	accounts map[string]*account
}

// maxAccounts bounds the principals whose tokens are kept in memory for one server. The tokens of other principals
// are read again from the vault.
const maxAccounts = 1024

// Mask returns text with the server's tokens replaced by ***: a server may repeat them.
func (s *Server) Mask(text string) string {
	if s == nil {
		return text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		a.mu.Lock()
		if c := a.now; c != nil {
			for _, token := range []string{c.AccessToken, c.RefreshToken} {
				if len(token) > shortToken {
					text = strings.ReplaceAll(text, token, "***")
				}
			}
		}
		a.mu.Unlock()
	}
	return text
}

// shortToken is the most bytes of a token that is not masked, because it may be a part of words.
const shortToken = 5

// Server returns a Server for a name and URL.
func (l *Logins) Server(name, url string, s Settings) *Server {
	s.Grant = cmp.Or(s.Grant, GrantCode)
	return &Server{
		logins: l, name: name, url: url, settings: s, client: newClient(url, l.agent, s),
		log: l.log.With("server", name), accounts: map[string]*account{}, renewals: make(chan struct{}, maxRenewals),
	}
}

// maxRenewals bounds the simultaneous renewals for one server.
const maxRenewals = 8

// account returns the account of a principal; "" is the owner of this process.
func (s *Server) account(principal string) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[principal]
	if a == nil {
		if len(s.accounts) >= maxAccounts {
			for other, one := range s.accounts {
				if one.idle() {
					delete(s.accounts, other)
					break
				}
			}
		}
		a = &account{Server: s, principal: principal, changed: make(chan struct{})}
		s.accounts[principal] = a
	}
	return a
}

// Has reports whether a principal is logged in, or may be because the vault cannot be read.
func (s *Server) Has(ctx context.Context, principal string) bool {
	c, err := s.account(principal).load(ctx, false)
	return err != nil || c != nil
}

// Changed says that another process has changed a row of the vault: a login to this server in that row is read again
// before its next use. "" means all rows.
func (s *Server) Changed(row string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for principal, a := range s.accounts {
		if row == "" || row == s.row(principal) {
			a.mu.Lock()
			a.stale = true
			a.changes++
			a.mu.Unlock()
			a.happened()
		}
	}
}

// Ended says that the login with an ID, begun in another process, has ended without a token: Await waits no longer.
func (l *Logins) Ended(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended = append(l.ended, id); len(l.ended) > maxPending {
		l.ended = l.ended[1:]
	}
	close(l.another)
	l.another = make(chan struct{})
}

// hasEnded reports whether the login with an ID has ended, and returns a channel that is closed when another login
// ends.
func (l *Logins) hasEnded(id string) (ended bool, another <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return id != "" && slices.Contains(l.ended, id), l.another
}

// rowPrefix begins the names of all tokens in the vault.
const rowPrefix = "login/"

// row returns the name of a principal's tokens in the vault. The server's name is escaped, because a blank separates
// it from the principal.
func (s *Server) row(principal string) string {
	name := rowPrefix + url.PathEscape(s.name)
	if principal == "" {
		return name
	}
	return name + " " + principal
}

// Status describes a login.
type Status struct {
	Server    string
	Principal string // "" for the owner of this process
	Issuer    string
	Grant     Grant
	Scopes    []string // granted, as far as the authorization server says
	Resource  string
	Expires   time.Time // when the access token expires; zero if unknown
	Refreshes bool      // the login is renewed without a person
	Obtained  time.Time
}

// Statuses returns all logins to the server, sorted by principal.
func (s *Server) Statuses(ctx context.Context) ([]Status, error) {
	names, err := s.logins.vault.Names(ctx, s.row(""))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []Status
	for _, name := range names {
		principal := strings.TrimPrefix(strings.TrimPrefix(name, s.row("")), " ")
		if name != s.row(principal) {
			continue // a row of a server whose name begins with this server's name
		}
		c, err := s.read(ctx, principal)
		if err != nil {
			return nil, err
		}
		if c != nil {
			all = append(all, c.status(s.name, principal))
		}
	}
	return all, nil
}

// event records an event of a login in the audit log.
func (s *Server) event(ctx context.Context, kind, principal string, c *credential, err error) {
	e := identity.Event{Kind: kind, Principal: principal, Server: s.name}
	if c != nil {
		e.Details = map[string]string{"issuer": c.Issuer, "scopes": strings.Join(c.may(), " ")}
	}
	if err != nil {
		e.Outcome, e.Reason = identity.Failed, err.Error()
	}
	s.logins.record.Event(ctx, e)
}

// errClosed is the error of logins after Close.
var errClosed = errors.New("the logins are closed")

// union returns a, followed by the strings of b that a lacks.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// covers reports whether all scopes of b are in a.
func covers(a, b []string) bool {
	return !slices.ContainsFunc(b, func(s string) bool { return !slices.Contains(a, s) })
}

func wrap(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
