package login

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
)

// account caches one principal's login to a server.
type account struct {
	*Server
	principal string
	renewing  singleflight.Group

	mu        sync.Mutex    // guards the fields below; never held over I/O
	changed   chan struct{} // closed and replaced when somebody has logged in or out
	now       *credential   // the present login; nil for none
	replaced  *credential   // the vault's older value while storing now fails (empty for none); nil otherwise
	read      bool
	readAt    time.Time // last attempt to read the vault
	stale     bool      // another process has changed the login since readAt
	changes   int       // number of changes of now, here and in other processes
	refused   *refusal  // the server's last refusal; nil for none
	asked     challenge // challenge of the last refusal
	retryAt   time.Time // when the authorization server may be asked again
	delay     time.Duration
	lastFault error
	unready   error // why the last login could not begin
	unreadyAt time.Time
	pending   *Pending
}

// refusal records that a server refused a token.
type refusal struct {
	token string // the refused token; "" if the request had none
	why   string
	at    time.Time
}

// stands is how long a refusal answers later requests, unless somebody logs in.
const stands = 30 * time.Second

// idle reports whether the account can be forgotten without loss.
func (a *account) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending == nil && a.replaced == nil
}

// needed returns the error of requests that need a login, because token is not enough.
func (a *account) needed(token, why string, scopes []string) *Needed {
	return &Needed{Server: a.name, Why: why, Scopes: scopes, token: token}
}

// lookAgain is how long a value from the vault is used while no changes by other processes are reported. A login that
// another process has ended may still be used for that long.
const lookAgain = 10 * time.Second

// load returns the login. It reads the vault if the login is not known or may have changed, or if again is set.
func (a *account) load(ctx context.Context, again bool) (*credential, error) {
	a.mu.Lock()
	now, read, changes := a.now, a.read, a.changes
	if read && !again && !a.stale && (time.Since(a.readAt) < lookAgain || a.logins.told()) {
		a.mu.Unlock()
		return now, nil
	}
	a.readAt = time.Now()
	a.mu.Unlock()
	c, err := a.Server.read(ctx, a.principal)
	if err != nil && read && !again {
		return now, nil
	} else if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	current := a.changes == changes
	switch {
	case a.replaced != nil && cmp.Or(c, &credential{}).AccessToken == a.replaced.AccessToken && cmp.Or(c, &credential{}).RefreshToken == a.replaced.RefreshToken:
		a.stale = !current
		return a.now, nil // the authorization server no longer accepts the vault's value
	case current || again:
		a.take(c)
		a.stale = !current // c may be older than the change
		return c, nil
	}
	return a.now, nil // now is newer than c, or stale: then the next request reads again
}

// store replaces before by next in the vault and in memory. If the vault fails, next stays in memory: the
// authorization server may have made before invalid. The lock of the row is held.
func (a *account) store(ctx context.Context, before, next *credential) error {
	err := a.write(ctx, a.principal, next)
	a.mu.Lock()
	defer a.mu.Unlock()
	replaced := cmp.Or(a.replaced, before)
	a.take(next)
	if err != nil {
		a.replaced = replaced
	}
	return err
}

// storeAgain stores the login if store has failed. The lock of the row is held.
func (a *account) storeAgain(ctx context.Context) {
	a.mu.Lock()
	now, waits := a.now, a.replaced != nil
	a.mu.Unlock()
	if waits && now != nil && a.write(ctx, a.principal, now) == nil {
		a.keep(now)
	}
}

// keep sets the present login to the vault's value.
func (a *account) keep(c *credential) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.take(c)
}

// take is keep with the lock held.
func (a *account) take(c *credential) {
	a.now, a.read, a.readAt, a.stale, a.replaced = c, true, time.Now(), false, nil
	a.changes++
	if a.refused != nil && (c == nil && a.refused.token == "" || c != nil && c.AccessToken == a.refused.token) {
		return
	}
	a.refused = nil
}

// happened wakes the callers of Await after a login or logout.
func (a *account) happened() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = make(chan struct{})
}

// usable returns the login to send a request with. It is nil for none: the server then says which login it needs.
func (a *account) usable(ctx context.Context) (*credential, error) {
	c, err := a.load(ctx, a.isRefused())
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	if r := a.refused; r != nil && time.Since(r.at) < stands && a.settings.interactive() {
		a.mu.Unlock()
		return nil, a.needed(r.token, r.why, nil)
	}
	a.mu.Unlock()
	if c == nil || c.fresh(time.Now(), 0) && (c.fresh(time.Now(), c.margin()) || c.Dead != "") {
		return c, nil
	}
	renewed, err := a.renew(ctx, "")
	if err != nil && c.fresh(time.Now(), 0) && !errors.As(err, new(*Needed)) {
		return c, nil // the authorization server does not answer, but the token is still valid
	}
	return renewed, err
}

func (a *account) isRefused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused != nil
}

// errEnded is the error of Await for an ended login.
var errEnded = errors.New("the login has ended without a token")

