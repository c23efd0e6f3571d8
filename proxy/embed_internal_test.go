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
	e := &embedder{log: slog.New(slog.NewTextHandler(log, nil)), paces: map[string]*rate.Limiter{"restless": rate.NewLimiter(0, 5)}}
	b := budget{e}
	for _, step := range []struct{ wanted, room, spent int }{{3, 3, 0}, {3, 3, 3}, {3, 2, 2}, {3, 0, 0}} { // what fails costs nothing
		if room := b.Room("restless", step.wanted); room != step.room {
			t.Errorf("there is room for %d of %d, want %d", room, step.wanted, step.room)
		}
		b.Spent("restless", step.spent)
		if room := b.Room("quiet", 10_000); room != 10_000 {
			t.Errorf("another server has room for %d", room)
		}
	}
	if !e.holds() {
		t.Error("nothing waits")
	}
	if n := strings.Count(log.String(), "server=restless"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, log)
	}
}
