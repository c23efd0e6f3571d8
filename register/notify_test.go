package register

import (
	"fmt"
	"log/slog"
	"testing"

	"toolfinch/hook"
)

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