// Delays between looks into the vault for a login by another process.
const (
	firstLook = 500 * time.Millisecond
	mostLook  = 5 * time.Second
	toldLook  = 20 * time.Second // while changes by other processes are reported
)

// Await waits until somebody logs in, here or in another process. mark is Needed.Mark, which identifies the old token.
// The end of ctx, or of the login with this ID ("" for none), ends the wait, too.
func (s *Server) Await(ctx context.Context, principal, mark, id string) error {
	a := s.account(principal)
	for every := firstLook; ; every = min(every*3/2, mostLook) {
		if a.logins.told() {
			every = toldLook
		}
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		ended, another := a.logins.hasEnded(id)
		if c, err := a.load(ctx, true); err == nil && c != nil && markOf(c.AccessToken) != mark {
			return nil
		}
		if ended {
			return errEnded
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-another:
		case <-time.After(every):
		}
	}
}

// renewWithin bounds the renewal of a token.
const renewWithin = 45 * time.Second

// renew replaces the refused token, or with "" a token that is no longer fresh. It returns the token that another
// process has got meanwhile, or else a new one.
func (a *account) renew(ctx context.Context, refused string) (*credential, error) {
	return a.share(ctx, refused, func(ctx context.Context) (*credential, error) { return a.renewLocked(ctx, refused) })
}

// share calls get under the lock of the row, which all processes share. Simultaneous callers with the same wanted
// share one attempt. The attempt goes on when their contexts end.
func (a *account) share(ctx context.Context, wanted string, get func(context.Context) (*credential, error)) (*credential, error) {
	result := a.renewing.DoChan(wanted, func() (any, error) {
		select { // each lock may occupy a database connection
		case a.renewals <- struct{}{}:
			defer func() { <-a.renewals }()
		case <-time.After(renewWithin):
			return nil, errors.New("the authorization server is slow to answer for others who wait for it: try again later")
		case <-a.logins.life.Done():
			return nil, context.Cause(a.logins.life)
		}
		ctx, cancel := context.WithTimeout(a.logins.life, renewWithin)
		defer cancel()
		var c *credential
		err := a.logins.vault.Locked(ctx, a.row(a.principal), func(ctx context.Context) (err error) {
			c, err = get(ctx)
			return err
		})
		return c, err
	})
	select {
	case r := <-result:
		c, _ := r.Val.(*credential)
		return c, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (a *account) renewLocked(ctx context.Context, refused string) (*credential, error) {
	c, err := a.load(ctx, true)
	if err != nil {
		return nil, err
	}
	a.storeAgain(ctx)
	switch {
	case c == nil && a.settings.interactive():
		return nil, a.needed("", "", nil)
	case c == nil:
		return a.obtain(ctx, nil)
	case c.AccessToken != refused && c.fresh(time.Now(), c.margin()):
		return c, nil // another process was quicker
	case !a.settings.interactive():
		return a.obtain(ctx, c.Scopes)
	case c.Dead != "":
		return nil, a.refuse(c, c.Dead)
	case c.RefreshToken == "":
		why := "the login has expired, and the authorization server gave nothing to renew it with"
		if refused != "" {
			why = "the server no longer takes the token, and the authorization server gave nothing to renew it with"
		}
		return nil, a.refuse(c, why)
	}
	if err := a.resting(); err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {c.RefreshToken}}
	if len(c.Scopes) > 0 {
		form.Set("scope", strings.Join(c.Scopes, " "))
	}
	if c.Resource != "" {
		form.Set("resource", c.Resource)
	}
	next := *c
	t, err := a.ask(ctx, c.TokenURL, a.secretOf(c.Client), form)
	refusal, refusing := errors.AsType[*Refusal](err)
	if err != nil && (!refusing || refusal.gone()) && a.moved(ctx, &next) {
		t, err = a.ask(ctx, next.TokenURL, a.secretOf(c.Client), form)
		refusal, refusing = errors.AsType[*Refusal](err)
	}
	if refusing && refusal.final() {
		// The lock is lost with the database connection: another process may have used the refresh token.
		if now, err := a.load(ctx, true); err == nil && now != nil && now.RefreshToken != c.RefreshToken {
			return a.renewLocked(ctx, refused)
		}
		next.Dead = refusal.Error()
		if err := a.store(ctx, c, &next); err != nil {
			a.log.Warn("that a login has ended could not be stored", "error", err)
		}
		a.log.Warn("the login has ended", "principal", a.principal, "error", refusal)
		a.event(ctx, identity.EventRefresh, a.principal, c, refusal)
		return nil, a.refuse(&next, next.Dead)
	}
	if err != nil {
		a.rest(err)
		a.event(ctx, identity.EventRefresh, a.principal, c, err)
		return nil, err
	}
	next.take(t)
	if err := a.store(ctx, c, &next); err != nil {
		a.log.Error("a renewed token could not be stored: until it can be, the login ends with this process", "error", err)
	}
	a.rested()
	a.event(ctx, identity.EventRefresh, a.principal, &next, nil)
	a.log.Debug("the token was renewed", "principal", a.principal, "expires", next.Expires)
	return &next, nil
}

// moved looks whether the authorization server of a login has other endpoints than before, and takes them.
func (a *account) moved(ctx context.Context, c *credential) bool {
	a.mu.Lock()
	asked := a.asked
	a.mu.Unlock()
	p, err := a.discover(ctx, asked)
	if err != nil || p.meta.Issuer != c.Issuer || p.meta.TokenEndpoint == c.TokenURL {
		return false
	}
	c.TokenURL, c.RevocationURL = p.meta.TokenEndpoint, p.meta.RevocationEndpoint
	return true
}

// secretOf returns the client r with the secret that is configured now.
func (a *account) secretOf(r registered) registered {
	if r.ID == a.settings.ClientID && a.settings.Secret != "" {
		r.Secret = a.settings.Secret
	}
	return r
}

// refuse notes that every request needs a login, and returns the error.
func (a *account) refuse(c *credential, why string) *Needed {
	token := ""
	if c != nil {
		token = c.AccessToken
	}
	a.mu.Lock()
	a.refused = &refusal{token, why, time.Now()}
	a.mu.Unlock()
	return a.needed(token, why, nil)
}

// Bounds of the pause after a failure of the authorization server.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// resting returns the last failure during the pause after it; nil otherwise.
func (a *account) resting() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.retryAt) {
		return a.lastFault
	}
	return nil
}

