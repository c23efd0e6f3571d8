package conn

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/discovery"
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
		if errA != nil || errB != nil || (discovery.Origin(a) == discovery.Origin(b)) != test.same {
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
			time.Sleep(delay + time.Second) // the attempt
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
