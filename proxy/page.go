package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/proxy/savings"
	"toolfinch/proxy/web/page"
	"toolfinch/store"
	"toolfinch/trust/inbound"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
	"toolfinch/view"
)

// paged implements page.Backend. The context names the user: without a party it is the owner, else the bearer of an
// API key, who may use the same as over the REST API.
type paged struct{ rest }

// ErrNoPage is wrapped by the errors of UILink.
var ErrNoPage = errors.New("the page is not served")

// UILink returns the path and query of a link that logs the owner in to the page. The link works once and for a few
// minutes. The caller must have proved to be the owner. If here is set, the link works only in browsers of the user
// who runs this process, where the system can tell. The error wraps ErrNoPage.
func (p *Proxy) UILink(here bool) (string, error) {
	if !p.now.Load().Config.UI {
		return "", fmt.Errorf("%w: the configuration has ui: false", ErrNoPage)
	}
	return p.servedPage().Link(here), nil
}

// On reports whether the page is served.
func (h paged) On() bool { return h.now.Load().Config.UI }

// owner reports whether the user is the owner.
func (h paged) owner(ctx context.Context) bool {
	_, ofClient := identity.PartyOf(ctx)
	return !ofClient
}

// view returns the user's part of the named view. The name "" means the only view that the user may use, else the view
// of the root.
func (h paged) view(ctx context.Context, name string) (*View, error) {
	if p := identity.PrincipalOf(ctx); p != nil && p.View != "" {
		if name = cmp.Or(name, p.View); name != p.View {
			return nil, fmt.Errorf("%w: %q", ErrNoView, name)
		}
	}
	v, err := h.reachable(h.now.Load(), name)
	if err != nil {
		return nil, err
	}
	return v.Of(ctx), nil
}

// viewsOf returns the views that the user may use, in the order of Views.
func (h paged) viewsOf(ctx context.Context) (all []*View) {
	for _, v := range h.now.Load().Views {
		if one, err := h.view(ctx, v.Name); err == nil {
			all = append(all, one)
		}
	}
	return all
}

// Sums returns the content of the overview except its servers.
func (h paged) Sums(ctx context.Context) (s page.Sums) {
	for _, v := range h.viewsOf(ctx) {
		s.Tools = max(s.Tools, v.Catalog.Len())
	}
	if away := h.store.Trouble(); away != nil {
		s.Store = away.Brief()
	}
	if !h.owner(ctx) {
		return s
	}
	now := h.now.Load()
	if now.Config.Path != "" {
		s.Configuration = filepath.Base(now.Config.Path)
	}
	if beside := h.replicasStatus(); beside != nil {
		s.Differ = beside.Differ
		for _, r := range beside.Shown {
			one := page.Replica{ID: r.ID, Name: r.Name, Version: r.Version, Leads: r.Leads, This: r.This, Since: time.Now().Add(-time.Duration(r.Seconds) * time.Second)}
			if r.This && beside.Sessions != nil {
				one.Sessions = *beside.Sessions
			}
			s.Replicas = append(s.Replicas, one)
		}
	}
	var total store.Savings
	for _, one := range h.Proxy.Savings(ctx) {
		total = total.Plus(one)
	}
	if cost, all := savings.Cost(total); all > 0 {
		s.Saved, s.Percent = all-cost, int(100*(all-cost)/all)
	}
	return s
}

// Hour returns the number of calls of all clients in each of the last 60 minutes; nil unless the user is the owner.
func (h paged) Hour(ctx context.Context) (all []page.Minute) {
	if !h.owner(ctx) {
		return nil
	}
	for _, m := range h.Feed().Hour(time.Now()) {
		all = append(all, page.Minute{Start: m.Start, All: m.All, Failed: m.Failed()})
	}
	return all
}

