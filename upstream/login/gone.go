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

// endWithin bounds how long one login may take to end.
const endWithin = 10 * time.Second

// EndGone ends the logins of principals that are gone, and returns how many. gone returns those of some
// principals. to is the login to a server of that name, nil for one that is not configured any more: its
// tokens are deleted, and end by themselves. An error does not keep other logins from their end.
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
			if err := l.endOne(ctx, to(server), server, principal, row); err != nil {
				failed = append(failed, wrap("server "+server, err))
			}
			ended++
		}
	}
	return ended, errors.Join(failed...)
}

// partsOf are the server and the principal of a row; "" is the owner's, or no row.
func partsOf(row string) (server, principal string) {
	escaped, principal, _ := strings.Cut(strings.TrimPrefix(row, rowPrefix), " ")
	server, err := url.PathUnescape(escaped)
	if err != nil {
		return "", ""
	}
	return server, principal
}

// endOne ends one login: at its server's authorization server, if the server is known.
func (l *Logins) endOne(ctx context.Context, to *Server, server, principal, row string) error {
	ctx, cancel := context.WithTimeout(ctx, leeway.Of(endWithin))
	defer cancel()
	if to != nil {
		_, _, err := to.Logout(ctx, principal)
		return err
	}
	err := l.vault.Locked(ctx, row, func(ctx context.Context) error { return l.vault.Delete(ctx, row) })
	l.record.Event(ctx, identity.Event{Kind: identity.EventLogout, Principal: principal, Server: server})
	return err
}
