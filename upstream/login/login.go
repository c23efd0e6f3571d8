// Package login logs toolfinch in to upstream servers with OAuth 2.1: it finds the
// authorization server, gets tokens, keeps them in a vault, refreshes them and adds
// them to requests. It never waits for a human on behalf of a request: a request that
// needs one fails with *Needed.
//
// Registration is that of the official Go SDK (oauthex). Its handler of the flow itself is
// not used: it cannot leave the resource out, prefers a
// metadata document over a pre-registered client, forgets registrations, and refreshes
// without scope and resource.
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

// Grant is how a token is got.
type Grant string

// The grants. GrantCode and GrantDevice need a person, GrantCredentials does not.
const (
	GrantCode        Grant = "authorization_code"
	GrantDevice      Grant = "device_code"
	GrantCredentials Grant = "client_credentials"
)

// ResourceNone is the resource of servers that refuse the parameter.
const ResourceNone = "none"

// Settings say how to log in to a server. The zero value is automatic: when the server
// asks for a login, its authorization server is looked for, and this client registered
// there.
type Settings struct {
	Off         bool   // no login: what the server answers stands
	Set         bool   // something is configured: a refusal without a challenge is one for want of a login, too
	Grant       Grant  // default GrantCode
	ClientID    string // of a client that was registered before
	Secret      string // its secret
	Issuer      string // the authorization server that the client is registered with; default: the one that the server names first
	MetadataURL string // the client's metadata document (CIMD); "" for none
	Scopes      []string
	Resource    string // default: as the server says; ResourceNone for none
	// AllowPrivate lets the authorization server be at a private address. The host of the
	// server itself may always be one.
	AllowPrivate bool
	RedirectURL  string // where the browser is sent back to; default: a port of loopback
	PerUser      bool   // each principal has a login of its own
}

// EndHere has the browser sent back to this process, which does not serve what RedirectURL is
// elsewhere. It fails where the client is registered for that alone.
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

// interactive reports whether a login needs a person.
func (s Settings) interactive() bool { return s.Grant != GrantCredentials }

// Vault keeps tokens at rest. Its methods are safe for concurrent use, by several
// processes too.
type Vault interface {
	// Get returns nil for what is not there.
	Get(ctx context.Context, name string) ([]byte, error)
	Put(ctx context.Context, name string, value []byte) error
	// Delete does nothing for what is not there.
	Delete(ctx context.Context, name string) error
	// Names returns those that begin with prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// Locked runs f while no other process runs one for the same name.
	Locked(ctx context.Context, name string, f func(ctx context.Context) error) error
}

// Needed says that a server is not used before somebody logs in.
type Needed struct {
	Server string
	URL    string // where that goes on, for a browser; only whoever may begin it sets and is told it
	Why    string // why what there was does not do; "" where nobody has logged in
	Scopes []string
	token  string // that does not do; "" for none
}

func (n *Needed) Error() string {
	text := "needs a login: run `toolfinch login " + n.Server + "`"
	if n.URL != "" {
		text += ", or open " + n.URL
	}
	if n.Why != "" {
		text += " (" + n.Why + ")"
	}
	return text
}

// Mark tells the token that does not do from others.
func (n *Needed) Mark() string { return markOf(n.token) }

func markOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

// Options are what Logins are made with.
type Options struct {
	Vault Vault
	Log   *slog.Logger // default: nothing is logged
	// Callback returns the URL at which Logins.ServeHTTP is served on loopback, "" for nowhere; default:
	// nowhere. A login listens for itself then.
	Callback func() string
	Record   identity.Record // of logins and renewals, for the audit log; may be nil
	// Told reports whether Server.Changed hears now what other processes do in the vault. While it does
	// not, it is looked into again every ten seconds in which there are requests. Default: never.
	Told func() bool
	// Failed hears the IDs of logins that have ended here without a token, for Ended in other processes;
	// may be nil.
	Failed func(id string)
	// Key, which is not zero, is shared with the processes that serve each other's logins.
	Key [32]byte
	// Forward hands the query of an authorization server's answer to those processes, for Answer; default:
	// there are none.
	Forward func(ctx context.Context, query string) bool
	// Prove reports whether the browser of a request for a start page is the asker's; if not, it has
	// answered the request. Default: a login of the owner in a browser of this machine.
	Prove func(w http.ResponseWriter, r *http.Request, s Start) bool
	// Whose returns the principal that an access token for this server proves; "" for none. Identify needs it.
	Whose func(r *http.Request, token string) string
}

