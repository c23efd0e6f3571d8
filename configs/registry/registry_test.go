package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/must"
)

func serve(t *testing.T, handler http.HandlerFunc) *Registry {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return must.Get(New(server.URL))(t)
}

func TestARefusalIsInTheRegistrysWords(t *testing.T) {
	for want, c := range map[string]struct {
		code int
		wait string
	}{
		"429 Too Many Requests: slow down (try again in 1h0m0s)": {429, "3600"},
		"400 Bad Request: slow down":                             {400, ""},
		"502 Bad Gateway: slow down":                             {502, "soon"},
	} {
		r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.wait)
			w.WriteHeader(c.code)
			fmt.Fprint(w, `{"servers": [], "error": "slow\n   down"}`)
		})
		if _, err := r.Search(t.Context(), "", 1); !strings.HasSuffix(messageOf(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"no JSON":  {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "not what the API of a registry has (is this the address of one?): it is not JSON"},
		"no end":   {func(w http.ResponseWriter, _ *http.Request) { endless(w) }, "larger than 8 MiB"},
		"a circle": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) }, "more than 5 redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, c.handler).Search(t.Context(), "abc", 10)
			if !strings.Contains(messageOf(err), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWhatIsNotAsDocumentedIsSaidInPlainWords(t *testing.T) {
	for answer, want := range map[string]string{
		`{"servers": 5}`: `"servers" is of type number`,
		`[]`:             "it is of type array",
	} {
		_, err := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }).Search(t.Context(), "abc", 1)
		if !strings.HasSuffix(messageOf(err), ": "+want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
	for answer, want := range map[string]string{
		`{"server": {"name": true}}`:                                `"server.name" is of type bool`,
		`{"server": {"name": "a/b", "packages": {}}}`:               `"server.packages" is of type object`,
		`{"server": {"name": "a/b", "websiteUrl": []}}`:             `"server.websiteurl" is of type array`,
		`{"server": {"name": "a/b", "packages": [{"version": 1}]}}`: `"server.packages.version" is of type number`,
	} {
		_, err := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }).Show(t.Context(), "a/b", "")
		if !strings.HasSuffix(messageOf(err), ": "+want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestASlowRegistryIsSaidToBe(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half of one": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, handler)
			r.client.Timeout = 50 * time.Millisecond
			if _, err := r.Search(t.Context(), "abc", 1); messageOf(err) != r.base.Host+": the registry did not answer within 50ms" {
				t.Error(err)
			}
		})
	}
}

func endless(w http.ResponseWriter) {
	text := []byte(`"` + strings.Repeat("x", 1<<20))
	for range 2 * maxBody >> 20 {
		if _, err := w.Write(text); err != nil {
			return
		}
	}
}

// A registry that always has another page, each with the same server, ends.
func TestPagesAreBounded(t *testing.T) {
	var pages atomic.Int32
	r := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"servers": [{"server": {"name": "a/b"}}, {"server": {"packages": 5}}], "metadata": {"nextCursor": "%d"}}`, pages.Add(1))
	})
	found, err := r.Search(t.Context(), "", 1000)
	if err != nil || len(found.Listings) != 1 || !found.More || found.Unreadable != maxPages || pages.Load() != maxPages {
		t.Errorf("%d pages, %+v, %v", pages.Load(), found, err)
	}
}

func TestTheAddressMayNameTheVersionOfTheAPI(t *testing.T) {
	for base, want := range map[string]string{"": "/v0.1/servers", "/": "/v0.1/servers", "/mcp": "/mcp/v0.1/servers", "/mcp/v0": "/mcp/v0/servers"} {
		var path atomic.Value
		r := serve(t, func(w http.ResponseWriter, req *http.Request) {
			path.Store(req.URL.EscapedPath())
			fmt.Fprint(w, `{"servers": []}`)
		})
		at := must.Get(New("http://" + r.base.Host + base))(t)
		if _, err := at.Search(t.Context(), "", 1); err != nil || path.Load() != want {
			t.Errorf("%q: %v, %v", base, path.Load(), err)
		}
		_, _ = at.Show(t.Context(), "a/b", "1+2")
		if got := path.Load(); got != want+"/a%2Fb/versions/1+2" {
			t.Errorf("%q: %v", base, got)
		}
	}
}

func TestAnotherServerThanAskedForIsRefused(t *testing.T) {
	r := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"server": {"name": "evil/b"}}`) })
	if _, err := r.Show(t.Context(), "a/b", ""); !strings.Contains(messageOf(err), `it answers with another server, "evil/b"`) {
		t.Error(err)
	}
}
