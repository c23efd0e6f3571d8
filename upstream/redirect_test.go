package upstream

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

// A request, and what its headers hold, goes to the configured origin only.
func TestCredentialsStayAtTheirOrigin(t *testing.T) {
	got := make(chan http.Header, 10)
	elsewhere := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	otherPort := httptest.NewServer(elsewhere)
	defer otherPort.Close()
	for name, test := range map[string]struct {
		to     func(front *httptest.Server) string
		status int
		want   string
	}{
		"another port":       {func(*httptest.Server) string { return otherPort.URL + "/?key=hidden" }, http.StatusTemporaryRedirect, "another origin (" + otherPort.URL + ")"},
		"another scheme":     {func(f *httptest.Server) string { return "https" + strings.TrimPrefix(f.URL, "http") }, http.StatusPermanentRedirect, "another origin (https://"},
		"without its body":   {func(f *httptest.Server) string { return f.URL + "/new" }, http.StatusFound, "status 302, by which a request loses its body"},
		"again and again":    {func(f *httptest.Server) string { return f.URL + "/mcp" }, http.StatusTemporaryRedirect, "more than 5 times"},
		"to a JSON document": {func(*httptest.Server) string { return otherPort.URL }, http.StatusTemporaryRedirect, "another origin"},
	} {
		t.Run(name, func(t *testing.T) {
			var front *httptest.Server
			front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "to a JSON document" {
					w.Header().Set("Content-Type", "application/json")
				}
				if r.URL.Path != "/mcp" {
					got <- r.Header
				}
				http.Redirect(w, r, test.to(front), test.status)
			}))
			defer front.Close()
			p := newPool(t, Settings{Name: "s", URL: front.URL + "/mcp", Headers: map[string]string{"X-Api-Key": "secret"}})
			_, err := ask(t, p, "s", "any")
			wantError(t, err, "s", nil)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
				t.Errorf("error = %v, want it to tell of %q", err, test.want)
			}
			if len(got) > 0 {
				t.Errorf("elsewhere %v was sent", <-got)
			}
		})
	}
}

// A server that has moved within its origin is followed by every request.
func TestARedirectWithinTheOriginIsFollowed(t *testing.T) {
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for era, option := range map[Era]mcpserver.StreamableHTTPOption{
			EraLegacy: mcpserver.WithStreamableHTTPProtocolVersions("2025-11-25"),
			EraModern: mcpserver.WithStateful(false),
		} {
			t.Run(string(era)+" "+http.StatusText(status), func(t *testing.T) {
				inner := mcpserver.NewStreamableHTTPServer(newMCP(), option)
				var calls atomic.Int32
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/old" {
						http.Redirect(w, r, "/new", status)
						return
					}
					if r.Header.Get("X-Api-Key") == "secret" {
						calls.Add(1)
					}
					inner.ServeHTTP(w, r)
				}))
				defer front.Close()
				p := newPool(t, Settings{Name: "s", URL: front.URL + "/old", Headers: map[string]string{"X-Api-Key": "secret"}})
				if change := p.Refresh(t.Context(), "s"); change.Err != nil || change.Era != era || len(change.Defs) != 2 {
					t.Fatalf("%+v", change)
				}
				mustAsk(t, p, "s", "hello", "hello there")
				if calls.Load() == 0 {
					t.Error("the header did not come along")
				}
				// Before the server: an open stream would keep it.
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
