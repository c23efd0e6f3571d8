// Package discovery reads the metadata of authorization servers (RFC 8414, OpenID Connect Discovery),
// with a client that strangers cannot lead into our private network. It neither checks nor gets tokens.
package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Bounds of an answer, in bytes.
const (
	MaxDocument = 1 << 20
	maxHeader   = 64 << 10
)

// Metadata is the part of an authorization server's metadata that we use.
type Metadata struct {
	Issuer                        string `json:"issuer"`
	JWKSURI                       string `json:"jwks_uri"`
	AuthorizationEndpoint         string `json:"authorization_endpoint"`
	TokenEndpoint                 string `json:"token_endpoint"`
	DeviceAuthorizationEndpoint   string `json:"device_authorization_endpoint"`
	RegistrationEndpoint          string `json:"registration_endpoint"`
	RevocationEndpoint            string `json:"revocation_endpoint"`
	IntrospectionEndpoint         string `json:"introspection_endpoint"`
	ScopesSupported               Words  `json:"scopes_supported"`
	CodeChallengeMethodsSupported Words  `json:"code_challenge_methods_supported"`
	AuthMethodsSupported          Words  `json:"token_endpoint_auth_methods_supported"`
	ClientMetadataSupported       bool   `json:"client_id_metadata_document_supported"`
	IssSupported                  bool   `json:"authorization_response_iss_parameter_supported"`
}

// UnmarshalJSON implements json.Unmarshaler with Lenient.
func (m *Metadata) UnmarshalJSON(raw []byte) error {
	type members Metadata
	return Lenient(raw, (*members)(m))
}

// ErrNone says that an authorization server has no metadata.
var ErrNone = errors.New("it has no metadata")

// Find gets an authorization server's metadata from the URLs of the standards. It returns the first document that
// fits accepts; fits must compare the issuer. The error is ErrNone if there is no document.
func Find(ctx context.Context, client *http.Client, issuer string, fits func(*Metadata) error) (*Metadata, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, errors.New("its URL cannot be read")
	}
	const ofOAuth, ofOpenID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	path, fault := strings.TrimSuffix(u.Path, "/"), ErrNone
	places := []string{ofOAuth + path, ofOpenID + path}
	if path != "" {
		places = append(places, path+ofOpenID)
	}
	for _, place := range places {
		at, m := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: place}).String(), &Metadata{}
		err := Get(ctx, client, at, m)
		if err == nil {
			err = fits(m)
		}
		if err == nil {
			return m, nil
		}
		if status, ok := errors.AsType[statusError](err); ok && status >= 400 && status < 500 {
			continue // no document there
		}
		if fault == ErrNone {
			fault = fmt.Errorf("%s: %w", at, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fault
}

// Get reads a JSON document.
func Get(ctx context.Context, client *http.Client, at string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return errors.New("the URL cannot be read")
	}
	return Read(client, r, to)
}

// Read sends a request, and reads the JSON answer.
func Read(client *http.Client, r *http.Request, to any) error {
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, MaxDocument))
	switch {
	case response.StatusCode != http.StatusOK:
		return statusError(response.StatusCode)
	case err != nil:
		return withoutURL(err)
	case json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), to) != nil:
		return ErrForm
	}
	return nil
}

// statusError is an answer's status other than 200.
type statusError int

func (s statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("it answers %d %s", int(s), http.StatusText(int(s))))
}

// withoutURL returns the error of a request without the URL, which may contain a secret.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return WithHint(err)
}
