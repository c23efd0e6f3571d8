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
	"strings"
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

// callbackPath is where browsers come back to after a login, on our own listener.
const callbackPath = "/oauth/callback"

// logins are the logins to upstreams, with where their tokens are.
type logins struct {
	*login.Logins
	rows     *sealedRows
	callback atomic.Value // the URL of our own listener for browsers, a string; none where it has none
	log      *slog.Logger
	record   identity.Record
	entrance *inbound.Gate // proves who browsers belong to; nil in commands, where only the owner logs in
}

// newLogins makes the logins of a configuration. Tokens are in the vault of db, which may
// be open for reading only: what is got or renewed is written all the same, because an
// authorization server that rotates refresh tokens takes the old one no more. among, which may
// be nil, hears of changes by other replicas, which share key, and tells them of some.
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
	l := &logins{rows: rows, log: o.log, record: o.observer.record}
	l.callback.Store("")
	l.Logins = login.New(login.Options{
		Vault: loginVault{v, o.log}, Log: o.log, Record: o.observer.record, Told: among.heard(), Failed: among.loginFailed,
		Callback: func() string { return l.callback.Load().(string) }, Key: key, Forward: among.cameBack, Prove: l.prove, Whose: l.whose,
	})
	return l, nil
}

// sealedRows are the rows of the vault in a store. One that is open for reading only is
// opened again to write a row.
type sealedRows struct {
	store atomic.Pointer[store.Store]
	at    string // the place of the store
	o     options

	mu    sync.Mutex            // guards what follows; never held over I/O
	last  map[string]*vault.Row // what was read or written last, for while PostgreSQL is away; nil: there was none
	whole bool                  // a row that last has not is not there
}

const (
	maxLast  = 10_000 // rows that are known while PostgreSQL is away
	maxFirst = 500    // rows that are read at the start
)

// readAll reads the rows, so that a process whose database goes away soon after its start connects
// to servers all the same. What is not read again is forgotten.
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

// readAnew reads what has changed: a row, or all with "".
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
	if !db.Durable() { // nothing is kept: it is where it is read
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

// loginVault is a vault as logins want it. Clients are told its errors.
type loginVault struct {
	vault *vault.Vault
	log   *slog.Logger
}

// vaultFault is an error of a vault that says nothing of hosts and paths.
type vaultFault struct {
	error
	says string
}

func (f *vaultFault) Error() string { return f.says }
func (f *vaultFault) Unwrap() error { return f.error }

// fault is an error of the vault as clients may be told it.
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

// Logins are the logins of a configuration, for commands: OpenLogins, Close.
type Logins struct {
	*logins
	store  *store.Store
	config *configs.Config
	audit  auditor
}

// OpenLogins opens the logins of a configuration, and the store that they are in for writing.
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

// Kept says where the tokens are.
func (l *Logins) Kept() string { return "the store in " + l.config.Places().StoreName() + ", sealed" }

// Close ends them.
func (l *Logins) Close() error {
	l.logins.Close()
	return errors.Join(l.store.Close(), l.audit.log.Close())
}

// maxProof bounds the form in which somebody proves to be the asker, in bytes.
const maxProof = 64 << 10

// prove reports whether the browser of a request belongs to the principal that asked for a login: the reverse
// proxy says so, or the user proves it with the principal's API key. If not, it answers the request.
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
	page.Keys = l.entrance.TakesKeys() && strings.HasPrefix(s.Principal, "key|")
	issuer := l.issuerOf(r, s.Principal)
	page.Issuer = issuer.URL
	var err error
	switch {
	case who != "" || r.Method != http.MethodPost:
	case page.Keys:
		who, err = l.byForm(r)
	case issuer.URL != "":
		if err = l.Identify(w, r, s, issuer); err == nil {
			return false // the login goes on when the browser is back
		}
	}
	if err != nil {
		page.Problem, status = err.Error(), http.StatusForbidden
	}
	if who == s.Principal {
		return true
	}
	if who != "" {
		page.Problem, status = "Another user asked for this login.", http.StatusForbidden
		l.refused(r, s, who)
	}
	page.Serve(w, status)
	return false
}

// whoAsks is the principal that a request itself proves, by its header or that of a reverse proxy; "" for none.
func (l *logins) whoAsks(r *http.Request) (who string) {
	see := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { who = identity.NameOf(r.Context()) })
	l.entrance.Know(see, func(*http.Request) inbound.Target { return inbound.Target{Any: true} }).ServeHTTP(nil, r)
	return who
}

// whose is the principal that an access token proves.
func (l *logins) whose(r *http.Request, token string) string {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return l.whoAsks(r)
}

// byForm is the principal whose API key was typed in.
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

// issuerOf is the issuer of the access tokens of a principal; without a URL if there is none.
func (l *logins) issuerOf(r *http.Request, principal string) login.Issuer {
	for _, i := range l.entrance.Issuers {
		if strings.HasPrefix(principal, i.URL+"|") {
			return login.Issuer{URL: i.URL, Resource: l.entrance.URL(r), ClientID: i.ClientID, AllowPrivate: i.AllowPrivate}
		}
	}
	return login.Issuer{}
}

// refused takes down that another user opened a login.
func (l *logins) refused(r *http.Request, s login.Start, who string) {
	l.log.Warn("a login was refused: another user opened it", "server", s.Server, "principal", s.Principal, "opened_by", who)
	l.record.Event(identity.WithSource(r.Context(), l.entrance.Source(r)), identity.Event{Kind: identity.EventLogin, Principal: who, Server: s.Server, Outcome: identity.Denied, Reason: "the login of another user was opened"})
}

// Login is what logs in to an upstream; nil where that needs or wants no login.
func (s *views) Login(server string) *login.Server { return s.pool.Login(server) }

// listensAt notes where HTTP is served: browsers of this machine are sent back there,
// where it is on loopback.
func (l *logins) listensAt(at net.Addr) {
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		l.callback.Store("http://" + tcp.String() + callbackPath)
	}
}
