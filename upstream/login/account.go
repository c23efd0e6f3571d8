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

// account is one principal's login to a server, as this process knows it.
type account struct {
	*Server
	principal string
	renewing  singleflight.Group

	mu        sync.Mutex    // guards what follows; never held over I/O
	changed   chan struct{} // closed, and another made, when somebody logged in or out
	now       *credential   // as last read, nil for none
	replaced  *credential   // what the vault has where now could not be stored, empty for nothing; nil where it was
	read      bool
	readAt    time.Time // or tried to
	stale     bool      // another process has changed it since
	changes   int       // of now, and by other processes as far as they are told
	refused   *refusal  // what the server has said of what there is
	asked     challenge // of the last refusal
	retryAt   time.Time // before that the authorization server is not asked again
	delay     time.Duration
	lastFault error
	unready   error // why no login could be begun
	unreadyAt time.Time
	pending   *Pending
}

// refusal is that a server wants a login.
type refusal struct {
	token string // that was refused, "" for a request without
	why   string
	at    time.Time
}

// stands is how long a refusal is taken for the answer to other requests, unless
// somebody logs in.
const stands = 30 * time.Second

// idle reports whether nothing is lost when the account is forgotten.
func (a *account) idle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending == nil && a.replaced == nil
}

// needed is the error of requests that need a login, because the token does not do.
func (a *account) needed(token, why string, scopes []string) *Needed {
	return &Needed{Server: a.name, Why: why, Scopes: scopes, token: token}
}

// lookAgain is how long what the vault had is taken for what it has, where nobody tells of changes:
// a login that another process has ended is used for that long.
const lookAgain = 10 * time.Second

// load returns the login as it is known; from the vault where that is not so, or again.
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
		return a.now, nil // the authorization server takes that no more
	case current || again:
		a.take(c)
		a.stale = !current // it may be from before the change
		return c, nil
	}
	return a.now, nil // somebody here was quicker, or the next request reads what another process has done
}

// store stores and keeps the next of a login. What cannot be stored is kept all the same: what the
// authorization server has rotated is not to be lost with the vault. The lock of the row is held.
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

// storeAgain stores what could not be stored before. The lock of the row is held.
func (a *account) storeAgain(ctx context.Context) {
	a.mu.Lock()
	now, waits := a.now, a.replaced != nil
	a.mu.Unlock()
	if waits && now != nil && a.write(ctx, a.principal, now) == nil {
		a.keep(now)
	}
}

// keep takes over what the vault has.
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

// happened tells whoever waits that somebody logged in or out.
func (a *account) happened() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.changed)
	a.changed = make(chan struct{})
}

// usable returns what a request is to be sent with: nil for no token, which lets the
// server say what it wants.
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
		return c, nil // the authorization server is away, and the token good
	}
	return renewed, err
}

func (a *account) isRefused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused != nil
}

// errEnded is about a login that was waited for.
var errEnded = errors.New("the login has ended without a token")

// Between looks into the vault for a login of another process.
const (
	firstLook = 500 * time.Millisecond
	mostLook  = 5 * time.Second
	toldLook  = 20 * time.Second // where the process is told
)

// Await returns once there is another token than the one that did not do, whose mark is that of
// Needed: somebody has logged in, here or in another process. ctx ends the wait, and so does the end of
// the login of that ID, if one is given.
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

// renew returns a token in place of the one that is refused, "" for whichever is no
// longer fresh: one that another process has got meanwhile, or else a new one.
func (a *account) renew(ctx context.Context, refused string) (*credential, error) {
	return a.share(ctx, refused, func(ctx context.Context) (*credential, error) { return a.renewLocked(ctx, refused) })
}

// share gets a token under the lock of the row, which no other process has then. Callers at
// the same time who want the same share one attempt, which goes on when their contexts end.
func (a *account) share(ctx context.Context, wanted string, get func(context.Context) (*credential, error)) (*credential, error) {
	result := a.renewing.DoChan(wanted, func() (any, error) {
		select { // each lock may be a connection to the database
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
	t, err := a.ask(ctx, c.TokenURL, a.secretOf(c.Client), form)
	next := *c
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.final() {
		// Its lock goes with the database: another process may have used the refresh token meanwhile.
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

// secretOf is a client with the secret as it is configured now.
func (a *account) secretOf(r registered) registered {
	if r.ID == a.settings.ClientID && a.settings.Secret != "" {
		r.Secret = a.settings.Secret
	}
	return r
}

// refuse notes that a login is needed, whatever is asked for.
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

// Bounds of the pause after a fault of the authorization server.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// resting returns the last fault while it is too early to ask again.
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

// rejected answers a 401: whether the request is to be sent again, or why not. plain says
// that the answer stands, because it is not one that a login would change.
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
	if !c.bearer && !a.settings.Set {
		if p, err := a.discover(ctx, c); err != nil || !p.found {
			return false, true, nil
		}
	}
	return false, false, a.refuse(nil, "")
}

// first gets the first token where that needs no person.
func (a *account) first(ctx context.Context) (*credential, error) {
	return a.share(ctx, "first", func(ctx context.Context) (*credential, error) {
		if c, err := a.load(ctx, true); err != nil || c != nil {
			return c, err
		}
		return a.obtain(ctx, nil)
	})
}

// widen answers a 403 that wants more scopes: whether the request is to be sent again.
// stands says that more scopes cannot be had: they were asked for.
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

// maxWanted bounds the scopes that a server can have asked for.
const maxWanted = 100

// want notes with a login the scopes that it lacks.
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
