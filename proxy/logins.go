package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"toolfinch/configs"
	"toolfinch/internal/identity"
	"toolfinch/proxy/web"
	"toolfinch/store"
	"toolfinch/store/vault"
	"toolfinch/trust/inbound"
	"toolfinch/upstream/login"
)

// callbackPath is the path of our own listener to which browsers return after a login.
const callbackPath = "/oauth/callback"

// logins has the logins to upstreams and the stored tokens.
type logins struct {
	*login.Logins
	rows     *sealedRows
	callback atomic.Value  // string: callback URL on our own listener; "" for none
	entrance *inbound.Gate // identifies the user of a browser; nil in commands, where only the owner logs in
}

// newLogins makes the logins of a configuration. The vault of db keeps the tokens. Tokens are written even if db is
// open for reading only, because an authorization server that rotates refresh tokens rejects the old token. among,
// which may be nil, exchanges changes with the other replicas; all replicas share key.
func newLogins(config *configs.Config, o options, db *store.Store, among *others, key [32]byte) (*logins, error) {
	settings := vault.Options{Key: o.vaultKey, KeyDir: config.Places().KeyDir, Locks: db.Sealed().Locks(), Log: o.log}
	rows := &sealedRows{at: config.Places().Store, o: o, last: map[string]*vault.Row{}}
	rows.store.Store(db)
	if _, err := os.Stat(config.DataDir); err == nil && !db.Durable() && config.Store == "" { // a Workspace
		settings.Locks = store.LocksIn(config.DataDir)
	}
	v, err := vault.Open(rows, settings)
	if err != nil {
		return nil, err
	}
	l := &logins{rows: rows}
	l.callback.Store("")
	l.Logins = login.New(login.Options{
		Vault: loginVault{v, o.log}, Log: o.log, Agent: o.agent(), Record: o.observer.record, Told: among.heard(), Failed: among.loginFailed,
		Callback: func() string { return l.callback.Load().(string) }, Key: key, Forward: among.cameBack, Prove: l.prove, Whose: l.whose,
		Attempt: func(r *http.Request) bool { return l.entrance == nil || l.entrance.Attempt(r) },
	})
	return l, nil
}

// sealedRows are the rows of the vault in a store. A store that is open for reading only is opened again to write.
type sealedRows struct {
	store atomic.Pointer[store.Store]
	at    string // the place of the store
	o     options

	mu    sync.Mutex            // guards the fields below; never held over I/O
	last  map[string]*vault.Row // rows as last read or written, used while PostgreSQL is away; a nil row does not exist
	whole bool                  // last has every row that exists
}

const (
	maxLast  = 10_000 // most rows in last
	maxFirst = 500    // most rows that are read at the start
)

