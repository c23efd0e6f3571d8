package group

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// What a child writes to its standard error goes to the log at a bounded rate.
func TestAFloodOnStderrIsBounded(t *testing.T) {
	const written = 200_000
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var j strings.Builder
	began := time.Now()
	e := NewStderr(slog.New(slog.NewTextHandler(&j, nil)))
	go e.Follow(r)
	for i := range written {
		if _, err := fmt.Fprintf(w, "line %d\x1b[31m\n", i); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	<-e.Done()
	took := time.Since(began)
	logged := strings.Count(j.String(), "msg=stderr")
	if most := stderrBurst + int(took.Seconds()*stderrRate) + 1; logged > most || logged < stderrBurst {
		t.Errorf("%d lines were logged in %s", logged, took)
	}
	left := 0
	for line := range strings.Lines(j.String()) {
		if _, count, ok := strings.Cut(line, "left out\" count="); ok {
			var n int
			_, _ = fmt.Sscan(count, &n)
			left += n
		}
	}
	if logged+left != written {
		t.Errorf("%d lines were logged and %d left out, of %d", logged, left, written)
	}
	if want := "line 199995\x1b[31m | "; !strings.HasPrefix(e.Words(), want) || !strings.HasSuffix(e.Words(), "line 199999\x1b[31m") {
		t.Errorf("the last words are %q", e.Words())
	}
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
