package conn

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOrigins(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"https://a.example/mcp", "https://a.example/other?x=1", true},
		{"https://a.example/mcp", "https://A.EXAMPLE:443/mcp", true},
		{"http://a.example", "http://a.example:80", true},
		{"https://a.example/mcp", "http://a.example/mcp", false},
		{"https://a.example:443/mcp", "http://a.example:443/mcp", false},
		{"https://a.example/mcp", "https://a.example:8443/mcp", false},
		{"https://a.example/mcp", "https://b.example/mcp", false},
		{"http://[::1]:80/", "http://[::1]/", true},
	} {
		a, errA := url.Parse(test.a)
		b, errB := url.Parse(test.b)
		if errA != nil || errB != nil || (origin(a) == origin(b)) != test.same {
			t.Errorf("%s and %s: same origin = %v, want %v", test.a, test.b, !test.same, test.same)
		}
	}
}

func TestDelaysGrowWithJitterAndBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDelays(FirstDelay)
		sum, spread := time.Duration(0), map[time.Duration]bool{}
		for range 30 {
			delay := d.Next()
			if delay > MostDelay*3/2 {
				t.Errorf("a delay of %s", delay)
			}
			spread[delay] = true
			sum += delay
			time.Sleep(delay)
		}
		if sum < 10*MostDelay || len(spread) < 10 {
			t.Errorf("30 delays take %s and are %d different ones", sum, len(spread))
		}
		time.Sleep(2 * MostDelay)
		if delay := d.Next(); delay > FirstDelay*3/2 {
			t.Errorf("the delay after a calm time is %s", delay)
		}
	})
}

// What a child writes to its standard error goes to the log at a bounded rate.
func TestAFloodOnStderrIsBounded(t *testing.T) {
	const written = 200_000
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var j strings.Builder
	began := time.Now()
	e := &stderr{log: slog.New(slog.NewTextHandler(&j, nil)), done: make(chan struct{})}
	go e.follow(r)
	for i := range written {
		if _, err := fmt.Fprintf(w, "line %d\x1b[31m\n", i); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	<-e.done
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
	if want := "line 199995 [31m | "; !strings.HasPrefix(e.words(), want) || !strings.HasSuffix(e.words(), "line 199999 [31m") {
		t.Errorf("the last words are %q", e.words())
	}
}

func TestChildrenGetAMinimalEnvironment(t *testing.T) {
	t.Setenv("MY_SECRET", "x")
	for _, name := range []string{"https_proxy", "NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "npm_config_registry", "XDG_CACHE_HOME", "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL", "INHERITED_A"} {
		t.Setenv(name, "kept")
	}
	t.Setenv("LC_TIME", "C")
	env := strings.Join(environment(map[string]string{"GIVEN": "1"}, []string{"INHERITED_*"}), "\n") + "\n"
	if n := strings.Count(env, "=kept\n"); n != 9 {
		t.Errorf("%d of 9 variables are kept:\n%s", n, env)
	}
	for text, want := range map[string]bool{"MY_SECRET=": false, "LC_TIME=C\n": true, "PATH=": true, "GIVEN=1\n": true} {
		if strings.Contains(env, text) != want {
			t.Errorf("environment has %q: %v, want %v", text, !want, want)
		}
	}
}