// readAll reads the rows, so that a process can connect to servers even if its database goes away soon after the
// start. It forgets rows that it does not read again.
func (r *sealedRows) readAll(ctx context.Context) error {
	names, err := r.Names(ctx, "")
	if err != nil {
		return err
	}
	first := names[:min(len(names), maxFirst)]
	r.mu.Lock()
	maps.DeleteFunc(r.last, func(name string, _ *vault.Row) bool {
		return !slices.ContainsFunc(first, func(row vault.Row) bool { return row.Name == name })
	})
	r.whole = false
	r.mu.Unlock()
	for _, row := range first {
		if err := r.readAnew(ctx, row.Name); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = len(first) == len(names)
	return nil
}

// readAnew reads a changed row again; with "" it reads all rows.
func (r *sealedRows) readAnew(ctx context.Context, name string) error {
	if name == "" {
		return r.readAll(ctx)
	}
	row, err := r.store.Load().Sealed().Find(ctx, name)
	if err == nil {
		r.remember(name, row)
	}
	return err
}

func (r *sealedRows) remember(name string, row *vault.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.last[name]; known || len(r.last) < maxLast {
		r.last[name] = row
	} else {
		r.whole = false
	}
}

func (r *sealedRows) Find(ctx context.Context, name string) (*vault.Row, error) {
	row, err := r.store.Load().Sealed().Find(ctx, name)
	switch {
	case err == nil:
		r.remember(name, row)
	case store.Transient(err):
		r.mu.Lock()
		defer r.mu.Unlock()
		if last, known := r.last[name]; known || r.whole {
			return last, nil
		}
	}
	return row, err
}

func (r *sealedRows) Names(ctx context.Context, prefix string) ([]vault.Row, error) {
	return r.store.Load().Sealed().Names(ctx, prefix)
}

func (r *sealedRows) write(ctx context.Context, do func(*store.Sealed) error) error {
	if db := r.store.Load(); db.Durable() {
		return do(db.Sealed())
	}
	db, err := store.Open(ctx, r.at, r.o.log)
	if err != nil {
		return err
	}
	to := db
	if !db.Durable() { // db is in memory: write to the store that Find reads
		to = r.store.Load()
	}
	return errors.Join(do(to.Sealed()), db.Close())
}

func (r *sealedRows) Put(ctx context.Context, row vault.Row) error {
	err := r.write(ctx, func(rows *store.Sealed) error { return rows.Put(ctx, row) })
	if err == nil {
		r.remember(row.Name, &row)
	}
	return err
}

func (r *sealedRows) Drop(ctx context.Context, name string) error {
	err := r.write(ctx, func(rows *store.Sealed) error { return rows.Drop(ctx, name) })
	switch {
	case err != nil:
	case name == "": // all
		r.mu.Lock()
		defer r.mu.Unlock()
		clear(r.last)
	default:
		r.remember(name, nil)
	}
	return err
}

// loginVault adapts a vault to package login. Clients see its errors.
type loginVault struct {
	vault *vault.Vault
	log   *slog.Logger
}

// vaultFault is an error of a vault whose text contains no host and no path.
type vaultFault struct {
	error
	says string
}

func (f *vaultFault) Error() string { return f.says }
func (f *vaultFault) Unwrap() error { return f.error }

// fault returns an error of the vault with a text that clients may see.
func (v loginVault) fault(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, vault.ErrLocked) || errors.As(err, new(*vault.KeyError)) {
		return err
	}
	v.log.Log(context.WithoutCancel(ctx), store.Level(err), "a login cannot be read or stored", "error", err)
	if away, ok := errors.AsType[*store.Away](err); ok {
		return &vaultFault{err, away.Brief()}
	}
	return &vaultFault{err, "a login cannot be read or stored now; the log of toolfinch says why"}
}

func (v loginVault) Get(ctx context.Context, name string) ([]byte, error) {
	value, err := v.vault.Get(ctx, name)
	if errors.Is(err, vault.ErrNotFound) {
		return nil, nil
	}
	return value, v.fault(ctx, err)
}

func (v loginVault) Put(ctx context.Context, name string, value []byte) error {
	return v.fault(ctx, v.vault.Put(ctx, name, value))
}

func (v loginVault) Delete(ctx context.Context, name string) error {
	return v.fault(ctx, v.vault.Delete(ctx, name))
}

func (v loginVault) Names(ctx context.Context, prefix string) ([]string, error) {
	rows, err := v.vault.Names(ctx, prefix)
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Name
	}
	return names, v.fault(ctx, err)
}

func (v loginVault) Locked(ctx context.Context, name string, do func(ctx context.Context) error) (err error) {
	locked := false
	failed := v.vault.Locked(ctx, name, func(ctx context.Context) error {
		locked = true
		err = do(ctx)
		return err
	})
	if locked {
		return err
	}
	return v.fault(ctx, failed)
}

// Logins are the logins of a configuration, for commands. OpenLogins opens them, and Close ends them.
type Logins struct {
	*logins
	store  *store.Store
	config *configs.Config
	audit  auditor
}

// OpenLogins opens the logins of a configuration, and opens their store for writing.
func OpenLogins(ctx context.Context, config *configs.Config, options ...Option) (*Logins, error) {
	o := optionsOf(options)
	db, err := store.Open(ctx, config.Places().Store, o.log)
	if err != nil {
		return nil, fmt.Errorf("logins: %w", err)
	}
	if !db.Durable() {
		return nil, errors.Join(fmt.Errorf("logins: the store in %s cannot be opened: nothing would be kept", config.DataDir), db.Close())
	}
	l, err := newLogins(config, o, db, nil, [32]byte{})
	if err != nil {
		return nil, fmt.Errorf("logins: %w", errors.Join(err, db.Close()))
	}
	return &Logins{l, db, config, o.audit}, nil
}

