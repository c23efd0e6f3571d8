package conn

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"toolfinch/internal/pipes"
)

// A status that came instead of an answer is told in words that say what to do, with
// the server's own.
func TestAStatusIsExplained(t *testing.T) {
	for name, test := range map[string]struct {
		status             int
		header, kind, body string
		want               string
	}{
		"401":              {401, "", "application/json", `{"error":"invalid_token","error_description":"The token has expired"}`, "needs a login (HTTP status 401 Unauthorized): set a token under headers; it says: The token has expired"},
		"403 with a scope": {403, `WWW-Authenticate: Bearer error="insufficient_scope", scope="issues:write"`, "text/plain", "", "HTTP status 403 Forbidden: the token lacks the scope issues:write"},
		"403":              {403, "", "application/problem+json", `{"detail":"not for you"}`, "HTTP status 403 Forbidden; it says: not for you"},
		"400 of nginx":     {400, "", "text/html", "<center>No required SSL certificate was sent</center>", "HTTP status 400 Bad Request: if the server wants a certificate of its clients, set cert_file and key_file"},
		"404":              {404, "", "text/html", "<html>", "HTTP status 404 Not Found: is the URL right?"},
		"429":              {429, "Retry-After: 30", "text/plain", "slow\ndown\x07", "HTTP status 429 Too Many Requests: try again in 30s; it says: slow down"},
		"a long text":      {500, "", "text/plain", strings.Repeat("x", 5000), "HTTP status 500 Internal Server Error; it says: " + strings.Repeat("x", 300) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			server := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if key, value, ok := strings.Cut(test.header, ": "); ok {
					w.Header().Set(key, value)
				}
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			c, _ := newTestConn(Options{URL: server.URL}, TransportHTTP)
			defer c.Close()
			_, err := c.Request(t.Context(), "x", []byte(`{}`), nil)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if errors.Is(err, ErrUnauthorized) != (test.status == 401) {
				t.Errorf("ErrUnauthorized: %v", errors.Is(err, ErrUnauthorized))
			}
		})
	}
}

// The last words of a process stand before our own, and are not part of the reason: they may repeat arguments.
func TestLastWordsStandFirst(t *testing.T) {
	ended := errors.New("the process ended (exit status 3)")
	for name, test := range map[string]struct {
		err          error
		want, reason string
	}{
		"words":       {withLastWords(ended, "no such\ndatabase"), `it wrote "no such database"; the process ended (exit status 3)`, "the process ended (exit status 3)"},
		"withheld":    {withLastWords(errors.New("the process ended (exit status 3)"+notPassedOn+"KUBECONFIG (inherit_env: [KUBECONFIG] does)"), "x"), `it wrote "x"; the process ended (exit status 3); set here and not passed on: KUBECONFIG (inherit_env: [KUBECONFIG] does)`, "the process ended (exit status 3)"},
		"none":        {withLastWords(ended, ""), "the process ended (exit status 3)", "the process ended (exit status 3)"},
		"quotes":      {withLastWords(ended, `no "x"; y`), `it wrote "no "x"; y"; the process ended (exit status 3)`, "the process ended (exit status 3)"},
		"in a text":   {errors.New("upstream s: connect: " + withLastWords(ended, "x").Error()), `upstream s: connect: it wrote "x"; the process ended (exit status 3)`, "upstream s: connect: the process ended (exit status 3)"},
		"cut words":   {errors.New(`upstream s: connect: it wrote "no "x"; y`), `upstream s: connect: it wrote "no "x"; y`, "upstream s: connect"},
		"still there": {withLastWords(errors.New("timed out: "+processSilent), "loading"), `it wrote "loading"; timed out: the process runs and has not answered`, "timed out: the process runs and has not answered"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", test.err, test.want)
			}
			if got := WithoutWords(test.err.Error()); got != test.reason {
				t.Errorf("the reason is %q, want %q", got, test.reason)
			}
		})
	}
}

// Whoever may not see the words of a server and its process does not see a part of them either.
func TestNoPartOfTheWordsIsLeft(t *testing.T) {
	const ended = `"; the process ended (exit status 3)`
	for name, test := range map[string]struct{ text, want string }{
		"a status":                  {"HTTP status 500; it says: SECRET", "HTTP status 500"},
		"a status that quotes":      {`HTTP status 500; it says: it wrote "SECRET"; the process ended (SECRET`, "HTTP status 500"},
		"words that end like ours":  {`connect: it wrote "a` + ended + ` SECRET` + ended, "connect: the process ended (exit status 3)"},
		"words cut, not quoted":     {`connect: it wrote "the process ended (SECRET`, "connect"},
		"words that say it says":    {`connect: it wrote "a; it says: SECRET` + ended, "connect: the process ended (exit status 3)"},
		"long words":                {`connect: it wrote "` + strings.Repeat("SECRET ", 500) + ended, "connect: the process ended (exit status 3)"},
		"long words that end alike": {`connect: it wrote "a` + ended + strings.Repeat(" SECRET", 500) + ended, "connect: the process ended (exit status 3)"},
		"a long status":             {"HTTP status 500; it says: " + strings.Repeat("SECRET ", 500), "HTTP status 500"},
		"much before the words":     {strings.Repeat("x", 90) + `: it wrote "SECRET` + ended, strings.Repeat("x", 90) + ": the proce..."},
		"nothing of theirs":         {strings.Repeat("x", 300), strings.Repeat("x", 100) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			clipped := ClipWords(test.text, 100)
			if len(clipped) > 103 {
				t.Errorf("%d bytes: %s", len(clipped), clipped)
			}
			if got := WithoutWords(clipped); !strings.HasPrefix(test.want, strings.TrimSuffix(got, "...")) || strings.Contains(got, "SECRET") {
				t.Errorf("of the cut text %q is left, want %q", got, test.want)
			}
			if got := WithoutWords(test.text); strings.Contains(got, "SECRET") || !strings.HasSuffix(test.want, "...") && got != test.want {
				t.Errorf("%q is left, want %q", got, test.want)
			}
		})
	}
	if got, want := ClipWords(`it wrote "`+strings.Repeat("x", 200)+ended, 60), `it wrote "`+strings.Repeat("x", 14)+"..."+ended; got != want {
		t.Errorf("cut to %s, want %s", got, want)
	}
}
