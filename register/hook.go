package register

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"toolfinch/internal/hook"
	"toolfinch/internal/identity"
)

// notifier runs the owner's shell hook after list_changed, one run at a time. Changes during a run are
// merged into one further run per session.
type notifier struct {
	command hook.Command
	log     *slog.Logger
	wake    chan struct{}

	mu      sync.Mutex // guards the fields below; never held over a run
	pending []notice   // at most maxNotices
	lost    int        // dropped notices since the last warning
}

// maxNotices bounds the waiting sessions: clients open as many as they like.
const maxNotices = 1000

type notice struct {
	session, client string
	change          Change
}

func newNotifier(command hook.Command, log *slog.Logger) *notifier {
	return &notifier{command: command, log: log, wake: make(chan struct{}, 1)}
}

// notify never blocks.
func (n *notifier) notify(session, client string, change Change) {
	n.mu.Lock()
	merged := false
	for i := range n.pending {
		if p := &n.pending[i]; p.session == session {
			p.change = p.change.then(change)
			merged = true
		}
	}
	if !merged && len(n.pending) >= maxNotices {
		n.pending = slices.Delete(n.pending, 0, 1)
		n.lost++
	}
	if !merged {
		n.pending = append(n.pending, notice{session, client, change})
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		n.mu.Lock()
		todo, lost := n.pending, n.lost
		n.pending, n.lost = nil, 0
		n.mu.Unlock()
		if lost > 0 {
			n.log.Warn("the list_changed hook is not run for each session: they change faster than it runs", "left_out", lost)
		}
		for _, p := range todo {
			if ctx.Err() == nil {
				n.exec(ctx, p)
			}
		}
	}
}

func (n *notifier) exec(ctx context.Context, p notice) {
	// Tool names travel only in the environment: upstreams choose them.
	output, err := n.command.Run(ctx, []string{
		"MCPPROXY_SESSION=" + p.session,
		"MCPPROXY_CLIENT=" + strings.ReplaceAll(p.client, "\x00", ""),
		"MCPPROXY_TOOLS_ADDED=" + strings.Join(p.change.Added, " "),
		"MCPPROXY_TOOLS_REMOVED=" + strings.Join(p.change.Removed, " "),
	})
	if err != nil {
		n.log.Warn("the list_changed hook failed", "error", err, "output", string(output))
		return
	}
	n.log.Info("the list_changed hook ran", "session", identity.Digest(p.session), "output", string(output))
}