// Servers returns the servers that the user may use.
func (h paged) Servers(ctx context.Context) []page.Upstream {
	now := h.now.Load()
	views, owner := h.viewsOf(ctx), h.owner(ctx)
	all := []page.Upstream{}
	for _, s := range h.pool.Status() {
		if !h.serves(s.Server) || !owner && !slices.ContainsFunc(views, func(v *View) bool { return v.Has(s.Server) }) {
			continue
		}
		one := page.Upstream{
			Name: s.Server, Description: described(now.Config, s.Server), State: string(s.State), Since: s.Since, Era: string(s.Era), Transport: string(s.Transport),
			Tools: s.Tools, LeftOut: s.LeftOut, Mended: s.Mended, Restarts: s.Restarts,
			Error: s.Failure.Brief(), Failed: s.Failure.At,
		}
		if owner {
			one.PID, one.Stderr, one.Error = s.PID, s.Stderr, s.Failure.Reason
		} else {
			one.Tools, one.LeftOut, one.Mended = toolsOf(views, s.Server), 0, 0
		}
		one.Error = strings.TrimPrefix(one.Error, "upstream "+s.Server+": ")
		if s.State == upstream.StateLogin {
			_, one.MayLogIn = h.principalOf(ctx, s.Server)
		}
		for _, v := range views {
			one.Held = max(one.Held, v.Catalog.HeldOf(s.Server))
		}
		all = append(all, one)
	}
	if owner {
		for _, name := range now.Config.Disabled {
			all = append(all, page.Upstream{Name: name, State: page.StateDisabled})
		}
	}
	return all
}

