package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"toolfinch/internal/pipes"
)

// Inspector is the client with which Protected asks about tokens. The authorization server must have it
// among its clients.
var Inspector = Machine("inspector", "inspector-secret")

// Protected is an MCP server of the Go SDK that requires a token of an authorization server, and asks
// it about each token. Its only tool, whoami, names the token's user.
type Protected struct {
	*httptest.Server
	as *Server

	mu    sync.Mutex // guards the fields below
	scope string
	not   []string
	seen  []string
}

// Protect starts a Protected, with sessions of the legacy era, or for 2026-07-28.
func Protect(t testing.TB, as *Server, modern bool) *Protected {
	t.Helper()
	p := &Protected{as: as, scope: "mcp:read"}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami", Description: "Says whose notes these are."}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Extra.TokenInfo.UserID}}}, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: modern})
	mux := http.NewServeMux()
	if as.plain {
		p.Server = pipes.NewServer(t, mux)
	} else {
		p.Server = httptest.NewServer(mux)
		t.Cleanup(p.Close)
	}
	const metadata = "/.well-known/oauth-protected-resource/mcp"
	mux.Handle(metadata, auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: p.At(), AuthorizationServers: []string{as.Issuer}, ScopesSupported: []string{"mcp:read"},
	}))
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		scope := p.scope
		p.mu.Unlock()
		auth.RequireBearerToken(p.verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: p.URL + metadata, Scopes: []string{scope}})(handler).ServeHTTP(w, r)
	})
	return p
}

// At is the URL of the server.
func (p *Protected) At() string { return p.URL + "/mcp" }

// Wants sets the scope of all further requests; at first it is mcp:read.
func (p *Protected) Wants(scope string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scope = scope
}

// RefuseSeen makes the server refuse all tokens that it has seen.
func (p *Protected) RefuseSeen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.not = append(p.not, p.seen...)
}

// Seen returns the tokens since the last call of Seen.
func (p *Protected) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

func (p *Protected) verify(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	p.mu.Lock()
	p.seen = append(p.seen, token)
	refused := slices.Contains(p.not, token)
	p.mu.Unlock()
	about, err := p.as.Introspect(ctx, token)
	if err != nil {
		return nil, err
	}
	if !about.Active || refused {
		return nil, errors.Join(auth.ErrInvalidToken, errors.New("it is refused"))
	}
	return &auth.TokenInfo{Scopes: strings.Fields(about.Scope), Expiration: time.Unix(about.Exp, 0), UserID: about.Sub}, nil
}

// Introspection is the authorization server's answer about a token (RFC 7662).
type Introspection struct {
	Active     bool
	Scope, Sub string
	Exp        int64 // seconds since 1970
}

// Introspect asks about a token as Inspector.
func (s *Server) Introspect(ctx context.Context, token string) (about Introspection, _ error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Issuer+"/token/introspection", strings.NewReader(url.Values{"token": {token}}.Encode()))
	if err != nil {
		return about, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(Inspector.ID, Inspector.Secret)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return about, err
	}
	defer response.Body.Close()
	return about, json.NewDecoder(response.Body).Decode(&about)
}
