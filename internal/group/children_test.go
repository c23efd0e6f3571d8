package group

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/must"
)

// What a child writes to its standard error goes to the log at a bounded rate.
func TestAFloodOnStderrIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const written, later = 20_000, 3 // seconds
		r, w := io.Pipe()
		var j strings.Builder
		e := NewStderr(slog.New(slog.NewTextHandler(&j, nil)))
		go e.Follow(r)
		for i := range written {
			if i == written/2 {
				time.Sleep(later * time.Second)
			}
			must.Get(fmt.Fprintf(w, "line %d\x1b[31m\n", i))(t)
		}
		_ = w.Close()
		<-e.Done()
		logged, left := strings.Count(j.String(), "msg=stderr"), 0
		for line := range strings.Lines(j.String()) {
			if _, count, ok := strings.Cut(line, "left out\" count="); ok {
				var n int
				_, _ = fmt.Sscan(count, &n)
				left += n
			}
		}
		if logged != stderrBurst+later*stderrRate || logged+left != written {
			t.Errorf("%d lines were logged and %d left out, of %d", logged, left, written)
		}
		if want := "line 19995\x1b[31m | "; !strings.HasPrefix(e.Words(), want) || !strings.HasSuffix(e.Words(), "line 19999\x1b[31m") {
			t.Errorf("the last words are %q", e.Words())
		}
	})
}

func TestChildrenGetAMinimalEnvironment(t *testing.T) {
	t.Setenv("MY_SECRET", "x")
	for _, name := range []string{"https_proxy", "NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "npm_config_registry", "XDG_CACHE_HOME", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL", "INHERITED_A"} {
		t.Setenv(name, "kept")
	}
	t.Setenv("LC_TIME", "C")
	env := strings.Join(Environment(map[string]string{"GIVEN": "1"}, []string{"INHERITED_*"}), "\n") + "\n"
	if n := strings.Count(env, "=kept\n"); n != 9 {
		t.Errorf("%d of 9 variables are kept:\n%s", n, env)
	}
	for text, want := range map[string]bool{"MY_SECRET=": false, "LC_TIME=C\n": true, "PATH=": true, "GIVEN=1\n": true} {
		if strings.Contains(env, text) != want {
			t.Errorf("environment has %q: %v, want %v", text, !want, want)
		}
	}
}