// toolsOf counts the tools of a server in the view that has most of them.
func toolsOf(views []*View, server string) (most int) {
	for _, v := range views {
		n := 0
		for _, t := range v.Catalog.Tools() {
			if t.Def.ID.Server == server {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Server returns the details of one of Servers.
func (h paged) Server(ctx context.Context, name string) (d page.Details, err error) {
	d.Upstream, err = h.upstream(ctx, name)
	if err != nil {
		return d, err
	}
	stored, err := h.store.Servers(ctx)
	if err != nil {
		return d, err
	}
	for _, s := range stored {
		if s.Name == name {
			d.Version, d.Listed = versionOf(s.Info), s.UpdatedAt
		}
	}
	for _, v := range h.viewsOf(ctx) {
		for _, s := range v.Contents.Servers {
			if s.Name == name {
				d.Instructions = cmp.Or(d.Instructions, s.Instructions)
			}
		}
	}
	d.Login = h.loginOf(ctx, name)
	if h.owner(ctx) {
		h.describe(&d)
	}
	return d, nil
}

// upstream returns one of Servers. If there is none of that name, the error wraps page.ErrNoServer.
func (h paged) upstream(ctx context.Context, name string) (page.Upstream, error) {
	all := h.Servers(ctx)
	if i := slices.IndexFunc(all, func(s page.Upstream) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	return page.Upstream{}, fmt.Errorf("%w: %q", page.ErrNoServer, rawjson.Clip(name, maxShownName))
}

const maxShownName = 128 // bytes of a name from a browser that an error repeats

// describe adds how a server is started or reached, for the owner. Likely secrets are masked.
func (h paged) describe(d *page.Details) {
	config := h.now.Load().Config
	if s := config.Server(d.Name); s != nil {
		d.Cwd, d.Changes = s.Cwd, string(cmp.Or(config.Changes[s.Name], pins.Review))
		if s.Command != "" {
			d.Sandbox = s.Sandbox.String()
		}
	}
	written, err := configs.Servers(config.Path)
	if err != nil {
		return // the configuration has no file, or the file is being edited
	}
	at := slices.IndexFunc(written, func(s clients.Server) bool { return s.Name == d.Name })
	if at < 0 {
		return
	}
	d.CanSwitch, d.Hidden = true, h.hidden(d.Name)
	command, url := configs.Shown(written[at])
	d.Runs, d.URL = strings.Join(command, " "), url
	for name := range written[at].Env {
		d.Variables = append(d.Variables, name)
	}
	slices.Sort(d.Variables)
}

// hidden returns the names of a server's tools that an entry of their own hides from all views.
func (h paged) hidden(server string) (names []string) {
	for _, s := range h.now.Load().Config.Tools {
		for _, o := range s.Tools {
			if s.Name == server && o.Disabled && !view.IsGlob(o.Tool) {
				names = append(names, o.Tool)
			}
		}
	}
	return names
}

// Reconnect connects to a server again.
func (h paged) Reconnect(ctx context.Context, name string) error {
	if _, err := h.upstream(ctx, name); err != nil {
		return err
	}
	if err := h.Permit(ctx, inbound.Write, "reconnecting "+name); err != nil {
		return err
	}
	_, err := h.rest.Reconnect(ctx, name)
	return err
}

// principalOf returns the principal of the user's login to a server ("" for the login of the owner), and whether the
// user may manage that login.
func (h paged) principalOf(ctx context.Context, server string) (principal string, may bool) {
	s := h.now.Load().Config.Server(server)
	perUser := s != nil && s.Login.PerUser
	if h.owner(ctx) {
		return "", !perUser
	}
	return identity.NameOf(ctx), perUser
}

// loginOf returns the state of the user's login to a server; nil if the server needs no login.
func (h paged) loginOf(ctx context.Context, server string) *page.Login {
	one := h.pool.Login(server)
	if one == nil {
		return nil
	}
	principal, may := h.principalOf(ctx, server)
	l := &page.Login{May: may}
	all, err := one.Statuses(ctx)
	at := slices.IndexFunc(all, func(s login.Status) bool { return s.Principal == principal })
	if may && err == nil && at >= 0 {
		l.In, l.Issuer, l.Expires, l.Renewed = true, all[at].Issuer, all[at].Expires, all[at].Refreshes
	}
	if pending := one.Pending(principal); may && pending != nil {
		l.URL, l.Code = pending.URL(), pending.UserCode()
		if h.owner(ctx) {
			l.URL = pending.OwnerURL()
		}
	}
	return l
}

// loginFor returns the login to a server and the principal to log in.
func (h paged) loginFor(ctx context.Context, server string) (one *login.Server, principal string, err error) {
	if _, err := h.upstream(ctx, server); err != nil {
		return nil, "", err
	}
	if one = h.pool.Login(server); one == nil {
		return nil, "", fmt.Errorf("%s needs no login", server)
	}
	principal, may := h.principalOf(ctx, server)
	switch {
	case may:
		return one, principal, nil
	case h.owner(ctx):
		return nil, "", fmt.Errorf("everybody logs in to %s alone (per_user), with an API key of one's own", server)
	}
	return nil, "", fmt.Errorf("the login to %s is the owner's, and everybody uses it", server)
}

// LogIn begins a login to a server. If no browser is needed, it completes the login.
func (h paged) LogIn(ctx context.Context, server string) error {
	one, principal, err := h.loginFor(ctx, server)
	if err != nil {
		return err
	}
	if _, err := one.Probe(ctx, principal); err != nil {
		return err
	}
	if one.Interactive() {
		_, err = one.Begin(ctx, principal)
		return err
	}
	_, err = one.Obtain(ctx, principal)
	return err
}

// LogOut ends the user's login to a server.
func (h paged) LogOut(ctx context.Context, server string) error {
	one, principal, err := h.loginFor(ctx, server)
	if err != nil {
		return err
	}
	was, _, err := one.Logout(ctx, principal)
	h.pool.LoginChanged("")
	if err == nil && !was {
		return fmt.Errorf("there was no login to %s", server)
	}
	return err
}

// servedPage returns the page, and makes it at the first call. The listener's address is not among the page's hosts,
// because another program may answer there at the default ports of browsers.
func (p *Proxy) servedPage() *page.Server {
	p.page.made.Do(func() {
		p.page.Server = page.New(page.Options{Backend: paged{rest{p}}, Entrance: p.desk.entrance, Connector: p.connector, Hosts: p.namedHosts(), Version: p.version, Record: p.observer.record, Log: p.log})
	})
	return p.page.Server
}

// namedHosts returns the host names that the configuration gives for clients.
func (p *Proxy) namedHosts() []string {
	hosts := slices.Clone(p.first.Hosts)
	if u, err := url.Parse(p.first.Auth.Resource); err == nil && u.Host != "" {
		hosts = append(hosts, strings.ToLower(u.Host))
	}
	return hosts
}
