package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// refresh connects if necessary, and lists all kinds.
func (l *connector) refresh(ctx context.Context) Change {
	s := l.server
	c, err := l.connect(ctx)
	if err != nil {
		return s.failed("connect", conn.Mark(conn.Plain(err), ErrNotConnected))
	}
	leads, _ := s.leads()
	return c.report(ctx, tool.Kinds, leads)
}

// report lists the definitions of kinds if this process leads. If another process leads, the
// report only says whether the lists of any kinds have changed.
func (c *connection) report(ctx context.Context, kinds []tool.Kind, leads bool) Change {
	s := c.server
	s.lists.set(func(l *lists) { l.began = time.Now() })
	if leads {
		return c.listKinds(ctx, kinds)
	}
	s.health.toolsListed(nil) // only the leader knows whether tools can be listed
	return Change{Server: s.settings.Name, Era: c.Era, Interactive: s.questions.any(), Followed: true, Outdated: len(kinds) > 0}
}

// listKinds lists the definitions of kinds, all at the same time. The change fails if tools
// cannot be listed; if another kind cannot be listed, its last listing stays.
func (c *connection) listKinds(ctx context.Context, kinds []tool.Kind) Change {
	s := c.server
	all := make([]listing, len(kinds))
	errs := make([]error, len(kinds))
	groups := sync.OnceValue(func() groupsRead { return c.readGroups(ctx) })
	var asking sync.WaitGroup
	for i, kind := range kinds {
		asking.Go(func() {
			within := s.limits.Load().call
			if kind != tool.KindTool {
				within = min(within, secondaryWithin)
			}
			ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: no list of %s within %s", ErrTimeout, listMethods[kind].called, within))
			defer cancel()
			if all[i], errs[i] = c.list(ctx, s.settings.Name, kind); errs[i] == nil {
				read := groups()
				errs[i] = read.into(c.link, s.settings.Name, kind, &all[i])
			}
			if beside := s.lists.beside.Load(); beside != nil && errs[i] == nil {
				if more, err := beside.list(ctx, s.settings.Name, kind); err == nil {
					all[i].add(more)
				}
			}
		})
	}
	asking.Wait()
	change := Change{Server: s.settings.Name, Era: c.Era, Info: c.Info, Instructions: c.Instructions, Capabilities: c.Capabilities}
	got := map[tool.Kind]listing{}
	for i, kind := range kinds {
		err := errs[i]
		if err != nil {
			c.failed(err)
		}
		switch {
		case err == nil, kind != tool.KindTool && unknownMethod(err): // not every server with resources has templates
			got[kind] = all[i]
		case kind == tool.KindTool:
			change.Err = &Error{Server: s.settings.Name, Op: "list tools", Err: conn.Plain(err)}
		case ctx.Err() == nil:
			s.log.Warn("definitions could not be listed; those known before stay", "kind", kind.String(), "error", conn.Plain(err))
		}
	}
	if slices.Contains(kinds, tool.KindTool) && ctx.Err() == nil && !errors.Is(change.Err, errReplaced) {
		s.health.toolsListed(change.Err)
	}
	s.health.exchanged(change.Err)
	change.Interactive = s.questions.any()
	if change.Err == nil {
		s.listed.Store(true)
		s.health.listed(s.lists.keep(got, &change), change.Faults)
	}
	return change
}
