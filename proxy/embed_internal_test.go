package proxy

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/time/rate"
)

func TestTextsOfAServerThatChangesThemAllTheTimeWait(t *testing.T) {
	log := &bytes.Buffer{}
	e := &embedder{log: slog.New(slog.NewTextHandler(log, nil)), held: map[string]bool{}, paces: map[string]*rate.Limiter{"restless": rate.NewLimiter(0, 2)}}
	embedded := map[string]int{}
	for range 5 {
		for _, server := range []string{"restless", "quiet"} {
			if e.may(server) {
				embedded[server]++
			}
		}
	}
	if embedded["restless"] != 2 || embedded["quiet"] != 5 || !e.holds() {
		t.Errorf("embedded are %v, some wait: %t", embedded, e.holds())
	}
	if n := strings.Count(log.String(), "server=restless"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, log)
	}
}
