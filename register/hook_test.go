package register

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	waits "toolfinch/internal/await"
	"toolfinch/internal/hook"
	"toolfinch/tool"
)

// The owner's command runs once a session's tools have changed, and is told of whom and what.
func TestTheHookRunsForWhatHasChanged(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command is one of sh")
	}
	live, log := newLive(t, setup{Relists: map[string]tool.Relists{"agent 1": tool.RelistsNever}}), &waits.Log{}
	live.notifier = newNotifier(hook.Command{Line: `echo "$MCPPROXY_CLIENT in $MCPPROXY_SESSION has $MCPPROXY_TOOLS_ADDED"`, Timeout: waits.Bound}, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { live.Run(ctx) })
	defer running.Wait()
	defer cancel()
	c := connect(t, serveHTTP(t, live), "agent")
	c.messages(find(1, "srv_t005"))
	waits.Contains(t, log.String, "agent 1 in "+c.session+" has srv_t005")
}

// Sessions that come and go faster than the hook runs cost no more than a bound.
func TestTheHookIsOwedToSoManySessions(t *testing.T) {
	n := newNotifier(hook.Command{Line: "true"}, slog.New(slog.DiscardHandler))
	for i := range 2 * maxNotices {
		n.notify(fmt.Sprint(i), "client", Change{Added: []string{"a"}})
	}
	n.notify(fmt.Sprint(2*maxNotices-1), "client", Change{Added: []string{"b"}})
	if last := n.pending[len(n.pending)-1]; len(n.pending) != maxNotices || n.lost != maxNotices || len(last.change.Added) != 2 {
		t.Errorf("%d sessions wait, %d were left out; the last has %v", len(n.pending), n.lost, last.change)
	}
}