// Kept describes where the tokens are stored.
func (l *Logins) Kept() string { return "the store in " + l.config.Places().StoreName() + ", sealed" }

// Close ends the logins, the store and the audit log.
func (l *Logins) Close() error {
	l.logins.Close()
	return errors.Join(l.store.Close(), l.audit.log.Close())
}

// maxProof bounds the form in which a user proves to be the principal of a login, in bytes.
const maxProof = 64 << 10

// prove reports whether the browser of a request belongs to the principal of a login. A reverse proxy says so, or the
// user proves it with the principal's API key or at its issuer. If prove returns false, it has answered the request.
func (l *logins) prove(w http.ResponseWriter, r *http.Request, s login.Start) bool {
	if l.entrance == nil {
		return login.ProveLocally(w, r, s)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxProof)
	page, status := web.LoginPage{Server: s.Server}, http.StatusOK
	from := l.entrance.Source(r)
	if s.ByOwner(from.Address) {
		return true
	}
	if s.Principal == "" {
		page.Problem = "All users share this login. The owner makes it: at the page of toolfinch (run: toolfinch ui)."
		page.Serve(w, http.StatusForbidden)
		return false
	}
	who := l.whoAsks(r)
	page.Keys = l.entrance.TakesKeys() && identity.Of(identity.KeySource, s.Principal)
	issuer := l.issuerOf(r, s.Principal)
	page.Issuer = issuer.URL
	var err error
	switch {
	case who != "" || r.Method != http.MethodPost:
	case page.Keys:
		who, err = l.byForm(r)
	case issuer.URL != "":
		if err = l.Identify(w, r, s, issuer); err == nil {
			return false // the login continues when the browser returns from the issuer
		}
	}
	if err != nil {
		page.Problem, status = err.Error(), http.StatusForbidden
	}
	if who == s.Principal {
		return true
	}
	if !page.Keys && page.Issuer == "" {
		status = http.StatusForbidden
	}
	if who != "" {
		page.Problem, status = "Another user asked for this login.", http.StatusForbidden
		l.Refused(r.WithContext(identity.WithSource(r.Context(), from)), s, who)
	}
	page.Serve(w, status)
	return false
}

// whoAsks returns the principal that a request proves by its own header or a reverse proxy's header; "" for none.
func (l *logins) whoAsks(r *http.Request) (who string) {
	see := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = identity.NameOf(r.Context()) })
	l.entrance.Know(see, func(*http.Request) inbound.Target { return inbound.Target{Any: true} }).ServeHTTP(nil, r)
	return who
}

// whose returns the principal that an access token proves.
func (l *logins) whose(r *http.Request, token string) string {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return l.whoAsks(r)
}

// byForm returns the principal of the API key that was typed into the form.
func (l *logins) byForm(r *http.Request) (string, error) {
	bearer, err := l.entrance.ByForm(r, r.PostFormValue("key"))
	if err != nil {
		return "", err
	}
	if p, _ := bearer.Principal(r.Context()); p != nil {
		return p.ID, nil
	}
	return "", errors.New("the key cannot be looked up now: try again later")
}

// issuerOf returns the issuer of a principal's access tokens; the URL is "" for none.
func (l *logins) issuerOf(r *http.Request, principal string) login.Issuer {
	for _, i := range l.entrance.Issuers {
		if identity.Of(i.URL, principal) {
			return login.Issuer{URL: i.URL, Resource: l.entrance.URL(r), ClientID: i.ClientID, AllowPrivate: i.AllowPrivate}
		}
	}
	return login.Issuer{}
}

// listensAt sets the callback URL to the listener's address if that is on loopback: browsers of this machine return
// there.
func (l *logins) listensAt(at net.Addr) {
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		l.callback.Store("http://" + tcp.String() + callbackPath)
	}
}
