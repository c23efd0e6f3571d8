package login

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
)

// Logout deletes a principal's login and the registrations of toolfinch at its authorization server, and revokes the
// tokens (RFC 7009) if the authorization server can. was reports that there was a login, and revoked that its tokens
// are revoked.
func (s *Server) Logout(ctx context.Context, principal string) (was, revoked bool, err error) {
	a := s.account(principal)
	var c *credential
	err = s.logins.vault.Locked(ctx, s.row(principal), func(ctx context.Context) (err error) {
		if c, err = s.read(ctx, principal); err != nil {
			return err
		}
		err = s.logins.vault.Delete(ctx, s.row(principal))
		a.keep(nil)
		return err
	})
	a.happened()
	s.event(ctx, identity.EventLogout, principal, c, err)
	if pending := s.Pending(principal); pending != nil {
		pending.finish(errors.New("it was logged out meanwhile"))
	}
	if err == nil {
		err = a.forgetAll(ctx, c)
	}
	if err != nil || c == nil {
		return false, false, err
	}
	if c.RevocationURL == "" {
		return true, false, nil
	}
	for _, one := range []struct{ token, hint string }{{c.RefreshToken, "refresh_token"}, {c.AccessToken, "access_token"}} {
		if one.token == "" {
			continue
		}
		if err := s.revoke(ctx, c, a.secretOf(c.Client), one.token, one.hint); err == errUnknown {
			return true, false, nil
		} else if err != nil {
			return true, false, wrap("the token was not revoked at "+c.Issuer, err)
		}
	}
	return true, true, nil
}

// forgetAll drops the registrations at the authorization server of an ended login, or of the one that the server names
// now: a login without a registration that works never gets as far as a login.
func (a *account) forgetAll(ctx context.Context, c *credential) error {
	if c != nil {
		return a.forget(ctx, c.Issuer, "")
	}
	if stored, err := a.logins.vault.Names(ctx, clientPrefix); err != nil || len(stored) == 0 {
		return err
	}
	a.mu.Lock()
	asked := a.asked
	a.mu.Unlock()
	p, err := a.discover(ctx, asked)
	if err != nil {
		return nil // none can be used there either
	}
	return a.forget(ctx, p.meta.Issuer, "")
}

// errUnknown is the error of a revocation at an authorization server that has forgotten the client.
var errUnknown = errors.New("the client is unknown")

func (s *Server) revoke(ctx context.Context, c *credential, client registered, token, hint string) error {
	form := url.Values{"token": {token}, "token_type_hint": {hint}}
	err := s.post(ctx, c.RevocationURL, client, form, nil)
	if refusal, ok := errors.AsType[*Refusal](err); ok && refusal.Code == "unsupported_token_type" {
		return nil // such access tokens cannot be revoked: they expire
	} else if ok && refusal.ofClient() {
		return errUnknown
	}
	return err
}

// endWithin bounds how long one login may take to end.
const endWithin = 10 * time.Second

// EndGone ends the logins of principals that no longer exist, and returns their number. gone selects these principals.
// to returns the Server of a name; nil if the server is no longer configured: its tokens are then deleted, but not
// revoked. After an error EndGone continues with the other logins.
func (l *Logins) EndGone(ctx context.Context, gone func(ctx context.Context, principals []string) ([]string, error), to func(server string) *Server) (ended int, err error) {
	rows, err := l.vault.Names(ctx, rowPrefix)
	if err != nil {
		return 0, err
	}
	var principals []string
	for _, row := range rows {
		if _, principal := partsOf(row); principal != "" {
			principals = append(principals, principal)
		}
	}
	if len(principals) == 0 {
		return 0, nil
	}
	if principals, err = gone(ctx, principals); err != nil {
		return 0, err
	}
	var failed []error
	for _, row := range rows {
		if server, principal := partsOf(row); slices.Contains(principals, principal) {
			was, err := l.endOne(ctx, to(server), server, principal, row)
			if err != nil {
				failed = append(failed, wrap("server "+server, err))
			}
			if was {
				ended++
			}
		}
	}
	return ended, errors.Join(failed...)
}

// partsOf returns the server and the principal of a row. The principal is "" for the owner.
func partsOf(row string) (server, principal string) {
	escaped, principal, _ := strings.Cut(strings.TrimPrefix(row, rowPrefix), " ")
	server, err := url.PathUnescape(escaped)
	if err != nil {
		return "", ""
	}
	return server, principal
}

// endOne ends one login, and reports whether the login is gone. It revokes the tokens if the server is configured and
// the login can be read.
func (l *Logins) endOne(ctx context.Context, to *Server, server, principal, row string) (was bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(endWithin))
	defer cancel()
	if to != nil {
		if was, _, err = to.Logout(ctx, principal); was || err == nil {
			return was, err
		}
	}
	deleted := l.vault.Locked(ctx, row, func(ctx context.Context) error { return l.vault.Delete(ctx, row) })
	if deleted == nil {
		l.record.Event(ctx, identity.Event{Kind: identity.EventLogout, Principal: principal, Server: server})
	}
	return deleted == nil, errors.Join(err, deleted)
}
