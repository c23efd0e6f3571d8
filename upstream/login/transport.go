package login

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"toolfinch/internal/discovery"
)

// Transport returns base with a principal's token on requests to the server's own origin only. A refused request is
// sent again with a newer token, if there is one. The error is a *Needed if a person must log in.
func (s *Server) Transport(base http.RoundTripper, principal string) http.RoundTripper {
	own, _ := url.Parse(s.url) // no request matches an invalid URL, so none gets a token
	return &transport{server: s, base: base, principal: principal, own: own}
}

type transport struct {
	server    *Server
	base      http.RoundTripper
	principal string
	own       *url.URL
}

// Failed is an error of a login that a person's login does not mend: the request was not answered.
type Failed struct{ Err error }

func (f *Failed) Error() string { return "the login: " + f.Err.Error() }

func (f *Failed) Unwrap() error { return f.Err }

// About reports whether err is about a login, and so says nothing about the server's health.
func About(err error) bool {
	return errors.As(err, new(*Needed)) || errors.As(err, new(*Failed))
}

// failed returns err in the form that Transport returns.
func failed(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.As(err, new(*Needed)) {
		return err
	}
	return &Failed{err}
}

// maxAttempts bounds the attempts of one request: with the present token, with a renewed one, and with more scopes.
const maxAttempts = 3

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.own == nil || discovery.Origin(request.URL) != discovery.Origin(t.own) {
		return t.base.RoundTrip(request)
	}
	a, ctx := t.server.account(t.principal), request.Context()
	for attempt := 1; ; attempt++ {
		c, err := a.usable(ctx)
		if err != nil {
			closeBody(request)
			return nil, failed(ctx, err)
		}
		out := request.Clone(ctx)
		if attempt > 1 && request.GetBody != nil {
			if out.Body, err = request.GetBody(); err != nil {
				return nil, err
			}
		}
		if c != nil {
			out.Header.Set("Authorization", "Bearer "+c.AccessToken)
		}
		response, err := t.base.RoundTrip(out)
		if err != nil || response.StatusCode != http.StatusUnauthorized && response.StatusCode != http.StatusForbidden {
			return response, err
		}
		if request.Body != nil && request.Body != http.NoBody && request.GetBody == nil {
			return response, nil // the body cannot be sent again
		}
		challenge := challengeOf(response)
		var again, stands bool
		switch {
		case response.StatusCode == http.StatusUnauthorized && attempt < maxAttempts:
			again, stands, err = a.rejected(ctx, c, challenge)
		case response.StatusCode == http.StatusUnauthorized:
			err = a.refuse(c, "the server refuses a token that it was just given")
		case challenge.wantsMore() && attempt < maxAttempts:
			again, stands, err = a.widen(ctx, c, challenge)
		default:
			stands = true
		}
		if stands {
			return response, nil
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, discovery.MaxDocument))
		_ = response.Body.Close()
		if !again {
			if err == nil {
				err = errors.New("the server refuses the request")
			}
			return nil, failed(ctx, err)
		}
	}
}

func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