// Logins are those to all servers of one process. Its methods are safe for concurrent use.
type Logins struct {
	vault    Vault
	log      *slog.Logger
	callback func() string
	record   identity.Record
	told     func() bool
	failed   func(id string)
	forward  func(ctx context.Context, query string) bool
	prove    func(w http.ResponseWriter, r *http.Request, s Start) bool
	whose    func(r *http.Request, token string) string
	binder   *binder
	life     context.Context // of what is done for nobody's request
	end      context.CancelFunc
	work     sync.WaitGroup

	under *limit.Limit // logins that are under way

	mu        sync.Mutex // guards what follows; never held over I/O
	closed    bool
	pending   map[string]*Pending // by their ID
	ended     []string            // IDs of the last that have ended
	another   chan struct{}       // closed, and another made, when one has
	listeners map[int]*listener   // by their port
}

// New makes logins; nothing is read yet.
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
	l := &Logins{vault: o.Vault, log: o.Log, callback: o.Callback, record: o.Record, told: o.Told, failed: o.Failed, forward: o.Forward, prove: o.Prove, whose: o.Whose, binder: newBinder(o.Key), another: make(chan struct{}), pending: map[string]*Pending{}, listeners: map[int]*listener{}}
	l.life, l.end = context.WithCancel(context.Background())
	l.under = limit.New("pending_logins", maxPending, "logins are under way", "finish one, or try again in ten minutes")
	return l
}

// Limits are what clients can make grow.
func (l *Logins) Limits() []*limit.Limit { return []*limit.Limit{l.under} }

// Close ends the logins that were begun, and waits for what runs.
func (l *Logins) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.work.Wait()
}

// spawn runs f, which must end with the life, unless the logins are closed.
func (l *Logins) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.work.Go(f)
	}
	return !l.closed
}

// Server is one server that may want logins.
type Server struct {
	logins   *Logins
	name     string
	url      string
	settings Settings
	client   *http.Client  // to authorization servers
	renewals chan struct{} // holds a value for each login that is being renewed
	log      *slog.Logger

	mu       sync.Mutex // guards accounts; never held over I/O
	accounts map[string]*account
}

// maxAccounts bounds the principals of a server whose tokens are kept in memory; those
// of others are read again when they come.
const maxAccounts = 1024

// Mask returns a text, of the server for one, without the tokens that it was given.
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

// shortToken is how long a text is, in bytes, that may also be a piece of another.
const shortToken = 5

// Server returns the server of a name and URL.
func (l *Logins) Server(name, url string, s Settings) *Server {
	if s.Grant == "" {
		s.Grant = GrantCode
	}
	return &Server{
		logins: l, name: name, url: url, settings: s, client: newClient(url, s.AllowPrivate),
		log: l.log.With("server", name), accounts: map[string]*account{}, renewals: make(chan struct{}, maxRenewals),
	}
}

// maxRenewals bounds the logins of one server that are renewed at the same time.
const maxRenewals = 8

// account returns what is known of a principal's login; "" is the owner of this process.
func (s *Server) account(principal string) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[principal]
	if a == nil {
		if len(s.accounts) >= maxAccounts {
			for other, one := range s.accounts { // any
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

// Has reports whether there is a login of a principal, or may be because the vault cannot be read.
func (s *Server) Has(ctx context.Context, principal string) bool {
	c, err := s.account(principal).load(ctx, false)
	return err != nil || c != nil
}

// Changed has the login of a row of the vault read again before it is used, if it is one of the
// server's: another process has changed it. "" stands for all rows.
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

// Ended has whoever awaits the login of an ID, which began in another process, wait no more: it has
// ended without a token.
func (l *Logins) Ended(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended = append(l.ended, id); len(l.ended) > maxPending {
		l.ended = l.ended[1:]
	}
	close(l.another)
	l.another = make(chan struct{})
}

// hasEnded reports whether the login of an ID has ended, here or as far as Ended was told, and returns
// what is closed when another one does.
func (l *Logins) hasEnded(id string) (ended bool, another <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return id != "" && slices.Contains(l.ended, id), l.another
}

// rowPrefix begins the names of all tokens in the vault.
const rowPrefix = "login/"

// row is the name of a principal's tokens in the vault. The server's name is escaped: with a
// blank in it, it could be another's with a principal.
func (s *Server) row(principal string) string {
	name := rowPrefix + url.PathEscape(s.name)
	if principal == "" {
		return name
	}
	return name + " " + principal
}

// Status is what is known of a login.
type Status struct {
	Server    string
	Principal string // "" for the owner of this process
	Issuer    string
	Grant     Grant
	Scopes    []string // granted, as far as the authorization server says
	Resource  string
	Expires   time.Time // of the access token; zero where that is not known
	Refreshes bool      // it is renewed without a person
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
			continue // of a server whose name begins with this one's
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

// event is something that happened to a login.
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

// errClosed is about logins after Close.
var errClosed = errors.New("the logins are closed")

// union is a with what b has beyond it, in order.
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
