package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/discovery"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
)

// registered is this client's registration at an authorization server.
type registered struct {
	ID       string    `json:"id"`
	Secret   string    `json:"secret,omitempty"`
	Method   string    `json:"method"` // one of the methods below
	Redirect string    `json:"redirect,omitempty"`
	Expires  time.Time `json:"expires,omitzero"` // when the secret expires
}

// Methods by which a client proves its identity (RFC 7591, token_endpoint_auth_method).
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
)

// token is what matters of a token endpoint's answer (RFC 6749, 5.1).
type token struct {
	Access    discovery.Text    `json:"access_token"`
	Refresh   discovery.Text    `json:"refresh_token"`
	Type      discovery.Text    `json:"token_type"`
	ExpiresIn discovery.Seconds `json:"expires_in"`
	Scope     discovery.Words   `json:"scope"`
}

// Errors of answers repeat nothing of them: an answer contains tokens.
var (
	errType  = errors.New("the authorization server issues tokens of another type than Bearer")
	errToken = errors.New("the authorization server answers without a token")
)

// ask requests a token. form contains the grant and its parameters.
func (s *Server) ask(ctx context.Context, at string, client registered, form url.Values) (*token, error) {
	t := &token{}
	if err := s.post(ctx, at, client, form, t); err != nil {
		return nil, err
	}
	switch kind := strings.TrimSpace(string(t.Type)); {
	case t.Access == "":
		return nil, errToken
	case kind != "" && !strings.EqualFold(kind, "bearer"):
		return nil, errType
	}
	return t, nil
}

// post sends a form as a client, and decodes the answer; to may be nil.
func (s *Server) post(ctx context.Context, at string, client registered, form url.Values, to any) error {
	authenticate := func(*http.Request) {}
	switch client.Method {
	case methodBasic:
		authenticate = func(r *http.Request) { r.SetBasicAuth(url.QueryEscape(client.ID), url.QueryEscape(client.Secret)) }
	case methodPost:
		form.Set("client_secret", client.Secret)
		fallthrough
	default:
		form.Set("client_id", client.ID)
	}
	return s.send(ctx, at, "application/x-www-form-urlencoded", form.Encode(), authenticate, to)
}

// send posts a body to an authorization server, and decodes the answer; authenticate and to may be nil.
func (s *Server) send(ctx context.Context, at, kind, body string, authenticate func(*http.Request), to any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		return errors.New("the authorization server names an endpoint that is no URL")
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Accept", "application/json")
	if authenticate != nil {
		authenticate(request)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return plain(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, discovery.MaxDocument))
	if err != nil {
		return fmt.Errorf("the answer of %s cannot be read", originOf(at))
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" || kind == "text/plain" && !json.Valid(answer) {
		answer = ofForm(answer)
	}
	var refused struct {
		Code discovery.Text `json:"error"`
		Text discovery.Text `json:"error_description"`
	}
	failed := response.StatusCode/100 != 2
	if err := discovery.Lenient(answer, &refused); err == nil && refused.Code != "" || failed {
		return s.refusal(response.StatusCode, string(refused.Code), string(refused.Text))
	}
	if to == nil {
		return nil
	}
	if err := discovery.Lenient(answer, to); err != nil {
		return fmt.Errorf("%s: %w", originOf(at), err)
	}
	return nil
}

// ofForm returns an answer in the form of a query, as of OAuth 1, as JSON.
func ofForm(answer []byte) []byte {
	values, err := url.ParseQuery(strings.TrimSpace(string(answer)))
	if err != nil {
		return answer
	}
	members := map[string]string{}
	for name := range values {
		members[name] = values.Get(name)
	}
	return rawjson.Of(members)
}

// Refusal is the error in an authorization server's answer (RFC 6749, 5.2).
type Refusal struct {
	Code  string // such as "invalid_grant"; "" for none
	HTTP  int
	hint  string // which key of the configuration may help; "" if unknown
	words string // the authorization server's description, on one line
}

// legalCode matches codes. Anything else may be a sentence, or a secret.
var legalCode = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,59}$`)

// refusal returns the error of an answer with a status, an error code and a description.
func (s *Server) refusal(status int, code, description string) *Refusal {
	r := &Refusal{HTTP: status, words: rawjson.Clip(printable.Line(description), maxWords)}
	if legalCode.MatchString(code) {
		r.Code = code
	}
	switch {
	case r.ofClient() && s.settings.ClientID != "":
		r.hint = "check oauth.client_id and oauth.client_secret"
	case r.Code == "invalid_scope":
		r.hint = "set oauth.scopes"
	case r.Code == "invalid_target":
		r.hint = "set oauth.resource, or oauth.resource: none"
	case r.Code == "unsupported_grant_type":
		r.hint = "set oauth.grant"
	}
	return r
}

func (r *Refusal) Error() string {
	text := "the authorization server refuses: " + r.Code
	if r.Code == "" {
		text += strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", r.HTTP, http.StatusText(r.HTTP)))
	}
	if r.hint != "" {
		text += ": " + r.hint
	}
	return text
}

// WithWords returns the text of err, followed by the authorization server's own words. They are for the person who logs
// in, and for no log or model.
func WithWords(err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok && r.words != "" {
		return err.Error() + "; it says: " + r.words
	}
	return err.Error()
}

// passing are codes of refusals that another attempt may not meet.
var passing = []string{"authorization_pending", "slow_down", "temporarily_unavailable", "server_error", "too_many_requests", "rate_limit_exceeded"}

// final reports whether the same request would be refused again.
func (r *Refusal) final() bool {
	switch {
	case r.HTTP >= 500, r.HTTP == http.StatusTooManyRequests:
		return false
	case r.Code == "":
		return r.HTTP == http.StatusBadRequest || r.HTTP == http.StatusUnauthorized
	}
	return !slices.Contains(passing, r.Code)
}

// ofClient reports whether the authorization server refuses the client, which it may have forgotten.
func (r *Refusal) ofClient() bool {
	return r.HTTP == http.StatusUnauthorized || strings.Contains(r.Code, "client")
}

// gone reports whether nothing of an authorization server is at the URL.
func (r *Refusal) gone() bool {
	return r.Code == "" && (r.HTTP/100 == 3 || slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone}, r.HTTP))
}

// maxWords is the most bytes that are repeated from an authorization server's texts.
const maxWords = 300

// plain returns the error of a request without its URL.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s cannot be asked: %w", originOf(u.URL), discovery.WithHint(u.Err))
	}
	return err
}