func (a *account) rest(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay = min(max(leeway.Of(firstPause), 2*a.delay), mostPause)
	a.retryAt, a.lastFault = time.Now().Add(a.delay), err
}

func (a *account) rested() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delay, a.retryAt = 0, time.Time{}
}

// rejected handles a response 401. again reports whether to repeat the request. plain passes the response on, because a
// login would not change it.
func (a *account) rejected(ctx context.Context, sent *credential, c challenge) (again, plain bool, err error) {
	a.mu.Lock()
	a.asked = c
	a.mu.Unlock()
	if sent != nil {
		_, err := a.renew(ctx, sent.AccessToken)
		return err == nil, false, err
	}
	if found, err := a.load(ctx, true); err != nil || found != nil {
		return err == nil, false, err
	}
	if !a.settings.interactive() {
		_, err := a.first(ctx)
		return err == nil, false, err
	}
	if c.metadata == "" && !a.settings.Set {
		ctx, cancel := context.WithTimeout(ctx, leeway.Of(lookWithin))
		defer cancel()
		if p, err := a.discover(ctx, c); errors.Is(err, errNoServer) || !c.bearer && (err != nil || !p.found) {
			return false, true, nil
		}
	}
	return false, false, a.refuse(nil, "")
}

// lookWithin bounds how long a refused request waits for the answer whether a login would help.
const lookWithin = 5 * time.Second

// first gets the first token, for a grant that needs no person.
func (a *account) first(ctx context.Context) (*credential, error) {
	return a.share(ctx, "first", func(ctx context.Context) (*credential, error) {
		if c, err := a.load(ctx, true); err != nil || c != nil {
			return c, err
		}
		return a.obtain(ctx, nil)
	})
}

// widen handles a response 403 that asks for more scopes. again reports whether to repeat the request. stands passes
// the response on, because these scopes were requested already.
func (a *account) widen(ctx context.Context, sent *credential, c challenge) (again, stands bool, err error) {
	if sent == nil || covers(sent.Scopes, c.scopes) {
		return false, true, nil
	}
	a.mu.Lock()
	a.asked = c
	a.mu.Unlock()
	if current, err := a.load(ctx, true); err != nil || current != nil && current.AccessToken != sent.AccessToken {
		return err == nil, false, err // somebody has logged in meanwhile
	}
	if !a.settings.interactive() {
		scopes := union(sent.Scopes, c.scopes)
		_, err := a.share(ctx, "wider "+strings.Join(scopes, " "), func(ctx context.Context) (*credential, error) {
			if current, err := a.load(ctx, true); err != nil || current != nil && current.AccessToken != sent.AccessToken {
				return current, err
			}
			return a.obtain(ctx, scopes)
		})
		return err == nil, false, err
	}
	if err := a.want(ctx, sent, c.scopes); err != nil {
		a.log.Warn("which scopes the server asks for could not be stored: a login by another process lacks them", "error", err)
	}
	return false, false, a.needed(sent.AccessToken, "the token lacks the scope "+strings.Join(c.scopes, " "), c.scopes)
}

// maxWanted bounds the scopes in credential.Wanted.
const maxWanted = 100

// want stores with a login the scopes that it lacks.
func (a *account) want(ctx context.Context, sent *credential, scopes []string) error {
	if covers(sent.Wanted, scopes) {
		return nil
	}
	return a.logins.vault.Locked(ctx, a.row(a.principal), func(ctx context.Context) error {
		c, err := a.load(ctx, true)
		if err != nil || c == nil || c.AccessToken != sent.AccessToken {
			return err
		}
		next := *c
		next.Wanted = union(c.Wanted, scopes)
		if len(next.Wanted) > maxWanted {
			return nil
		}
		if err := a.write(ctx, a.principal, &next); err != nil {
			return err
		}
		a.keep(&next)
		return nil
	})
}
